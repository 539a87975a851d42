//! `doctor`.

use redline_system::Machine;

#[cfg(target_os = "linux")]
use crate::harness::{finish, limited};
use crate::harness::{redline, tiers};

/// The buffer is smaller than caches may be, so doctor runs where memory is scarce.
#[cfg(target_os = "linux")]
#[test]
fn bandwidth_is_measured_in_little_memory() {
    let run = finish(limited("ulimit -v 900000;", &["doctor"])).ok();
    assert!(run.out.contains("read bandwidth, 1 thread") && !run.out.contains("not measured"), "{}", run.out);
}

#[test]
fn the_machine_is_described() {
    let text = redline(&["doctor"]).ok().out;
    for expect in ["scalar", "avx2", "avx512", "amx"] {
        assert!(text.contains(expect), "no `{expect}` in {text}");
    }
    let json = redline(&["doctor", "--json"]).ok().out;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let available = value["tiers"].as_array().unwrap().iter().filter(|tier| tier["available"] == true);
    assert_eq!(available.map(|tier| tier["name"].as_str().unwrap()).collect::<Vec<_>>(), tiers());
    // The limits of one thread, then those of all threads.
    let limits = value["limits"].as_array().unwrap().iter();
    let mut threads: Vec<u64> = limits.map(|limit| limit["threads"].as_u64().unwrap()).collect();
    threads.dedup();
    let mut expected = vec![1, Machine::here().default_threads() as u64];
    expected.dedup();
    assert_eq!(threads, expected);
    assert_eq!(value["schema"], "redline.doctor/1");
    assert!(value["machine"].is_object());
    let features = value["features"].as_object().unwrap();
    let names: Vec<&str> = features.keys().map(String::as_str).collect();
    let avx512 = ["has_avx512bw", "has_avx512dq", "has_avx512f", "has_avx512vl"];
    let expected = [&["has_amx", "has_avx2"], &avx512[..], &["has_bf16", "has_vnni"]].concat();
    assert_eq!(names, expected);
    // A tier is available if and only if the processor has its extensions (and those that come with them).
    let tier = |name: &str| {
        let tiers = value["tiers"].as_array().unwrap();
        tiers.iter().find(|tier| tier["name"] == name).unwrap()["available"].as_bool().unwrap()
    };
    let has = |names: &[&str]| names.iter().all(|name| features[*name].as_bool().unwrap());
    assert_eq!(tier("avx2"), has(&["has_avx2"]), "{json}");
    assert_eq!(tier("avx512"), has(&[&avx512[..], &["has_vnni"]].concat()), "{json}");
    assert_eq!(tier("amx"), has(&["has_amx"]), "{json}");
    assert!(features.values().all(serde_json::Value::is_boolean), "{json}");
}

#[test]
fn what_disturbs_now_is_told_in_lines() {
    let run = redline(&["doctor", "--noise"]).ok();
    assert!(run.out.lines().count() >= 1 && run.out.lines().all(|line| !line.is_empty()), "{}", run.out);
    assert!(!run.out.contains("measured limits"), "{}", run.out);
    redline(&["doctor", "--noise", "--json"]).usage(&["--noise"]);
}
