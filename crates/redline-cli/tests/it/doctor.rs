//! `doctor`.

use redline_lab::Machine;

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
fn noise_is_probed() {
    let run = redline(&["doctor", "--noise", "--noise-seconds", "0.3"]).ok();
    for expect in [
        "noise ",
        " of 100: ",
        "compute",
        "memory",
        "sleep",
        "frequency governor",
        "stolen time",
        "other processes",
    ] {
        assert!(run.out.contains(expect), "no `{expect}` in {}", run.out);
    }
    let json =
        redline(&["doctor", "--noise", "--noise-seconds", "0.3", "--json", "--max-noise", "100"]).ok().out;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let score = value["score"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&score), "{json}");
    assert!(
        value["jitter"][0]["n"].as_u64() > Some(0) && value["findings"].as_array().map(Vec::len) > Some(10),
        "{json}"
    );
}

#[test]
fn a_machine_noisier_than_allowed_has_a_code() {
    // A millisecond of work never takes exactly the same time twice, so the noise score is above 0.
    let run = redline(&["doctor", "--noise", "--noise-seconds", "0.5", "--max-noise", "0"]);
    assert_eq!(run.code, 5, "{}{}", run.out, run.err);
    assert!(run.out.starts_with("noise ") && run.err.contains("above 0"), "{}{}", run.out, run.err);
}

#[test]
fn flags_of_noise_are_checked() {
    redline(&["doctor", "--noise", "--noise-seconds", "0"]).usage(&["--noise-seconds", "0 seconds"]);
    redline(&["doctor", "--noise", "--max-noise", "101"]).usage(&["101 is no score"]);
    redline(&["doctor", "--max-noise", "5"]).usage(&["--noise"]);
}
