//! The sections of the report, one function each.

use redline_kernels::Participation;

use super::{Entry, Limit, Section, TierStatus};
use redline_system::machine::{Accelerators, Cache, HugePages, Machine, Memory, Usable, cache_text};
use redline_system::number::{bytes, count, percent, short};

/// A load average above this means that something else is running.
const IDLE_LOAD: f64 = 0.5;
/// A share of stolen time above this disturbs measurements.
const QUIET_STEAL: f64 = 0.005;

/// All sections that are not empty, in the order of the report.
pub(super) fn all(machine: &Machine, tiers: &[TierStatus], limits: &[Limit]) -> Vec<Section> {
    let mut all = vec![
        system(machine),
        processor(machine),
        instructions(tiers),
        memory(&machine.memory, &machine.usable),
        measured(limits),
        noise(machine),
        accelerators(&machine.accelerators),
    ];
    all.retain(|s| !s.entries.is_empty());
    all
}

fn section(title: &str, entries: Vec<Entry>) -> Section {
    Section { title: title.to_owned(), entries }
}

/// A line without a remark; `None` is shown as `unknown`.
fn line(name: &str, value: Option<impl ToString>) -> Entry {
    let value = value.map_or_else(|| "unknown".to_owned(), |v| v.to_string());
    Entry { name: name.to_owned(), value, remark: None }
}

impl Entry {
    /// Adds a remark if `fact` holds.
    fn remark_if(mut self, fact: bool, remark: impl FnOnce() -> String) -> Self {
        self.remark = fact.then(remark);
        self
    }
}

fn yes_or_no(fact: Option<bool>) -> Option<&'static str> {
    fact.map(|yes| if yes { "yes" } else { "no" })
}

fn system(machine: &Machine) -> Section {
    let entries = vec![
        line("system", machine.os.as_ref()),
        line("kernel", machine.kernel.as_ref()),
        line("uptime", machine.load.uptime_s.map(|s| format!("{:.1} hours", s / 3600.0))),
        line("fingerprint", machine.fingerprint()).remark_if(machine.fingerprint().is_none(), || {
            "the machine cannot be distinguished from others: absolute results will not be compared"
                .to_owned()
        }),
    ];
    section("machine", entries)
}

fn processor(machine: &Machine) -> Section {
    let (topology, usable) = (&machine.topology, &machine.usable);
    let numbers =
        [("family", machine.cpu.family), ("model", machine.cpu.model), ("stepping", machine.cpu.stepping)];
    let numbers: Vec<String> = numbers.iter().filter_map(|(n, v)| v.map(|v| format!("{n} {v}"))).collect();
    let many_nodes = topology.numa_nodes.is_some_and(|n| n > 1);
    let smt = topology.logical_cpus.zip(topology.physical_cores).is_some_and(|(cpus, cores)| cpus > cores);
    let threads = machine.default_threads();
    let allowed = usable.allowed_cpus.or(topology.logical_cpus);
    let mut entries = vec![
        line("name", machine.cpu_text()),
        line("numbers", (!numbers.is_empty()).then(|| numbers.join(", "))),
        line("sockets", topology.sockets),
        line("memory nodes", topology.numa_nodes).remark_if(many_nodes, || {
            "memory of another node is slower\nhint: numactl --cpunodebind=0 --membind=0 redline ..."
                .to_owned()
        }),
        line("cores", topology.physical_cores),
        line("hardware threads", topology.logical_cpus).remark_if(smt, || {
            format!("they share cores: one thread per core is the default ({threads} here)")
        }),
        usable_line(machine),
        line("processor quota", Some(usable.cpu_quota.map_or("none found".to_owned(), short))).remark_if(
            usable.cpu_quota.zip(allowed).is_some_and(|(quota, n)| quota < n as f64),
            || {
                format!(
                    "the control group stops this process when it uses more: default threads here {threads}"
                )
            },
        ),
        governor(machine),
        line("boost", yes_or_no(machine.frequency.boost)),
    ];
    entries.extend(machine.caches.iter().map(cache));
    section("processor", entries)
}

/// The processors that this process may use.
fn usable_line(machine: &Machine) -> Entry {
    let usable = &machine.usable;
    let cores = usable.cores.map(|cores| format!(", {}", count(cores, "core"))).unwrap_or_default();
    let text = usable.cpus.map(|cpus| count(cpus, "hardware thread") + &cores);
    let fewer = usable.allowed_cpus.zip(machine.topology.logical_cpus).is_some_and(|(some, all)| some < all);
    line("usable here", text).remark_if(fewer, || "affinity keeps this process off the others".to_owned())
}

fn cache(cache: &Cache) -> Entry {
    let size = cache_text(cache);
    let mut parts = vec![cache.instances.map_or(size.clone(), |n| format!("{n} x {size}"))];
    parts.extend(cache.shared_by.filter(|&n| n > 1).map(|n| format!("each for {n} hardware threads")));
    parts.extend(cache.line_bytes.map(|n| format!("lines of {n} bytes")));
    line("cache", Some(parts.join(", ")))
}

