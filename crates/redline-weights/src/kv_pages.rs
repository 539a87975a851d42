//! Pages of keys and values on disk: one file per page, named after the page's key.
//!
//! The key of a page is a SHA-256 digest of a text that says what the keys and values were computed with, and of all tokens up to
//! the end of the page. So a file says what it is, and processes and machines may share a directory without a lock. A file is used
//! only if its checksum, its key and its length match. Files are not synced: one that is lost or damaged when the machine stops
//! is computed again.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use crate::checksum::Hash;
use crate::digest::Sha256Digest;
use crate::disk::Disk;
use crate::file::open_if_regular;
use crate::whole::{is_partial_of, write_private_file_unsynced};

/// The first bytes of a file; the last one is the version.
const MAGIC: &[u8; 8] = b"RLKVPAG\x01";
/// Bytes before the page: magic, key, length, checksum.
const HEADER: usize = 8 + 32 + 8 + 16;
/// The suffix of the file names.
const SUFFIX: &str = ".kvpage";
/// Files are removed until they take no more than this share of the budget.
const KEPT: (u64, u64) = (7, 8);
/// The files are measured again when this share of the budget was written, because other processes write and remove files too.
const MEASURED: u64 = 16;
/// A temporary file that is older than the newest page by this time has been abandoned by its writer.
const ABANDONED: Duration = Duration::from_hours(1);

/// What a page is: everything that determines its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey([u8; 32]);

impl PageKey {
    /// The key of no tokens, for keys and values that were computed with what these texts say.
    pub fn root(texts: &[&str]) -> Self {
        Self(Sha256Digest::of_texts(texts).to_bytes())
    }

    /// Parses 64 lower-case digits.
    fn from_hex(digits: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            let pair = &digits[at..at + 2];
            *byte = u8::from_str_radix(pair, 16).ok().filter(|byte| format!("{byte:02x}") == pair)?;
        }
        Some(Self(bytes))
    }

    /// The key of the page with these tokens, after the page with this key.
    pub fn then(self, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Sha256Digest::from_bytes(self.0).fmt(f)
    }
}

/// Why a page was not read.
#[derive(Debug)]
pub enum PageError {
    /// The file is not that page.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file could not be read.
    Unreadable(io::Error),
}

/// A directory of pages of one size.
#[derive(Clone, Debug)]
pub struct PageFiles {
    dir: PathBuf,
    disk: Disk,
    page_bytes: usize,
    /// When the directory had changed, at the last listing, and at the one before. The system's clock may be so coarse that it changed
    /// again at the same time, so that an equal time must be seen twice.
    listed: [Option<SystemTime>; 2],
}

/// What the files of the directory take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DirectoryUse {
    /// Bytes of all pages.
    bytes: u64,
    /// The pages that were removed to keep within the budget.
    removed: Vec<PageKey>,
}

impl PageFiles {
    /// Opens a directory of pages of `page_bytes` bytes, and creates it if it does not exist. On Unix, other users cannot read
    /// what is created.
    ///
    /// # Errors
    /// If it cannot be created, is no directory, or any user may write to it: pages of others would be taken for ours.
    pub fn open(dir: impl Into<PathBuf>, page_bytes: usize, disk: Disk) -> io::Result<Self> {
        let dir = dir.into();
        disk.create_private_dir_all(&dir)?;
        let about = fs::metadata(&dir)?;
        if !about.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        check_writers(&about)?;
        Ok(Self { dir, disk, page_bytes, listed: [None; 2] })
    }

