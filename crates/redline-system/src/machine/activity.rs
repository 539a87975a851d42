//! Activity of the machine: counters that only grow, so that the difference of two readings covers the time between.

use std::collections::BTreeMap;
use std::path::Path;

use super::counters::Counters;
use super::load::amount;
use super::tree::Tree;

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// The counters that are also read around each sample.
    pub counters: Counters,
    /// Number of processors over which the ticks are counted.
    pub cpus: Option<usize>,
    /// Mean number of runnable threads over the last minute.
    pub load_average: Option<f64>,
    /// The id of this process.
    pub own_process: Option<u64>,
    /// All processes by id.
    pub processes: BTreeMap<u64, Process>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// Start time in ticks since boot; it distinguishes processes with a reused id.
    pub started: u64,
    /// Its processor time in ticks.
    pub ticks: u64,
}

impl Activity {
    /// Reads the counters of this machine.
    pub fn now() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Self {
        let tree = Tree::new(root);
        let stat = tree.text("proc/stat").unwrap_or_default();
        let cpus = stat.lines().filter_map(|line| line.strip_prefix("cpu")?.chars().next());
        Self {
            counters: Counters::read(root),
            cpus: Some(cpus.filter(char::is_ascii_digit).count()).filter(|n| *n > 0),
            load_average: tree.text("proc/loadavg").and_then(|text| amount(&text, 0)),
            own_process: tree.text("proc/self/stat").and_then(|t| t.split(' ').next()?.parse().ok()),
            processes: processes(tree),
        }
    }
}

fn processes(tree: Tree) -> BTreeMap<u64, Process> {
    let numbers = tree.names("proc").into_iter().filter_map(|name| name.parse::<u64>().ok());
    numbers.filter_map(|n| Some((n, process(&tree.text(&format!("proc/{n}/stat"))?)?))).collect()
}

/// Parses `7 (a name) S 1 ...`; a name may contain spaces and parentheses.
fn process(stat: &str) -> Option<Process> {
    let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(begin + 1..end)?;
    let fields: Vec<&str> = stat.get(end + 1..)?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        name: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        started: number(19)?,
        ticks: number(11)?.saturating_add(number(12)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_hold_anything() {
        let line = "7 (a) b (c\u{1b}) S 1 7 7 0 -1 4 1 2 3 4 500 25 9 9 20 0 1 0 12345 99 1";
        let expected = Process { name: "a) b (c?".to_owned(), started: 12345, ticks: 525 };
        assert_eq!(process(line), Some(expected));
        for bad in
            ["", "7 (a", "7 (a) S", "7 )a( S 1", "7 (a) S 1 7 7 0 -1 4 1 2 3 4 x 25 9 9 20 0 1 0 12345"]
        {
            assert_eq!(process(bad), None, "{bad:?}");
        }
    }
}
