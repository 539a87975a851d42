//! An adapter in memory, and the adapters of a sequence.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use redline_models::adapter::{Adapter, AdapterUse, Adapters};
use redline_weights::Checksum;

/// Facts about a published adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterInfo {
    /// The name that requests give.
    pub name: String,
    /// Number of the publication, counted over all adapters of the engine from 1 on.
    pub generation: u64,
    /// The directory it was read from.
    pub dir: PathBuf,
    /// Bytes in memory; 0 while it is evicted.
    pub bytes: u64,
    /// Time that reading and packing took, in seconds.
    pub load_s: f64,
}

/// A published adapter.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(super) adapter: Arc<Adapter>,
    pub(super) generation: u64,
    /// A checksum over what was read.
    pub(super) identity: Checksum,
}

/// The adapters of a request's sequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceAdapters {
    pub(crate) uses: Adapters,
    /// Their checksums.
    pub(crate) checksums: Vec<Checksum>,
    /// Checksums and scales, as a part of the key of the prefix cache.
    key: String,
}

impl SequenceAdapters {
    pub(super) fn new(uses: Vec<(Published, f32)>) -> Self {
        let mut key = String::new();
        for (published, scale) in &uses {
            let _ = write!(key, "{}:{:x},", published.identity, scale.to_bits());
        }
        let checksums = uses.iter().map(|(published, _)| published.identity).collect();
        let uses =
            uses.into_iter().map(|(published, scale)| AdapterUse { adapter: published.adapter, scale });
        Self { uses: uses.collect(), checksums, key }
    }

    /// The namespace of the prefix cache for requests with this salt. Keys and values computed with other adapters, with other
    /// scales, or without adapters have other namespaces, whatever the salts are.
    pub(crate) fn namespace(&self, salt: &str) -> String {
        format!("{};{salt}", self.key)
    }
}
