//! The doctor's advice follows from facts, and only from them.

use redline_lab::doctor::{Doctor, Limit, TierStatus};

use redline_system::Machine;
use redline_testing::trees::{EPYC_VM, Root, small_vm, two_sockets};

fn examine(root: &Root) -> Doctor {
    Doctor::examine(Machine::read(root.path()), [], Vec::new(), Vec::new())
}

/// The names of the lines with remarks.
fn remarks(root: &Root) -> Vec<String> {
    let doctor = examine(root);
    let entries = doctor.sections.iter().flat_map(|s| s.entries.iter().map(|e| (&s.title, e)));
    let remarked = entries.filter(|(_, entry)| entry.remark.is_some());
    remarked.map(|(section, entry)| format!("{section}: {}", entry.name)).collect()
}

/// The remark of a line.
fn remark_in(doctor: &Doctor, name: &str) -> Option<String> {
    let mut entries = doctor.sections.iter().flat_map(|s| &s.entries);
    entries.find(|entry| entry.name == name && entry.remark.is_some())?.remark.clone()
}

/// The remark of a line about a machine.
fn remark(root: &Root, name: &str) -> String {
    remark_in(&examine(root), name).unwrap_or_default()
}

/// The value of a line about a machine.
fn value(root: &Root, name: &str) -> String {
    let doctor = examine(root);
    let mut entries = doctor.sections.iter().flat_map(|s| &s.entries);
    entries.find(|entry| entry.name == name).map(|entry| entry.value.clone()).unwrap_or_default()
}

#[test]
fn the_report_of_a_small_machine() {
    let tiers = vec![
        TierStatus { name: "scalar".to_owned(), available: true, reason: None },
        TierStatus {
            name: "avx512".to_owned(),
            available: false,
            reason: Some("avx512vnni is missing".to_owned()),
        },
    ];
    let limit = |name: &str, threads, value, unit: &str| Limit {
        name: name.to_owned(),
        threads,
        value,
        unit: unit.to_owned(),
        present: None,
    };
    let limits = vec![limit("read bandwidth", 1, Some(31.416), "GB/s"), limit("f32 FMA", 2, None, "GFLOP/s")];
    let text = Doctor::examine(Machine::read(small_vm().path()), [], tiers, limits).text();
    assert_eq!(text, include_str!("fixtures/small-vm.doctor"));
}

#[test]
fn limits_of_threads_that_were_kept_away_are_too_low() {
    let remark = |present, value| {
        let limit = Limit { name: "int8".to_owned(), threads: 2, value, unit: "GOP/s".to_owned(), present };
        remark_in(
            &Doctor::examine(Machine::read(small_vm().path()), [], Vec::new(), vec![limit]),
            "int8, 2 threads",
        )
    };
    assert!(remark(Some(0.5), Some(1.46)).unwrap().contains("too low"));
    assert!(remark(Some(0.5), Some(1.46)).unwrap().contains("50 %"));
    assert_eq!((remark(Some(0.96), Some(1.46)), remark(None, Some(1.46))), (None, None));
    assert_eq!(remark(Some(0.5), None), None);
}

#[test]
fn a_quiet_machine_gets_no_advice() {
    let text = EPYC_VM.replace(" hypervisor ", " ");
    assert_eq!(remarks(&small_vm().file("proc/cpuinfo", text)), [""; 0]);
}

#[test]
fn every_fact_has_its_advice() {
    let cases = [
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]",
            "transparent huge pages",
            "hint: echo",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave",
            "frequency governor",
            "hint: sudo cpupower",
        ),
        ("proc/loadavg", "1.50 0 0 1/96 1", "load average", "measurements will be noisy"),
        ("proc/loadavg", "0 0 0 3/96 1", "other runnable threads", "measurements will be noisy"),
        ("proc/stat", "cpu  90 0 0 0 0 0 0 10", "stolen time since boot", "measurements will be noisy"),
        ("sys/fs/cgroup/cpu.max", "150000 100000", "processor quota", "default threads here 1"),
        ("sys/fs/cgroup/memory.max", "1048576", "limit", "ends this process"),
        ("proc/meminfo", "SwapTotal: 9 kB\nSwapFree: 5 kB", "swap", "swapped out"),
        ("proc/self/status", "Cpus_allowed_list: 1", "usable here", "affinity"),
        ("dev/nvidia0", "", "device files", "seen, not used yet"),
    ];
    for (path, content, name, advice) in cases {
        assert_eq!(remark(&small_vm(), name), "", "{name} without cause");
        let found = remark(&small_vm().file(path, content), name);
        assert!(found.contains(advice), "{path} {content:?}: {name}: {found:?}");
    }
}

#[test]
fn nodes_and_shared_cores_are_remarked() {
    let found = remarks(&two_sockets());
    assert_eq!(
        found,
        ["processor: memory nodes", "processor: hardware threads", "processor: frequency governor"]
    );
    assert!(remark(&two_sockets(), "hardware threads").contains("(8 here)"));
}

