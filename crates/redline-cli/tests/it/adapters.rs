//! Adapters through the binary: which ones a request uses, what is refused, and what the demo adapters do to texts.

use std::fs;
use std::path::Path;

use redline_api::jsonl::score::Scoring;
use serde_json::{Value, json};

use crate::harness::{Run, bits, redline, redline_reading};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn path(name: &str) -> String {
    Path::new(ROOT).join(name).to_str().unwrap().to_owned()
}

/// `NAME=DIR` of a golden adapter.
fn adapter(name: &str) -> String {
    format!("{name}={}", path(&format!("tests/golden/adapters/{name}")))
}

/// Runs `score` on the base of the golden adapters `llama-*`, which has no tokenizer.
fn scored(extra: &[&str]) -> Run {
    let model = path("tests/golden/llama-a");
    redline(&[&["score", "--model", &model, "--json", "--quiet"], extra].concat())
}

const REQUEST: &[&str] = &[
    "--query-ids",
    "5,17,42,3",
    "--item-ids",
    "9,1",
    "--item-ids",
    "30",
    "--label-id",
    "2",
    "--label-id",
    "11",
];

/// The bits of [`REQUEST`] with two adapters loaded and further arguments.
#[track_caller]
fn with_two(extra: &[&str]) -> Vec<Vec<u32>> {
    let (plain, headless) = (adapter("llama-plain"), adapter("llama-headless"));
    let two = ["--adapter", &plain, "--adapter", &headless];
    bits(&scored(&[REQUEST, &two, extra].concat()).ok().scoring())
}

/// The bits of [`REQUEST`] with further arguments.
#[track_caller]
fn with(extra: &[&str]) -> Vec<Vec<u32>> {
    bits(&scored(&[REQUEST, extra].concat()).ok().scoring())
}

#[test]
fn flags_choose_adapters() {
    let (base, plain) = (with(&[]), adapter("llama-plain"));
    let alone = with(&["--adapter", &plain]);
    assert_ne!(alone, base);
    // The only adapter is used without `--use`; of several, none is.
    assert_eq!(with(&["--adapter", &plain, "--use", "llama-plain"]), alone);
    assert_eq!(with(&["--adapter", &plain, "--use", "base"]), base);
    assert_eq!(with_two(&[]), base);
    assert_eq!(with_two(&["--use", "llama-plain"]), alone);
    let half = with(&["--adapter", &plain, "--use", "llama-plain:0.5"]);
    assert!(half != alone && half != base);
    assert_eq!(with(&["--adapter", &plain, "--use", "llama-plain:1.0"]), alone);
    assert_eq!(with(&["--adapter", &plain, "--use", "llama-plain:-0.0"]).len(), 2);
    let other = with_two(&["--use", "llama-headless"]);
    let mixed = with_two(&["--use", "llama-plain,llama-headless:0.5"]);
    let distinct = [&base, &alone, &half, &other, &mixed];
    assert!((1..distinct.len()).all(|i| !distinct[..i].contains(&distinct[i])), "{distinct:?}");
}

#[test]
fn a_name_is_that_of_the_directory_if_none_is_given() {
    let dir = path("tests/golden/adapters/llama-plain");
    let named = with(&["--adapter", &adapter("llama-plain")]);
    assert_ne!(named, with(&[]));
    assert_eq!(with(&["--adapter", &dir, "--use", "llama-plain"]), named);
    assert_eq!(with(&["--adapter", &format!("other={dir}"), "--use", "other"]), named);
}

