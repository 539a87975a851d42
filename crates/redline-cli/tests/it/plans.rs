//! Plans, logical devices and the precision trace, through the binary.

use std::path::Path;

use redline_api::documents::plan::Manifest;
use redline_api::documents::trace::TraceLine;

use crate::harness::{bits, command, finish, redline, score};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-b");
const SCORE: &[&str] =
    &["--query", "I pledge allegiance", "--item", " to", "--item", " of", "--label", " the"];

fn precompile(arguments: &[&str]) -> Manifest {
    let run = redline(&[&["precompile", "--model", "demo", "--json"], arguments].concat()).ok();
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn precompiling_again_measures_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = format!("--plan-cache={}", folder.path().join("plans").display());
    let sizes = [cache.as_str(), "--plan-tokens", "64,128", "--plan-rows", "1,2", "--max-chunk", "128"];
    let first = precompile(&[cache.as_str(), "--tokens", "64,128", "--rows", "1,2", "--max-chunk", "128"]);
    let names: Vec<&str> = first.plans.iter().map(|plan| plan.plan.as_str()).collect();
    assert_eq!(names, ["pass/1", "pass/2", "pass/64", "pass/128", "logits/1", "logits/2", "logits/64"]);
    assert!(first.plans.iter().all(|plan| plan.origin == "measured" && !plan.choices.is_empty()));
    assert_eq!((first.counters.misses, first.counters.compiles, first.counters.loads), (7, 7, 0));
    let second = precompile(&sizes);
    assert!(second.plans.iter().all(|plan| plan.origin == "stored"));
    assert_eq!((second.counters.misses, second.counters.measurements, second.counters.loads), (0, 0, 7));
    let choices = |manifest: &Manifest| -> Vec<_> {
        manifest.plans.iter().map(|plan| (plan.plan.clone(), plan.choices.clone())).collect()
    };
    assert_eq!(choices(&first), choices(&second));
    let forbid = [SCORE, &sizes, &["--plan-policy", "forbid"]].concat();
    assert_eq!(score(&forbid).meta.cost.cache_miss_count, 0);
    let table = redline(&[&["precompile", "--model", "demo"], &sizes[..]].concat()).ok().out;
    assert!(
        table.contains("pass/128") && table.contains("7 stored, 0 measured (0 timings), 0 misses"),
        "{table}"
    );
}

#[test]
fn policies_do_what_they_say_and_change_no_score() {
    let folder = tempfile::tempdir().unwrap();
    let cache = format!("--plan-cache={}", folder.path().display());
    let empty = redline(&[&["score", "--model", "demo", &cache, "--plan-policy", "forbid"], SCORE].concat());
    empty.failed(&["`pass/16`", "redline precompile"]);
    let expected = bits(&score(SCORE));
    for policy in ["tune", "estimate", "off"] {
        let scored = score(&[SCORE, &[&cache, "--plan-policy", policy]].concat());
        assert_eq!(bits(&scored), expected, "{policy}");
    }
    let found = score(&[SCORE, &[&cache, "--plan-policy", "forbid"]].concat());
    assert_eq!((bits(&found), found.meta.cost.cache_miss_count), (expected, 0));
    for (flag, facts) in [
        ("--plan-policy=always", &["`always` is not known", "tune, estimate, forbid, off"][..]),
        ("--max-chunk=0", &["nothing to do"]),
        ("--max-chunk=9000", &["9000 tokens", "8192"]),
        ("--plan-tokens=64,x", &["--plan-tokens"]),
        ("--tp=9", &["9 devices", "from 1 to 8"]),
        ("--tp=0", &["0 devices"]),
    ] {
        redline(&[&["score", "--model", "demo", flag], SCORE].concat()).usage(facts);
    }
}