#[test]
fn sections_without_lines_are_left_out() {
    let doctor = examine(&small_vm());
    let titles: Vec<&str> = doctor.sections.iter().map(|s| s.title.as_str()).collect();
    assert_eq!(titles, ["machine", "processor", "memory", "noise", "accelerators"]);
}

#[test]
fn what_is_not_known_is_said() {
    let doctor = examine(&Root::empty());
    assert_eq!(remarks(&Root::empty()), ["machine: fingerprint"]);
    let unknown = doctor.sections.iter().flat_map(|s| &s.entries).filter(|e| e.value == "unknown").count();
    assert!(unknown > 10, "{}", doctor.text());
}

#[test]
fn json_holds_facts_and_sections() {
    let json: serde_json::Value = serde_json::from_str(&examine(&small_vm()).json().unwrap()).unwrap();
    assert_eq!(json["machine"]["usable"]["cores"], 2);
    assert_eq!(json["sections"][0]["title"], "machine");
    assert_eq!(json["sections"][0]["entries"][1]["value"], "6.18.44");
    assert!(json["sections"][0]["entries"][1]["remark"].is_null());
    assert_eq!(
        (json["tiers"].as_array().map(Vec::len), json["limits"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
}

#[test]
fn parts_of_memory_stand_before_the_whole() {
    let with = |more: &str| {
        let text = format!("MemTotal: 24684096 kB\nSwapTotal: 9 kB\nSwapFree: 5 kB\n{more}");
        small_vm().file("proc/meminfo", text)
    };
    let reserved = with("HugePages_Total: 8\nHugePages_Free: 5\nHugepagesize: 2048 kB\n");
    assert_eq!(value(&reserved, "reserved huge pages"), "8 of 2 MiB, 5 free");
    assert_eq!(value(&reserved, "swap"), "4 KiB of 9 KiB in use");
    assert_eq!(value(&with("HugePages_Total: 8\n"), "reserved huge pages"), "8");
    assert_eq!(value(&with("HugePages_Total: 0\n"), "reserved huge pages"), "none");
}

#[test]
fn what_takes_nothing_away_gets_no_advice() {
    let quota =
        |microseconds: u64| small_vm().file("sys/fs/cgroup/cpu.max", format!("{microseconds} 100000\n"));
    // Two hardware threads may use as much as they can.
    assert_eq!(value(&quota(200_000), "processor quota"), "2.000");
    assert_eq!(remark(&quota(200_000), "processor quota"), "");
    assert_ne!(remark(&quota(199_000), "processor quota"), "");
    let limit = |bytes: u64| small_vm().file("sys/fs/cgroup/memory.max", format!("{bytes}\n"));
    let total: u64 = 24_684_096 << 10;
    assert_eq!(
        (value(&limit(total), "limit").as_str(), remark(&limit(total), "limit").as_str()),
        ("23.5 GiB, 23.5 GiB free", "")
    );
    assert_ne!(remark(&limit(total - 1), "limit"), "");
}

#[test]
fn advice_begins_beyond_its_threshold() {
    let cases = [
        ("proc/loadavg", "load average", "0.50 0 0 1/96 1", "0.51 0 0 1/96 1"),
        ("proc/loadavg", "other runnable threads", "0 0 0 1/96 1", "0 0 0 2/96 1"),
        ("proc/stat", "stolen time since boot", "cpu  995 0 0 0 0 0 0 5", "cpu  994 0 0 0 0 0 0 6"),
    ];
    for (path, name, quiet, noisy) in cases {
        assert_eq!(remark(&small_vm().file(path, quiet), name), "", "{name}: {quiet}");
        assert_ne!(remark(&small_vm().file(path, noisy), name), "", "{name}: {noisy}");
    }
}

#[test]
fn frequency_policy_and_accelerators_are_spelled_out() {
    assert_eq!(value(&two_sockets(), "frequency governor"), "performance, powersave (intel_pstate)");
    assert_eq!(value(&two_sockets(), "boost"), "no");
    let device = |root: Root, address: &str, vendor: &str, class: &str| {
        let at = |name| format!("sys/bus/pci/devices/{address}/{name}");
        root.file(&at("vendor"), vendor).file(&at("class"), class).file(&at("device"), "0x2330\n")
    };
    let root = device(Root::empty(), "0000:01:00.0", "0x1002\n", "0x030200\n");
    let root = device(root, "0000:04:00.0", "0x1da3\n", "0x120000\n");
    assert_eq!(value(&root, "display"), "AMD 0x2330 at 0000:01:00.0");
    assert_eq!(value(&root, "processing accelerator"), "vendor 0x1da3 0x2330 at 0000:04:00.0");
    assert_eq!(remark(&root, "display"), "");
    assert_eq!(remark(&root, "processing accelerator"), "seen, not used yet");
}