#[test]
fn lines_have_the_bits_of_single_commands() {
    let line = |adapter: Option<Value>| {
        let mut line = json!({
            "query": [5, 17, 42, 3], "items": [[9, 1], [30]], "label_token_ids": [2, 11],
        });
        if let Some(adapter) = adapter {
            line["adapter"] = adapter;
        }
        line.to_string() + "\n"
    };
    let mix = json!(["llama-plain", { "name": "llama-headless", "scale": 0.5 }]);
    let lines = [
        line(Some(json!("llama-plain"))),
        line(Some(json!("base"))),
        line(None),
        line(Some(mix)),
        line(Some(json!(["llama-plain"]))),
        line(Some(json!([]))),
        line(Some(json!([{ "name": "llama-plain", "scale": 0.5 }]))),
    ];
    let (plain, headless, model) =
        (adapter("llama-plain"), adapter("llama-headless"), path("tests/golden/llama-a"));
    let arguments = ["score", "--model", &model, "--json", "--quiet", "--jsonl", "-"];
    let adapters = ["--adapter", &plain, "--adapter", &headless, "--use", "llama-headless"];
    let run = redline_reading(&[&arguments[..], &adapters].concat(), lines.concat().as_bytes()).ok();
    let answers: Vec<Vec<Vec<u32>>> = run
        .out
        .lines()
        .map(|line| bits(&serde_json::from_str::<Scoring>(line).unwrap_or_else(|e| panic!("{e}: {line}"))))
        .collect();
    let expect = [
        with_two(&["--use", "llama-plain"]),
        with(&[]),
        // A line without the key takes the adapters of the flags.
        with_two(&["--use", "llama-headless"]),
        with_two(&["--use", "llama-plain,llama-headless:0.5"]),
        with_two(&["--use", "llama-plain"]),
        with(&[]),
        with_two(&["--use", "llama-plain:0.5"]),
    ];
    assert_eq!(answers, expect);
}

#[test]
fn every_command_of_texts_takes_adapters() {
    let jargon = path("models/demo-adapter/jargon");
    let license = path("LICENSE-MIT");
    let asked = |command: &[&str], adapters: &[&str]| {
        redline(&[command, &["--model", "demo", "--quiet"], adapters].concat()).ok().out
    };
    let commands: [&[&str]; 6] = [
        &["classify", "--class", "king", "--class", "priest", "--text", "And the king slept."],
        &["rerank", "--query", "a king", "--document", "It rains.", "--document", "David is king."],
        &["generate", "--prompt", "The king", "--max-new-tokens", "16"],
        &["generate", "--prompt", "The king", "--max-new-tokens", "9", "--n", "2", "--temperature", "1"],
        &["generate", "--prompt", "The king", "--max-new-tokens", "16", "--no-kv-cache"],
        &["perplexity", "--file", &license],
    ];
    for command in commands {
        let base = asked(command, &[]);
        assert_ne!(asked(command, &["--adapter", &jargon]), base, "{command:?}");
        assert_eq!(asked(command, &["--adapter", &jargon, "--use", "base"]), base, "{command:?}");
    }
    let template = tempfile::NamedTempFile::new().unwrap();
    fs::write(template.path(), "{{ messages[0].content }}").unwrap();
    let template = template.path().to_str().unwrap();
    let chat = |adapters: &[&str]| {
        let arguments =
            ["chat", "--model", "demo", "--quiet", "--chat-template", template, "--max-new-tokens", "16"];
        redline_reading(&[&arguments[..], adapters].concat(), b"The king\n").ok().out
    };
    assert_ne!(chat(&["--adapter", &jargon]), chat(&[]));
    assert_eq!(chat(&["--adapter", &jargon, "--use", "base"]), chat(&[]));
}

