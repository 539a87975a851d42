//! A whole model, from the hub to a snapshot in the cache.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redline_weights::{Disk, HubFolder, HubId, is_signed_name, read_file, shard_names};

use crate::client::{Client, HubOptions, escaped};
use crate::download::{Download, Step};
use crate::error::{HubError, Result, printable};
use crate::gguf;
use crate::repository::{RemoteFile, Repository, is_hash};
use crate::selection::{self, CONFIG, DIGESTS, MODULES};

/// Maximum bytes of a list of digests or modules.
const MAX_LIST: u64 = 1 << 20;

/// A Hugging Face hub, or a server that speaks its protocol.
pub struct Hub {
    client: Client,
    retry_pause: Duration,
}

/// What happens while a model is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullEvent<'a> {
    /// The files are known: their number, and their length in bytes.
    Start {
        /// The number of files.
        files: usize,
        /// The sum of their lengths.
        bytes: u64,
    },
    /// Another process downloads this file; this one waits for it.
    Waiting {
        /// The path in the repository.
        file: &'a str,
    },
    /// So many bytes of all files are on disk.
    Progress {
        /// Bytes on disk.
        done: u64,
        /// Bytes of all files.
        total: u64,
    },
    /// The connection broke; the download continues with another one.
    Retry {
        /// The path in the repository.
        file: &'a str,
        /// Why it broke.
        cause: &'a str,
    },
    /// A file is complete. If it was downloaded, its hash is right.
    Done {
        /// The path in the repository.
        file: &'a str,
        /// Its length.
        bytes: u64,
        /// Whether the cache had it.
        cached: bool,
    },
}

/// A file with the hash and the length of its content.
struct Located {
    name: String,
    hash: String,
    bytes: u64,
    /// Whether it was downloaded before the number of files was known.
    downloaded: bool,
}

/// One pull.
struct Pull<'a> {
    hub: &'a Hub,
    id: &'a HubId,
    file: Option<&'a str>,
    folder: HubFolder,
    repository: Repository,
}

impl Hub {
    /// A hub that is reached with these options. Opens no connection.
    pub fn new(options: &HubOptions) -> Result<Self, HubError> {
        Ok(Self { client: Client::new(options)?, retry_pause: options.retry_pause })
    }

    /// Downloads the model `id` into `cache`, the directory that holds the `models--` folders, and returns the directory of the
    /// snapshot. Files that are in the cache are not downloaded again. The revision refers to the snapshot once all files are
    /// complete and the hashes of those that were downloaded are right. After an error, or the end of the process, a repeated call
    /// continues.
    ///
    /// Of a repository with several models in GGUF files, `file` chooses one: by its path, its file name, or a part of that which no
    /// other has. All parts of a split are downloaded, and the path of the first one is returned.
    pub fn pull(
        &self,
        id: &HubId,
        file: Option<&str>,
        cache: &Path,
        disk: Disk,
        observe: &mut dyn FnMut(PullEvent),
    ) -> Result<PathBuf, HubError> {
        let repository = Repository::of(&self.client, id)?;
        let folder = HubFolder::new(disk, cache, id);
        Pull { hub: self, id, file, folder, repository }.run(observe)
    }
}

