//! Adapters that requests name: read and packed beside the running requests, then published at once as a new generation.
//!
//! Requests keep the adapters that they began with. When adapters would exceed their memory budget, those that are worth the least
//! are evicted: rarely used, large and fast to load (GreedyDual-Size with frequency, Cherkasova 1998). A request for an evicted
//! adapter waits while it is read again; other requests do not.

pub(crate) mod resident;
pub(crate) mod source;
mod store;

pub use self::resident::AdapterInfo;
pub(crate) use self::store::{Resolved, Store};
