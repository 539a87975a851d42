//! The machine: what the operating system reports about it, without guesses.
//!
//! Everything is read below a root directory, so that tests can describe a machine as a file tree. A value that
//! cannot be read is `None`; on systems other than Linux that applies to nearly everything.

mod accelerators;
mod activity;
mod counters;
mod cpu;
mod load;
mod memory;
mod quota;
mod topology;
mod tree;

use std::path::Path;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

pub use accelerators::{Accelerators, PciDevice};
pub use activity::{Activity, Process};
pub use counters::Counters;
pub use cpu::Cpu;
pub use load::{Frequency, Load};
pub use memory::{HugePages, Memory, Resident};
pub use quota::Usable;
pub use topology::{Cache, Topology};

use crate::digest::digest;
use crate::number;
use tree::Tree;

/// A computer as this process sees it, at the moment it was read.
///
/// As JSON it begins with its [`one_line`](Self::one_line) as `summary`, its [`fingerprint`](Self::fingerprint) and its
/// [`identity`](Self::identity), which are computed and not read back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Machine {
    /// The operating system's name.
    pub os: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Whether a hypervisor runs this system.
    pub hypervisor: Option<bool>,
    /// The processor.
    pub cpu: Cpu,
    /// Processors, cores, sockets, nodes.
    pub topology: Topology,
    /// The part that this process may use.
    pub usable: Usable,
    /// The caches, by level.
    pub caches: Vec<Cache>,
    /// Memory.
    pub memory: Memory,
    /// How the clock frequency is chosen.
    pub frequency: Frequency,
    /// Other activity.
    pub load: Load,
    /// Visible accelerators.
    pub accelerators: Accelerators,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let parallelism = std::thread::available_parallelism().ok().map(std::num::NonZero::get);
        Self::read_with(Tree::new(Path::new("/")), parallelism)
    }

    /// Reads the machine described by the files below `root`.
    pub fn read(root: &Path) -> Self {
        Self::read_with(Tree::new(root), None)
    }

    fn read_with(tree: Tree, parallelism: Option<usize>) -> Self {
        let info = tree.text("proc/cpuinfo").map(|t| cpu::parse(&t)).unwrap_or_default();
        let cpus = topology::Cpus::read(tree, &info);
        let release = tree.text("etc/os-release").or_else(|| tree.text("usr/lib/os-release"));
        Self {
            os: release.and_then(|t| os_name(&t)),
            kernel: tree.word("proc/sys/kernel/osrelease"),
            hypervisor: tree.word("sys/hypervisor/type").map(|_| true).or(info.hypervisor),
            topology: Topology::read(tree, &info, &cpus),
            usable: Usable::read(tree, &cpus, parallelism),
            caches: topology::caches(tree, &cpus),
            memory: Memory::read(tree),
            frequency: Frequency::read(tree, &cpus),
            load: Load::read(tree),
            accelerators: Accelerators::read(tree),
            cpu: info.cpu,
        }
    }

    /// The default number of threads: the physical cores that this process may use; its hardware threads if cores are
    /// unknown; 1 if both are unknown.
    pub fn default_threads(&self) -> usize {
        self.usable.cores.or(self.usable.cpus).unwrap_or(1).max(1)
    }

    /// The default memory budget of an engine: 80 % of what is free now; `None` if that is unknown.
    pub fn default_memory_bytes(&self) -> Option<u64> {
        self.known_free_bytes().map(|free| free / 5 * 4)
    }

    /// Size of all last-level caches together, in bytes.
    pub fn last_level_cache(&self) -> Option<u64> {
        let last = self.last_cache()?;
        last.size_bytes?.checked_mul(last.instances.unwrap_or(1) as u64)
    }

    fn last_cache(&self) -> Option<&Cache> {
        self.caches.iter().filter(|c| c.kind != "instruction").max_by_key(|c| c.level)
    }

    /// Bytes that this process may still allocate: the available memory, or what its control groups still allow if that is less;
    /// 4 GiB if both are unknown.
    pub fn free_bytes(&self) -> u64 {
        self.known_free_bytes().unwrap_or(4 << 30)
    }

    /// Like [`Machine::free_bytes`], but `None` if both are unknown.
    pub fn known_free_bytes(&self) -> Option<u64> {
        let Usable { memory_limit_bytes, memory_free_bytes, .. } = self.usable;
        [self.memory.available_bytes, memory_limit_bytes, memory_free_bytes].into_iter().flatten().min()
    }

    /// The most bytes that this process may ever have on the machine described by the files below `root`: all memory, or the limit
    /// of its control groups if that is less; `None` if both are unknown. Nothing else is read.
    pub fn memory_limit(root: &Path) -> Option<u64> {
        let tree = Tree::new(root);
        [Memory::read(tree).total_bytes, quota::memory_limit(tree)].into_iter().flatten().min()
    }

    /// The values that must agree before absolute numbers of two runs may be compared, by name; `?` is unknown.
    pub fn identity(&self) -> Vec<(&'static str, String)> {
        let cpu = &self.cpu;
        let data = self.caches.iter().filter(|c| c.kind != "instruction");
        let caches: Vec<String> =
            data.map(|c| format!("{} x{}", cache_text(c), known(c.instances))).collect();
        vec![
            ("vendor", known(cpu.vendor.as_ref())),
            ("cpu", known(cpu.model_name.as_ref())),
            ("family", known(cpu.family)),
            ("model", known(cpu.model)),
            ("usable cpus", known(self.usable.cpus)),
            ("usable cores", known(self.usable.cores)),
            ("caches", known((!caches.is_empty()).then(|| caches.join(", ")))),
            ("memory class", known(self.memory.total_bytes.map(size_class).map(number::bytes))),
            ("kernel", known(self.kernel.as_ref())),
            ("hypervisor", known(self.hypervisor)),
        ]
    }

    /// A digest of [`identity`](Self::identity), equal on machines of the same kind. `None` if the processor, its
    /// usable number or the memory is unknown, because such machines cannot be distinguished.
    pub fn fingerprint(&self) -> Option<String> {
        let processor = self.cpu.model_name.is_some() || self.cpu.model.is_some();
        let distinct = processor && self.usable.cpus.is_some() && self.memory.total_bytes.is_some();
        let line = |(name, value)| format!("{name}={value}");
        let lines: Vec<String> = self.identity().into_iter().map(line).collect();
        distinct.then(|| digest(lines.join("\n").bytes()))
    }

    /// The machine in one line: `AMD EPYC (Zen 4), 2 cores, 32 MiB L3, 24 GiB`.
    pub fn one_line(&self) -> String {
        let mut parts = vec![self.cpu_text().unwrap_or_else(|| "unknown processor".to_owned())];
        parts.extend(self.cores_text());
        parts.extend(self.last_cache().filter(|c| c.size_bytes.is_some()).map(|c| match c.instances {
            Some(n) if n > 1 => format!("{n} x {}", cache_text(c)),
            _ => cache_text(c),
        }));
        parts.extend(self.memory.total_bytes.map(whole_gib));
        parts.join(", ")
    }

    /// The processor's name without trade marks, with its core design.
    pub fn cpu_text(&self) -> Option<String> {
        let cpu = &self.cpu;
        let name = cpu.model_name.as_ref().or(cpu.vendor.as_ref())?;
        let plain = ["(R)", "(r)", "(TM)", "(tm)"].iter().fold(name.clone(), |n, mark| n.replace(mark, " "));
        let words: Vec<&str> =
            plain.split_whitespace().take_while(|w| *w != "@").filter(|w| *w != "CPU").collect();
        let name = words.join(" ");
        Some(match &cpu.microarchitecture {
            Some(core) => format!("{name} ({core})"),
            None => name,
        })
    }

    /// The cores, and the number that this process may use.
    fn cores_text(&self) -> Option<String> {
        let cpus = self.usable.cpus.or(self.topology.logical_cpus);
        let Some(all) = self.topology.physical_cores else {
            return cpus.map(|cpus| number::count(cpus, "hardware thread"));
        };
        let some = self.usable.cores.filter(|some| *some < all).map(|some| format!("{some} of "));
        Some(some.unwrap_or_default() + &number::count(all, "core"))
    }
}