impl Pull<'_> {
    fn run(&self, observe: &mut dyn FnMut(PullEvent)) -> Result<PathBuf> {
        let gguf = self.gguf()?;
        let mut files = match &gguf {
            Some(parts) => parts.iter().map(|part| self.locate(part)).collect::<Result<_>>()?,
            None => self.files()?,
        };
        // A snapshot is no model before it has its configuration.
        files.sort_by_key(|file| file.name == CONFIG);
        let total = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        observe(PullEvent::Start { files: files.len(), bytes: total });
        let mut before = 0;
        for file in &files {
            let cached = self.download(file, &mut |step| match step {
                Step::Waiting => observe(PullEvent::Waiting { file: &file.name }),
                Step::Have(bytes) => observe(PullEvent::Progress { done: before + bytes, total }),
                Step::Retry(cause) => observe(PullEvent::Retry { file: &file.name, cause }),
            })?;
            before += file.bytes;
            observe(PullEvent::Progress { done: before, total });
            observe(PullEvent::Done {
                file: &file.name,
                bytes: file.bytes,
                cached: cached && !file.downloaded,
            });
        }
        let commit = &self.repository.commit;
        for file in &files {
            self.folder.link(commit, &file.name, &file.hash)?;
        }
        let snapshot = self.folder.publish(self.id.revision(), commit)?;
        Ok(match gguf.iter().flatten().next() {
            Some(first) => snapshot.join(&first.name),
            None => snapshot,
        })
    }

    /// The files of a model in GGUF files, if one is named or the repository has no other weights.
    fn gguf(&self) -> Result<Option<Vec<&RemoteFile>>> {
        let has_some = self.repository.files.iter().any(|file| gguf::is_gguf(&file.name));
        let is_wanted = match self.file {
            Some(_) => true,
            None => has_some && selection::weights(&self.repository, self.id).is_err(),
        };
        is_wanted.then(|| gguf::chosen(&self.repository, self.id, self.file)).transpose()
    }

    /// The files to download. The index of sharded weights, the list of modules and the list of digests name further files, so these
    /// are downloaded at once.
    fn files(&self) -> Result<Vec<Located>> {
        let (weights, is_index) = selection::weights(&self.repository, self.id)?;
        let mut files: Vec<Located> =
            selection::companions(&self.repository).map(|file| self.locate(file)).collect::<Result<_>>()?;
        let mut weights = self.locate(weights)?;
        let mut further = Vec::new();
        if is_index {
            weights.downloaded = !self.download(&weights, &mut |_| {})?;
            for name in shard_names(&self.folder.blob(&weights.hash))? {
                let shard = self.repository.file(&name).ok_or_else(|| self.unlisted(&weights.name, &name))?;
                further.push(shard);
            }
        }
        files.push(weights);
        if let Some(modules) = files.iter_mut().find(|file| file.name == MODULES) {
            modules.downloaded = !self.download(modules, &mut |_| {})?;
            let list = read_file(&self.folder.blob(&modules.hash), MAX_LIST)?;
            let url = || self.hub.client.url(&self.path(MODULES));
            let named = selection::of_modules(&self.repository, &list);
            further.extend(named.map_err(|problem| HubError::Answer { problem, url: url() })?);
        }
        if let Some(digests) = files.iter_mut().find(|file| file.name == DIGESTS) {
            digests.downloaded = !self.download(digests, &mut |_| {})?;
            let list = read_file(&self.folder.blob(&digests.hash), MAX_LIST)?;
            let list = String::from_utf8_lossy(&list);
            let named = list.lines().filter_map(|line| self.repository.file(line.get(66..)?));
            further.extend(named.filter(|file| is_signed_name(&file.name)));
        }
        for file in further {
            if files.iter().all(|other| other.name != file.name) {
                files.push(self.locate(file)?);
            }
        }
        Ok(files)
    }

    /// The hash and the length of a file: those of the list, or those that a request for the file gives.
    fn locate(&self, file: &RemoteFile) -> Result<Located> {
        let name = file.name.clone();
        if let Some((hash, bytes)) = file.content.clone() {
            return Ok(Located { name, hash, bytes, downloaded: false });
        }
        let path = self.path(&name);
        let linked = self.hub.client.head(&path)?;
        match linked.etag.filter(|etag| is_hash(etag)).zip(linked.bytes) {
            Some((hash, bytes)) => Ok(Located { name, hash, bytes, downloaded: false }),
            None => {
                let problem = format!("no hash or no length of `{}`", printable(&name));
                Err(HubError::Answer { problem, url: self.hub.client.url(&path) })
            }
        }
    }

    /// Downloads a file unless the cache has it. Returns whether the cache had it.
    fn download(&self, file: &Located, observe: &mut dyn FnMut(Step)) -> Result<bool> {
        let download = Download {
            client: &self.hub.client,
            folder: &self.folder,
            name: &file.name,
            path: self.path(&file.name),
            commit: &self.repository.commit,
            hash: &file.hash,
            bytes: file.bytes,
            retry_pause: self.hub.retry_pause,
        };
        download.run(observe)
    }

    /// The path of a file's content on the hub.
    fn path(&self, name: &str) -> String {
        let name: Vec<_> = name.split('/').map(escaped).collect();
        format!("/{}/resolve/{}/{}", self.id.model(), self.repository.commit, name.join("/"))
    }

    fn unlisted(&self, index: &str, shard: &str) -> HubError {
        let problem = format!("`{index}` names `{}`, which the repository does not have", printable(shard));
        HubError::Answer { problem, url: self.hub.client.url(&self.path(index)) }
    }
}
