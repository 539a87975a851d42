//! Memory, swap and huge pages.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::{Tree, line_after};

/// When the kernel uses huge pages on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// Wherever possible.
    Always,
    /// Where a program requests them.
    Madvise,
    /// Never.
    Never,
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The memory of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Memory managed by the kernel.
    pub total_bytes: Option<u64>,
    /// Memory that a program could get without swapping.
    pub available_bytes: Option<u64>,
    /// Size of the swap space.
    pub swap_total_bytes: Option<u64>,
    /// The part of it in use.
    pub swap_used_bytes: Option<u64>,
    /// Transparent huge pages.
    pub transparent_huge_pages: Option<HugePages>,
    /// Reserved huge pages (hugetlb).
    pub hugetlb_pages: Option<u64>,
    /// Unused reserved huge pages.
    pub hugetlb_free: Option<u64>,
    /// Size of a reserved huge page.
    pub hugetlb_page_bytes: Option<u64>,
}

impl Memory {
    pub(super) fn read(tree: Tree) -> Self {
        let setting = tree.text("sys/kernel/mm/transparent_hugepage/enabled");
        let memory = tree.text("proc/meminfo").map(|t| meminfo(&t)).unwrap_or_default();
        Self { transparent_huge_pages: setting.and_then(|t| transparent(&t)), ..memory }
    }
}

/// The memory of this process, as counted by the kernel.
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
        let of = |file, name| field(&Tree::new(root).text(file)?, name);
        Self {
            anonymous_bytes: of("proc/self/status", "RssAnon"),
            huge_page_bytes: of("proc/self/smaps_rollup", "AnonHugePages"),
        }
    }
}

/// The bytes, or the count, in the line of that name in `/proc/meminfo` and files like it.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = line_after(text, &format!("{name}:"))?.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        Some(_) => None,
        None => Some(number),
    }
}

/// Parses `/proc/meminfo`.
fn meminfo(text: &str) -> Memory {
    let field = |name: &str| field(text, name);
    let swap = field("SwapTotal");
    Memory {
        total_bytes: field("MemTotal"),
        available_bytes: field("MemAvailable"),
        swap_total_bytes: swap,
        swap_used_bytes: swap.zip(field("SwapFree")).and_then(|(all, free)| all.checked_sub(free)),
        hugetlb_pages: field("HugePages_Total"),
        hugetlb_free: field("HugePages_Free"),
        hugetlb_page_bytes: field("Hugepagesize"),
        ..Memory::default()
    }
}

/// The value in brackets in `always [madvise] never`.
fn transparent(text: &str) -> Option<HugePages> {
    let chosen = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'))?;
    [HugePages::Always, HugePages::Madvise, HugePages::Never].into_iter().find(|p| p.to_string() == chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_in_brackets() {
        assert_eq!(transparent("always [madvise] never\n"), Some(HugePages::Madvise));
        assert_eq!(transparent("[always] madvise never"), Some(HugePages::Always));
        assert_eq!(transparent("always madvise [never]"), Some(HugePages::Never));
        for bad in ["", "always madvise never", "[sometimes]", "[", "[]"] {
            assert_eq!(transparent(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn fields_of_meminfo() {
        let text =
            "MemTotal: 100 kB\nMemAvailable: 40 kB\nSwapTotal: 8 kB\nSwapFree: 6 kB\nHugePages_Total: 3\n";
        let memory = meminfo(text);
        assert_eq!((memory.total_bytes, memory.available_bytes), (Some(102_400), Some(40_960)));
        assert_eq!((memory.swap_total_bytes, memory.swap_used_bytes), (Some(8192), Some(2048)));
        assert_eq!((memory.hugetlb_pages, memory.hugetlb_free), (Some(3), None));
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        for text in [
            "",
            "MemTotal",
            "MemTotal:",
            "MemTotal: x kB",
            "MemTotal: 1 MB",
            "MemTotal: -1 kB",
            "MemTotalX: 1 kB",
            "MemTotal: 18446744073709551615 kB",
            "SwapFree: 1 kB",
        ] {
            assert_eq!(meminfo(text), Memory::default(), "{text:?}");
        }
        assert_eq!(meminfo("SwapTotal: 1 kB\nSwapFree: 2 kB").swap_used_bytes, None);
    }
}