#[test]
fn a_missing_plan_is_named_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let cache = format!("--plan-cache={}", folder.path().display());
    let ask = [&["score", "--model", "demo", &cache], SCORE].concat();
    assert!(!redline(&ask).ok().err.contains("plan: "));
    let loud = redline(&[&ask[..], &["--log-plans"]].concat()).ok().err;
    assert!(loud.contains("plan: pass/16 missing: nothing is stored"), "{loud}");
    redline(&[&ask[..], &["--plan-policy", "tune", "--threads", "1"]].concat()).ok();
    let by_variable =
        command(&[&ask[..], &["--threads", "2"]].concat()).env("REDLINE_LOG_PLANS", "1").output();
    let by_variable = finish(by_variable.unwrap()).ok().err;
    assert!(by_variable.contains("plan: pass/16 missing: threads 2, stored 1"), "{by_variable}");
}

#[test]
fn a_cache_that_is_damaged_or_cannot_be_written_is_told_and_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let cache = format!("--plan-cache={}", folder.path().display());
    let ask = [&["score", "--model", "demo", "--json", &cache], SCORE].concat();
    redline(&[&ask[..], &["--plan-policy", "tune"]].concat()).ok();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::write(entry.unwrap().path(), "{").unwrap();
    }
    let damaged = redline(&ask).ok();
    assert!(damaged.err.contains("warning: a stored plan is not used"), "{}", damaged.err);
    assert_eq!(bits(&damaged.scoring()), bits(&score(SCORE)));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = format!("--plan-cache={}", file.join("plans").display());
    let run =
        redline(&[&["score", "--model", "demo", &inside, "--plan-policy", "tune"], SCORE].concat()).ok();
    assert!(run.err.contains("warning: a plan is not stored"), "{}", run.err);
}

#[test]
fn precompiling_without_a_place_for_plans_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = format!("--plan-cache={}", file.join("plans").display());
    let small = ["--tokens", "1", "--rows", "1", "--max-chunk", "1", "--json"];
    let run = redline(&[&["precompile", "--model", "demo", &inside], &small[..]].concat());
    run.failed(&["2 of 2 plans could not be stored", "--plan-cache DIR"]);
    assert_eq!(run.err.matches("warning: a plan is not stored").count(), 1, "{}", run.err);
}

#[test]
fn devices_do_not_show() {
    let expected = bits(&score(SCORE));
    for tp in ["2", "4", "7"] {
        assert_eq!(bits(&score(&[SCORE, &["--tp", tp]].concat())), expected, "{tp} devices");
    }
    let run =
        command(&[&["score", "--model", "demo", "--json"], SCORE].concat()).env("REDLINE_TP", "8").output();
    assert_eq!(bits(&finish(run.unwrap()).ok().scoring()), expected);
    let run = command(&[&["score", "--model", "demo"], SCORE].concat()).env("REDLINE_DEVICE", "gpu").output();
    finish(run.unwrap()).usage(&["REDLINE_DEVICE", "no such device", "found: cpu"]);
}

#[test]
fn the_trace_has_a_line_per_pass_and_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let trace = format!("--precision-trace={}", path.display());
    let lines = |arguments: &[&str]| -> Vec<TraceLine> {
        score(&[SCORE, &[&trace], arguments].concat());
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let first = lines(&[]);
    let layers = first.iter().filter(|line| line.pass == 0).count() - 1;
    assert!(layers > 1 && first.len() % (layers + 1) == 0, "{first:?}");
    for (index, line) in first.iter().enumerate() {
        let place = index % (layers + 1);
        assert_eq!((line.pass, line.layer), ((index / (layers + 1)) as u64, place.checked_sub(1)));
        assert!(
            line.non_finite == 0 && line.min.0 <= line.max.0 && line.rms.0 > 0.0 && line.rows > 0,
            "{line:?}"
        );
    }
    assert_eq!(lines(&["--threads", "1", "--tp", "3"]), first, "the digests of another way to run");
    assert_ne!(lines(&["--format", "w8"]), first);
    redline(&[&["score", "--model", "demo", "--precision-trace", "/nonexistent/x"], SCORE].concat())
        .usage(&["/nonexistent/x", "--precision-trace FILE"]);
}