fn governor(machine: &Machine) -> Entry {
    let frequency = &machine.frequency;
    let governors = Some(frequency.governors.join(", ")).filter(|names| !names.is_empty());
    let driver = frequency.driver.as_ref().map(|driver| format!(" ({driver})")).unwrap_or_default();
    let slow = frequency.governors.iter().any(|g| g != "performance");
    line("frequency governor", governors.map(|names| names + &driver)).remark_if(slow, || {
        "the clock may fall between requests: slower and less steady\n\
         hint: sudo cpupower frequency-set --governor performance"
            .to_owned()
    })
}

fn instructions(tiers: &[TierStatus]) -> Section {
    let tier = |t: &TierStatus| Entry {
        name: t.name.clone(),
        value: if t.available { "available" } else { "not available" }.to_owned(),
        remark: t.reason.clone(),
    };
    section("instructions", tiers.iter().map(tier).collect())
}

fn memory(memory: &Memory, usable: &Usable) -> Section {
    let limit = usable.memory_limit_bytes;
    let swapped = memory.swap_used_bytes.is_some_and(|b| b > 0);
    let limited = limit.zip(memory.total_bytes).is_some_and(|(limit, total)| limit < total);
    let swap = memory.swap_total_bytes.map(|all| match memory.swap_used_bytes {
        _ if all == 0 => "none".to_owned(),
        Some(used) => format!("{} of {} in use", bytes(used), bytes(all)),
        None => bytes(all),
    });
    let reserved = memory.hugetlb_pages.map(|all| match (memory.hugetlb_free, memory.hugetlb_page_bytes) {
        _ if all == 0 => "none".to_owned(),
        (Some(free), Some(size)) => format!("{all} of {}, {free} free", bytes(size)),
        _ => all.to_string(),
    });
    let limit_text = match (limit, usable.memory_free_bytes) {
        (Some(limit), Some(free)) => format!("{}, {} free", bytes(limit), bytes(free)),
        (limit, _) => limit.map_or("none found".to_owned(), bytes),
    };
    let never = memory.transparent_huge_pages == Some(HugePages::Never);
    let entries = vec![
        line("total", memory.total_bytes.map(bytes)),
        line("available", memory.available_bytes.map(bytes)),
        line("limit", Some(limit_text)).remark_if(limited, || {
            "the control group ends this process, or slows it, when it needs more".to_owned()
        }),
        line("swap", swap).remark_if(swapped, || {
            "weights may be swapped out: the first request after a pause will be slow".to_owned()
        }),
        line("transparent huge pages", memory.transparent_huge_pages).remark_if(never, || {
            "weights get small pages: more TLB misses, less bandwidth\n\
             hint: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned()
        }),
        line("reserved huge pages", reserved),
    ];
    section("memory", entries)
}

fn measured(limits: &[Limit]) -> Section {
    let entry = |limit: &Limit| {
        let value = limit.value.map_or("not measured".to_owned(), |v| format!("{} {}", short(v), limit.unit));
        let present = limit.present.unwrap_or(1.0);
        let disturbed = limit.value.is_some() && present < Participation::QUIET;
        let name = format!("{}, {}", limit.name, count(limit.threads, "thread"));
        line(&name, Some(value)).remark_if(disturbed, || {
            format!(
                "too low: other processes kept cores busy ({:.0} % of the threads arrived in time)\n\
                 hint: measure again when the machine is quiet",
                present * 100.0
            )
        })
    };
    section("measured limits", limits.iter().map(entry).collect())
}

fn noise(machine: &Machine) -> Section {
    let load = &machine.load;
    let averages = [load.average_1, load.average_5, load.average_15];
    let averages: Vec<String> = averages.iter().flatten().map(|v| format!("{v:.2}")).collect();
    let entries = vec![
        line("load average", (!averages.is_empty()).then(|| averages.join(", ")))
            .remark_if(load.average_1.is_some_and(|v| v > IDLE_LOAD), || {
                "measurements will be noisy: something was running in the last minute".to_owned()
            }),
        line("other runnable threads", load.other_runnable)
            .remark_if(load.other_runnable.is_some_and(|n| n > 0), || {
                "measurements will be noisy: something is running now".to_owned()
            }),
        line("stolen time since boot", load.steal_share.map(percent))
            .remark_if(load.steal_share.is_some_and(|s| s > QUIET_STEAL), || {
                "measurements will be noisy: the hypervisor gives processor time to others".to_owned()
            }),
        line("hypervisor", yes_or_no(machine.hypervisor)).remark_if(machine.hypervisor == Some(true), || {
            "others may share caches and memory bandwidth unseen\n\
             hint: compare two versions within one run (`bench LANE --versus`)"
                .to_owned()
        }),
    ];
    section("noise", entries)
}

fn accelerators(seen: &Accelerators) -> Section {
    let mut entries = Vec::new();
    for device in &seen.pci {
        let vendor = device.vendor.clone().unwrap_or_else(|| format!("vendor {:#06x}", device.vendor_id));
        let number = device.device_id.map(|id| format!(" {id:#06x}")).unwrap_or_default();
        entries.push(line(&device.class, Some(format!("{vendor}{number} at {}", device.address))));
    }
    if !seen.device_files.is_empty() {
        entries.push(line("device files", Some(seen.device_files.join(", "))));
    }
    entries.extend(seen.nvidia_driver.as_ref().map(|version| line("driver", Some(version))));
    match entries.last_mut() {
        Some(last) => last.remark = Some("seen, not used yet".to_owned()),
        None => entries.push(line("devices", Some("none seen"))),
    }
    section("accelerators", entries)
}
