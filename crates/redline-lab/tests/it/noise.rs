//! Noise: file trees of a machine at two moments, and the resulting findings.

use redline_lab::Machine;
use redline_lab::doctor::noise::{Finding, Level, Noise, Readings, warnings};
use redline_lab::machine::{Activity, Counters, Frequencies, Frequency};

use crate::trees::{Root, small_vm, two_sockets};

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
        .file("proc/vmstat", "pswpin 3\npswpout 4\npgmajfault 9\n")
        .file(
            "proc/pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000\nfull avg10=0 total=1\n",
        )
        .file("proc/pressure/memory", "some avg10=0.00 total=0\n")
        .file("proc/pressure/io", "some avg10=0.00 total=0\n")
        .file("proc/self/cgroup", "0::/a/b\n")
        .file("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 2\n")
        .file("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "1\n")
        .file("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "2\n")
        .file("proc/self/task/50/status", "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t4\n")
        .file("proc/self/task/51/status", "nonvoluntary_ctxt_switches:\t6\n")
        .file("proc/self/stat", "50 (redline) R 1 1 1 0 -1 0 0 0 0 0 9 0 0 0 20 0 1 0 1 0 0\n");
    process(root, 50, "redline", 1, 900)
}

/// Ten seconds of steady work between two moments of two processors.
fn readings(before: &Root, after: &Root) -> Readings {
    let machine = Machine::read(after.path());
    Readings {
        machine,
        seconds: 10.0,
        threads: 2,
        compute: vec![2e-3; 100],
        memory: vec![5e-3; 100],
        sleep: vec![1.1e-3; 100],
        frequencies: Vec::new(),
        timer_ns: Some(20),
        before: Activity::read(before.path()),
        after: Activity::read(after.path()),
    }
}

fn quiet() -> Readings {
    readings(&moment(1000, 0), &moment(3000, 0))
}

#[track_caller]
fn finding(readings: &Readings, name: &str) -> Finding {
    let noise = Noise::of(readings);
    let found = noise.findings.iter().find(|f| f.name == name).cloned();
    found.unwrap_or_else(|| panic!("no `{name}` in {}", noise.text()))
}

#[track_caller]
fn is_bad(readings: &Readings, name: &str, level: Level, evidence: &str, fix: &str) {
    assert_eq!(finding(&quiet(), name).level, Level::Quiet, "{name} without cause");
    let found = finding(readings, name);
    assert_eq!(found.level, level, "{found:?}");
    let told = format!("{} {}", found.value, found.fact.unwrap_or_default());
    assert!(told.contains(evidence), "{name}: {told}");
    assert!(found.fix.unwrap_or_default().contains(fix), "{name}");
    assert!(Noise::of(readings).level >= level);
}

#[test]
fn counters_are_read_and_what_is_not_there_is_not_known() {
    let a = Activity::read(process(moment(1000, 7), 60, "a) (b", 5, 33).path());
    let counters = a.counters;
    assert_eq!((counters.ticks, counters.stolen_ticks), (Some(1107), Some(7)));
    assert_eq!((a.cpus, a.runnable), (Some(2), Some(1)));
    assert_eq!((a.load_average, a.own_process, a.swapped_pages), (Some(0.02), Some(50), Some(7)));
    assert_eq!((a.cpu_pressure_us, counters.throttled, a.thermal_events), (Some(5000), Some(2), Some(3)));
    assert_eq!(counters.involuntary_switches, Some(10));
    assert_eq!(a.processes.get(&60).map(|p| (p.name.as_str(), p.started, p.ticks)), Some(("a) (b", 5, 33)));
    assert_eq!(Activity::read(Root::empty().path()), Activity::default());
    let first = moment(0, 0)
        .file("proc/self/cgroup", "4:cpu,cpuacct:/x\n")
        .file("sys/fs/cgroup/cpu/x/cpu.stat", "nr_throttled 8\n");
    assert_eq!(Activity::read(first.path()).counters.throttled, Some(8));
}

#[test]
fn a_quiet_machine_scores_nothing_and_gets_no_advice() {
    let noise = Noise::of(&quiet());
    assert_eq!((noise.score, noise.level), (0.0, Level::Quiet), "{}", noise.text());
    assert!(noise.findings.iter().all(|f| f.fact.is_none() && f.fix.is_none()), "{}", noise.text());
    assert!(
        noise.text().starts_with("noise 0 of 100: quiet (10.0 s, 2 threads)\n\nkind "),
        "{}",
        noise.text()
    );
    let json: serde_json::Value = serde_json::from_str(&noise.json().unwrap()).unwrap();
    assert_eq!((&json["level"], &json["jitter"][0]["kind"]), (&"quiet".into(), &"compute".into()));
}

#[test]
fn what_nobody_tells_is_unknown_and_not_bad() {
    let noise = Noise::of(&Readings::default());
    assert_eq!((noise.score, noise.level, noise.jitter.len()), (0.0, Level::Quiet, 0));
    let known: Vec<&str> =
        noise.findings.iter().filter(|f| f.value != "unknown").map(|f| f.name.as_str()).collect();
    assert_eq!(known, [""; 0]);
}

#[test]
fn every_disturbance_has_its_evidence_and_its_fix() {
    let before = || moment(1000, 0);
    let with = |after: Root| readings(&before(), &after);
    is_bad(&with(moment(2980, 20)), "stolen time", Level::Noisy, "1.0 %", "--versus");
    is_bad(&with(moment(2800, 200)), "stolen time", Level::Unfit, "10.0 %", "--versus");
    let throttled = moment(3000, 0).file("sys/fs/cgroup/a/b/cpu.stat", "nr_throttled 5\n");
    is_bad(&with(throttled), "stopped by the control group", Level::Noisy, "3 periods", "--threads");
    let hot = moment(3000, 0).file("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4\n");
    is_bad(&with(hot), "slowed by heat", Level::Noisy, "3 times", "cool");
    let swapped = moment(3000, 0).file("proc/vmstat", "pswpin 3\npswpout 5\n");
    is_bad(&with(swapped), "swapped", Level::Noisy, "1 page", "swapoff");
    let waiting =
        |total: u64| moment(3000, 0).file("proc/pressure/cpu", format!("some avg10=0 total={total}\n"));
    is_bad(&with(waiting(1_005_000)), "waiting for processors", Level::Noisy, "10.0 %", "threads");
    is_bad(&with(waiting(u64::MAX)), "waiting for processors", Level::Unfit, "100.0 %", "threads");
    let disks = moment(3000, 0).file("proc/pressure/io", "some avg10=0 total=2000000\n");
    is_bad(&with(disks), "waiting for disks", Level::Noisy, "20.0 %", "disks");
    let switched = moment(3000, 0).file("proc/self/task/50/status", "nonvoluntary_ctxt_switches:\t1004\n");
    is_bad(&with(switched), "put off the processor", Level::Noisy, "50.00 times", "taskset");
    let never = moment(3000, 0).file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    is_bad(&with(never), "transparent huge pages", Level::Usable, "never", "madvise");
    let slow = moment(3000, 0).file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
    is_bad(&with(slow), "frequency governor", Level::Usable, "powersave", "cpupower");
    let busy = readings(&before().file("proc/loadavg", "1.5 0 0 1/9 1"), &moment(3000, 0));
    is_bad(&busy, "run queue before", Level::Usable, "load average 1.500", "wait");
    is_bad(
        &Readings { timer_ns: Some(4_000_000), ..quiet() },
        "step of the clock",
        Level::Usable,
        "4000000 ns",
        "clocksource",
    );
}

#[test]
fn other_processes_are_named_the_busiest_first() {
    let before =
        process(process(process(moment(1000, 0), 7, "old", 1, 50), 8, "again", 1, 500), 9, "still", 3, 10);
    let after = process(process(moment(3000, 0), 7, "old", 1, 150), 8, "again", 2, 300);
    let after = process(process(process(after, 9, "still", 3, 10), 10, "new", 9, 200), 11, "small", 9, 1);
    let readings = readings(&before, &after);
    // A thousand ticks have passed on each of two processors. Process id 8 was reused.
    let found = finding(&readings, "other processes");
    assert_eq!(found.value, "again (8) 30.0 %, new (10) 20.0 %, old (7) 10.0 %");
    assert_eq!(
        (found.level, found.fact.as_deref()),
        (Level::Unfit, Some("they took 60.1 % of one processor"))
    );
    assert_eq!(finding(&quiet(), "other processes").value, "none was busy");
}

#[test]
fn frequencies_are_told_or_follow_from_the_arithmetic() {
    let at = |now: f64| Frequencies { now: Some(now * 1e9), most: Some(4e9) };
    let told = |seen: &[f64]| {
        let readings = Readings { frequencies: seen.iter().map(|f| at(*f)).collect(), ..quiet() };
        let found = finding(&readings, "clock frequency");
        (found.value.clone(), found.level, found.fact.unwrap_or_default())
    };
    assert_eq!(
        told(&[3.9, 3.95]),
        ("3.90 GHz to 3.95 GHz, 4.00 GHz at most".to_owned(), Level::Quiet, String::new())
    );
    assert!(told(&[3.0, 4.0]).2.contains("changed by 25.0 %"));
    assert!(told(&[2.0, 2.0]).2.contains("50.0 % below the highest"));
    let rising = (0..100).map(|i| 2e-3 * (1.0 + 0.001 * f64::from(i))).collect();
    let readings = Readings { compute: rising, ..quiet() };
    assert!(finding(&readings, "clock frequency").fact.unwrap().contains("7.9 % slower"));
    let root = two_sockets()
        .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2000000\n")
        .file("sys/devices/system/cpu/cpu5/cpufreq/scaling_cur_freq", "3400000\n")
        .file("sys/devices/system/cpu/cpu5/cpufreq/cpuinfo_max_freq", "3600000\n");
    assert_eq!(Frequencies::read(root.path()), Frequencies { now: Some(3.4e9), most: Some(3.6e9) });
    assert_eq!(Frequencies::read(Root::empty().path()), Frequencies::default());
}

#[test]
fn cores_are_shared_only_by_those_who_use_both_halves() {
    let machine = two_sockets().machine();
    let shared =
        |threads| finding(&Readings { machine: machine.clone(), threads, ..quiet() }, "shared cores");
    assert_eq!((shared(8).level, shared(8).value.as_str()), (Level::Quiet, "16 hardware threads on 8 cores"));
    assert_eq!(shared(9).level, Level::Usable);
}

#[test]
fn scatter_makes_the_score_and_two_speeds_are_told() {
    let two: Vec<f64> = (0..100).map(|i| if i % 4 == 0 { 2.6e-3 } else { 2e-3 }).collect();
    let noise = Noise::of(&Readings { compute: two.clone(), ..quiet() });
    // A quarter is slower by more than 10 %, and the spread is 30 %.
    assert!((noise.score - 100.0 * (0.25 * 0.25 + 0.5 * 0.25 + 0.25)).abs() < 1e-9, "{}", noise.text());
    assert_eq!(noise.level, Level::Noisy);
    let found = noise.findings.iter().find(|f| f.name == "compute at two speeds").unwrap();
    assert_eq!(found.value, "2.000 ms in 75.0 %, 2.600 ms in 25.0 % of the readings");
    assert!(found.fact.as_ref().unwrap().contains("30.0 % slower"));
    let sleepy = Noise::of(&Readings { sleep: two, ..quiet() });
    assert!((sleepy.score - noise.score / 2.0).abs() < 1e-9 && sleepy.level == Level::Usable);
}

#[test]
fn levels_follow_the_score() {
    for (score, level) in [
        (0.0, Level::Quiet),
        (9.9, Level::Quiet),
        (10.0, Level::Usable),
        (30.0, Level::Noisy),
        (60.0, Level::Unfit),
        (100.0, Level::Unfit),
    ] {
        assert_eq!(Level::of(score), level, "{score}");
    }
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
    let moment = |idle: u64, outer: u64| {
        moment(idle, 0).file("sys/fs/cgroup/a/cpu.stat", format!("nr_periods 99\nnr_throttled {outer}\n"))
    };
    let before = moment(1000, 40);
    assert_eq!(Activity::read(before.path()).counters, Counters::read(before.path()));
    assert_eq!(Counters::read(before.path()).throttled, Some(42));
    let after = readings(&before, &moment(3000, 43));
    is_bad(&after, "stopped by the control group", Level::Noisy, "3 periods", "cpu.max");
}

#[test]
fn waiting_for_memory_is_told_from_waiting_for_disks() {
    let waited = moment(3000, 0).file("proc/pressure/memory", "some avg10=0 total=3000000\n");
    let waited = readings(&moment(1000, 0), &waited);
    is_bad(&waited, "waiting for memory", Level::Noisy, "30.0 %", "smaller model");
    assert_eq!(finding(&waited, "waiting for disks").level, Level::Quiet);
}

#[test]
fn a_finding_is_bad_from_its_bounds_on() {
    let with = |after: Root| readings(&moment(1000, 0), &after);
    // Two thousand ticks have passed in ten seconds, a thousand on each of two processors.
    for (stolen, level) in [(9, Level::Quiet), (10, Level::Noisy), (99, Level::Noisy), (100, Level::Unfit)] {
        let readings = with(moment(3000 - stolen, stolen));
        assert_eq!(finding(&readings, "stolen time").level, level, "{stolen} ticks");
    }
    for (ticks, level) in [(49, Level::Quiet), (50, Level::Noisy), (499, Level::Noisy), (500, Level::Unfit)] {
        let readings = with(process(moment(3000, 0), 9, "other", 3, ticks));
        assert_eq!(finding(&readings, "other processes").level, level, "{ticks} ticks");
    }
    // Of two threads in ten seconds: 20 and 200 times per second and thread.
    for (times, level) in
        [(399, Level::Quiet), (400, Level::Noisy), (3999, Level::Noisy), (4000, Level::Unfit)]
    {
        let status = format!("nonvoluntary_ctxt_switches:\t{}\n", 4 + times);
        let readings = with(moment(3000, 0).file("proc/self/task/50/status", status));
        assert_eq!(finding(&readings, "put off the processor").level, level, "{times} times");
    }
}

#[test]
fn this_process_is_not_among_the_others_and_equals_stand_by_name() {
    let after = process(moment(3000, 0), 50, "redline", 1, 1900);
    let alone = finding(&readings(&moment(1000, 0), &after), "other processes");
    assert_eq!((alone.value.as_str(), alone.level), ("none was busy", Level::Quiet));
    let after = process(process(after, 7, "second", 3, 200), 8, "first", 3, 200);
    let two = finding(&readings(&moment(1000, 0), &after), "other processes");
    assert_eq!(two.value, "first (8) 20.0 %, second (7) 20.0 %");
}

#[test]
fn a_run_queue_is_busy_before_its_average_rises() {
    let stat = "cpu  100 0 0 1000 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nctxt 5\nprocs_running 3\n";
    let before = moment(1000, 0).file("proc/stat", stat);
    let readings = readings(&before, &moment(3000, 0));
    is_bad(&readings, "run queue before", Level::Usable, "2 others runnable", "wait");
}

#[test]
fn work_that_gets_faster_has_no_steady_clock_either() {
    let faster = (0..100).rev().map(|i| 2e-3 * (1.0 + 0.001 * f64::from(i))).collect();
    let readings = Readings { compute: faster, ..quiet() };
    is_bad(&readings, "clock frequency", Level::Usable, "7.3 % faster", "cool");
}

#[test]
fn statistics_of_the_readings_stand_in_their_columns() {
    // The best reading, then 20 % that are 5 % slower, at the end, and 10 % that are half as long again.
    let seconds = |i: u32| match i {
        0 => 1.99e-3,
        60..70 => 3e-3,
        80.. => 2.1e-3,
        _ => 2e-3,
    };
    let noise = Noise::of(&Readings { compute: (0..100).map(seconds).collect(), ..quiet() });
    let text = noise.text();
    let line = text.lines().find(|line| line.starts_with("compute ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().skip(2).collect();
    assert_eq!(words.join(" "), "100 1.990 ms 2.000 ms 30.0 % 10.0 % 50.0 % 5.0 %");
    let header = text.lines().find(|line| line.starts_with("kind ")).unwrap();
    assert!(header.contains("over 2 %  over 10 %  spread  drift"), "{header}");
}
