//! One file, from the hub to a blob of the cache.

use std::fmt::Write as _;
use std::io::Read as _;
use std::thread;
use std::time::Duration;

use redline_weights::{HubFolder, PartialBlob};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::client::{Answer, Client, header};
use crate::error::{HubError, Result};

/// Bytes per read.
const BLOCK: usize = 1 << 18;
/// Number of consecutive attempts without a new byte after which a download fails.
const ATTEMPTS: u32 = 5;

/// A file to download.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) folder: &'a HubFolder,
    /// The path in the repository.
    pub(crate) name: &'a str,
    /// The path of the content on the hub.
    pub(crate) path: String,
    pub(crate) commit: &'a str,
    /// The hash of the content, which names the blob.
    pub(crate) hash: &'a str,
    /// The length of the content.
    pub(crate) bytes: u64,
    /// The pause after the first failure without progress.
    pub(crate) retry_pause: Duration,
}

/// What happens during a download.
pub(crate) enum Step<'a> {
    /// Another process downloads the same file.
    Waiting,
    /// This many bytes are on disk.
    Have(u64),
    /// An attempt failed, and another one follows.
    Retry(&'a str),
}

/// How an attempt ended.
enum Ending {
    Complete,
    /// The connection failed; the text says why.
    Broken(String),
}

impl Download<'_> {
    /// Downloads the file unless the cache has it. Returns whether the cache had it.
    pub(crate) fn run(&self, observe: &mut dyn FnMut(Step)) -> Result<bool> {
        if self.folder.has_blob(self.hash, self.bytes) {
            return Ok(true);
        }
        let mut partial = self.folder.begin(self.hash, || observe(Step::Waiting))?;
        if self.folder.has_blob(self.hash, self.bytes) {
            partial.discard()?;
            return Ok(true);
        }
        let resumed = !partial.is_empty();
        let found = self.fill(&mut partial, observe)?;
        if found == self.hash {
            partial.finish()?;
            return Ok(false);
        }
        partial.clear()?;
        // The bytes of an earlier download may be those of a damaged file.
        if resumed && self.fill(&mut partial, observe)? == self.hash {
            partial.finish()?;
            return Ok(false);
        }
        partial.discard()?;
        let (file, expected) = (self.name.to_owned(), self.hash.to_owned());
        Err(HubError::Hash { file, expected, found, url: self.client.url(&self.path) })
    }

    /// Downloads all missing bytes, in as many attempts as necessary, and returns the hash of the file.
    fn fill(&self, partial: &mut PartialBlob, observe: &mut dyn FnMut(Step)) -> Result<String> {
        if partial.len() > self.bytes {
            partial.clear()?;
        }
        let mut hasher = self.hasher();
        partial.read(|block| hasher.update(block))?;
        // The most bytes so far: an attempt that begins again is progress only if it goes beyond them.
        let (mut failures, mut most) = (0, partial.len());
        while partial.len() < self.bytes {
            observe(Step::Have(partial.len()));
            match self.attempt(partial, &mut hasher, observe)? {
                Ending::Complete => break,
                Ending::Broken(cause) => {
                    failures = if partial.len() > most { 0 } else { failures + 1 };
                    most = most.max(partial.len());
                    if failures >= ATTEMPTS {
                        return Err(self.broken(partial.len(), cause));
                    }
                    observe(Step::Retry(&cause));
                    thread::sleep(self.retry_pause * failures);
                }
            }
        }
        Ok(hasher.finish())
    }

    /// One request for the missing bytes. Statuses that say that the hub is busy are broken connections.
    fn attempt(
        &self,
        partial: &mut PartialBlob,
        hasher: &mut Hasher,
        observe: &mut dyn FnMut(Step),
    ) -> Result<Ending> {
        let mut answer = match self.client.get(&self.path, partial.len()) {
            Ok(answer) => answer,
            Err(HubError::Connection { cause, .. }) => return Ok(Ending::Broken(cause)),
            Err(HubError::Status { status: status @ (408 | 429 | 500..), .. }) => {
                return Ok(Ending::Broken(format!("status {status}")));
            }
            Err(error) => return Err(error),
        };
        let from = self.first_byte(&answer)?;
        if from != partial.len() {
            partial.clear()?;
            *hasher = self.hasher();
            if from > 0 {
                return Ok(Ending::Broken("the hub does not continue where the file ends".to_owned()));
            }
        }
        self.check(&answer, self.bytes - from)?;
        let mut body = answer.body.as_reader();
        let mut block = vec![0; BLOCK];
        loop {
            let missing = self.bytes - partial.len();
            let length = match body.read(&mut block) {
                Ok(0) if missing == 0 => return Ok(Ending::Complete),
                Ok(0) => return Ok(Ending::Broken("the connection was closed".to_owned())),
                Ok(length) if length as u64 > missing => {
                    let problem = format!("more than the {} bytes that `{}` has", self.bytes, self.name);
                    return Err(HubError::Answer { problem, url: answer.url });
                }
                Ok(length) => length,
                Err(error) => return Ok(Ending::Broken(error.to_string())),
            };
            partial.append(&block[..length])?;
            hasher.update(&block[..length]);
            observe(Step::Have(partial.len()));
        }
    }

    /// The position of the answer's first byte in the file. After a refused range it is the end, which no download continues.
    fn first_byte(&self, answer: &Answer) -> Result<u64> {
        match answer.status {
            206 => {
                let range = header(&answer.headers, "content-range").unwrap_or_default();
                let first =
                    range.strip_prefix("bytes ").and_then(|range| range.split('-').next()?.parse().ok());
                first.filter(|first| *first <= self.bytes).ok_or_else(|| {
                    let problem = "a part of the file without its position".to_owned();
                    HubError::Answer { problem, url: answer.url.clone() }
                })
            }
            416 => Ok(self.bytes),
            _ => Ok(0),
        }
    }

    /// Checks that the answer is about this content, and has `missing` bytes.
    fn check(&self, answer: &Answer, missing: u64) -> Result<()> {
        let linked = &answer.linked;
        let other = |what: &str, expected: &str, found: &str| {
            let problem = format!("{what} of `{}` is {found}, not {expected}", self.name);
            Err(HubError::Answer { problem, url: answer.url.clone() })
        };
        if let Some(commit) = linked.commit.as_ref().filter(|commit| *commit != self.commit) {
            return other("the commit", self.commit, &crate::error::printable(commit));
        }
        match header(&answer.headers, "content-length").and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length != missing => {
                other("the length of the rest", &format!("{missing} bytes"), &format!("{length} bytes"))
            }
            _ => Ok(()),
        }
    }

    fn broken(&self, have: u64, cause: String) -> HubError {
        let (file, url) = (self.name.to_owned(), self.client.url(&self.path));
        HubError::Broken { file, have, bytes: self.bytes, cause, url }
    }

    fn hasher(&self) -> Hasher {
        if self.hash.len() == 64 {
            return Hasher::Sha256(Sha256::new());
        }
        let mut sha1 = Sha1::new();
        sha1.update(format!("blob {}\0", self.bytes));
        Hasher::GitBlob(sha1)
    }
}

/// Bytes as lower-case hexadecimal digits.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The hash of a file: SHA-256 for a file in LFS, else the id of its git blob.
enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::GitBlob(hasher) => hasher.update(bytes),
        }
    }

    /// The hash in lower-case hexadecimal digits.
    fn finish(self) -> String {
        match self {
            Self::Sha256(hasher) => hexadecimal(&hasher.finalize()),
            Self::GitBlob(hasher) => hexadecimal(&hasher.finalize()),
        }
    }
}
