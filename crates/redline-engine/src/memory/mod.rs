//! Keys and values in memory: pages within a budget, and those of earlier requests.

pub(crate) mod cache;
pub(crate) mod prefix_cache;
