//! Opening and naming single files, and reading small ones completely.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::path::{Component, Path};

use crate::disk::DiskFile;
use crate::error::{Result, WeightsError};

/// A file being written inside a [`crate::DirWriter`].
pub type FileWriter = BufWriter<DiskFile>;

/// Reads the file at `path`. Files longer than `limit` bytes and files that are not regular are errors.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, bytes) = open_regular(path)?;
    let too_large = |bytes| WeightsError::FileTooLarge { path: path.to_owned(), bytes, limit };
    if bytes > limit {
        return Err(too_large(bytes));
    }
    let mut content = Vec::with_capacity(bytes as usize);
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut content);
    let read = read.map_err(WeightsError::io("read the file", path))? as u64;
    if read > limit { Err(too_large(read)) } else { Ok(content) }
}

/// Opens the file at `path` and returns its length.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64)> {
    let opened = open_if_regular(path).map_err(WeightsError::io("open the file", path))?;
    opened.ok_or_else(|| WeightsError::NotAFile { path: path.to_owned() })
}

/// Opens the file at `path` and returns its length; `None` if it is no regular file. Pipes and devices are rejected before they are
/// opened, since opening may block.
pub(crate) fn open_if_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let about = file.metadata()?;
    Ok(about.is_file().then_some((file, about.len())))
}

/// Passes the whole file at `path` to `take`, block by block.
pub(crate) fn read_blocks(path: &Path, mut take: impl FnMut(&[u8])) -> Result<()> {
    const BLOCK: usize = 1 << 20;
    let (mut file, bytes) = open_regular(path)?;
    let mut block = vec![0; BLOCK.min(bytes as usize + 1)];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(length) => take(&block[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(WeightsError::io("read the file", path)(error)),
        }
    }
}

/// Whether the name exists. A dangling link counts, so that opening it reports what is wrong.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(WeightsError::io("look for the file", path)(error)),
    }
}

/// Whether the name is one plain component: not empty, no separator of any system, no `.` or `..`, no NUL.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!(components.next(), Some(Component::Normal(only)) if only == name);
    plain && components.next().is_none() && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ten");
        fs::write(&path, [7; 10]).unwrap();
        assert_eq!(read_file(&path, 10).unwrap(), [7; 10]);
        let refused = read_file(&path, 9).unwrap_err();
        assert!(matches!(refused, WeightsError::FileTooLarge { bytes: 10, limit: 9, .. }), "{refused}");
        assert!(matches!(read_file(folder.path(), 10).unwrap_err(), WeightsError::NotAFile { .. }));
    }

    /// Files of the kernel have the length 0 until they are read.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_is_longer_than_it_says_is_too_large() {
        let refused = read_file(Path::new("/proc/self/status"), 16).unwrap_err();
        assert!(matches!(refused, WeightsError::FileTooLarge { bytes: 17, limit: 16, .. }), "{refused}");
    }

    #[test]
    fn a_plain_name_is_one_component_on_every_system() {
        for plain in ["a", "a.b", ".a", "a b", "-", "..."] {
            assert!(is_plain_name(plain), "{plain}");
        }
        for other in ["", ".", "..", "a/b", "/a", "a/", "./a", "a\\b", "C:a", "a:b", "a\0b"] {
            assert!(!is_plain_name(other), "{other:?}");
        }
    }
}
