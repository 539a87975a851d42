//! Activity of the machine: counters that only grow, so that the difference of two readings covers the time between.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::counters::switches;
use super::quota::Groups;
use super::tree::Tree;

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Processor time of all processors since boot, in ticks.
    pub ticks: Option<u64>,
    /// The part of it that the hypervisor gave to others.
    pub stolen_ticks: Option<u64>,
    /// Number of processors over which the ticks are counted.
    pub cpus: Option<usize>,
    /// Threads that run or could run now.
    pub runnable: Option<u64>,
    /// Mean number of runnable threads over the last minute.
    pub load_average: Option<f64>,
    /// Microseconds in which at least one task waited for a processor.
    pub cpu_pressure_us: Option<u64>,
    /// Microseconds in which at least one task waited for memory.
    pub memory_pressure_us: Option<u64>,
    /// Microseconds in which at least one task waited for disks.
    pub io_pressure_us: Option<u64>,
    /// Periods in which a control group of this process was throttled.
    pub throttled_periods: Option<u64>,
    /// Pages swapped in and out.
    pub swapped_pages: Option<u64>,
    /// Times that a processor was slowed because it was hot.
    pub thermal_events: Option<u64>,
    /// Involuntary context switches of threads of this process.
    pub involuntary_switches: Option<u64>,
    /// The id of this process.
    pub own_process: Option<u64>,
    /// All processes by id.
    pub processes: BTreeMap<u64, Process>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
        let times = times(&stat);
        let cpus = stat
            .lines()
            .filter(|l| l.strip_prefix("cpu").is_some_and(|l| l.starts_with(|c: char| c.is_ascii_digit())));
        let swap = tree.text("proc/vmstat").and_then(|text| {
            named(&text, "pswpin").zip(named(&text, "pswpout")).map(|(into, out)| into.saturating_add(out))
        });
        let average =
            tree.text("proc/loadavg").and_then(|t| t.split_whitespace().next()?.parse::<f64>().ok());
        Self {
            ticks: times.map(|(all, _)| all),
            stolen_ticks: times.map(|(_, stolen)| stolen),
            cpus: Some(cpus.count()).filter(|n| *n > 0),
            runnable: named(&stat, "procs_running"),
            load_average: average.filter(|v| v.is_finite() && *v >= 0.0),
            cpu_pressure_us: pressure(tree, "cpu"),
            memory_pressure_us: pressure(tree, "memory"),
            io_pressure_us: pressure(tree, "io"),
            throttled_periods: Groups::read(tree).throttled_periods(tree),
            swapped_pages: swap,
            thermal_events: thermal(tree),
            involuntary_switches: switches(tree)[1],
            own_process: tree.text("proc/self/stat").and_then(|t| t.split(' ').next()?.parse().ok()),
            processes: processes(tree),
        }
    }
}

/// All ticks of the line `cpu` of `/proc/stat`, and the stolen ones. Guest time is included in the others.
pub(super) fn times(stat: &str) -> Option<(u64, u64)> {
    let columns = stat.lines().find_map(|l| l.strip_prefix("cpu "))?.split_whitespace().take(8);
    let times: Vec<u64> = columns.map(|c| c.parse().ok()).collect::<Option<_>>()?;
    let all = times.iter().try_fold(0_u64, |sum, &t| sum.checked_add(t))?;
    Some((all, *times.get(7)?))
}

/// The number after a name at the beginning of a line.
fn named(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The total of the line `some`.
fn pressure(tree: Tree, what: &str) -> Option<u64> {
    let text = tree.text(&format!("proc/pressure/{what}"))?;
    text.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1)?.trim().parse().ok())
}

/// The total over all processors. Every processor reports its package's count, which does not matter for a
/// difference.
fn thermal(tree: Tree) -> Option<u64> {
    let cpus = tree.names("sys/devices/system/cpu");
    let cpus = cpus.iter().filter(|n| n.strip_prefix("cpu").is_some_and(|n| n.parse::<usize>().is_ok()));
    let counts =
        cpus.flat_map(|cpu| ["core", "package"].map(|kind| (cpu, kind))).filter_map(|(cpu, kind)| {
            tree.number::<u64>(&format!(
                "sys/devices/system/cpu/{cpu}/thermal_throttle/{kind}_throttle_count"
            ))
        });
    counts.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
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

    #[test]
    fn times_of_all_processors() {
        assert_eq!(times("cpu  1 2 3 4 5 6 7 8 100 100\ncpu0 1 1\n"), Some((36, 8)));
        for bad in ["", "cpu0 1 2 3", "cpu  1 2 3", "cpu  18446744073709551615 1 0 0 0 0 0 1"] {
            assert_eq!(times(bad), None, "{bad:?}");
        }
    }
}
