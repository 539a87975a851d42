//! A directory written under a temporary name and renamed into place, so that it exists completely or not at all.

#[cfg(unix)]
use std::fs::TryLockError;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile};
use crate::error::{Result, WeightsError};
use crate::file::{FileWriter, is_plain_name, open_regular};
use crate::write::{SafetensorsWriter, TensorDeclaration};

/// Number of names tried for the temporary directory.
const ATTEMPTS: u32 = 100;

/// Writes a directory under the temporary name `.<name>.tmp-<pid>` beside its destination. [`DirWriter::finish`]
/// makes it durable and renames it; dropping it unfinished removes it. The next writer of the same destination
/// removes what a killed process left behind.
#[derive(Debug)]
pub struct DirWriter {
    disk: Disk,
    destination: PathBuf,
    temporary: PathBuf,
    renamed: bool,
    /// Held until the end; the system releases the lock when the process dies.
    _lock: Option<File>,
}

impl DirWriter {
    /// Begins the directory `destination`, which must not exist yet or be empty. Its parent must exist.
    pub fn create(destination: &Path) -> Result<Self> {
        Self::create_on(Disk::default(), destination)
    }

    /// Like [`Self::create`], but writes through `disk`.
    pub fn create_on(disk: Disk, destination: &Path) -> Result<Self> {
        Self::refuse_occupied(destination)?;
        // An existing destination may be a link or end in `..`; resolve it to its real location.
        let destination = fs::canonicalize(destination).unwrap_or_else(|_| destination.to_owned());
        let Some(name) = destination.file_name() else {
            let (name, dir) = (destination.display().to_string(), destination);
            return Err(WeightsError::FileName { name, dir });
        };
        let prefix = format!(".{}.tmp-", name.display());
        remove_left_over(&disk, &destination, &prefix);
        let name = format!("{prefix}{}", std::process::id());
        let mut temporary = destination.with_file_name(&name);
        let mut attempt = 0;
        let lock = loop {
            let made = disk.create_dir(&temporary);
            match made.and_then(|()| claim(&temporary)) {
                Ok(lock) => break lock,
                // In use by this process or by one with the same id on another machine, or being cleared away.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                    attempt += 1;
                    temporary = destination.with_file_name(format!("{name}-{attempt}"));
                }
                Err(error) => return Err(WeightsError::io("create the directory", &temporary)(error)),
            }
        };
        Ok(Self { disk, destination, temporary, renamed: false, _lock: lock })
    }

    /// The destination path.
    pub(crate) fn destination(&self) -> &Path {
        &self.destination
    }

    /// Writes the file `name` with these bytes and syncs it.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.file(name, |file, path| file.write_all(bytes).map_err(WeightsError::io("write the file", path)))
    }

    /// Copies the file `from` under its own name and syncs it.
    pub fn copy_file(&mut self, from: &Path) -> Result<()> {
        let name = from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (mut source, _) = open_regular(from)?;
        self.file(&name, |file, _| {
            io::copy(&mut source, file).map(drop).map_err(WeightsError::io("copy the file", from))
        })
    }

    /// Writes the safetensors file `name` and syncs it; `fill` gives the values of all `tensors`, in order.
    pub fn safetensors(
        &mut self,
        name: &str,
        tensors: &[TensorDeclaration],
        fill: impl FnOnce(&mut SafetensorsWriter<&mut FileWriter>) -> Result<()>,
    ) -> Result<()> {
        self.fill_safetensors(name, tensors, fill)
    }

    /// Like [`Self::safetensors`], with other errors of `fill`.
    pub(crate) fn fill_safetensors<E: From<WeightsError>>(
        &mut self,
        name: &str,
        tensors: &[TensorDeclaration],
        fill: impl FnOnce(&mut SafetensorsWriter<&mut FileWriter>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.file(name, |file, path| {
            let mut writer = SafetensorsWriter::in_file(file, path, tensors)?;
            fill(&mut writer)?;
            Ok(writer.finish().map(drop)?)
        })
    }

    /// Returns an error if the destination exists and is not empty, before any work is done.
    pub fn refuse_occupied(destination: &Path) -> Result<()> {
        let path = || destination.to_owned();
        match fs::read_dir(destination).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(WeightsError::DestinationNotEmpty { path: path() }),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                io::ErrorKind::NotADirectory => Err(WeightsError::NotADirectory { path: path() }),
                _ => Err(WeightsError::io("look into the directory", destination)(error)),
            },
        }
    }

    /// Syncs the directory, renames it to the destination and syncs the rename.
    pub fn finish(mut self) -> Result<()> {
        self.sync_directory(&self.temporary)?;
        Self::refuse_occupied(&self.destination)?;
        if !cfg!(unix) && self.destination.exists() {
            // Only on Unix can a rename replace an empty directory.
            let removed = self.disk.remove_dir(&self.destination);
            removed.map_err(WeightsError::io("replace the empty directory", &self.destination))?;
        }
        let renamed = self.disk.rename(&self.temporary, &self.destination);
        renamed.map_err(WeightsError::io("rename the finished directory", &self.destination))?;
        self.renamed = true;
        match self.destination.parent() {
            Some(parent) if parent.as_os_str().is_empty() => self.sync_directory(Path::new(".")),
            Some(parent) => self.sync_directory(parent),
            None => Ok(()),
        }
    }

    fn file<E: From<WeightsError>>(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut FileWriter, &Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let (file, shown) = self.create_file(name)?;
        let mut writer = BufWriter::new(file);
        fill(&mut writer, &shown)?;
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error);
        Ok(file.and_then(|file| file.sync()).map_err(WeightsError::io("write the file", &shown))?)
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        self.disk.sync_dir(path).map_err(WeightsError::io("sync the directory", path))
    }

    /// Creates the file `name`, which the caller must sync. Also returns its final path, for messages.
    pub(crate) fn create_file(&mut self, name: &str) -> Result<(DiskFile, PathBuf)> {
        if !is_plain_name(name) {
            return Err(WeightsError::FileName { name: name.to_owned(), dir: self.destination.clone() });
        }
        let shown = self.destination.join(name);
        let file = self.disk.create_file(&self.temporary.join(name));
        file.map(|file| (file, shown.clone())).map_err(WeightsError::io("create the file", &shown))
    }
}

