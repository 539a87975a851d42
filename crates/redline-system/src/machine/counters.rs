//! Counters of this process and of the system: the difference of two readings shows what disturbed the time between.

use std::path::Path;

use super::memory::field;
use super::quota::Groups;
use super::tree::{Tree, line_after};

/// Counters since the start of the process or the machine; `None` if one cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Pages of this process that were mapped without reading from a disk.
    pub minor_faults: Option<u64>,
    /// Pages that were read from a disk.
    pub major_faults: Option<u64>,
    /// Voluntary context switches of threads of this process.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches of threads of this process.
    pub involuntary_switches: Option<u64>,
    /// Ticks of all processors since boot.
    pub ticks: Option<u64>,
    /// The part of them that the hypervisor gave to others.
    pub stolen_ticks: Option<u64>,
    /// Periods in which the control group was throttled for using up its quota.
    pub throttled: Option<u64>,
    /// The highest clock frequency of a processor at this moment, in MHz.
    pub mhz: Option<f64>,
}

impl Counters {
    /// Reads the counters now.
    pub fn now() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Self {
        let tree = Tree::new(root);
        let [voluntary_switches, involuntary_switches] = switches(tree);
        let times = tree.text("proc/stat").and_then(|text| times(&text));
        Self {
            voluntary_switches,
            involuntary_switches,
            ticks: times.map(|(all, _)| all),
            stolen_ticks: times.map(|(_, stolen)| stolen),
            throttled: Groups::read(tree).throttled_periods(tree),
            // Idle processors lower their clock by themselves.
            mhz: tree.highest_frequency("scaling_cur_freq").map(|khz| khz * 1e-3),
            ..Self::faults(tree)
        }
    }

    /// Reads only the page counters, which is fast.
    pub fn pages() -> Self {
        Self::faults(Tree::new(Path::new("/")))
    }

    fn faults(tree: Tree) -> Self {
        let faults = tree.text("proc/self/stat").and_then(|text| faults(&text));
        Self { minor_faults: faults.map(|f| f.0), major_faults: faults.map(|f| f.1), ..Self::default() }
    }
}

/// The tenth and the twelfth field of `/proc/self/stat`; the second field is a name in parentheses that may contain
/// anything.
fn faults(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let minor = fields.nth(7)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((minor, major))
}

/// All ticks of the line `cpu` of `/proc/stat`, and the stolen ones. Guest time is included in the others.
pub(super) fn times(stat: &str) -> Option<(u64, u64)> {
    let columns = line_after(stat, "cpu ")?.split_whitespace().take(8);
    let times: Vec<u64> = columns.map(|c| c.parse().ok()).collect::<Option<_>>()?;
    let all = times.iter().try_fold(0_u64, |sum, &t| sum.checked_add(t))?;
    Some((all, *times.get(7)?))
}

/// Voluntary and involuntary switches of all threads, or of the main thread only if the others cannot be read.
pub(super) fn switches(tree: Tree) -> [Option<u64>; 2] {
    let of = |path: &str| {
        let text = tree.text(path)?;
        Some(["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"].map(|name| field(&text, name)))
    };
    let threads = tree.names("proc/self/task");
    let counts = threads.iter().filter_map(|thread| of(&format!("proc/self/task/{thread}/status")));
    let add = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
    let sum = |a: [Option<u64>; 2], b: [Option<u64>; 2]| [add(a[0], b[0]), add(a[1], b[1])];
    counts.reduce(sum).or_else(|| of("proc/self/status")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_process() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 1234 0 7 0 10 3 0 0 20 0 1";
        assert_eq!(faults(stat), Some((1234, 7)));
        assert_eq!((faults(""), faults("1 (x) S 1")), (None, None));
    }

    #[test]
    fn a_made_up_tree() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online".into(), "0-1\n".into());
        for (cpu, khz, switches) in [(0, 2_000_000, 10), (1, 3_000_000, 20)] {
            let status = format!("voluntary_ctxt_switches: {switches}\nnonvoluntary_ctxt_switches: 1\n");
            write(format!("proc/self/task/{cpu}/status"), status);
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            write(file, format!("{khz}\n"));
        }
        let counters = Counters::read(directory.path());
        assert_eq!((counters.voluntary_switches, counters.involuntary_switches), (Some(30), Some(2)));
        assert_eq!((counters.mhz, counters.minor_faults), (Some(3000.0), None));
    }
}
