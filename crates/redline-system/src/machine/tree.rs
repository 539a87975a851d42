//! Reads small files under a root directory; errors are returned as `None`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

/// Maximum size of a file; `/proc/cpuinfo` of a thousand processors is 2 MB.
const LONGEST: u64 = 16 << 20;
/// Maximum processor number; Linux allows 8192.
const HIGHEST_CPU: usize = 1 << 16;

/// The file system below a root: `/`, or a test's directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// The text of a file; `None` if it cannot be read.
    pub(super) fn text(self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.root.join(path)).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The trimmed text of a file; `None` if it is empty.
    pub(super) fn word(self, path: &str) -> Option<String> {
        self.text(path).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
    }

    pub(super) fn number<T: FromStr>(self, path: &str) -> Option<T> {
        self.word(path)?.parse().ok()
    }

    pub(super) fn cpus(self, path: &str) -> Option<BTreeSet<usize>> {
        cpu_list(&self.text(path)?)
    }

    /// The highest value of a file that every processor may have in `/sys/devices/system/cpu/cpuN/cpufreq`.
    pub(super) fn highest_frequency(self, name: &str) -> Option<f64> {
        let file = |cpu: &String| format!("sys/devices/system/cpu/{cpu}/cpufreq/{name}");
        self.names("sys/devices/system/cpu").iter().filter_map(|cpu| self.number(&file(cpu))).reduce(f64::max)
    }

    /// The names in a directory, with numbers in numeric order; empty if it cannot be read.
    pub(super) fn names(self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_by_key(|n| (n.len(), n.clone()));
        names
    }
}

/// The rest of the first line that begins with `prefix`.
pub(super) fn line_after<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(prefix))
}

/// Parses `0-3,8,10-11`; `None` if it is empty or malformed.
pub(super) fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= HIGHEST_CPU {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        let read = |text| cpu_list(text).map(Vec::from_iter);
        assert_eq!(read("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(read("5"), Some(vec![5]));
        for bad in ["", "\n", "a", "3-1", "1-", "-1", "0,,1", "0-4294967295", "99999999999999999999"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::new(directory.path());
        assert_eq!(tree.text("a"), None);
        assert_eq!(tree.text(""), None, "a directory is no text");
        assert_eq!(tree.names("a"), [""; 0]);
        fs::write(directory.path().join("blank"), " \n").unwrap();
        fs::write(directory.path().join("number10"), "7\n").unwrap();
        fs::write(directory.path().join("number9"), b"\xff7").unwrap();
        assert_eq!(tree.word("blank"), None);
        assert_eq!(tree.number::<u8>("number10"), Some(7));
        assert_eq!(tree.number::<u8>("number9"), None);
        assert_eq!(tree.names(""), ["blank", "number9", "number10"]);
    }
}
