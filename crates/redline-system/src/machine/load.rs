//! Other activity on the machine: load, stolen time, frequency policy.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::counters::times;
use super::topology::Cpus;
use super::tree::Tree;

/// The load of the machine when it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Mean number of runnable threads over the last minute.
    pub average_1: Option<f64>,
    /// Over the last five minutes.
    pub average_5: Option<f64>,
    /// Over the last fifteen minutes.
    pub average_15: Option<f64>,
    /// Runnable threads other than the reading one.
    pub other_runnable: Option<u64>,
    /// Share of all processor time since boot that the hypervisor gave to others.
    pub steal_share: Option<f64>,
    /// Seconds since boot.
    pub uptime_s: Option<f64>,
}

impl Load {
    pub(super) fn read(tree: Tree) -> Self {
        let load = tree.text("proc/loadavg").map(|t| loadavg(&t)).unwrap_or_default();
        Self {
            steal_share: tree.text("proc/stat").and_then(|t| steal_share(&t)),
            uptime_s: tree.text("proc/uptime").and_then(|t| amount(&t, 0)),
            ..load
        }
    }
}

/// The finite, non-negative number in a column.
pub(super) fn amount(text: &str, column: usize) -> Option<f64> {
    text.split_whitespace().nth(column)?.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)
}

/// Parses `/proc/loadavg`: `0.12 0.86 0.66 1/96 10371`.
fn loadavg(text: &str) -> Load {
    let runnable = text.split_whitespace().nth(3).and_then(|f| f.split_once('/')?.0.parse::<u64>().ok());
    Load {
        average_1: amount(text, 0),
        average_5: amount(text, 1),
        average_15: amount(text, 2),
        other_runnable: runnable.map(|r| r.saturating_sub(1)),
        ..Load::default()
    }
}

/// The eighth column of the line `cpu` of `/proc/stat` over the sum of the first eight, which include the others.
fn steal_share(text: &str) -> Option<f64> {
    let (all, steal) = times(text)?;
    (all > 0).then(|| steal as f64 / all as f64)
}

/// How the clock frequency is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// The kernel's driver.
    pub driver: Option<String>,
    /// The governors in use; several if the processors differ, none if they cannot be read.
    pub governors: Vec<String>,
    /// Whether frequencies above the nominal one are allowed.
    pub boost: Option<bool>,
}

impl Frequency {
    pub(super) fn read(tree: Tree, cpus: &Cpus) -> Self {
        let file = |cpu: &usize, name| tree.word(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"));
        let governors: BTreeSet<String> =
            cpus.online.iter().filter_map(|c| file(c, "scaling_governor")).collect();
        let switch = |path: &str, on: u8| tree.number::<u8>(path).filter(|&v| v <= 1).map(|v| v == on);
        let boost = switch("sys/devices/system/cpu/cpufreq/boost", 1);
        Self {
            driver: cpus.online.iter().find_map(|c| file(c, "scaling_driver")),
            governors: governors.into_iter().collect(),
            boost: boost.or_else(|| switch("sys/devices/system/cpu/intel_pstate/no_turbo", 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_averages() {
        let load = loadavg("0.12 0.86 0.66 3/96 10371\n");
        assert_eq!((load.average_1, load.average_5, load.average_15), (Some(0.12), Some(0.86), Some(0.66)));
        assert_eq!(load.other_runnable, Some(2));
        assert_eq!(loadavg("0 0 0 0/9 1").other_runnable, Some(0));
        for bad in ["", "nan inf -1 x", "a b c 1 2", "- - - /"] {
            assert_eq!(loadavg(bad), Load::default(), "{bad:?}");
        }
    }

    #[test]
    fn stolen_time() {
        assert_eq!(steal_share("cpu  1 2 3 4 5 6 7 8 100 100\ncpu0 1 1\n"), Some(8.0 / 36.0));
        assert_eq!(steal_share("cpu  10 20 30 35 0 0 0 5 7 9\ncpu0 1 1 1 1 1 1 1 1\n"), Some(0.05));
        for bad in [
            "",
            "cpu0 1 1 1 1 1 1 1 1",
            "cpu  1 2 3 4",
            "cpu  0 0 0 0 0 0 0 0",
            "cpu  1 2 3 x 5 6 7 8",
            "cpu  18446744073709551615 1 0 0 0 0 0 1",
        ] {
            assert_eq!(steal_share(bad), None, "{bad:?}");
        }
    }
}