    /// The keys of all pages; `None` if the directory has not changed since the last two calls.
    pub fn list_changed(&mut self) -> io::Result<Option<Vec<PageKey>>> {
        let changed = Some(fs::metadata(&self.dir)?.modified()?);
        if self.listed == [changed; 2] {
            return Ok(None);
        }
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            keys.extend(key_of(&entry?.file_name().to_string_lossy()));
        }
        self.listed = [changed, self.listed[0]];
        Ok(Some(keys))
    }

    fn path(&self, key: PageKey) -> PathBuf {
        self.dir.join(format!("{key}{SUFFIX}"))
    }

    /// Reads a page into `page`, and marks it as used. Returns `false` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or is not that page.
    pub fn read(&self, key: PageKey, page: &mut Vec<u8>) -> Result<bool, PageError> {
        let path = self.path(key);
        let damaged = |reason: String| Err(PageError::Damaged { path: path.clone(), reason });
        let expected = HEADER + self.page_bytes;
        let mut file = match open_if_regular(&path) {
            // Another process may have removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(PageError::Unreadable(error)),
            Ok(None) => return damaged("it is not a regular file".into()),
            Ok(Some((_, bytes))) if bytes != expected as u64 => {
                return damaged(format!("it has {bytes} bytes instead of {expected}"));
            }
            Ok(Some((file, _))) => file,
        };
        let mut header = [0; HEADER];
        page.resize(self.page_bytes, 0);
        file.read_exact(&mut header).and_then(|()| file.read_exact(page)).map_err(PageError::Unreadable)?;
        if header != Self::header(key, page) {
            let [magic, its_key] = [&header[..8], &header[8..40]];
            let reason = match (magic == MAGIC, its_key == key.0) {
                (false, _) => "it does not begin as a page does",
                (_, false) => "it holds another page",
                _ => "its checksum is wrong",
            };
            return damaged(reason.into());
        }
        self.touch(key);
        Ok(true)
    }

    /// Marks a page as used. If that fails, its place in the order of uses is wrong, and nothing else.
    fn touch(&self, key: PageKey) {
        let _ = self.disk.touch(&self.path(key), MAGIC);
    }

    fn header(key: PageKey, page: &[u8]) -> [u8; HEADER] {
        let length = (page.len() as u64).to_le_bytes();
        let mut hash = Hash::new();
        for part in [&key.0[..], &length, page] {
            hash.write(part);
        }
        let mut header = [0; HEADER];
        let parts = [&MAGIC[..], &key.0, &length, &hash.checksum().to_le_bytes()];
        let mut at = 0;
        for part in parts {
            header[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        header
    }

    /// Writes a page.
    fn write(&self, key: PageKey, page: &[u8]) -> io::Result<()> {
        assert!(page.len() == self.page_bytes, "a page of {} bytes", page.len());
        write_private_file_unsynced(&self.disk, &self.path(key), &[&Self::header(key, page), page])
    }

    /// Whether there is a file for this page.
    fn contains(&self, key: PageKey) -> bool {
        self.path(key).is_file()
    }

    /// Removes the file of a page that is damaged.
    pub fn remove(&self, key: PageKey) -> io::Result<()> {
        self.disk.remove_file(&self.path(key))
    }

    /// If all pages take more than `most` bytes, removes the least recently used ones until they take no more than 7/8 of it. Also
    /// removes temporary files that their writers have abandoned. Other files are left alone.
    fn shrink(&self, most: u64) -> io::Result<DirectoryUse> {
        let (mut pages, mut partial) = (BTreeMap::new(), Vec::new());
        let mut used = DirectoryUse::default();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let key = key_of(&name);
            if key.is_none() && !is_partial_of(&name, SUFFIX) {
                continue;
            }
            // Another process may have removed it meanwhile.
            let Ok(about) = entry.metadata() else { continue };
            let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match key {
                Some(key) if about.is_file() => {
                    used.bytes += about.len();
                    pages.insert((modified, key), about.len());
                }
                Some(_) => {}
                None => partial.push((modified, name)),
            }
        }
        let newest = pages.keys().next_back().map_or(SystemTime::UNIX_EPOCH, |(modified, _)| *modified);
        for (modified, name) in partial {
            if newest.duration_since(modified).is_ok_and(|age| age > ABANDONED) {
                // If another user owns it, it is not ours to remove.
                let _ = self.disk.remove_file(&self.dir.join(name));
            }
        }
        if used.bytes <= most {
            return Ok(used);
        }
        for ((_, key), bytes) in pages {
            if used.bytes <= most / KEPT.1 * KEPT.0 {
                break;
            }
            match self.remove(key) {
                // Another process may have removed it meanwhile.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {}
                _ => {
                    used.removed.push(key);
                    used.bytes -= bytes;
                }
            }
        }
        Ok(used)
    }
}

