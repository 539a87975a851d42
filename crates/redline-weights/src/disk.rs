//! The operations that change files and directories. Everything this crate writes passes through here.
//!
//! An observer sees each operation before it happens and may reject it. Tests use one to record the order of operations, to fail
//! the n-th one as a full disk would, and to stop a writer at the n-th one as a killed process would be.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation that changes a file or a directory, or makes a change durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Creates a directory, with any missing parents.
    CreateDir(PathBuf),
    /// Creates a file that must not exist yet.
    CreateFile(PathBuf),
    /// Opens a file to append to it, and creates it if it does not exist.
    AppendFile(PathBuf),
    /// Writes this many bytes to a file.
    Write(PathBuf, usize),
    /// Makes a file's content durable.
    SyncFile(PathBuf),
    /// Makes a directory's entries durable.
    SyncDir(PathBuf),
    /// Renames the first path to the second.
    Rename(PathBuf, PathBuf),
    /// Gives the file at the first path a second name, which must not exist yet, as a hard or as a symbolic link.
    Link(PathBuf, PathBuf),
    /// Removes a file, or a directory with its content.
    Remove(PathBuf),
}

type Observer = dyn Fn(&FileOperation) -> io::Result<()> + Send + Sync;

/// Write access to the file system. The default has no observer.
#[derive(Clone, Default)]
pub struct Disk {
    observer: Option<Arc<Observer>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("observed", &self.observer.is_some()).finish()
    }
}

impl Disk {
    /// A disk that shows every operation to `observer` first. An operation for which the observer returns an error fails with that
    /// error and changes nothing.
    pub fn observed(observer: impl Fn(&FileOperation) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { observer: Some(Arc::new(observer)) }
    }

    /// A disk for tests: operation number `n`, counted from 0, fails as if the disk were full. With `dead`, all later operations
    /// fail too, as if the process had died. Also returns the counter of operations.
    pub fn failing(n: usize, dead: bool) -> (Self, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let disk = Self::observed(move |_| {
            let now = counter.fetch_add(1, Ordering::Relaxed);
            let fails = now == n || dead && now > n;
            if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        });
        (disk, count)
    }

    fn announce(&self, operation: impl FnOnce() -> FileOperation) -> io::Result<()> {
        self.observer.as_ref().map_or(Ok(()), |observer| observer(&operation()))
    }

    /// Creates a directory, which must not exist yet; its parent must exist.
    pub fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::CreateDir(path.to_owned()))?;
        fs::create_dir(path)
    }

    /// Creates a directory and its parents, unless they exist.
    pub fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        self.announce(|| FileOperation::CreateDir(path.to_owned()))?;
        fs::create_dir_all(path)
    }

    /// Creates a directory and its parents, unless they exist. On Unix, other users may not read those that are created.
    pub fn create_private_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        self.announce(|| FileOperation::CreateDir(path.to_owned()))?;
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    /// Creates a file that must not exist yet.
    pub fn create_file(&self, path: &Path) -> io::Result<DiskFile> {
        self.create_new(path, File::options().write(true).create_new(true))
    }

    /// Creates a file that must not exist yet. On Unix, other users may not read it.
    pub fn create_private_file(&self, path: &Path) -> io::Result<DiskFile> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        self.create_new(path, &options)
    }

    fn create_new(&self, path: &Path, options: &OpenOptions) -> io::Result<DiskFile> {
        self.announce(|| FileOperation::CreateFile(path.to_owned()))?;
        Ok(DiskFile { disk: self.clone(), path: path.to_owned(), file: options.open(path)? })
    }

    /// Sets the time of a file's last modification to now, by writing the bytes again with which it begins.
    pub fn touch(&self, path: &Path, first: &[u8]) -> io::Result<()> {
        self.announce(|| FileOperation::Write(path.to_owned(), first.len()))?;
        File::options().write(true).open(path)?.write_all(first)
    }

    /// Opens a file to append to it, and creates it if it does not exist.
    pub fn append_file(&self, path: &Path) -> io::Result<DiskFile> {
        self.announce(|| FileOperation::AppendFile(path.to_owned()))?;
        let file = File::options().append(true).create(true).open(path)?;
        Ok(DiskFile { disk: self.clone(), path: path.to_owned(), file })
    }

    /// Opens a file to lock it, and creates it if it does not exist.
    pub fn lock_file(&self, path: &Path) -> io::Result<File> {
        self.announce(|| FileOperation::AppendFile(path.to_owned()))?;
        File::options().read(true).append(true).create(true).open(path)
    }

    /// Writes to an existing path that is not a regular file: a pipe, a device.
    pub(crate) fn write_through(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.announce(|| FileOperation::Write(path.to_owned(), bytes.len()))?;
        fs::write(path, bytes)
    }

    /// Renames a file or a directory.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Rename(from.to_owned(), to.to_owned()))?;
        fs::rename(from, to)
    }

    /// Gives a file a second name.
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Link(from.to_owned(), to.to_owned()))?;
        fs::hard_link(from, to)
    }

    /// Makes `link` a symbolic link to `target`, a path relative to the directory of `link`; on systems other than Unix, where
    /// symbolic links need privileges, a hard link.
    pub fn link_relative(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Link(target.to_owned(), link.to_owned()))?;
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(target, link);
        #[cfg(not(unix))]
        let linked = fs::hard_link(link.with_file_name("").join(target), link);
        linked
    }

    /// Makes the entries of a directory durable, if the system supports it.
    pub fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::SyncDir(path.to_owned()))?;
        if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Remove(path.to_owned()))?;
        fs::remove_file(path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Remove(path.to_owned()))?;
        fs::remove_dir(path)
    }

    /// Removes a directory with its content.
    pub fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.announce(|| FileOperation::Remove(path.to_owned()))?;
        fs::remove_dir_all(path)
    }
}

/// A file opened for writing through a [`Disk`].
#[derive(Debug)]
pub struct DiskFile {
    disk: Disk,
    path: PathBuf,
    file: File,
}

impl DiskFile {
    /// Makes the content durable.
    pub fn sync(&self) -> io::Result<()> {
        self.disk.announce(|| FileOperation::SyncFile(self.path.clone()))?;
        self.file.sync_all()
    }

    /// The file itself, to lock it.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.announce(|| FileOperation::Write(self.path.clone(), bytes.len()))?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for DiskFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
