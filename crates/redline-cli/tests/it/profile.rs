//! `--profile-trace`: the contents of the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redline_api::documents::profile::{TraceDocument, TraceEvent};
use redline_lab::lanes;

use crate::harness::{bits, command, finish, generate, redline, score};

const SCORE: &[&str] =
    &["--query", "I pledge allegiance", "--item", " to", "--item", " of", "--label", " the"];
/// Operations per layer of the demo model: two norms, four linear layers, two rotary embeddings, two additions, the KV
/// store, attention, the gate.
const OF_LAYER: usize = 13;

fn read(path: &Path) -> TraceDocument {
    let text = fs::read_to_string(path).unwrap();
    let profile: TraceDocument =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(profile.display_time_unit, "ms");
    assert!(!profile.trace_events.is_empty());
    profile
}

/// Begin and end in nanoseconds. Microseconds with three decimals represent them exactly.
fn interval(event: &TraceEvent) -> (i64, i64) {
    let nanoseconds = |microseconds: f64| (microseconds * 1e3).round() as i64;
    let start = nanoseconds(event.ts.0);
    (start, start + nanoseconds(event.dur.unwrap().0))
}

fn lies_within(inner: (i64, i64), outer: (i64, i64)) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

impl Events for TraceDocument {
    fn of(&self, cat: &str) -> Vec<&TraceEvent> {
        self.trace_events.iter().filter(|event| event.cat == cat).collect()
    }
}

trait Events {
    /// The events of a category.
    fn of(&self, cat: &str) -> Vec<&TraceEvent>;
}

/// Checks that on every track, each span lies within the open one, or after all earlier ones.
fn assert_nested(profile: &TraceDocument) {
    let mut open: BTreeMap<(u32, u32), Vec<(i64, i64)>> = BTreeMap::new();
    for event in profile.trace_events.iter().filter(|event| event.ph == "X") {
        let stack = open.entry((event.pid, event.tid)).or_default();
        let own = interval(event);
        assert!(own.0 <= own.1, "{event:?}");
        while stack.last().is_some_and(|last| last.1 <= own.0 && !lies_within(own, *last)) {
            stack.pop();
        }
        if let Some(last) = stack.last() {
            assert!(lies_within(own, *last), "{event:?} does not lie within {last:?}");
        }
        stack.push(own);
    }
    assert!(!open.is_empty());
}

/// Checks that every layer of every pass has its operations, and that every thread's work lies within its operation.
fn assert_whole(profile: &TraceDocument, threads: usize) {
    let (passes, layers, operations) = (profile.of("pass"), profile.of("layer"), profile.of("operation"));
    let demo_layers = layers.iter().map(|layer| layer.args.layer.unwrap() + 1).max().unwrap();
    assert!(demo_layers > 1);
    for pass in &passes {
        let of = |event: &&&TraceEvent| event.args.pass == pass.args.pass;
        assert_eq!(layers.iter().filter(of).count(), demo_layers, "{pass:?}");
        let outputs = pass.args.outputs;
        for layer in layers.iter().filter(of) {
            let inside: Vec<_> =
                operations.iter().filter(of).filter(|o| o.args.layer == layer.args.layer).collect();
            assert!(inside.iter().all(|o| lies_within(interval(o), interval(layer))));
            // After storing keys and values, the last layer continues only with the rows whose logits are needed.
            let narrows = layer.args.layer == Some(demo_layers - 1) && outputs != pass.args.tokens;
            let narrowed = inside.iter().position(|o| o.name == "gather");
            assert_eq!(narrowed.is_some(), narrows, "{layer:?}");
            let (all, some) = inside.split_at(narrowed.unwrap_or(inside.len()));
            assert!(all.iter().all(|o| o.args.m == pass.args.tokens), "rows of {pass:?}");
            assert!(some.iter().all(|o| o.args.m == outputs), "wanted rows of {pass:?}");
            let ends = narrows && outputs == Some(0);
            assert!(ends && some.len() == 1 || inside.len() == OF_LAYER + usize::from(narrows), "{layer:?}");
        }
        let attended = demo_layers - usize::from(outputs == Some(0));
        for (name, count) in [("embedding", 1), ("linear qkv", demo_layers), ("attention", attended)] {
            assert_eq!(operations.iter().filter(of).filter(|o| o.name == name).count(), count, "{name}");
        }
    }
    for linear in operations.iter().filter(|o| o.name.starts_with("linear ")) {
        let args = &linear.args;
        assert!(args.n.is_some() && args.k.is_some() && args.format.is_some() && args.variant.is_some());
    }
    let works = profile.of("thread");
    for work in &works {
        let own = |o: &&&TraceEvent| {
            o.name == work.name && o.args.pass == work.args.pass && o.args.layer == work.args.layer
        };
        assert!(operations.iter().filter(own).any(|o| lies_within(interval(work), interval(o))), "{work:?}");
    }
    let tracks: std::collections::BTreeSet<u32> = works.iter().map(|work| work.tid).collect();
    // Thread 0 always works. Other threads may join late, or not at all if other processes keep their cores busy.
    assert_eq!(tracks.first(), Some(&2));
    assert!(tracks.last() < Some(&(2 + threads as u32)), "{tracks:?}");
    let named = profile
        .of("__metadata")
        .into_iter()
        .filter(|event| event.args.name.as_ref().is_some_and(|name| name.starts_with("thread ")));
    assert_eq!(named.count(), threads);
}

