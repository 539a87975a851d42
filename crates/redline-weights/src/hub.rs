//! Resolves a `--model` argument to a directory: a path, or a Hugging Face id in the local hub cache.

use std::path::{Path, PathBuf};

use crate::error::{Result, WeightsError};
use crate::file::{is_plain_name, read_file};

/// Maximum bytes of a ref file, which holds one commit hash.
const MAX_REF: u64 = 256;
/// Maximum length of an id on the hub.
const MAX_ID: usize = 96;

/// The roots of possible hub caches, searched in field order. They come from the environment, which only the binary
/// reads.
#[derive(Debug, Clone, Default)]
pub struct HubRoots {
    /// `HF_HUB_CACHE`: the cache itself.
    pub hub_cache: Option<PathBuf>,
    /// `HF_HOME`: the cache is its `hub`.
    pub hf_home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`: the cache is its `huggingface/hub`.
    pub xdg_cache: Option<PathBuf>,
    /// The home directory: the cache is its `.cache/huggingface/hub`.
    pub home: Option<PathBuf>,
}

impl HubRoots {
    /// The cache directories in search order, without duplicates.
    pub fn caches(&self) -> Vec<PathBuf> {
        let under = |root: &Option<PathBuf>, inner: &str| {
            root.as_ref().filter(|root| !root.as_os_str().is_empty()).map(|root| root.join(inner))
        };
        let mut caches: Vec<PathBuf> = Vec::new();
        let all = [
            under(&self.hub_cache, ""),
            under(&self.hf_home, "hub"),
            under(&self.xdg_cache, "huggingface/hub"),
            under(&self.home, ".cache/huggingface/hub"),
        ];
        for cache in all.into_iter().flatten() {
            if !caches.contains(&cache) {
                caches.push(cache);
            }
        }
        caches
    }
}

/// Resolves `model`: an existing directory, or an id `org/name` (or `name`), whose `main` snapshot is taken from the
/// first hub cache that has it. Nothing is downloaded.
pub fn resolve_model(model: &str, roots: &HubRoots) -> Result<PathBuf> {
    let path = Path::new(model);
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if path.exists() {
        return Err(WeightsError::NotADirectory { path: path.to_owned() });
    }
    let mut tried = vec![path.to_owned()];
    let hub_id = is_hub_id(model);
    if hub_id {
        let folder = format!("models--{}", model.replace('/', "--"));
        for cache in roots.caches() {
            match snapshot(&cache.join(&folder)) {
                Ok(dir) => return Ok(dir),
                Err(looked_in) => tried.push(looked_in),
            }
        }
    }
    Err(WeightsError::NotFound { model: model.to_owned(), tried, hub_id })
}

/// The snapshot directory of `main`, or the missing path as the error.
fn snapshot(folder: &Path) -> Result<PathBuf, PathBuf> {
    if !folder.is_dir() {
        return Err(folder.to_owned());
    }
    let main = folder.join("refs").join("main");
    let revision = read_file(&main, MAX_REF).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let revision = revision.as_deref().map(str::trim).filter(|revision| is_plain_name(revision));
    let dir = folder.join("snapshots").join(revision.ok_or(main)?);
    if dir.is_dir() { Ok(dir) } else { Err(dir) }
}

/// Whether this is a valid hub id: `name` or `org/name`, each of letters, digits, `-`, `_` and `.`, with no `-` or
/// `.` at its ends and no `--` or `..` inside.
fn is_hub_id(model: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let edge = |c: char| c == '-' || c == '.';
        !part.is_empty() && part.chars().all(plain) && !part.starts_with(edge) && !part.ends_with(edge)
    };
    let inside = !model.contains("--") && !model.contains("..");
    inside && model.len() <= MAX_ID && model.split('/').count() <= 2 && model.split('/').all(part)
}