#[test]
fn a_variable_may_name_the_trace_and_a_flag_wins() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ask = [&["score", "--model", "demo"], SCORE].concat();
    let traced = |arguments: &[&str], variable: &str| {
        let mut command = command(arguments);
        finish(command.env("REDLINE_PRECISION_TRACE", path(variable)).output().unwrap()).ok();
    };
    traced(&ask, "variable");
    let flag = format!("--precision-trace={}", path("flag").display());
    traced(&[&ask[..], &[&flag]].concat(), "other");
    let [by_variable, by_flag] =
        ["variable", "flag"].map(|name| std::fs::read_to_string(path(name)).unwrap());
    assert!(by_variable.lines().count() > 1 && !path("other").exists(), "{by_variable}");
    assert_eq!(by_flag, by_variable);
}

#[cfg(target_os = "linux")]
#[test]
fn a_trace_may_go_to_a_pipe() {
    let ask = ["score", "--model", "demo", "--json", "--threads", "1", "--precision-trace=/dev/stderr"];
    let run = redline(&[&ask[..], SCORE].concat()).ok();
    let line = |line: &str| -> TraceLine {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let lines: Vec<TraceLine> = run.err.lines().map(line).collect();
    assert!(lines.len() > 1 && lines[0].pass == 0, "{}", run.err);
}

/// Makes two plans for a tiny model. Returns where they came from, and whether a warning says that none would be stored.
fn two_plans(flags: &[&str], variables: &[(&str, &Path)]) -> (Vec<String>, bool) {
    let quick = ["precompile", "--model", GOLDEN, "--json", "--threads", "1", "--tokens", "1", "--rows", "1"];
    let mut made = command(&[&quick[..], &["--max-chunk", "1"], flags].concat());
    let run = finish(made.envs(variables.iter().copied()).output().unwrap()).ok();
    let manifest: Manifest = serde_json::from_str(&run.out).unwrap();
    let origins = manifest.plans.into_iter().map(|plan| plan.origin).collect();
    (origins, run.err.contains("warning: no plan would be stored"))
}

#[test]
fn plans_are_kept_in_the_cache_of_the_user_unless_a_flag_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &str| folder.path().join(name);
    let stored = |dir: &str| std::fs::read_dir(below(dir)).unwrap().count();
    let (cache, home, elsewhere) = (below("cache"), below("home"), below("elsewhere"));
    let both = [("XDG_CACHE_HOME", cache.as_path()), ("HOME", home.as_path())];
    let made = |origin: &str, warned: bool| (vec![origin.to_owned(); 2], warned);
    assert_eq!(two_plans(&[], &both), made("measured", false));
    assert_eq!((stored("cache/redline/plans"), home.exists()), (2, false));
    let empty = [("XDG_CACHE_HOME", Path::new("")), ("HOME", home.as_path())];
    assert_eq!(two_plans(&[], &empty), made("measured", false));
    assert_eq!(stored("home/.cache/redline/plans"), 2);
    // Both are warned about: no directory, and a policy that stores nothing.
    assert_eq!(two_plans(&["--plan-cache", "off"], &both), made("measured", true));
    let estimate = ["--plan-policy", "estimate", "--plan-cache", elsewhere.to_str().unwrap()];
    assert_eq!(two_plans(&estimate, &both), made("estimated", true));
    assert!(!elsewhere.exists());
}

#[test]
fn a_manifest_tells_threads_and_devices_apart() {
    let sizes = ["--tokens", "1", "--rows", "1", "--max-chunk", "1"];
    let made = ["--threads", "2", "--tp", "3", "--plan-policy", "estimate"];
    let manifest = precompile(&[sizes, made].concat());
    assert_eq!((manifest.threads, manifest.tp), (2, 3));
}
