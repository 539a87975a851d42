//! Atomic writes of files: the file is written completely or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, DiskFile};

/// The end of the names of temporary files.
const PARTIAL: &str = ".partial";
/// Maximum number of temporary names tried.
const NAMES: usize = 1000;

/// Writes a temporary file in the same directory, syncs it, renames it and syncs the rename. A link stays a link; a path that
/// is not a regular file (a pipe, `/dev/null`) is written to directly. If several processes write the same file at once, one
/// of them wins.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_file_on(&Disk::default(), path, bytes)
}

/// Like [`write_file`], but writes through `disk`.
pub fn write_file_on(disk: &Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = match fs::metadata(path) {
        Ok(there) if !there.is_file() && !there.is_dir() => return disk.write_through(path, bytes),
        Ok(_) => &fs::canonicalize(path)?,
        Err(_) => path,
    };
    let (partial, file) = create(path, |partial| disk.create_file(partial))?;
    put_in_place(disk, &partial, path, fill(file, bytes))?;
    sync_parent(disk, path)
}

/// Writes a file that other users may not read, for a cache: it is written completely or not at all, but not synced, so that it
/// may be lost, or damaged, if the machine stops. A damaged file must be recognised by its content, which consists of `parts`.
pub(crate) fn write_private_file_unsynced(disk: &Disk, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let (partial, mut file) = create(path, |partial| disk.create_private_file(partial))?;
    put_in_place(disk, &partial, path, parts.iter().try_for_each(|part| file.write_all(part)))
}

/// Renames a temporary file that was written, or removes it if that failed.
fn put_in_place(disk: &Disk, partial: &Path, path: &Path, written: io::Result<()>) -> io::Result<()> {
    let placed = written.and_then(|()| disk.rename(partial, path));
    if placed.is_err() {
        // Best effort: the first error is the one to report.
        let _ = disk.remove_file(partial);
    }
    placed
}

/// Writes a file that must not exist yet: `AlreadyExists` if it does. If several processes write the same path, exactly one succeeds,
/// and no reader ever sees part of the content.
pub fn write_new_file_on(disk: &Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (partial, file) = create(path, |partial| disk.create_file(partial))?;
    let written = fill(file, bytes).and_then(|()| disk.link(&partial, path));
    // Best effort: the result is that of the link.
    let _ = disk.remove_file(&partial);
    match written {
        Err(error) if without_links(&error) => write_new_in_place(disk, path, bytes)?,
        written => written?,
    }
    let synced = sync_parent(disk, path);
    if synced.is_err() {
        let _ = disk.remove_file(path);
    }
    synced
}

/// Whether the file system does not support hard links (FAT, some network file systems).
fn without_links(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

fn write_new_in_place(disk: &Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = fill(disk.create_file(path)?, bytes);
    if written.is_err() {
        let _ = disk.remove_file(path);
    }
    written
}

/// Creates a new file beside `path`. A process on another machine may have the same id, so the name may be taken.
fn create(
    path: &Path,
    create_file: impl Fn(&Path) -> io::Result<DiskFile>,
) -> io::Result<(PathBuf, DiskFile)> {
    let mut last = None;
    for _ in 0..NAMES {
        let partial = partial(path)?;
        match create_file(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

fn fill(mut file: DiskFile, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync()
}

/// Syncs the parent directory. Directories that can be written but not read, and those of some network file systems,
/// cannot be synced.
fn sync_parent(disk: &Disk, path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match disk.sync_dir(parent.unwrap_or(Path::new("."))) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
        synced => synced,
    }
}

/// A hidden name in the same directory, unique to this process and this writer.
fn partial(path: &Path) -> io::Result<PathBuf> {
    static WRITERS: AtomicU64 = AtomicU64::new(0);
    let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{}-{writer}{PARTIAL}", std::process::id())))
}

/// Whether this is the name of a temporary file beside one whose name has this suffix.
pub(crate) fn is_partial_of(name: &str, suffix: &str) -> bool {
    name.starts_with('.') && name.ends_with(PARTIAL) && name.contains(&format!("{suffix}."))
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
