//! Noise: file trees of a machine at two moments, and the resulting warnings.

use redline_lab::doctor::noise::warnings;
use redline_system::machine::{Activity, Counters, Frequency};

use redline_testing::trees::{Root, small_vm};

/// Adds a process as the kernel reports it.
fn process(root: Root, number: u64, name: &str, started: u64, ticks: u64) -> Root {
    let text = format!("{number} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0\n");
    root.file(&format!("proc/{number}/stat"), text)
}

/// Two processors at one moment: ticks of idle and stolen time.
fn moment(idle: u64, stolen: u64) -> Root {
    let root = small_vm()
        .file(
            "proc/stat",
            format!("cpu  100 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1\ncpu1 1\nctxt 5\nprocs_running 1\n"),
        )
        .file("proc/loadavg", "0.02 0 0 1/96 1\n")
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 2\n")
        .file("proc/self/task/50/status", "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t4\n")
        .file("proc/self/task/51/status", "nonvoluntary_ctxt_switches:\t6\n")
        .file("proc/self/stat", "50 (redline) R 1 1 1 0 -1 0 0 0 0 0 9 0 0 0 20 0 1 0 1 0 0\n");
    process(root, 50, "redline", 1, 900)
}

#[test]
fn counters_are_read_and_what_is_not_there_is_not_known() {
    let a = Activity::read(process(moment(1000, 7), 60, "a) (b", 5, 33).path());
    let counters = a.counters;
    assert_eq!((counters.ticks, counters.stolen_ticks), (Some(1107), Some(7)));
    assert_eq!((a.cpus, a.load_average, a.own_process), (Some(2), Some(0.02), Some(50)));
    assert_eq!((counters.throttled, counters.involuntary_switches), (Some(2), Some(10)));
    assert_eq!(a.processes.get(&60).map(|p| (p.name.as_str(), p.started, p.ticks)), Some(("a) (b", 5, 33)));
    assert_eq!(Activity::read(Root::empty().path()), Activity::default());
    let first = moment(0, 0)
        .file("proc/self/cgroup", "4:cpu,cpuacct:/x\n")
        .file("sys/fs/cgroup/cpu/x/cpu.stat", "nr_throttled 8\n");
    assert_eq!(Activity::read(first.path()).counters.throttled, Some(8));
}

#[test]
fn other_processes_are_named_the_busiest_first() {
    let before =
        process(process(process(moment(1000, 0), 7, "old", 1, 50), 8, "again", 1, 500), 9, "still", 3, 10);
    let after = process(process(moment(3000, 0), 7, "old", 1, 170), 8, "again", 2, 300);
    let after = process(process(process(after, 9, "still", 3, 10), 10, "new", 9, 200), 11, "small", 9, 1);
    // A thousand ticks have passed on each of two processors. Process id 8 was reused.
    let (before, after) = (Activity::read(before.path()), Activity::read(after.path()));
    let told = warnings(&Frequency::default(), &before, &before, &after, &[]);
    assert_eq!(told, ["other processes are busy: again (8) 30.0 %, new (10) 20.0 %, old (7) 12.0 %"]);
}

#[test]
fn a_quick_look_warns_of_what_it_sees() {
    let still = Frequency::default();
    let (before, after) = (Activity::read(moment(1000, 0).path()), Activity::read(moment(1040, 0).path()));
    assert_eq!(warnings(&still, &before, &before, &after, &[2e-3; 60]), [""; 0]);
    assert_eq!(
        warnings(&still, &Activity::default(), &Activity::default(), &Activity::default(), &[]),
        [""; 0]
    );
    let governed = Frequency { governors: vec!["powersave".to_owned()], ..Frequency::default() };
    let loud = process(moment(1040, 4).file("proc/loadavg", "2.5 0 0 1/9 1"), 77, "other", 4, 11);
    let loud = Activity::read(loud.path());
    let start = Activity::read(
        process(moment(1000, 0).file("proc/loadavg", "2.5 0 0 1/9 1"), 77, "other", 4, 0).path(),
    );
    let wide: Vec<f64> = (0..60).map(|i| 2e-3 * (1.0 + 0.002 * f64::from(i))).collect();
    let told = warnings(&governed, &start, &start, &loud, &wide);
    let expected = [
        "load average 2.500",
        "other (77) 50.0 %",
        "9.1 % of the processor time",
        "governor is powersave",
        "scatters by",
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.contains(expected), "`{told}` lacks `{expected}`");
    }
    // Stolen time is counted since an earlier check.
    let earlier = Activity::read(moment(0, 0).path());
    let told = warnings(&still, &earlier, &start, &loud, &[]);
    assert!(told.len() == 2 && told.iter().all(|told| !told.contains("hypervisor")), "{told:?}");
}

#[test]
fn every_group_around_this_process_may_be_stopped() {
    let root = moment(1000, 0).file("sys/fs/cgroup/a/cpu.stat", "nr_periods 99\nnr_throttled 40\n");
    assert_eq!(Activity::read(root.path()).counters, Counters::read(root.path()));
    assert_eq!(Counters::read(root.path()).throttled, Some(42));
}
