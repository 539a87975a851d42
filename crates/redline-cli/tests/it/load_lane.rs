//! Lane `load` against a server whose delays and counts are known, and against `redline serve`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Run, command, finish, redline};
use redline_testing::mock::{Mock, Script};

/// A run of the lane that measures these servers, one request after another.
fn load(servers: &[&Mock], more: &[&str]) -> Run {
    let names = ["one", "two"].iter().zip(servers);
    let urls: Vec<String> =
        names.map(|(name, mock)| format!("--url={name}=http://{}", mock.address)).collect();
    let small = [
        "--concurrency=1",
        "--requests=6",
        "--prompt-tokens=12",
        "--output-tokens=5",
        "--num-runs=2",
        "--portable",
        "--json",
    ];
    let words = [&["bench", "load"][..], &small].concat();
    let given = |word: &&str| !more.iter().any(|other| other.split('=').next() == word.split('=').next());
    let kept: Vec<&str> = words.into_iter().filter(given).collect();
    redline(&[&kept, &urls.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat())
}

/// The rows of a run.
#[track_caller]
fn rows(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, 0, "{}", run.err);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    document["rows"].as_array().unwrap().clone()
}

fn values(row: &Value, metric: &str) -> Vec<f64> {
    let samples = row["metrics"][metric]["samples"].as_array();
    samples.into_iter().flatten().map(|value| value.as_f64().unwrap()).collect()
}

/// The only value of a metric, in every run.
#[track_caller]
fn value(row: &Value, metric: &str) -> f64 {
    let values = values(row, metric);
    assert!(
        !values.is_empty() && values.iter().all(|value| *value == values[0]),
        "{metric}: {values:?} in {row}"
    );
    values[0]
}

#[test]
fn counts_are_exact_and_times_hold_the_delays() {
    let (first, between) = (Duration::from_millis(20), Duration::from_millis(4));
    let mock = Mock::start(Script { first, between, ..Script::default() });
    for kind in ["completion", "chat"] {
        let row = &rows(&load(&[&mock], &["--kind", kind]))[0];
        assert_eq!(row["case"], format!("one/{kind}/c1/p12/o5"));
        assert_eq!(row["params"]["model"], "mock-model");
        assert_eq!(row["params"]["streamed"], true);
        assert_eq!(
            (value(row, "requests"), value(row, "errors"), value(row, "output_tokens")),
            (6.0, 0.0, 30.0)
        );
        assert_eq!(
            (value(row, "short"), value(row, "changed"), value(row, "cached_tokens")),
            (0.0, 0.0, 6.0)
        );
        // A sleep is never shorter than it should be, and a time that is measured around it neither. The chunk with the role of a chat
        // comes before the first sleep.
        for (metric, least) in [("ttft_p50_s", 0.020), ("e2e_p50_s", 0.036)] {
            let values = values(row, metric);
            assert!(!values.is_empty() && values.iter().all(|value| *value >= least), "{metric}: {row}");
        }
        assert!(!values(row, "tpot_p50_s").is_empty(), "{row}");
        // Twenty-four tokens of a run come after others: enough for the median of the times between tokens, not for the 95th percentile
        // of either run, nor for that of both.
        assert!(!values(row, "itl_p50_s").is_empty(), "{row}");
        assert!(values(row, "itl_p99_s").is_empty() && values(row, "ttft_p90_s").is_empty(), "{row}");
        // One connection, six requests of five tokens each: the rates follow from the window.
        for (tokens, requests) in values(row, "output_tok_s").iter().zip(values(row, "req_s")) {
            assert!((tokens / requests - 5.0).abs() < 1e-9, "{row}");
            assert!(requests <= 1.0 / 0.036, "{row}");
        }
    }
}

#[test]
fn chunks_of_several_tokens_and_whole_answers_are_counted_too() {
    let between = Duration::from_millis(2);
    let mock = Mock::start(Script { between, in_a_chunk: 2, ..Script::default() });
    let row = &rows(&load(&[&mock], &[]))[0];
    assert_eq!(value(row, "output_tokens"), 30.0);
    assert!(
        !values(row, "tpot_p50_s").is_empty() && values(row, "e2e_p50_s").iter().all(|value| *value >= 0.004),
        "{row}"
    );
    let row = &rows(&load(&[&mock], &["--stream", "off"]))[0];
    assert_eq!((value(row, "output_tokens"), &row["params"]["streamed"]), (30.0, &false.into()));
    assert!(
        values(row, "ttft_p50_s").is_empty() && values(row, "e2e_p50_s").iter().all(|value| *value >= 0.008),
        "{row}"
    );
}