impl Drop for DirWriter {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: the error cannot be reported, and a temporary name is never read.
            let _ = self.disk.remove_dir_all(&self.temporary);
        }
    }
}

/// Removes the temporary directories of killed writers: those that are not locked. A directory that cannot be removed
/// stays and does no harm.
fn remove_left_over(disk: &Disk, destination: &Path, prefix: &str) {
    let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(parent.unwrap_or(Path::new("."))) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        let ours = number.is_some_and(|number| number.split('-').all(is_number));
        let ours = ours && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Some(_lock) = ours.then(|| abandoned(&entry.path())).flatten() {
            let _ = disk.remove_dir_all(&entry.path());
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

/// Locks a directory just made. On a file system without locks there is no lock, and left-over directories are not
/// removed. `AlreadyExists` if another writer took the directory for left over first.
#[cfg(unix)]
fn claim(temporary: &Path) -> io::Result<Option<File>> {
    let opened = File::open(temporary).map(|dir| (dir.try_lock(), dir));
    match opened {
        Ok((Err(TryLockError::WouldBlock), _)) => Err(io::ErrorKind::AlreadyExists.into()),
        _ if !temporary.is_dir() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok((Ok(()), dir)) => Ok(Some(dir)),
        Ok((Err(TryLockError::Error(_)), _)) | Err(_) => Ok(None),
    }
}

/// The lock of a directory, unless another process holds it.
#[cfg(unix)]
fn abandoned(temporary: &Path) -> Option<File> {
    let dir = File::open(temporary).ok()?;
    dir.try_lock().ok().map(|()| dir)
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps)] // same signature as on Unix
fn claim(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(not(unix))]
fn abandoned(_: &Path) -> Option<File> {
    None
}
