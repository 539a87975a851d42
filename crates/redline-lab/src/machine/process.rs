//! The memory of this process, as the kernel counts it.

use std::path::Path;

use super::memory::field;
use super::tree::Tree;

/// What the kernel holds for this process at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Memory that belongs to no file.
    pub anonymous_bytes: Option<u64>,
    /// How much of it lies on transparent huge pages.
    pub huge_page_bytes: Option<u64>,
}

impl Resident {
    /// Of this process.
    pub fn now() -> Self {
        Self::read(Path::new("/"))
    }

    /// As the files below `root` tell.
    pub fn read(root: &Path) -> Self {
        let tree = Tree::new(root);
        let of = |file: &str, name: &str| tree.text(file).and_then(|text| field(&text, name));
        Self {
            anonymous_bytes: of("proc/self/status", "RssAnon"),
            huge_page_bytes: of("proc/self/smaps_rollup", "AnonHugePages"),
        }
    }
}