#[test]
fn a_server_that_counts_too_few_tokens_gets_no_longer_prompts() {
    let mock = Mock::start(Script::default());
    load(&[&mock], &["--kind=score", "--items=2", "--prompt-tokens=200"]).ok();
    let bodies = mock.bodies();
    let lengths = bodies.iter().map(|body| body.split(' ').count());
    assert!(lengths.clone().min() >= Some(200) && lengths.max() < Some(220), "{bodies:?}");
}

#[test]
fn fields_that_a_server_refuses_are_left_out() {
    let mock =
        Mock::start(Script { unknown: &["continuous_usage_stats", "min_tokens"], ..Script::default() });
    let row = &rows(&load(&[&mock], &[]))[0];
    assert_eq!((value(row, "output_tokens"), &row["params"]["streamed"]), (30.0, &true.into()));
    let bodies = mock.bodies();
    let last = bodies.last().unwrap();
    assert!(
        last.contains("include_usage") && last.contains("ignore_eos") && !last.contains("min_tokens"),
        "{last}"
    );
    let whole = Mock::start(Script { unknown: &["stream", "stream_options"], ..Script::default() });
    let row = &rows(&load(&[&whole], &[]))[0];
    assert_eq!((value(row, "output_tokens"), &row["params"]["streamed"]), (30.0, &false.into()));
    load(&[&whole], &["--stream", "on"]).failed(&["the server does not stream", "/v1/completions"]);
    let none = Mock::start(Script { unknown: &["model"], ..Script::default() });
    load(&[&none], &[]).failed(&["status_400: `model` is not known", "/v1/completions"]);
}

#[test]
fn errors_are_counted_by_kind_and_fail_the_run() {
    // Requests that run alone must be answered. One of three fails from the warm-up on.
    let failing = || Mock::start(Script { fails_every: 3, spared: 20, failure: 429, ..Script::default() });
    let thirty = ["--requests=30", "--warmup-runs=30"];
    let run = load(&[&failing()], &thirty);
    assert_eq!(run.code, 1, "{}", run.err);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    let row = &document["rows"][0];
    assert_eq!(
        (value(row, "requests"), value(row, "errors"), value(row, "errors_status_429")),
        (30.0, 10.0, 10.0)
    );
    assert_eq!(value(row, "output_tokens"), 100.0, "only answered requests count");
    assert!(run.err.contains("20 of 60 requests failed with status_429: the mock fails"), "{}", run.err);
    let some = [&thirty[..], &["--max-errors=34"]].concat();
    assert_eq!(value(&rows(&load(&[&failing()], &some))[0], "errors"), 10.0);
    // A failed request keeps no objective.
    let row = &rows(&load(&[&failing()], &[&some[..], &["--slo=e2e=1000000"]].concat()))[0];
    assert!((value(row, "good_pct") - 100.0 * 20.0 / 30.0).abs() < 1e-9, "{row}");
    let script = Script { fails_every: 3, spared: 20, breaks_off: true, ..Script::default() };
    let row = &rows(&load(&[&Mock::start(script)], &some))[0];
    assert_eq!((value(row, "errors"), value(row, "errors_closed")), (10.0, 10.0), "{row}");
}

#[test]
fn servers_take_turns_and_stand_in_one_table() {
    let fast = Mock::start(Script::default());
    let slow = Mock::start(Script { between: Duration::from_millis(3), ..Script::default() });
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let run = load(&[&slow, &fast], &["-o", dir.to_str().unwrap()]);
    let rows = rows(&run);
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["one/completion/c1/p12/o5", "two/completion/c1/p12/o5"]);
    assert!(values(&rows[0], "rate_vs_first").is_empty() && values(&rows[1], "rate_vs_first").len() == 2);
    // Both get the same requests, and no prompt is sent twice in the measured runs.
    let prompts = |mock: &Mock| {
        let texts = mock
            .bodies()
            .into_iter()
            .map(|body| serde_json::from_str::<Value>(&body).unwrap()["prompt"].to_string());
        texts.collect::<Vec<_>>()
    };
    let last = |mock: &Mock| {
        // The two requests at the end are compared with those that ran under load.
        let all = prompts(mock);
        all[all.len() - 14..all.len() - 2].to_vec()
    };
    assert_eq!(last(&slow), last(&fast));
    let mut distinct = last(&slow);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 12);
    let report = folder.path().join("report.html");
    redline(&["report", dir.to_str().unwrap(), "-o", report.to_str().unwrap()]).ok();
    assert!(fs::read_to_string(report).unwrap().contains("two/completion/c1/p12/o5"));
    let words = ["bench", "load", "--url"];
    redline(&[&words[..], &["a=http://h:1", "--url", "a=http://h:2"]].concat())
        .usage(&["two servers are called `a`"]);
    redline(&[&words[..], &["http://127.0.0.1:1", "--requests=1"]].concat())
        .failed(&["http://127.0.0.1:1/v1/models"]);
}

