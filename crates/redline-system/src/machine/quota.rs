//! The part of the machine that this process may use: affinity and control groups.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::topology::Cpus;
use super::tree::{Tree, cpu_list, line_after};

/// The resources that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usable {
    /// Hardware threads allowed by the affinity mask.
    pub allowed_cpus: Option<usize>,
    /// Processor quota of the control group in hardware threads; `None` without a limit.
    pub cpu_quota: Option<f64>,
    /// Usable hardware threads: the allowed ones, at most the quota rounded down, at least 1.
    pub cpus: Option<usize>,
    /// Usable cores: those with an allowed hardware thread, at most `cpus`.
    pub cores: Option<usize>,
    /// Memory limit of the control group; `None` without a limit.
    pub memory_limit_bytes: Option<u64>,
    /// Memory that the control groups still allow: the least difference of limit and usage, of which the page cache is no part,
    /// because the kernel drops it when memory is needed. `None` without a limit.
    pub memory_free_bytes: Option<u64>,
}

impl Usable {
    /// `parallelism` is the standard library's result, if it is available.
    pub(super) fn read(tree: Tree, cpus: &Cpus, parallelism: Option<usize>) -> Self {
        let groups = Groups::read(tree);
        let (cpu_quota, memory) = (groups.cpu_quota(tree), groups.memory(tree));
        let allowed = tree.text("proc/self/status").and_then(|t| allowed(&t)).map(|set| {
            // The mask also contains processors that could be plugged in.
            if cpus.online.is_empty() { set } else { set.intersection(&cpus.online).copied().collect() }
        });
        let allowed = allowed.filter(|set| !set.is_empty());
        let whole = cpu_quota.map(|q| (q.floor() as usize).max(1));
        let count = allowed.as_ref().map(BTreeSet::len);
        let usable = [count, parallelism, whole].into_iter().flatten().min();
        let usable = usable.filter(|_| count.or(parallelism).is_some());
        let cores = cpus.cores.as_ref().map(|cores| match &allowed {
            Some(set) => cores.iter().filter(|core| !core.is_disjoint(set)).count(),
            None => cores.len(),
        });
        Self {
            allowed_cpus: count,
            cpu_quota,
            cpus: usable,
            cores: cores.map(|c| [Some(c), usable].into_iter().flatten().min().unwrap_or(c)),
            memory_limit_bytes: least_limit(&memory),
            memory_free_bytes: memory.iter().map(GroupMemory::free).min(),
        }
    }
}

/// [`Usable::memory_limit_bytes`] alone.
pub(super) fn memory_limit(tree: Tree) -> Option<u64> {
    least_limit(&Groups::read(tree).memory(tree))
}

fn least_limit(groups: &[GroupMemory]) -> Option<u64> {
    groups.iter().map(|group| group.limit).min()
}

/// The processors in the line `Cpus_allowed_list` of `/proc/self/status`.
fn allowed(status: &str) -> Option<BTreeSet<usize>> {
    cpu_list(line_after(status, "Cpus_allowed_list:")?)
}

/// Directories of the control groups of this process, from the innermost to the root.
#[derive(Debug, Default)]
pub(super) struct Groups {
    unified: Vec<String>,
    cpu: Vec<String>,
    memory: Vec<String>,
}

impl Groups {
    pub(super) fn read(tree: Tree) -> Self {
        let text = tree.text("proc/self/cgroup").unwrap_or_default();
        let mut groups = Self {
            unified: chain("sys/fs/cgroup", unified_path(&text)),
            cpu: chain("sys/fs/cgroup/cpu", controller_path(&text, "cpu")),
            memory: chain("sys/fs/cgroup/memory", controller_path(&text, "memory")),
        };
        groups.cpu.extend(chain("sys/fs/cgroup/cpu,cpuacct", controller_path(&text, "cpu")));
        groups
    }

    /// The lowest quota of all groups, in hardware threads.
    fn cpu_quota(&self, tree: Tree) -> Option<f64> {
        let second = self.unified.iter().filter_map(|d| cpu_max(&tree.text(&format!("{d}/cpu.max"))?));
        let first = self.cpu.iter().filter_map(|d| {
            let microseconds = |name| tree.number::<f64>(&format!("{d}/cpu.cfs_{name}_us"));
            quota(microseconds("quota")?, microseconds("period")?)
        });
        second.chain(first).min_by(f64::total_cmp)
    }

    /// Periods in which any of the groups was throttled since its creation.
    pub(super) fn throttled_periods(&self, tree: Tree) -> Option<u64> {
        let line = |text: &str| line_after(text, "nr_throttled ")?.trim().parse::<u64>().ok();
        let groups = self.unified.iter().chain(&self.cpu);
        // The sum is enough, since only the difference of two readings counts.
        groups.filter_map(|d| line(&tree.text(&format!("{d}/cpu.stat"))?)).reduce(u64::saturating_add)
    }

