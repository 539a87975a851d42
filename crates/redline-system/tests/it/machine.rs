//! Machines described by file trees are read correctly.

use redline_system::Machine;
use redline_system::machine::{Accelerators, Cache, Counters, HugePages, Resident, Topology, Usable};

use redline_testing::trees::{Root, small_vm, two_sockets};

/// The machine that a file tree describes.
trait Described {
    fn machine(&self) -> Machine;
}

impl Described for Root {
    fn machine(&self) -> Machine {
        Machine::read(self.path())
    }
}

#[test]
fn a_small_virtual_machine() {
    let machine = small_vm().machine();
    assert_eq!(machine.one_line(), "AMD EPYC (Zen 4), 2 cores, 32 MiB L3, 24 GiB");
    assert_eq!(machine.os.as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
    assert_eq!(machine.kernel.as_deref(), Some("6.18.44"));
    assert_eq!(machine.hypervisor, Some(true));
    let cpu = &machine.cpu;
    assert_eq!((cpu.family, cpu.model, cpu.stepping), (Some(25), Some(17), Some(1)));
    assert_eq!(cpu.vendor.as_deref(), Some("AuthenticAMD"));
    let one_node =
        Topology { logical_cpus: Some(2), physical_cores: Some(2), sockets: Some(1), numa_nodes: Some(1) };
    assert_eq!(machine.topology, one_node);
    let all = Usable {
        allowed_cpus: Some(2),
        cpu_quota: None,
        cpus: Some(2),
        cores: Some(2),
        memory_limit_bytes: None,
        memory_free_bytes: None,
    };
    assert_eq!(machine.usable, all);
    assert_eq!(machine.default_threads(), 2);
    assert_eq!(machine.memory.transparent_huge_pages, Some(HugePages::Madvise));
    assert_eq!(machine.load.other_runnable, Some(0));
    assert_eq!(machine.load.steal_share, Some(300.0 / 457_450.0));
    assert!(machine.frequency.governors.is_empty());
    assert_eq!(machine.accelerators, Accelerators::default());
}

#[test]
fn two_sockets_with_two_threads_per_core() {
    let machine = two_sockets().machine();
    assert_eq!(machine.one_line(), "Intel Xeon Platinum 8352Y (Ice Lake), 8 cores, 2 x 48 MiB L3, 503 GiB",);
    let both =
        Topology { logical_cpus: Some(16), physical_cores: Some(8), sockets: Some(2), numa_nodes: Some(2) };
    assert_eq!(machine.topology, both);
    // The kernel allows processors that do not exist.
    assert_eq!(machine.usable.allowed_cpus, Some(16));
    assert_eq!((machine.usable.cpus, machine.default_threads()), (Some(16), 8));
    let cache = |level, kind: &str, kib: u64, shared_by, instances| Cache {
        level,
        kind: kind.to_owned(),
        size_bytes: Some(kib << 10),
        line_bytes: Some(64),
        shared_by: Some(shared_by),
        instances: Some(instances),
    };
    let expected = [
        cache(1, "data", 48, 2, 8),
        cache(1, "instruction", 32, 2, 8),
        cache(2, "unified", 2048, 2, 8),
        cache(3, "unified", 49152, 8, 2),
    ];
    assert_eq!(machine.caches, expected);
    assert_eq!(machine.hypervisor, Some(false));
    assert_eq!(machine.frequency.governors, ["performance", "powersave"]);
    assert_eq!(machine.frequency.driver.as_deref(), Some("intel_pstate"));
    assert_eq!(machine.frequency.boost, Some(false));
}

#[test]
fn affinity_counts_the_cores_it_leaves() {
    let usable = |list: &str| {
        two_sockets().file("proc/self/status", format!("Cpus_allowed_list:\t{list}\n")).machine()
    };
    let half = usable("0-3");
    assert_eq!((half.usable.cpus, half.usable.cores), (Some(4), Some(4)));
    assert!(half.one_line().contains(", 4 of 8 cores,"), "{}", half.one_line());
    let one_core = usable("2,10");
    assert_eq!(
        (one_core.usable.cpus, one_core.usable.cores, one_core.default_threads()),
        (Some(2), Some(1), 1)
    );
}

#[test]
fn the_tightest_control_group_counts() {
    let second = two_sockets()
        .file("proc/self/cgroup", "0::/outer/inner\n")
        .file("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/outer/cpu.max", "350000 100000\n")
        .file("sys/fs/cgroup/outer/memory.max", "1073741824\n")
        .file("sys/fs/cgroup/outer/inner/memory.max", "max\n")
        .machine();
    assert_eq!(second.usable.cpu_quota, Some(3.5));
    assert_eq!((second.usable.cpus, second.usable.cores, second.default_threads()), (Some(3), Some(3), 3));
    assert_eq!(second.usable.memory_limit_bytes, Some(1 << 30));
    for (outer, inner) in [("350000", "150000"), ("150000", "350000")] {
        let nested = two_sockets()
            .file("proc/self/cgroup", "0::/outer/inner\n")
            .file("sys/fs/cgroup/outer/inner/cpu.max", format!("{inner} 100000\n"))
            .file("sys/fs/cgroup/outer/cpu.max", format!("{outer} 100000\n"))
            .machine();
        assert_eq!(nested.usable.cpu_quota, Some(1.5));
    }

    // A container that sees its path from outside, which does not exist inside.
    let first = two_sockets()
        .file("proc/self/cgroup", "3:cpu,cpuacct:/docker/0123\n2:memory:/docker/0123\n")
        .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n")
        .machine();
    assert_eq!(first.usable.cpu_quota, Some(0.5));
    assert_eq!((first.usable.cpus, first.default_threads()), (Some(1), 1));
    assert_eq!(first.usable.memory_limit_bytes, Some(2 << 30));
}

#[test]
fn without_sysfs_cores_come_from_cpuinfo() {
    let cpuinfo = std::fs::read(two_sockets().path().join("proc/cpuinfo")).unwrap();
    let machine = Root::empty().file("proc/cpuinfo", cpuinfo).machine();
    let topology = &machine.topology;
    assert_eq!((topology.logical_cpus, topology.physical_cores), (Some(16), Some(8)));
    assert_eq!((topology.sockets, topology.numa_nodes), (Some(2), None));
    assert_eq!((machine.usable.cpus, machine.default_threads()), (None, 8));
}

#[test]
fn arm_names_its_cores_by_part() {
    let machine = Root::empty()
        .file("proc/cpuinfo", include_str!("fixtures/neoverse.cpuinfo"))
        .file("proc/self/status", "Cpus_allowed_list:\t0-1\n")
        .machine();
    assert_eq!(machine.one_line(), "Neoverse-N1, 2 hardware threads");
    assert_eq!(machine.cpu.vendor.as_deref(), Some("ARM"));
    assert_eq!((machine.hypervisor, machine.topology.physical_cores), (None, None));
    assert_eq!(machine.default_threads(), 2);
}

#[test]
fn nothing_readable_is_nothing_known() {
    let machine = Root::empty().machine();
    assert_eq!(machine, Machine::default());
    assert_eq!(machine.one_line(), "unknown processor");
    assert_eq!((machine.fingerprint(), machine.default_threads()), (None, 1));
}

#[test]
fn garbage_is_nothing_known() {
    let files = [
        "proc/cpuinfo",
        "proc/meminfo",
        "proc/loadavg",
        "proc/stat",
        "proc/uptime",
        "proc/self/status",
        "proc/self/cgroup",
        "etc/os-release",
        "sys/fs/cgroup/cpu.max",
        "sys/fs/cgroup/memory.max",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/devices/system/cpu/online",
        "sys/devices/system/node/online",
        "sys/devices/system/cpu/cpufreq/boost",
        "sys/bus/pci/devices/x/vendor",
        "sys/bus/pci/devices/x/class",
        "dev/dri",
    ];
    for garbage in [&b""[..], b"\0\xff\xfe: :\n::\n\n-", b"cpu  -1 x\n0x : : 0-\n[[]]"] {
        let root = files.iter().fold(Root::empty(), |root, path| root.file(path, garbage));
        assert_eq!(root.machine(), Machine::default(), "{garbage:?}");
    }
}

#[test]
fn this_machine_can_be_read() {
    let machine = Machine::here();
    assert!(machine.default_threads() >= 1);
    let json = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
}

#[test]
fn accelerators_are_seen() {
    let device = |root: Root, address: &str, vendor: &str, class: &str| {
        let at = |name| format!("sys/bus/pci/devices/{address}/{name}");
        root.file(&at("vendor"), vendor).file(&at("class"), class).file(&at("device"), "0x2330\n")
    };
    let mut root = Root::empty();
    for (address, vendor, class) in [
        ("0000:01:00.0", "0x10de\n", "0x030200\n"),
        ("0000:02:00.0", "0x1a03\n", "0x030000\n"),
        ("0000:03:00.0", "0x8086\n", "0x020000\n"),
        ("0000:04:00.0", "0x1da3\n", "0x120000\n"),
    ] {
        root = device(root, address, vendor, class);
    }
    for path in
        ["nvidia0", "nvidia10", "nvidia2", "nvidiactl", "kfd", "accel/accel0", "dri/renderD128", "dri/card0"]
    {
        root = root.file(&format!("dev/{path}"), "");
    }
    let machine =
        root.file("proc/driver/nvidia/version", "NVRM version: NVIDIA 570.1\nGCC version: 12\n").machine();
    let seen = &machine.accelerators;
    let pci: Vec<_> =
        seen.pci.iter().map(|d| (d.address.as_str(), d.vendor.as_deref(), d.class.as_str())).collect();
    let expected =
        [("0000:01:00.0", Some("NVIDIA"), "display"), ("0000:04:00.0", None, "processing accelerator")];
    assert_eq!(pci, expected);
    assert_eq!(seen.pci[0].device_id, Some(0x2330));
    let files = [
        "/dev/nvidia0",
        "/dev/nvidia2",
        "/dev/nvidia10",
        "/dev/accel/accel0",
        "/dev/dri/renderD128",
        "/dev/kfd",
    ];
    assert_eq!(seen.device_files, files);
    assert_eq!(seen.nvidia_driver.as_deref(), Some("NVRM version: NVIDIA 570.1"));
}

#[test]
fn the_fingerprint_is_stable() {
    // This value is stored in results. It may change only together with the definition of a machine's identity.
    assert_eq!(small_vm().machine().fingerprint().as_deref(), Some("21bc65f56d2a11b1"));
}

#[test]
fn the_fingerprint_ignores_what_passes() {
    let same = small_vm()
        .file("proc/loadavg", "9.0 9.0 9.0 8/96 1\n")
        .file("proc/meminfo", "MemTotal: 24600000 kB\nMemAvailable: 1 kB\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    assert_eq!(same.machine().fingerprint(), small_vm().machine().fingerprint());
}

#[test]
fn the_fingerprint_tells_machines_apart() {
    let base = small_vm().machine();
    let others = [
        small_vm().file("proc/self/status", "Cpus_allowed_list:\t0\n"),
        small_vm().file("proc/meminfo", "MemTotal: 8000000 kB\n"),
        small_vm().file("proc/sys/kernel/osrelease", "7.0\n"),
        small_vm().file("sys/devices/system/cpu/cpu0/cache/index3/size", "16384K\n"),
        small_vm().file("proc/cpuinfo", include_str!("fixtures/neoverse.cpuinfo")),
    ];
    for other in others.map(|root| root.machine()) {
        assert_ne!(other.fingerprint(), base.fingerprint(), "{}", other.one_line());
        assert_ne!(other.identity(), base.identity());
    }
}

#[test]
fn json_begins_with_what_is_computed_and_reads_back() {
    for root in [Root::empty(), small_vm(), two_sockets()] {
        let machine = root.machine();
        let json = serde_json::to_string(&machine).unwrap();
        let begin = format!(r#"{{"summary":"{}","fingerprint":"#, machine.one_line());
        assert!(json.starts_with(&begin), "{json}");
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }
}

#[test]
fn caches_and_memory_of_a_machine() {
    let vm = small_vm().machine();
    assert_eq!((vm.last_level_cache(), vm.free_bytes()), (Some(32 << 20), 24_170_072 << 10));
    assert_eq!(two_sockets().machine().last_level_cache(), Some(2 * (48 << 20)));
    let unknown = Machine::default();
    assert_eq!((unknown.last_level_cache(), unknown.free_bytes()), (None, 4 << 30));
    let limited = Usable { memory_limit_bytes: Some(1 << 30), ..vm.usable.clone() };
    assert_eq!(Machine { usable: limited, ..vm }.free_bytes(), 1 << 30);
}

/// The memory limit and the free memory, in KiB, of a process in the control groups `groups`, whose mount has these files.
fn free_kib(mount: &str, groups: &str, files: &[(&str, &str)]) -> (Option<u64>, u64) {
    let root = small_vm().file("proc/self/cgroup", groups);
    let root = files.iter().fold(root, |root, (file, text)| root.file(&format!("{mount}/{file}"), text));
    let machine = root.machine();
    let limit = [machine.memory.total_bytes, machine.usable.memory_limit_bytes];
    assert_eq!(Machine::memory_limit(root.path()), limit.into_iter().flatten().min());
    (machine.usable.memory_limit_bytes.map(|bytes| bytes >> 10), machine.free_bytes() >> 10)
}

#[test]
fn free_memory_is_what_the_control_groups_leave() {
    // Version 2: the outer group has the lower limit, and the inner one is fuller.
    let second = |files: &[(&str, &str)]| free_kib("sys/fs/cgroup", "0::/outer/inner\n", files);
    let inner = [("outer/inner/memory.max", "8388608\n"), ("outer/inner/memory.current", "7340032\n")];
    let outer = [("outer/memory.max", "4194304\n"), ("outer/memory.current", "1048576\n")];
    assert_eq!(second(&[inner, outer].concat()), (Some(4096), 1024));
    assert_eq!(second(&outer), (Some(4096), 3072));
    // The page cache can be dropped.
    let cache = ("outer/inner/memory.stat", "anon 1\nfile 9\ninactive_file 1048576\nactive_file 2097152\n");
    assert_eq!(second(&[&inner[..], &[cache]].concat()), (Some(8192), 4096));
    // More may be in use than a lowered limit, and a lower limit may slow instead of end.
    assert_eq!(second(&[inner[0], ("outer/inner/memory.current", "9000000\n")]), (Some(8192), 0));
    assert_eq!(second(&[inner[0], ("outer/inner/memory.high", "2097152\n")]), (Some(2048), 2048));
    assert_eq!(second(&[("outer/inner/memory.max", "max\n"), inner[1]]), (None, 24_170_072));
}

#[test]
fn free_memory_in_control_groups_of_the_first_version() {
    let first = |files: &[(&str, &str)]| free_kib("sys/fs/cgroup/memory", "4:memory:/outer/inner\n", files);
    let limit = ("outer/memory.limit_in_bytes", "4194304\n");
    let usage = ("outer/memory.usage_in_bytes", "3145728\n");
    assert_eq!(first(&[limit, usage]), (Some(4096), 1024));
    let cache =
        |active: u64, inactive: u64| format!("total_active_file {active}\ntotal_inactive_file {inactive}\n");
    assert_eq!(first(&[limit, usage, ("outer/memory.stat", &cache(1 << 20, 1 << 19))]), (Some(4096), 2560));
    // A container sees its own group as the root, without the limit of the group above.
    let unlimited = ("memory.limit_in_bytes", "9223372036854771712\n");
    let own = ("memory.usage_in_bytes", "524288\n");
    assert_eq!(first(&[unlimited, own]), (None, 24_170_072));
    let above = ("memory.stat", "hierarchical_memory_limit 1048576\n");
    assert_eq!(first(&[unlimited, own, above]), (Some(1024), 512));
}

#[test]
fn resident_memory_of_a_process() {
    let root = Root::empty().file("proc/self/status", "VmRSS:\t    2144 kB\nRssAnon:\t     152 kB\n").file(
        "proc/self/smaps_rollup",
        "00-ff ---p 00000000 00:00 0 [rollup]\nAnonHugePages:      2048 kB\n",
    );
    let resident = Resident::read(root.path());
    assert_eq!((resident.anonymous_bytes, resident.huge_page_bytes), (Some(152 << 10), Some(2 << 20)));
    assert_eq!(Resident::read(Root::empty().path()), Resident::default());
}

#[test]
fn switches_are_those_of_all_threads_or_else_of_the_main_one() {
    let main = || {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        Root::empty().file("proc/self/status", status)
    };
    let switches = |root: Root| {
        let counters = Counters::read(root.path());
        (counters.voluntary_switches, counters.involuntary_switches)
    };
    assert_eq!(switches(main()), (Some(5), Some(7)));
    // One of the threads tells only one of its counters.
    let threads = main()
        .file("proc/self/task/5/status", "voluntary_ctxt_switches:\t1\n")
        .file("proc/self/task/6/status", "voluntary_ctxt_switches:\t2\nnonvoluntary_ctxt_switches:\t4\n");
    assert_eq!(switches(threads), (Some(3), Some(4)));
}

#[test]
fn boost_is_told_by_either_of_two_files() {
    const BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";
    const NO_TURBO: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
    let boost = |files: &[(&str, &str)]| {
        let root = files.iter().fold(Root::empty(), |root, (path, text)| root.file(path, text));
        root.machine().frequency.boost
    };
    for (files, expected) in [
        (&[(BOOST, "1\n")][..], Some(true)),
        (&[(BOOST, "0\n")], Some(false)),
        (&[(BOOST, "2\n")], None),
        (&[(NO_TURBO, "0\n")], Some(true)),
        (&[(NO_TURBO, "1\n")], Some(false)),
        (&[(BOOST, "0\n"), (NO_TURBO, "0\n")], Some(false)),
    ] {
        assert_eq!(boost(files), expected, "{files:?}");
    }
}

#[test]
fn a_machine_that_could_be_another_has_no_fingerprint() {
    for path in ["proc/cpuinfo", "proc/meminfo", "proc/self/status"] {
        assert_eq!(small_vm().file(path, "").machine().fingerprint(), None, "without {path}");
    }
    // The number of a processor is enough to know it.
    let unnamed = "processor : 0\nCPU implementer : 0x99\nCPU part : 0x123\n";
    assert!(small_vm().file("proc/cpuinfo", unnamed).machine().fingerprint().is_some());
}

#[test]
fn the_system_and_its_hypervisor_are_told_by_several_files() {
    let release = |path: &str, name: &str| (path.to_owned(), format!("PRETTY_NAME=\"{name}\"\n"));
    let [(etc, first), (usr, second)] = [release("etc/os-release", "A"), release("usr/lib/os-release", "B")];
    assert_eq!(Root::empty().file(&usr, &second).machine().os.as_deref(), Some("B"));
    assert_eq!(Root::empty().file(&usr, &second).file(&etc, &first).machine().os.as_deref(), Some("A"));
    // The processor of such a machine does not report the hypervisor.
    assert_eq!(two_sockets().file("sys/hypervisor/type", "xen\n").machine().hypervisor, Some(true));
    assert_eq!(two_sockets().file("sys/hypervisor/type", "\n").machine().hypervisor, Some(false));
}

#[test]
fn what_may_be_used_is_known_only_with_the_processors() {
    let quota = Root::empty().file("sys/fs/cgroup/cpu.max", "250000 100000\n").machine();
    assert_eq!((quota.usable.cpu_quota, quota.usable.cpus, quota.default_threads()), (Some(2.5), None, 1));
    // A mask without any processor that is there says nothing.
    let elsewhere = small_vm().file("proc/self/status", "Cpus_allowed_list:\t7\n").machine();
    let usable = &elsewhere.usable;
    assert_eq!((usable.allowed_cpus, usable.cpus, usable.cores), (None, None, Some(2)));
    assert_eq!(elsewhere.default_threads(), 2);
}

#[test]
fn the_newer_list_of_siblings_is_believed() {
    let root = Root::empty().file("sys/devices/system/cpu/online", "0-3\n");
    let root = (0..4).fold(root, |root, cpu| {
        let at = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        let core = if cpu % 2 == 0 { "0,2\n" } else { "1,3\n" };
        root.file(&at("core_cpus_list"), core).file(&at("thread_siblings_list"), "0-3\n")
    });
    assert_eq!(root.machine().topology.physical_cores, Some(2));
}

#[test]
fn little_memory_is_told_in_tenths() {
    let line =
        |kib: u64| small_vm().file("proc/meminfo", format!("MemTotal: {kib} kB\n")).machine().one_line();
    assert!(line(8_000_000).ends_with(", 7.6 GiB"), "{}", line(8_000_000));
    assert!(line(9_000_000).ends_with(", 9 GiB"), "{}", line(9_000_000));
}