/// The key of the page whose file has this name.
fn key_of(name: &str) -> Option<PageKey> {
    PageKey::from_hex(name.strip_suffix(SUFFIX)?)
}

#[cfg(unix)]
fn check_writers(about: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    const OTHERS_WRITE: u32 = 0o002;
    if about.permissions().mode() & OTHERS_WRITE != 0 {
        let fact = "every user may write to it, so its pages cannot be trusted";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, fact));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_writers(_about: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Writes pages within a number of bytes.
#[derive(Debug)]
pub struct PageWriter {
    files: PageFiles,
    budget: u64,
    /// Bytes of all pages, as far as this process knows; `None` before they are measured.
    bytes: Option<u64>,
    /// Bytes that were written since then.
    since: u64,
}

impl PageWriter {
    /// Writes to `files`, which take at most `budget` bytes. If several processes write, each notices what the others wrote after it
    /// has written a sixteenth of its budget.
    pub fn new(files: PageFiles, budget: u64) -> Self {
        Self { files, budget, bytes: None, since: 0 }
    }

    /// Writes a page and returns `true`. If there is such a page, marks it as used and returns `false`. The pages that make room for it
    /// are added to `removed`, also if the page cannot be written then.
    pub fn write(&mut self, key: PageKey, page: &[u8], removed: &mut Vec<PageKey>) -> io::Result<bool> {
        if self.files.contains(key) {
            self.files.touch(key);
            return Ok(false);
        }
        let bytes = (HEADER + page.len()) as u64;
        let Some(most) = self.budget.checked_sub(bytes) else {
            let fact = format!("a page of {bytes} bytes exceeds the budget of {} bytes", self.budget);
            return Err(io::Error::new(io::ErrorKind::StorageFull, fact));
        };
        let known = self.bytes.filter(|&known| known <= most && self.since < self.budget / MEASURED);
        let before = match known {
            Some(known) => known,
            None => {
                let used = self.files.shrink(most)?;
                removed.extend(used.removed);
                if used.bytes > most {
                    let fact = format!("the files take {} bytes, and some cannot be removed", used.bytes);
                    return Err(io::Error::new(io::ErrorKind::StorageFull, fact));
                }
                self.since = 0;
                used.bytes
            }
        };
        self.bytes = Some(before);
        self.files.write(key, page)?;
        self.bytes = Some(before + bytes);
        self.since += bytes;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use super::*;
    use crate::disk::FileOperation;

    const PAGE: usize = 100;
    const FILE: u64 = (HEADER + PAGE) as u64;

    fn key(name: &str) -> PageKey {
        PageKey::root(&[name])
    }

    fn page(seed: u8) -> Vec<u8> {
        (0..PAGE).map(|at| seed.wrapping_add(at as u8)).collect()
    }

    fn files(dir: &Path) -> PageFiles {
        PageFiles::open(dir, PAGE, Disk::default()).unwrap()
    }

    /// A page; what is wrong with its file.
    fn read(files: &PageFiles, key: PageKey) -> Result<Option<Vec<u8>>, String> {
        let mut page = Vec::new();
        match files.read(key, &mut page) {
            Ok(found) => Ok(found.then_some(page)),
            Err(PageError::Damaged { path, reason }) => {
                assert_eq!(path, files.path(key));
                Err(reason)
            }
            Err(PageError::Unreadable(error)) => panic!("{error}"),
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Makes a file older by some seconds.
    fn age(path: &Path, seconds: u64) {
        let file = File::options().write(true).open(path).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_modified(modified - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn keys_are_sha_256_of_lengths_texts_and_tokens() {
        // From Python: hashlib.sha256(struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 0)), and that digest with two tokens.
        let root = PageKey::root(&["ab", ""]);
        assert_eq!(root.to_string(), "e38fddf799dfc9884ea023573aeb35487342dc2b75837ecc5b72fd9386050ccb");
        assert_eq!(
            root.then(&[1, 0x0203]).to_string(),
            "f3eef3022e3799afd27b59e930e5cf6e634206b47580078e8de784d4fbf780de"
        );
        let keys = [PageKey::root(&["a", "b"]), PageKey::root(&["", "ab"]), PageKey::root(&["ab"]), root];
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[at + 1..].iter().all(|other| other != one && other.then(&[1]) != one.then(&[1])));
        }
        assert_ne!(root.then(&[1]).then(&[2]), root.then(&[1, 2]));
    }

    #[test]
    fn pages_come_back_under_their_own_key() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder.path().join("deep").join("pages"));
        assert_eq!(read(&files, key("a")), Ok(None));
        files.write(key("a"), &page(1)).unwrap();
        files.write(key("b"), &page(2)).unwrap();
        files.write(key("b"), &page(2)).unwrap();
        assert_eq!(read(&files, key("a")), Ok(Some(page(1))));
        assert_eq!(read(&files, key("b")), Ok(Some(page(2))));
        assert!(files.contains(key("a")) && !files.contains(key("c")));
        assert_eq!(names(&files.dir).len(), 2, "nothing is left over");
        files.remove(key("a")).unwrap();
        assert_eq!(read(&files, key("a")), Ok(None));
    }

    #[test]
    fn pages_are_listed_when_some_have_come_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path());
        let lists: Vec<_> = (0..3).map(|_| files.list_changed().unwrap()).collect();
        assert_eq!(lists, [Some(Vec::new()), Some(Vec::new()), None]);
        // The time of the directory may be as coarse as the system's clock ticks.
        std::thread::sleep(Duration::from_millis(20));
        files.write(key("a"), &page(1)).unwrap();
        fs::write(folder.path().join(format!("{}{SUFFIX}", key("x").to_string().to_uppercase())), "")
            .unwrap();
        fs::write(folder.path().join(format!("x{SUFFIX}")), "").unwrap();
        assert_eq!(files.list_changed().unwrap(), Some(vec![key("a")]));
    }

    #[test]
    fn no_damaged_bit_goes_unnoticed() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        files.write(key("a"), &page(1)).unwrap();
        let path = files.path(key("a"));
        let whole = fs::read(&path).unwrap();
        for bit in 0..8 * whole.len() {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).unwrap();
            assert!(read(&files, key("a")).is_err(), "bit {bit}");
        }
        for (bytes, reason) in [
            (&whole[..whole.len() - 1], "163 bytes instead of 164"),
            (&b""[..], "0 bytes"),
            (&[&whole[..], b"x"].concat(), "165 bytes"),
        ] {
            fs::write(&path, bytes).unwrap();
            let found = read(&files, key("a")).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
        fs::write(files.path(key("b")), &whole).unwrap();
        assert!(read(&files, key("b")).unwrap_err().contains("another page"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(read(&files, key("a")).unwrap_err().contains("regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn a_page_that_cannot_be_opened_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let path = files.path(key("a"));
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert!(matches!(files.read(key("a"), &mut Vec::new()), Err(PageError::Unreadable(_))));
    }

    #[test]
    fn the_least_recently_used_pages_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let mut writer = PageWriter::new(files.clone(), 8 * FILE);
        let mut removed = Vec::new();
        for (number, name) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
            assert!(writer.write(key(name), &page(0), &mut removed).unwrap());
            age(&files.path(key(name)), 100 - number as u64);
        }
        fs::write(folder.path().join("notes.txt"), vec![b'x'; 5000]).unwrap();
        // It is the oldest, but used just now.
        assert!(read(&files, key("a")).unwrap().is_some());
        assert!(!writer.write(key("a"), &page(0), &mut removed).unwrap(), "it is there");
        assert_eq!(removed, []);
        // Down to 7/8 of what is left beside the new page.
        assert!(writer.write(key("i"), &page(0), &mut removed).unwrap());
        assert_eq!(removed, [key("b"), key("c")]);
        let there = |name: &&str| files.contains(key(name));
        let left: Vec<&str> =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i"].into_iter().filter(there).collect();
        assert_eq!(left, ["a", "d", "e", "f", "g", "h", "i"]);
        assert_eq!(names(folder.path()).len(), 8, "files of others are left alone");
        let error =
            PageWriter::new(files.clone(), FILE - 1).write(key("x"), &page(0), &mut removed).unwrap_err();
        assert!(error.to_string().contains("a page of 164 bytes exceeds the budget of 163"), "{error}");
        PageWriter::new(files, FILE).write(key("x"), &page(0), &mut removed).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn pages_that_made_room_are_named_if_others_cannot_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pages = files(folder.path());
        for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            pages.write(key(name), &page(0)).unwrap();
            age(&pages.path(key(name)), 100 - number as u64);
        }
        let kept = pages.path(key("b"));
        let disk = Disk::observed(move |operation| match operation {
            FileOperation::Remove(path) if *path != kept => Ok(()),
            FileOperation::Remove(_) => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(()),
        });
        let mut writer = PageWriter::new(PageFiles::open(folder.path(), PAGE, disk).unwrap(), FILE);
        let mut removed = Vec::new();
        let error = writer.write(key("e"), &page(0), &mut removed).unwrap_err();
        assert!(error.to_string().contains("the files take 164 bytes"), "{error}");
        assert_eq!(removed, [key("a"), key("c"), key("d")]);
        assert!(pages.contains(key("b")) && !pages.contains(key("e")));
    }

    #[test]
    fn what_other_processes_write_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let mut writer = PageWriter::new(files.clone(), 32 * FILE);
        writer.write(key("first"), &page(0), &mut Vec::new()).unwrap();
        for number in 0..100 {
            files.write(key(&format!("other {number}")), &page(0)).unwrap();
        }
        for number in 0..3 {
            writer.write(key(&format!("mine {number}")), &page(0), &mut Vec::new()).unwrap();
        }
        let count = names(folder.path()).len();
        assert!(count <= 32, "{count} pages");
    }

    #[test]
    fn abandoned_temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        files.write(key("a"), &page(1)).unwrap();
        let [old, new, foreign] = [".x.kvpage.1-0.partial", ".y.kvpage.2-0.partial", ".notes.partial"]
            .map(|name| folder.path().join(name));
        for path in [&old, &new, &foreign] {
            fs::write(path, "x").unwrap();
        }
        age(&old, 3700);
        age(&foreign, 3700);
        assert_eq!(files.shrink(u64::MAX).unwrap(), DirectoryUse { bytes: FILE, removed: Vec::new() });
        assert!(!old.exists() && new.exists() && foreign.exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        for n in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let (disk, count) = Disk::failing(n, false);
            let files = PageFiles::open(folder.path(), PAGE, disk).unwrap();
            let written = files.write(key("a"), &page(1));
            let failed = count.load(std::sync::atomic::Ordering::Relaxed) > n;
            assert_eq!(written.is_err(), failed, "operation {n}");
            assert_eq!(read(&files, key("a")).unwrap().is_some(), !failed);
            assert_eq!(names(folder.path()).len(), usize::from(!failed));
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_what_is_created_and_others_may_not_write() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("pages");
        let files = files(&dir);
        files.write(key("a"), &page(1)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&files.path(key("a")))), (0o700, 0o600));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let error = PageFiles::open(&dir, PAGE, Disk::default()).unwrap_err();
        assert!(error.to_string().contains("every user may write"), "{error}");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(PageFiles::open(&dir, PAGE, Disk::default()).is_ok());
        assert!(PageFiles::open(files.path(key("a")), PAGE, Disk::default()).is_err());
    }
}