    /// The memory of every group that has a limit.
    fn memory(&self, tree: Tree) -> Vec<GroupMemory> {
        let second = self.unified.iter().filter_map(|d| GroupMemory::read(tree, d, SECOND));
        second.chain(self.memory.iter().filter_map(|d| GroupMemory::read(tree, d, FIRST))).collect()
    }
}

/// Names of the files, and of the lines of `memory.stat`, that describe the memory of a control group.
#[derive(Clone, Copy)]
struct MemoryFiles {
    /// Files with a limit in bytes. Above the second one of version 2, processes are slowed instead of ended.
    limits: &'static [&'static str],
    usage: &'static str,
    /// The lines of the page cache.
    cache: [&'static str; 2],
}

const FIRST: MemoryFiles = MemoryFiles {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cache: ["total_active_file ", "total_inactive_file "],
};
const SECOND: MemoryFiles = MemoryFiles {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cache: ["active_file ", "inactive_file "],
};

/// The memory of a control group in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupMemory {
    limit: u64,
    /// Memory in use, without the page cache; 0 if it is unknown.
    used: u64,
}

impl GroupMemory {
    /// Reads the files in `directory`; `None` without a limit.
    fn read(tree: Tree, directory: &str, files: MemoryFiles) -> Option<Self> {
        let number = |name: &str| tree.number::<u64>(&format!("{directory}/{name}"));
        let statistics = tree.text(&format!("{directory}/memory.stat")).unwrap_or_default();
        let line = |name: &str| line_after(&statistics, name)?.trim().parse::<u64>().ok();
        // Version 1 also gives the lowest limit of all groups above, of which a container sees nothing else.
        let inherited = line("hierarchical_memory_limit ");
        let limits = files.limits.iter().filter_map(|name| number(name)).chain(inherited);
        // Version 1 expresses "no limit" as the largest number of whole pages.
        let limit = limits.filter(|&bytes| bytes < 1 << 62).min()?;
        let cache = files.cache.into_iter().filter_map(line).fold(0, u64::saturating_add);
        Some(Self { limit, used: number(files.usage).unwrap_or(0).saturating_sub(cache) })
    }

    /// Bytes that may still be used.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The path of the version 2 group in `/proc/self/cgroup`.
fn unified_path(text: &str) -> &str {
    line_after(text, "0::").unwrap_or("")
}

/// The path of the group of a version 1 controller in `/proc/self/cgroup`.
fn controller_path<'a>(text: &'a str, controller: &str) -> &'a str {
    let path = |line: &'a str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers.split(',').any(|c| c == controller).then_some(fields.next()?)
    };
    text.lines().find_map(path).unwrap_or("")
}

/// `mount` joined with `path`, then with each parent of `path` down to the mount itself. Parts that would leave the
/// mount are dropped, because a container may see a path from outside.
fn chain(mount: &str, path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').filter(|p| !matches!(*p, "" | "." | "..")).collect();
    let directory = |depth| [&[mount], &parts[..depth]].concat().join("/");
    (0..=parts.len()).rev().map(directory).collect()
}

/// Parses `cpu.max`: `200000 100000`, or `max 100000` without a limit.
fn cpu_max(text: &str) -> Option<f64> {
    let mut fields = text.split_whitespace().map(|f| f.parse().ok());
    quota(fields.next()??, fields.next()??)
}

/// The hardware threads that correspond to a quota per period; a negative quota means no limit.
fn quota(quota: f64, period: f64) -> Option<f64> {
    Some(quota / period).filter(|q| quota > 0.0 && period > 0.0 && q.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        assert_eq!(cpu_max("150000 100000\n"), Some(1.5));
        for text in ["max 100000", "", "1", "1 0", "-1 100000", "nan 1", "a b", "inf 1"] {
            assert_eq!(cpu_max(text), None, "{text:?}");
        }
    }

    #[test]
    fn groups_are_searched_from_the_inside() {
        for (path, expected) in
            [("/a/b", &["m/a/b", "m/a", "m"][..]), ("/", &["m"]), ("/../../a/./b", &["m/a/b", "m/a", "m"])]
        {
            assert_eq!(chain("m", path), expected);
        }
    }

    #[test]
    fn paths_of_controllers() {
        let text = "12:cpuset:/x\n4:cpu,cpuacct:/a:b\n3:memory:/m\n0::/u\nbroken\n9:\n";
        assert_eq!(["cpu", "memory", "pids"].map(|name| controller_path(text, name)), ["/a:b", "/m", ""]);
        assert_eq!(["", text].map(unified_path), ["", "/u"]);
    }

    #[test]
    fn allowed_processors() {
        let status = "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(allowed(status), Some([0, 1].into()));
        assert_eq!(["Cpus_allowed_list:\n", ""].map(allowed), [None, None]);
    }
}
