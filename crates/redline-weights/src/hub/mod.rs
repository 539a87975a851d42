//! The Hugging Face hub cache: resolves the name of a model to its path, and stores downloaded files.

mod folder;
mod id;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub use folder::{HubFolder, PartialBlob};
pub use id::HubId;
use id::{MAIN, is_commit};

use crate::error::{Result, WeightsError};
use crate::file::{is_plain_name, read_file};
use crate::gguf::Gguf;

/// Maximum bytes of a ref file, which holds one commit hash.
const MAX_REF: u64 = 256;

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

/// Resolves `model`: an existing directory, a GGUF file, or an id `org/name`, `name` or `org/name@revision`, whose snapshot is taken from
/// the first hub cache that has it. Without a revision this is the snapshot of `main`. Nothing is downloaded.
pub fn resolve_model(model: &str, roots: &HubRoots) -> Result<PathBuf> {
    let path = Path::new(model);
    if path.is_dir() || Gguf::is(path) {
        return Ok(path.to_owned());
    }
    if path.exists() {
        return Err(WeightsError::NotADirectory { path: path.to_owned() });
    }
    let Some(id) = HubId::parse(model) else {
        let tried = vec![path.to_owned()];
        return Err(WeightsError::NotFound { model: model.to_owned(), tried, hub_id: false });
    };
    cached_model(&id, roots).map_err(|error| match error {
        WeightsError::NotFound { model, mut tried, hub_id } => {
            tried.insert(0, path.to_owned());
            WeightsError::NotFound { model, tried, hub_id }
        }
        other => other,
    })
}

/// The snapshot of a model in the first hub cache that has it. A directory of the same name elsewhere is not looked at.
pub fn cached_model(id: &HubId, roots: &HubRoots) -> Result<PathBuf> {
    let mut tried = Vec::new();
    for cache in roots.caches() {
        match snapshot(&cache, id) {
            Ok(dir) => return Ok(dir),
            Err(looked_in) => tried.push(looked_in),
        }
    }
    Err(WeightsError::NotFound { model: id.to_string(), tried, hub_id: true })
}

/// The models that the hub caches have, with their snapshots, in the order of their names: every branch and tag to which a download refers.
/// `cached_model` finds each of them.
pub fn cached_models(roots: &HubRoots) -> Vec<(HubId, PathBuf)> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let mut models = BTreeMap::new();
    for cache in roots.caches() {
        for folder in names(&cache) {
            let Some(model) = folder.strip_prefix("models--").map(|name| name.replacen("--", "/", 1)) else {
                continue;
            };
            for revision in names(&cache.join(&folder).join("refs")) {
                let name = if revision == MAIN { model.clone() } else { format!("{model}@{revision}") };
                let Some(id) = HubId::parse(&name) else { continue };
                if let Ok(snapshot) = cached_model(&id, roots) {
                    models.insert(name, (id, snapshot));
                }
            }
        }
    }
    models.into_values().collect()
}

/// The snapshot directory of an id, or the missing path as the error.
fn snapshot(cache: &Path, id: &HubId) -> Result<PathBuf, PathBuf> {
    let folder = cache.join(id.folder());
    if !folder.is_dir() {
        return Err(folder);
    }
    let commit = if is_commit(id.revision()) {
        id.revision().to_owned()
    } else {
        let file = folder.join("refs").join(id.revision());
        let commit = read_file(&file, MAX_REF).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let commit = commit.as_deref().map(str::trim).filter(|commit| is_plain_name(commit));
        commit.ok_or(file)?.to_owned()
    };
    let dir = folder.join("snapshots").join(commit);
    if dir.is_dir() { Ok(dir) } else { Err(dir) }
}