/// The held-out sentences of `models/demo-adapter`, whose ids are their classes.
#[test]
fn the_demo_adapter_knows_kinds_of_books() {
    let file = path("models/demo-adapter/held-out.jsonl");
    let books = format!("books={}", path("models/demo-adapter"));
    let classes = ["scripture", "novel", "computing", "satire"];
    let classes: Vec<&str> = classes.iter().flat_map(|name| ["--class", name]).collect();
    let right = |uses: &str| {
        let arguments = ["classify", "--model", "demo", "--quiet", "--adapter", &books, "--use", uses];
        let run = redline(&[&arguments[..], &classes, &["--jsonl", &file]].concat()).ok();
        let answers: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 80);
        answers.iter().filter(|answer| answer["results"][0]["class"] == answer["id"]).count()
    };
    let (base, adapted) = (right("base"), right("books"));
    assert!(base <= 40 && adapted >= 56, "{base} and {adapted} of 80");
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let plain = adapter("llama-plain");
    let refused = |extra: &[&str], expect: &[&str]| scored(&[REQUEST, extra].concat()).failed(expect);
    refused(
        &["--adapter", &plain, "--use", "tone"],
        &["no adapter is named `tone`", "hint: loaded: llama-plain"],
    );
    refused(&["--use", "llama-plain"], &["no adapter is loaded", "hint: load one with `--adapter`"]);
    let missing = path("tests/golden/adapters/missing");
    refused(&["--adapter", &missing], &[&missing]);
    refused(&["--adapter", &path("models/demo")], &["there is no `adapter_config.json`", "save_pretrained"]);
    refused(
        &["--adapter", &adapter("qwen2-rslora")],
        &["this model needs", "was trained on another base model"],
    );
    refused(&["--adapter", &path("models/demo-adapter")], &["was trained on another base model"]);
    let same = format!("tone={}", path("tests/golden/adapters/llama-plain"));
    refused(&["--adapter", &plain, "--adapter", &same], &["`tone` is the same adapter as `llama-plain`"]);
    let dora = adapter("llama-dora");
    refused(
        &["--adapter", &dora, "--use", "llama-dora:0.5"],
        &["(DoRA)", "hint: use it alone, with scale 1"],
    );
    let both = ["--adapter", &plain, "--adapter", &dora, "--use", "llama-plain,llama-dora"];
    refused(&both, &["(DoRA)"]);
    refused(
        &["--adapter", &plain, "--use", "llama-plain,llama-plain,llama-plain,llama-plain,llama-plain"],
        &["5 adapters are combined", "at most 4"],
    );
    refused(&["--adapter", &format!("base={missing}")], &["`base` is no name of an adapter"]);
    refused(&["--adapter", &plain, "--adapter-memory", "1KiB"], &["bytes", "1024", "`--adapter-memory`"]);
}

#[test]
fn malformed_flags_are_usage_errors() {
    let plain = adapter("llama-plain");
    let refused = |extra: &[&str], expect: &[&str]| scored(&[REQUEST, extra].concat()).usage(expect);
    for scale in ["x", "", "nan", "inf", "1e39"] {
        let uses = format!("llama-plain:{scale}");
        refused(&["--adapter", &plain, "--use", &uses], &[&format!("`{scale}` is no scale")]);
    }
    refused(&["--adapter", &plain, "--use", "llama-plain,base"], &["names no adapters"]);
    refused(&["--adapter", &plain, "--adapter", &plain], &["two adapters are named `llama-plain`"]);
    refused(&["--adapter", "tone="], &["`tone=` is no adapter"]);
    refused(&["--adapter", &plain, "--adapter-memory", "much"], &["--adapter-memory"]);
}

#[test]
fn a_line_that_names_an_unknown_adapter_fails_alone() {
    let model = path("tests/golden/llama-a");
    let lines =
        [json!("tone"), json!([{ "name": "llama-plain", "factor": 2 }]), json!(7), json!("llama-plain")];
    let line = |adapter| json!({ "query": [5], "items": [[9]], "label_token_ids": [2], "adapter": adapter });
    let lines: String = lines.map(|adapter| line(adapter).to_string() + "\n").concat();
    let arguments =
        ["score", "--model", &model, "--quiet", "--jsonl", "-", "--adapter", &adapter("llama-plain")];
    let run = redline_reading(&arguments, lines.as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let answers: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let message = |at: usize| answers[at]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message(0).contains("no adapter is named `tone`"), "{}", run.out);
    assert!(
        message(1).contains("`name` and `scale`") && message(2).contains("`name` and `scale`"),
        "{}",
        run.out
    );
    assert_eq!((answers.len(), message(3).as_str(), answers[3]["object"].as_str()), (4, "", Some("scoring")));
}
