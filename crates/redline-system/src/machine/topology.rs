//! Processors, cores, sockets, NUMA nodes and caches, from `/sys/devices/system`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cpu::CpuInfo;
use super::tree::Tree;

/// Counts for the whole machine, including parts that this process may not use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Online hardware threads.
    pub logical_cpus: Option<usize>,
    /// Physical cores.
    pub physical_cores: Option<usize>,
    /// Packages.
    pub sockets: Option<usize>,
    /// NUMA nodes.
    pub numa_nodes: Option<usize>,
}

/// Caches of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// 1, 2, 3, ...
    pub level: u32,
    /// `data`, `instruction` or `unified`.
    pub kind: String,
    /// Size of one cache.
    pub size_bytes: Option<u64>,
    /// Size of a cache line.
    pub line_bytes: Option<u32>,
    /// Hardware threads that share one cache.
    pub shared_by: Option<usize>,
    /// Number of such caches.
    pub instances: Option<usize>,
}

/// The processors by number, and the groups that share a core.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpus {
    pub(super) online: BTreeSet<usize>,
    /// The hardware threads of each core; `None` unless known for all.
    pub(super) cores: Option<BTreeSet<BTreeSet<usize>>>,
}

impl Cpus {
    pub(super) fn read(tree: Tree, info: &CpuInfo) -> Self {
        let listed = tree.cpus("sys/devices/system/cpu/online");
        let online = listed.unwrap_or_else(|| info.processors.keys().copied().collect());
        let siblings = |cpu: &usize| {
            let file = |name| tree.cpus(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}"));
            file("core_cpus_list").or_else(|| file("thread_siblings_list"))
        };
        let groups: Option<BTreeSet<_>> = online.iter().map(siblings).collect();
        let cores = groups.or_else(|| cores_by_info(info)).filter(|c| !c.is_empty());
        Self { online, cores }
    }
}

/// The cores identified by package and core number.
fn cores_by_info(info: &CpuInfo) -> Option<BTreeSet<BTreeSet<usize>>> {
    let mut cores: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for (cpu, place) in &info.processors {
        cores.entry((*place)?).or_default().insert(*cpu);
    }
    Some(cores.into_values().collect())
}

impl Topology {
    pub(super) fn read(tree: Tree, info: &CpuInfo, cpus: &Cpus) -> Self {
        let package = |cpu: &usize| {
            tree.number::<usize>(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"))
        };
        let by_info = || info.processors.values().map(|place| place.map(|(package, _)| package)).collect();
        let packages: Option<BTreeSet<usize>> = cpus.online.iter().map(package).collect();
        let packages = packages.filter(|p| !p.is_empty()).or_else(by_info);
        Self {
            logical_cpus: Some(cpus.online.len()).filter(|&n| n > 0),
            physical_cores: cpus.cores.as_ref().map(BTreeSet::len),
            sockets: packages.map(|p| p.len()).filter(|&n| n > 0),
            numa_nodes: tree.cpus("sys/devices/system/node/online").map(|nodes| nodes.len()),
        }
    }
}

/// The caches of all processors, grouped by kind, sorted by level.
pub(super) fn caches(tree: Tree, cpus: &Cpus) -> Vec<Cache> {
    let mut caches: BTreeMap<Cache, BTreeSet<BTreeSet<usize>>> = BTreeMap::new();
    for cpu in &cpus.online {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}/cache");
        for name in tree.names(&directory).iter().filter(|n| n.starts_with("index")) {
            if let Some((cache, sharing)) = cache(tree, &format!("{directory}/{name}")) {
                caches.entry(cache).or_default().extend(sharing);
            }
        }
    }
    let counted = |(cache, sharing): (Cache, BTreeSet<_>)| Cache {
        instances: Some(sharing.len()).filter(|&n| n > 0),
        ..cache
    };
    caches.into_iter().map(counted).collect()
}

/// Reads one cache and the processors that share it.
fn cache(tree: Tree, directory: &str) -> Option<(Cache, Option<BTreeSet<usize>>)> {
    let file = |name| format!("{directory}/{name}");
    let sharing = tree.cpus(&file("shared_cpu_list"));
    let cache = Cache {
        level: tree.number(&file("level"))?,
        kind: tree.word(&file("type"))?.to_lowercase(),
        size_bytes: tree.word(&file("size")).and_then(|s| size(&s)),
        line_bytes: tree.number(&file("coherency_line_size")),
        shared_by: sharing.as_ref().map(BTreeSet::len),
        instances: None,
    };
    Some((cache, sharing))
}

/// Parses `32K`, `1M` or plain bytes.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches() {
        assert_eq!(["32K", "512", "2M"].map(size), [Some(32768), Some(512), Some(2 << 20)]);
        for bad in ["", "K", "-1K", "1 K", "1k", "20000000000G", "1KB"] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
    }
}
