//! Machines described by file trees: directories with the files that a kernel would provide.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// `/proc/cpuinfo` of a virtual machine with two cores.
pub const EPYC_VM: &str = include_str!("fixtures/epyc-vm.cpuinfo");

/// A file tree under construction.
#[derive(Debug)]
pub struct Root {
    directory: TempDir,
}

impl Root {
    /// An empty root.
    pub fn empty() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory can be made") }
    }

    /// Writes a file.
    pub fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a file stands in a directory"))
            .expect("the directory can be made");
        fs::write(path, text).expect("the file can be written");
        self
    }

    /// Writes the core sharing and the caches of a processor.
    pub fn cpu(self, cpu: usize, package: usize, siblings: &str, last_level: (&str, &str)) -> Self {
        let at = |rest: &str| format!("sys/devices/system/cpu/cpu{cpu}/{rest}");
        let caches = [
            ("1", "Data", "48K", siblings),
            ("1", "Instruction", "32K", siblings),
            ("2", "Unified", "2048K", siblings),
            ("3", "Unified", last_level.0, last_level.1),
        ];
        let mut root = self
            .file(&at("topology/physical_package_id"), format!("{package}\n"))
            .file(&at("topology/thread_siblings_list"), format!("{siblings}\n"))
            .file(&at("cache/uevent"), "");
        for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
            for (name, text) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
            {
                root = root.file(&at(&format!("cache/index{index}/{name}")), format!("{text}\n"));
            }
            root = root.file(&at(&format!("cache/index{index}/coherency_line_size")), "64\n");
        }
        root
    }

    /// The path of the root.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// A virtual machine with two cores, version 1 control groups, and nothing unusual but the hypervisor.
pub fn small_vm() -> Root {
    let root = Root::empty()
        .file("proc/cpuinfo", EPYC_VM)
        .file(
            "proc/meminfo",
            "MemTotal: 24684096 kB\nMemAvailable: 24170072 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        )
        .file("proc/loadavg", "0.12 0.86 0.66 1/96 10371\n")
        .file("proc/uptime", "2292.80 3588.43\n")
        .file("proc/stat", "cpu  27231 56200 13848 358843 784 0 244 300 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
        .file("proc/self/status", "Name:\ttest\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n")
        .file("proc/self/cgroup", "4:memory:/a/b\n1:cpu:/\n0::/\n")
        .file("proc/sys/kernel/osrelease", "6.18.44\n")
        .file("etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\n")
        .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
        .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        .file("sys/devices/system/cpu/online", "0-1\n")
        .file("sys/devices/system/node/online", "0\n");
    (0..2).fold(root, |root, cpu| root.cpu(cpu, 0, &cpu.to_string(), ("32768K", "0-1")))
}

/// A server with two sockets of four cores and two hardware threads each; cpu `n` and `n + 8` share a core.
pub fn two_sockets() -> Root {
    let block = |cpu: usize| {
        let (package, core) = (cpu % 8 / 4, cpu % 4);
        format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
             model name\t: Intel(R) Xeon(R) Platinum 8352Y CPU @ 2.20GHz\nstepping\t: 6\nmicrocode\t: 0xd0003a5\n\
             physical id\t: {package}\nsiblings\t: 8\ncore id\t\t: {core}\nflags\t\t: fpu sse avx512f\n\n"
        )
    };
    let cpuinfo: String = (0..16).map(block).collect::<Vec<_>>().concat();
    let mut root = Root::empty()
        .file("proc/cpuinfo", cpuinfo)
        .file("proc/meminfo", "MemTotal: 527956324 kB\nMemAvailable: 520000000 kB\n")
        .file("proc/self/status", "Cpus_allowed_list:\t0-255\n")
        .file("sys/devices/system/cpu/online", "0-15\n")
        .file("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
        .file("sys/devices/system/node/online", "0-1\n");
    for cpu in 0..16 {
        let first = cpu % 8;
        let package = first / 4;
        let socket = format!("{}-{},{}-{}", package * 4, package * 4 + 3, package * 4 + 8, package * 4 + 11);
        let governor = if cpu == 5 { "powersave" } else { "performance" };
        root = root
            .cpu(cpu, package, &format!("{first},{}", first + 8), ("49152K", &socket))
            .file(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
                format!("{governor}\n"),
            )
            .file(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_driver"), "intel_pstate\n");
    }
    root
}