/// Checks that every request begins and ends once.
fn assert_answered(profile: &TraceDocument, count: usize) {
    let mut ids: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in profile.of("request") {
        ids.entry(event.id.as_deref().unwrap()).or_default().push(&event.ph);
    }
    assert_eq!(ids.len(), count);
    assert!(ids.values().all(|phases| phases == &["b", "e"]), "{ids:?}");
}

#[test]
fn a_score_request_is_told_in_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    fs::write(&path, "x".repeat(1 << 20)).unwrap();
    let flag = format!("--profile-trace={}", path.display());
    for threads in ["1", "3"] {
        for format in ["bf16", "w8"] {
            let arguments = [SCORE, &["--threads", threads, "--format", format]].concat();
            let plain = score(&arguments);
            let profiled = score(&[&arguments[..], &[&flag]].concat());
            assert_eq!(bits(&profiled), bits(&plain));
            let profile = read(&path);
            assert_nested(&profile);
            assert_whole(&profile, threads.parse().unwrap());
            assert_answered(&profile, 1);
        }
    }
}

#[test]
fn every_step_of_a_generation_is_a_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let arguments = ["--prompt", "And the", "--max-new-tokens", "6", "--ignore-eos", "--threads", "2"];
    let plain = generate(&arguments);
    let run = command(&[&["generate", "--model", "demo", "--json"], &arguments[..]].concat())
        .env("REDLINE_PROFILE_TRACE", &path)
        .output();
    let profiled = finish(run.unwrap()).ok().completion();
    assert_eq!(profiled.choices[0].token_ids, plain.choices[0].token_ids);
    let profile = read(&path);
    assert_nested(&profile);
    assert_whole(&profile, 2);
    assert_answered(&profile, 1);
    let tokens: Vec<_> = profile.of("pass").iter().map(|pass| pass.args.tokens.unwrap()).collect();
    assert_eq!((tokens.len(), &tokens[1..]), (6, &[1; 5][..]));
    assert_eq!(tokens.iter().sum::<usize>(), profile.of("request")[1].args.tokens.unwrap());
    for (at, pass) in profile.of("pass").into_iter().enumerate() {
        let plan = pass.args.plan.as_deref().unwrap();
        assert!(plan.starts_with("pass/") && (plan == "pass/1") == (at > 0), "{pass:?}");
        assert_eq!(pass.args.pass, Some(at as u64));
    }
}