#[test]
fn a_closed_loop_has_as_many_connections_and_an_open_one_its_schedule() {
    let mock = Mock::start(Script { first: Duration::from_millis(5), ..Script::default() });
    let row = &rows(&load(&[&mock], &["--concurrency=4", "--requests=20"]))[0];
    assert_eq!((value(row, "requests"), value(row, "errors")), (20.0, 0.0));
    assert!((1..=4).contains(&mock.most_running()), "{}", mock.most_running());
    // Twenty requests at two thousand per second, each of which takes five milliseconds: they wait for the only connection, and the wait
    // counts, because each was due 0.5 ms after the one before.
    let open = ["--rate=2000", "--arrivals=constant", "--requests=20", "--max-in-flight=1", "--slo=ttft=20"];
    let run = load(&[&mock], &open);
    let document: Value = serde_json::from_str(&run.out).unwrap();
    let row = &document["rows"][0];
    assert_eq!((&row["params"]["loop"], &row["params"]["arrivals"]), (&"open".into(), &"constant".into()));
    let offered = value(row, "offered_rps");
    assert!((offered / 2000.0 - 1.0).abs() < 1e-6, "{row}");
    for ((e2e, ttft), delay) in values(row, "e2e_p50_s")
        .iter()
        .zip(values(row, "ttft_p50_s"))
        .zip(values(row, "dispatch_delay_p50_s"))
    {
        // The tenth request begins after nine others.
        assert!(*e2e >= 0.045 && ttft >= 0.045 && delay >= 0.040, "{row}");
    }
    assert!(values(row, "good_pct").iter().all(|good| *good <= 25.0), "{row}");
    assert!(
        values(row, "goodput_req_s").iter().zip(values(row, "req_s")).all(|(good, all)| *good < all),
        "{row}"
    );
    assert_eq!((run.code, &row["checked"]), (5, &false.into()), "the client is too late for its schedule");
    assert!(run.err.contains("the client was late"), "{}", run.err);
}

#[test]
fn requests_carry_what_the_flags_say() {
    let mock = Mock::start(Script::default());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = path("key", "# a comment\nalice secret-1\n");
    let adapters =
        ["--adapters=a,b", "--alpha=0", "--requests=40", "--api-key-file", &key, "--header=X-Team: c"];
    rows(&load(&[&mock], &adapters));
    let bodies = mock.bodies();
    for model in ["a", "b"] {
        let count = bodies.iter().filter(|body| body.contains(&format!("\"model\":\"{model}\""))).count();
        assert!(count > 10, "{count} requests for {model}");
    }
    let head = mock.heads().pop().unwrap();
    assert!(head.contains("Authorization: Bearer secret-1\r\n") && head.contains("X-Team: c\r\n"), "{head}");
    let prompts = path("prompts.jsonl", "{\"prompt\":\"alpha\"}\n{\"prompt\":\"beta\",\"stop\":[\"x\"]}\n");
    let mock = Mock::start(Script::default());
    rows(&load(&[&mock], &["--prompts", &prompts, "--model", "m"]));
    let (bodies, heads) = (mock.bodies(), mock.heads());
    assert!(bodies.iter().all(|body| body.contains("\"model\":\"m\"") && (body.contains("alpha") || body.contains("beta"))));
    assert!(heads.iter().all(|head| head.starts_with("POST")), "a model that is named is not looked up");
    // Prompts have about as many tokens as asked for, by the server's count.
    let mock = Mock::start(Script::default());
    let row = &rows(&load(&[&mock], &["--prompt-tokens=300"]))[0];
    for tokens in values(row, "prompt_tokens") {
        assert!((tokens / 6.0 / 300.0 - 1.0).abs() < 0.05, "{tokens} of 6 requests");
    }
}

