//! Keys and values: pages within a memory budget, those of earlier requests, and those that outlive the process.

pub(crate) mod cache;
pub(crate) mod pages;
pub(crate) mod prefix_cache;
