//! A directory written aside and renamed into place, so that it exists whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Result, WeightsError};
use crate::file::{FileWriter, is_plain_name};
use crate::write::{SafetensorsWriter, TensorSpec};

/// Names tried for the temporary directory before giving up.
const ATTEMPTS: u32 = 100;

/// Writes a directory under the temporary name `.<name>.tmp-<pid>` beside its destination;
/// [`DirWriter::finish`] makes it durable and renames it, dropping it unfinished removes it.
#[derive(Debug)]
pub struct DirWriter {
    destination: PathBuf,
    temporary: PathBuf,
    renamed: bool,
}

impl DirWriter {
    /// Begins a directory that will be `destination`, which must not exist yet or be empty. Its parent must
    /// exist.
    pub fn create(destination: &Path) -> Result<Self> {
        refuse_occupied(destination)?;
        // An existing destination may be a link or end in `..`: it is replaced where it really lies.
        let destination = fs::canonicalize(destination).unwrap_or_else(|_| destination.to_owned());
        let Some(name) = destination.file_name() else {
            let (name, dir) = (destination.display().to_string(), destination);
            return Err(WeightsError::FileName { name, dir });
        };
        let name = format!(".{}.tmp-{}", name.display(), std::process::id());
        let mut temporary = destination.with_file_name(&name);
        for attempt in 1.. {
            match fs::create_dir(&temporary) {
                Ok(()) => break,
                // Left by a killed process of the same id, or in use by this one: neither is ours to remove.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {
                    temporary = destination.with_file_name(format!("{name}-{attempt}"));
                }
                Err(error) => return Err(WeightsError::io("create the directory", &temporary)(error)),
            }
        }
        Ok(Self { destination, temporary, renamed: false })
    }

    /// Writes the file `name` with these bytes and syncs it.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.file(name, |file, path| file.write_all(bytes).map_err(WeightsError::io("write the file", path)))
    }

    /// Writes the safetensors file `name` and syncs it; `fill` gives the values of all `tensors`, in order.
    pub fn safetensors(
        &mut self,
        name: &str,
        tensors: &[TensorSpec],
        fill: impl FnOnce(&mut SafetensorsWriter<&mut FileWriter>) -> Result<()>,
    ) -> Result<()> {
        self.file(name, |file, path| {
            let mut writer = SafetensorsWriter::in_file(file, path, tensors)?;
            fill(&mut writer)?;
            writer.finish().map(drop)
        })
    }

    /// Syncs the directory, renames it to the destination and syncs the rename.
    pub fn finish(mut self) -> Result<()> {
        sync_directory(&self.temporary)?;
        refuse_occupied(&self.destination)?;
        if !cfg!(unix) && self.destination.exists() {
            // Only Unix renames over an empty directory.
            let removed = fs::remove_dir(&self.destination);
            removed.map_err(WeightsError::io("replace the empty directory", &self.destination))?;
        }
        let renamed = fs::rename(&self.temporary, &self.destination);
        renamed.map_err(WeightsError::io("rename the finished directory", &self.destination))?;
        self.renamed = true;
        match self.destination.parent() {
            Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
            Some(parent) => sync_directory(parent),
            None => Ok(()),
        }
    }

    fn file(&mut self, name: &str, fill: impl FnOnce(&mut FileWriter, &Path) -> Result<()>) -> Result<()> {
        if !is_plain_name(name) {
            return Err(WeightsError::FileName { name: name.to_owned(), dir: self.destination.clone() });
        }
        let path = self.temporary.join(name);
        // Messages name the place the file was to have.
        let shown = self.destination.join(name);
        let file = File::create_new(&path).map_err(WeightsError::io("create the file", &shown))?;
        let mut writer = BufWriter::new(file);
        fill(&mut writer, &shown)?;
        let file = writer.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all()).map_err(WeightsError::io("write the file", &shown))
    }
}

impl Drop for DirWriter {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: there is no one to report to, and a temporary name is never read.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

fn refuse_occupied(destination: &Path) -> Result<()> {
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

#[cfg(unix)]
fn sync_directory(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(WeightsError::io("sync the directory", path))
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps)] // the signature of the Unix one
fn sync_directory(_: &Path) -> Result<()> {
    Ok(())
}
