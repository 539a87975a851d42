//! The memory of this process, as counted by the kernel.

use std::path::Path;

use super::memory::field;
use super::tree::Tree;

/// The memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Memory that is not backed by a file.
    pub anonymous_bytes: Option<u64>,
    /// The part of it on transparent huge pages.
    pub huge_page_bytes: Option<u64>,
}

impl Resident {
    /// Reads the memory of this process.
    pub fn now() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Self {
        let tree = Tree::new(root);
        let of = |file: &str, name: &str| tree.text(file).and_then(|text| field(&text, name));
        Self {
            anonymous_bytes: of("proc/self/status", "RssAnon"),
            huge_page_bytes: of("proc/self/smaps_rollup", "AnonHugePages"),
        }
    }
}