#[test]
fn requests_that_overlap_have_tracks_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (path, lines) = (folder.path().join("profile.json"), folder.path().join("lines.jsonl"));
    fs::write(&lines, "{\"prompt\":\"And the\"}\n{\"prompt\":\"I pledge\"}\n{\"prompt\":\"In the\"}\n")
        .unwrap();
    let (flag, lines) = (format!("--profile-trace={}", path.display()), lines.to_str().unwrap().to_owned());
    redline(&[
        "generate",
        "--model",
        "demo",
        "--jsonl",
        &lines,
        "--max-new-tokens",
        "5",
        "--ignore-eos",
        &flag,
    ])
    .ok();
    let profile = read(&path);
    assert_nested(&profile);
    assert_answered(&profile, 3);
    assert!(
        profile
            .of("pass")
            .iter()
            .all(|pass| pass.args.requests.as_ref().unwrap().len() == pass.args.sequences.unwrap())
    );
}

#[test]
fn lanes_that_run_a_model_write_one_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let lane = lanes::ALL.iter().find(|lane| lane.name == "forward").unwrap();
    let flag = format!("--profile-trace={}", path.display());
    let mut words =
        vec!["bench", lane.name, "--model", "demo", "--json", "--portable", "--threads", "1,2", &flag];
    let values: Vec<String> = lane.smoke.split_whitespace().map(|word| format!("--{word}")).collect();
    words.extend(values.iter().map(String::as_str));
    redline(&words).ok();
    let profile = read(&path);
    assert_nested(&profile);
    let engines: std::collections::BTreeSet<u32> =
        profile.trace_events.iter().map(|event| event.pid).collect();
    assert!(engines.len() >= 2, "an engine per number of threads: {engines:?}");
    redline(&["bench", "gemm", &flag]).usage(&["--profile-trace"]);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_done() {
    for (command, rest) in [("score", SCORE), ("generate", &["--prompt", "And"][..]), ("bench", &[][..])] {
        let lane: &[&str] = if command == "bench" { &["forward"] } else { &[] };
        // The model does not exist either, but the file is checked first.
        let words =
            [&[command], lane, &["--model", "/nonexistent/m", "--profile-trace", "/nonexistent/x"], rest]
                .concat();
        redline(&words).usage(&["/nonexistent/x", "--profile-trace FILE"]);
    }
}

#[test]
fn a_file_is_whole_after_a_run_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let flag = format!("--profile-trace={}", path.display());
    let cache = format!("--plan-cache={}", folder.path().join("plans").display());
    let forbid = ["score", "--model", "demo", &flag, &cache, "--plan-policy", "forbid"];
    let run = redline(&[&forbid[..], SCORE].concat());
    assert_eq!(run.code, 1, "{}", run.err);
    let profile = read(&path);
    assert_answered(&profile, 1);
    assert_eq!(profile.of("request")[1].args.fault.as_deref(), Some("failed"));
}

/// A pipe cannot be written again, so the profile is completed at the end.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_receives_a_whole_profile() {
    let ask = ["score", "--model", "demo", "--json", "--threads", "1", "--profile-trace=/dev/stderr"];
    let run = redline(&[&ask[..], SCORE].concat()).ok();
    let profile: TraceDocument =
        serde_json::from_str(&run.err).unwrap_or_else(|error| panic!("{error}: {}", run.err));
    assert_nested(&profile);
    assert_answered(&profile, 1);
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_can_no_longer_be_written_are_told_once_and_the_work_goes_on() {
    let ask = ["--prompt", "And the", "--max-new-tokens", "6", "--ignore-eos", "--threads", "1"];
    let full = ["--precision-trace=/dev/full", "--profile-trace=/dev/full"];
    let run = redline(&[&["generate", "--model", "demo", "--json"], &ask[..], &full].concat()).ok();
    assert_eq!(run.completion().choices, generate(&ask).choices);
    for what in ["trace", "profile"] {
        let warning = format!("warning: the {what} ends here: No space left on device");
        assert_eq!(run.err.matches(&warning).count(), 1, "{}", run.err);
    }
}
