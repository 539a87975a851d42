//! Plans on disk: small JSON files, one per plan, named after the digest of the key.
//!
//! A file holds its whole key, so that a caller without a plan can see what differs, and a checksum over key and choices. A
//! file is used only if both match, so processes may share a directory without a lock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::disk::Disk;
use crate::file::{exists, read_file};
use crate::whole::write_file_on;

/// Names and values: the key of a plan, or its choices.
pub type Fields = BTreeMap<String, String>;

/// The version of the file format.
const VERSION: u32 = 1;
/// Maximum bytes of a plan file; a plan takes some hundred bytes.
const LIMIT: u64 = 64 << 10;
/// The suffix of the file names.
const SUFFIX: &str = ".plan.json";
/// Maximum number of files searched for a similar key.
const LOOK_THROUGH: usize = 4096;

/// A directory of plans, created when the first plan is written.
#[derive(Clone, Debug)]
pub struct PlanStore {
    dir: PathBuf,
    disk: Disk,
}

/// Why a file in the directory is not a valid plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlan {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    redline_plan: u32,
    key: Fields,
    choices: Fields,
    checksum: Checksum,
}

fn checksum(key: &Fields, choices: &Fields) -> Checksum {
    let mut text = String::new();
    for fields in [key, choices] {
        let _ = write!(text, "{} fields;", fields.len());
        for (name, value) in fields {
            // Length prefixes separate names and values, whatever they contain.
            let _ = write!(text, "{}:{name}={}:{value};", name.len(), value.len());
        }
    }
    Checksum::of(text.as_bytes())
}

impl PlanStore {
    /// A store of the plans in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), disk: Disk::default() }
    }

    /// The same store, writing through `disk`.
    pub fn on(self, disk: Disk) -> Self {
        Self { disk, ..self }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of the plan with this key.
    pub fn path(&self, key: &Fields) -> PathBuf {
        self.dir.join(format!("{}{SUFFIX}", checksum(key, &Fields::new())))
    }

    /// The choices stored under this key; `None` if there are none.
    pub fn read(&self, key: &Fields) -> Result<Option<Fields>, BadPlan> {
        let path = self.path(key);
        let bad = |reason: String| BadPlan { path: path.clone(), reason };
        if !exists(&path).map_err(|error| bad(error.to_string()))? {
            return Ok(None);
        }
        let stored = stored(&path)?;
        if stored.key != *key {
            return Err(bad("it holds the plan of another key".into()));
        }
        Ok(Some(stored.choices))
    }

    /// Stores the choices under this key.
    pub fn write(&self, key: &Fields, choices: &Fields) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        let (key, choices) = (key.clone(), choices.clone());
        let path = self.path(&key);
        let stored = Stored { redline_plan: VERSION, checksum: checksum(&key, &choices), key, choices };
        let mut text = serde_json::to_string_pretty(&stored)?;
        text.push('\n');
        write_file_on(&self.disk, &path, text.as_bytes())
    }

    /// The keys of all readable plans.
    pub fn keys(&self) -> Vec<Fields> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let plans = paths.filter(|path| path.to_string_lossy().ends_with(SUFFIX)).take(LOOK_THROUGH);
        plans.filter_map(|path| stored(&path).ok()).map(|stored| stored.key).collect()
    }
}

fn stored(path: &Path) -> Result<Stored, BadPlan> {
    let bad = |reason: String| BadPlan { path: path.to_owned(), reason };
    let bytes = read_file(path, LIMIT).map_err(|error| bad(error.to_string()))?;
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if stored.redline_plan != VERSION {
        return Err(bad(format!("it has version {}, but {VERSION} is read here", stored.redline_plan)));
    }
    if stored.checksum != checksum(&stored.key, &stored.choices) {
        return Err(bad("its checksum is wrong".into()));
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn plans_come_back_under_their_own_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let store = PlanStore::new(folder.path().join("deep").join("plans"));
        let (key, other) =
            (fields(&[("threads", "2"), ("isa", "a")]), fields(&[("threads", "1"), ("isa", "a")]));
        assert!(store.read(&key).unwrap().is_none() && store.keys().is_empty());
        let choices = fields(&[("qkv", "dot")]);
        store.write(&key, &choices).unwrap();
        store.write(&key, &choices).unwrap();
        assert_eq!(store.read(&key).unwrap(), Some(choices));
        assert!(store.read(&other).unwrap().is_none());
        assert_eq!(store.keys(), [key]);
        assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn damaged_and_foreign_files_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = PlanStore::new(folder.path());
        let (key, other) = (fields(&[("threads", "2")]), fields(&[("threads", "1")]));
        store.write(&key, &fields(&[("qkv", "dot")])).unwrap();
        let path = store.path(&key);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for bit in [0, 4] {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                fs::write(&path, &damaged).unwrap();
                // The change may have replaced one whitespace character with another.
                if let Ok(read) = store.read(&key) {
                    assert_eq!(read, Some(fields(&[("qkv", "dot")])), "byte {at}");
                }
            }
        }
        for (bytes, reason) in [
            (&whole[..whole.len() / 2], "EOF"),
            (&b""[..], "EOF"),
            (&b"[]"[..], "invalid"),
            (&vec![b' '; 70_000], "at most"),
        ] {
            fs::write(&path, bytes).unwrap();
            let bad = store.read(&key).unwrap_err();
            assert!(bad.path == path && bad.reason.contains(reason), "{bad:?}");
        }
        let newer =
            String::from_utf8(whole.clone()).unwrap().replace("\"redline_plan\": 1", "\"redline_plan\": 2");
        fs::write(&path, newer).unwrap();
        assert!(store.read(&key).unwrap_err().reason.contains("version 2"));
        fs::write(store.path(&other), &whole).unwrap();
        assert!(store.read(&other).unwrap_err().reason.contains("another key"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(store.read(&key).unwrap_err().reason.contains("regular file"));
        assert_eq!(store.keys(), [key], "the foreign copy can be read, under its own key");
    }

    #[test]
    fn no_two_keys_have_one_name() {
        let store = PlanStore::new("plans");
        let keys = [
            fields(&[("a", "b;c=d")]),
            fields(&[("a", "b"), ("c", "d")]),
            fields(&[("a=b", "c")]),
            fields(&[("a", "b=c")]),
            fields(&[("a", "")]),
            fields(&[("", "a")]),
            fields(&[]),
        ];
        for (at, key) in keys.iter().enumerate() {
            for other in &keys[at + 1..] {
                assert_ne!(store.path(key), store.path(other), "{key:?} {other:?}");
            }
        }
    }

    #[test]
    fn many_may_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = PlanStore::new(folder.path());
        let key = fields(&[("threads", "2")]);
        std::thread::scope(|scope| {
            for choice in ["dot", "tiles", "dot-half"] {
                let (store, key) = (&store, &key);
                scope.spawn(move || {
                    for _ in 0..20 {
                        store.write(key, &fields(&[("qkv", choice)])).unwrap();
                        assert_eq!(store.read(key).unwrap().unwrap().len(), 1);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(store.dir()).unwrap().count(), 1);
    }

    #[test]
    fn a_store_whose_place_is_a_file_has_no_plans() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let store = PlanStore::new(file.join("plans"));
        assert_eq!(store.read(&fields(&[("threads", "2")])), Ok(None));
        assert!(store.keys().is_empty());
    }
}
