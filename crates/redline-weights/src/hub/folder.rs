//! Stores downloaded files in a hub cache, in the layout of `huggingface_hub`
//! (<https://huggingface.co/docs/huggingface_hub/guides/manage-cache>):
//!
//! ```text
//! models--ORG--NAME/
//!   blobs/HASH                      the content of a file, named after its ETag
//!   blobs/HASH.incomplete           the beginning of one
//!   snapshots/COMMIT/config.json    a link to a blob
//!   refs/main                       the commit
//! .locks/models--ORG--NAME/HASH.lock
//! ```

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::id::{HubId, is_commit, is_hexadecimal};
use crate::disk::{Disk, DiskFile};
use crate::error::{Result, WeightsError};
use crate::file::{is_plain_name, read_blocks};
use crate::whole::write_file_on;

/// The folder of one model in a hub cache. A blob appears under its name only after [`PartialBlob::finish`], and a ref is
/// written after the links of its snapshot, so no reader finds part of a file through it.
#[derive(Clone, Debug)]
pub struct HubFolder {
    disk: Disk,
    root: PathBuf,
    locks: PathBuf,
}

impl HubFolder {
    /// The folder of `id` in `cache`, the directory that holds all `models--` folders. Creates nothing.
    pub fn new(disk: Disk, cache: &Path, id: &HubId) -> Self {
        Self { disk, root: cache.join(id.folder()), locks: cache.join(".locks").join(id.folder()) }
    }

    /// Whether the blob `hash` is complete: it exists and has `bytes` bytes.
    pub fn has_blob(&self, hash: &str, bytes: u64) -> bool {
        fs::metadata(self.blob(hash)).is_ok_and(|file| file.is_file() && file.len() == bytes)
    }

    /// Opens the incomplete blob `hash`, at the end of what an earlier download left, and locks it against other processes.
    /// `waiting` is called before it waits for one of them. `hash` is 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
    pub fn begin(&self, hash: &str, waiting: impl FnOnce()) -> Result<PartialBlob> {
        let blob = self.blob(hash);
        if !is_hexadecimal(hash, 40) && !is_hexadecimal(hash, 64) {
            return Err(WeightsError::FileName { name: hash.to_owned(), dir: self.root.join("blobs") });
        }
        let lock = self.lock(hash, waiting)?;
        self.create_parent(&blob)?;
        let path = blob.with_file_name(format!("{hash}.incomplete"));
        let (file, length) = open_end(&self.disk, &path)?;
        Ok(PartialBlob { disk: self.disk.clone(), file, length, path, blob, _lock: lock })
    }

    /// Links `name` in the snapshot of `commit` to the blob `hash`, in place of any link of that name. `name` is a relative path
    /// of plain names, separated by `/`.
    pub fn link(&self, commit: &str, name: &str, hash: &str) -> Result<()> {
        let snapshot = self.snapshot(commit)?;
        let depth = name.split('/').count();
        let Some(file) = name.split('/').next_back().filter(|_| name.split('/').all(is_plain_name)) else {
            return Err(WeightsError::FileName { name: name.to_owned(), dir: snapshot });
        };
        let path = snapshot.join(name);
        self.create_parent(&path)?;
        let target = PathBuf::from(format!("{}blobs/{hash}", "../".repeat(depth + 1)));
        let new = path.with_file_name(format!(".{file}.{}.partial", std::process::id()));
        // A process of the same number may have died between the two operations.
        let cleared = if fs::symlink_metadata(&new).is_ok() { self.disk.remove_file(&new) } else { Ok(()) };
        let linked = cleared
            .and_then(|()| self.disk.link_relative(&target, &new))
            .and_then(|()| self.disk.rename(&new, &path));
        if linked.is_err() {
            // Best effort: the first error is the one to report.
            let _ = self.disk.remove_file(&new);
        }
        linked.map_err(WeightsError::io("link the file", &path))
    }

    /// Makes the links of the snapshot durable, lets the revision refer to it, and returns its directory. A revision that is the
    /// commit itself needs no reference.
    pub fn publish(&self, revision: &str, commit: &str) -> Result<PathBuf> {
        let snapshot = self.snapshot(commit)?;
        self.disk.sync_dir(&snapshot).map_err(WeightsError::io("sync the directory", &snapshot))?;
        if revision != commit {
            let file = self.root.join("refs").join(revision);
            self.create_parent(&file)?;
            let written = write_file_on(&self.disk, &file, commit.as_bytes());
            written.map_err(WeightsError::io("write the file", &file))?;
        }
        Ok(snapshot)
    }

    /// The path of the blob `hash`.
    pub fn blob(&self, hash: &str) -> PathBuf {
        self.root.join("blobs").join(hash)
    }

    fn snapshot(&self, commit: &str) -> Result<PathBuf> {
        let dir = self.root.join("snapshots");
        if is_commit(commit) {
            Ok(dir.join(commit))
        } else {
            Err(WeightsError::FileName { name: commit.to_owned(), dir })
        }
    }

    fn create_parent(&self, path: &Path) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        self.disk.create_dir_all(parent).map_err(WeightsError::io("create the directory", parent))
    }

    /// The lock of a blob, which `huggingface_hub` takes too. On a file system without locks there is none.
    fn lock(&self, hash: &str, waiting: impl FnOnce()) -> Result<File> {
        let path = self.locks.join(format!("{hash}.lock"));
        self.create_parent(&path)?;
        let file = self.disk.append_file(&path).map(DiskFile::into_file);
        let file = file.map_err(WeightsError::io("create the lock", &path))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            waiting();
            file.lock().map_err(WeightsError::io("lock the file", &path))?;
        }
        Ok(file)
    }
}

fn open_end(disk: &Disk, path: &Path) -> Result<(DiskFile, u64)> {
    let opened = disk.append_file(path).and_then(|file| Ok((fs::metadata(path)?.len(), file)));
    let (length, file) = opened.map_err(WeightsError::io("open the file", path))?;
    Ok((file, length))
}

/// A blob of which the first [`PartialBlob::len`] bytes are on disk. If it is dropped, they stay for the next download.
#[derive(Debug)]
pub struct PartialBlob {
    disk: Disk,
    file: DiskFile,
    length: u64,
    path: PathBuf,
    blob: PathBuf,
    /// Released when it is closed, also by the death of the process.
    _lock: File,
}

impl PartialBlob {
    /// The number of bytes on disk.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether no byte is on disk.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The file that holds them.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes the bytes on disk to `take`, block by block.
    pub fn read(&self, take: impl FnMut(&[u8])) -> Result<()> {
        read_blocks(&self.path, take)
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(WeightsError::io("write the file", &self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Removes all bytes.
    pub fn clear(&mut self) -> Result<()> {
        self.disk.remove_file(&self.path).map_err(WeightsError::io("remove the file", &self.path))?;
        (self.file, self.length) = open_end(&self.disk, &self.path)?;
        Ok(())
    }

    /// Gives the blob its name. The caller has checked that the bytes are complete and have the right hash.
    pub fn finish(self) -> Result<()> {
        let synced = self.file.sync().and_then(|()| self.disk.rename(&self.path, &self.blob));
        let synced = synced.and_then(|()| self.blob.parent().map_or(Ok(()), |dir| self.disk.sync_dir(dir)));
        synced.map_err(WeightsError::io("store the file", &self.blob))
    }

    /// Removes the incomplete file, for a blob that another process has completed meanwhile.
    pub fn discard(self) -> Result<()> {
        self.disk.remove_file(&self.path).map_err(WeightsError::io("remove the file", &self.path))
    }
}
