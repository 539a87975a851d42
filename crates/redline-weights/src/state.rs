//! Whether files are still as they were.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Result, WeightsError};

/// The endings of the files in a model directory that belong to the model.
const ENDINGS: [&str; 7] = ["bin", "gguf", "jinja", "json", "model", "safetensors", "txt"];

/// Names, sizes and times of change of a file, or of the files of a model directory and of the folders in it. Equal states mean equal
/// contents, unless times are set on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesState(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl FilesState {
    /// The state of the file or directory at `path` now.
    pub fn of(path: &Path) -> Result<Self> {
        let mut files = Vec::new();
        add(path, 2, &mut files)?;
        files.sort_unstable();
        Ok(Self(files))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes, _)| bytes).sum()
    }
}

/// Adds a file, or the files of a directory with `depth` levels.
fn add(path: &Path, depth: usize, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) -> Result<()> {
    let failed = |error| WeightsError::io("look at the file", path)(error);
    let about = fs::metadata(path).map_err(failed)?;
    if !about.is_dir() {
        files.push((path.to_owned(), about.len(), about.modified().ok()));
    } else if depth > 0 {
        for entry in fs::read_dir(path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            // Not what programs write beside a model, nor links that lead nowhere.
            if path.is_dir() || (path.exists() && ending.is_some_and(|ending| ENDINGS.contains(&ending))) {
                add(&path, depth - 1, files)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_state_changes_with_any_file() {
        let folder = tempfile::tempdir().unwrap();
        let state = || FilesState::of(folder.path()).unwrap();
        let write = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        write("a.json", "1");
        write("below/b.txt", "12");
        let before = state();
        assert_eq!((state() == before, before.bytes()), (true, 3));
        write("a.json", "12");
        let longer = state();
        assert_ne!(longer, before);
        let file = fs::File::options().write(true).open(folder.path().join("below/b.txt")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        let older = state();
        assert_ne!(older, longer);
        write("README.md", "");
        assert_eq!(state(), older);
        write("c.gguf", "");
        assert_ne!(state(), older);
        assert_ne!(FilesState::of(&folder.path().join("a.json")).unwrap(), state());
        assert!(FilesState::of(&folder.path().join("none")).is_err());
    }
}