#[test]
fn a_server_of_this_program_is_started_without_an_address() {
    let own = ["bench", "load", "--profile=smoke", "--threads=1", "--json"];
    for (kind, model) in [("completion", "demo"), ("diffusion", "demo-diffusion"), ("score", "demo")] {
        let run = redline(&[&own[..], &["--kind", kind, "--model", model]].concat());
        for row in rows(&run) {
            assert_eq!(
                (value(&row, "requests"), value(&row, "errors"), value(&row, "changed")),
                (6.0, 0.0, 0.0)
            );
            assert!(row["digest"].is_string() && row["params"]["server"] == "redline", "{row}");
            if kind == "score" {
                let (items, requests) = (values(&row, "items_s"), values(&row, "req_s"));
                assert!(
                    items.iter().zip(requests).all(|(items, all)| (items / all - 8.0).abs() < 1e-9),
                    "{row}"
                );
            } else {
                assert_eq!((value(&row, "output_tokens"), value(&row, "short")), (24.0, 0.0));
                assert!(row["params"]["streamed"] == true && !values(&row, "tpot_p50_s").is_empty(), "{row}");
            }
        }
    }
}

/// The commands of the guide, with the addresses of servers that run here.
#[test]
fn the_commands_of_the_guide_run() {
    let (ours, other) = (Mock::start(Script::default()), Mock::start(Script::default()));
    let guide = include_str!("../../../../docs/load.md");
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<&str> = guide.lines().filter(|line| line.starts_with("redline bench load ")).collect();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let line = line.replace("127.0.0.1:8000", &ours.address).replace("127.0.0.1:8001", &other.address);
        let mut words: Vec<&str> = line.split(' ').skip(1).chain(["--portable"]).collect();
        // A moment of the load that the guide shows.
        for (flag, value) in [("--requests", "8"), ("--num-runs", "2"), ("--duration", "0.5")] {
            match words.iter().position(|word| *word == flag) {
                Some(at) => words[at + 1] = value,
                None if flag == "--requests" && words.contains(&"--duration") || flag == "--duration" => {}
                None => words.extend([flag, value]),
            }
        }
        let mut command = command(&words);
        let run = finish(command.current_dir(folder.path()).output().unwrap());
        assert_eq!(run.code, 0, "{line}: {}", run.err);
        assert!(run.out.starts_with("case") && run.out.contains("ttft"), "{line}: {}", run.out);
    }
    assert!(folder.path().join("run/run.json").is_file());
}

#[test]
fn serve_measures_itself_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("run.json");
    let serve = ["serve", "--model", "demo", "--threads", "1"];
    let run =
        redline(&[&serve[..], &["--mode", "throughput", "--report", report.to_str().unwrap()]].concat()).ok();
    for (label, unit) in [("output", "tokens/s"), ("answered", "requests/s"), ("whole answer, p95", "ms")] {
        assert!(run.out.lines().any(|line| line.starts_with(label) && line.ends_with(unit)), "{}", run.out);
    }
    let document: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let row = &document["rows"][0];
    assert_eq!(
        (&document["lane"], value(row, "requests"), value(row, "errors")),
        (&"load".into(), 40.0, 0.0)
    );
    // With adapters, of which every request uses one.
    let pattern = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-adapter/j*");
    let adapters = ["--mode", "throughput", "--adapters", pattern.to_str().unwrap()];
    let with = [&serve[..], &adapters, &["--report", report.to_str().unwrap()]].concat();
    redline(&with).ok();
    let document: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["params"]["adapters_n"].to_string().trim_matches('"'), "1", "{row}");
    assert_eq!(value(row, "errors"), 0.0);
    // Requests by that name would use the model alone.
    let jargon = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-adapter/jargon");
    let named = format!("demo={}", jargon.display());
    redline(&[&serve[..], &["--mode", "throughput", "--adapter", &named]].concat())
        .usage(&["an adapter has the model's name `demo`"]);
    redline(&[&serve[..], &["--mode", "throughput", "--adapter-root", "."]].concat())
        .usage(&["`--adapter-root`"]);
    redline(&[&serve[..], &["--report", "x.json"]].concat())
        .usage(&["`--report x.json` without a measurement"]);
}
