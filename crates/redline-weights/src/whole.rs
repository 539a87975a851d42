//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names that are tried.
const NAMES: usize = 1000;

/// Writes the file beside its place, syncs it and renames it. A link stays a link; what is no file (a pipe, `/dev/null`) is
/// written to. Several may write the same file at once: one of them stays.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match fs::metadata(path) {
        Ok(there) if !there.is_file() && !there.is_dir() => return fs::write(path, bytes),
        Ok(_) => &fs::canonicalize(path)?,
        Err(_) => path,
    };
    let (partial, file) = create(path)?;
    let written = fill(file, bytes).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // Best effort: the first error is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// A new file beside `path`. Processes of other machines may have this one's number, so names may be taken.
fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut last = None;
    for _ in 0..NAMES {
        let partial = partial(path)?;
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

fn fill(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// A hidden name of this process, and of this writer in it, in the same directory.
fn partial(path: &Path) -> io::Result<PathBuf> {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}-{writer}.partial", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        write_file(&path, b"one").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        // A directory cannot be replaced by a file.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_file(&taken, b"x").is_err());
        assert!(write_file(Path::new("/"), b"x").is_err());
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["run.json", "taken"], "nothing is left over");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, b"one").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_file(&link, b"two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"two");
        write_file(Path::new("/dev/null"), b"x").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}
