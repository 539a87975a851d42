//! Adapters that requests name: read and packed beside the running requests, then published at once as a new generation.
//!
//! Requests keep the adapters that they began with. When adapters would exceed their memory budget, those that are worth the least
//! are evicted: rarely used, large and fast to load (GreedyDual-Size with frequency, Cherkasova 1998). A request for an evicted
//! adapter waits while it is read again; other requests do not.

mod loader;
mod resident;
mod store;

pub(crate) use self::loader::Loader;
pub use self::resident::AdapterInfo;
pub(crate) use self::resident::SequenceAdapters;
pub(crate) use self::store::Store;

/// How adapters are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterOptions {
    /// Maximum bytes of adapters in memory, those of running requests aside.
    pub memory: u64,
    /// Maximum rank of an adapter.
    pub max_rank: usize,
    /// Maximum number of adapters that a request combines.
    pub max_uses: usize,
}

impl Default for AdapterOptions {
    /// 1 GiB, rank 64, 4 adapters for a request.
    fn default() -> Self {
        Self { memory: 1 << 30, max_rank: 64, max_uses: 4 }
    }
}