/// The text of a value; `?` if it is unknown.
fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

/// `32 MiB L3`; split data caches are `L1d`.
pub fn cache_text(cache: &Cache) -> String {
    let suffix = match cache.kind.as_str() {
        "data" => "d",
        "instruction" => "i",
        _ => "",
    };
    format!("{} L{}{suffix}", known(cache.size_bytes.map(number::bytes)), cache.level)
}

/// `bytes` in whole GiB, or in tenths if small.
fn whole_gib(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 8.0 { number::bytes(bytes) } else { format!("{gib:.0} GiB") }
}

/// `bytes` rounded up to a quarter of the power of two below it: the installed memory, despite the part reserved by
/// the kernel.
fn size_class(bytes: u64) -> u64 {
    let quarter = (1_u64 << bytes.max(1).ilog2()) / 4;
    bytes.checked_next_multiple_of(quarter.max(1)).unwrap_or(u64::MAX)
}

/// The value of `PRETTY_NAME` in `/etc/os-release`.
fn os_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?.trim();
    let quoted = |quote| value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote));
    let name = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Names and values, in order.
struct Identity(Vec<(&'static str, String)>);

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for Machine {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Machine", 14)?;
        fields.serialize_field("summary", &self.one_line())?;
        fields.serialize_field("fingerprint", &self.fingerprint())?;
        fields.serialize_field("identity", &Identity(self.identity()))?;
        fields.serialize_field("os", &self.os)?;
        fields.serialize_field("kernel", &self.kernel)?;
        fields.serialize_field("hypervisor", &self.hypervisor)?;
        fields.serialize_field("cpu", &self.cpu)?;
        fields.serialize_field("topology", &self.topology)?;
        fields.serialize_field("usable", &self.usable)?;
        fields.serialize_field("caches", &self.caches)?;
        fields.serialize_field("memory", &self.memory)?;
        fields.serialize_field("frequency", &self.frequency)?;
        fields.serialize_field("load", &self.load)?;
        fields.serialize_field("accelerators", &self.accelerators)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_operating_systems() {
        let named = ["ID=x\nPRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME='A'", "PRETTY_NAME=Plain"];
        assert_eq!(named.map(|text| os_name(text).unwrap()), ["Debian 12", "A", "Plain"]);
        for none in ["", "NAME=x", "PRETTY_NAME=", "PRETTY_NAME=\"\""] {
            assert_eq!(os_name(none), None, "{none:?}");
        }
    }

    #[test]
    fn memory_classes_forgive_what_the_kernel_reserves() {
        let gib = |n: f64| (n * f64::from(1 << 30)) as u64;
        for (seen, class) in
            [(23.54, 24.0), (14.9, 16.0), (15.6, 16.0), (62.7, 64.0), (503.5, 512.0), (24.0, 24.0)]
        {
            assert_eq!(size_class(gib(seen)), gib(class), "{seen}");
        }
        assert_eq!((size_class(0), size_class(1), size_class(u64::MAX)), (0, 1, u64::MAX));
    }
}
