//! Answers as text, for people: tables, notes, and what they say of items that failed.

use std::path::Path;

use redline_api::jsonl::classify::Classification;
use redline_api::jsonl::rerank::Reranking;

use crate::harness::{redline, redline_reading};

/// A text longer than the demo model's context.
fn long() -> String {
    "word ".repeat(600)
}

fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name).display().to_string()
}

#[test]
fn log_probabilities_of_the_prompt_come_before_those_of_the_new_tokens() {
    let ask =
        ["generate", "--model", "demo", "--prompt", "In the beginning", "--max-new-tokens", "2", "--quiet"];
    let run = redline(&[&ask[..], &["--prompt-logprobs", "1", "--logprobs", "0"]].concat()).ok();
    let lines: Vec<&str> = run.out.lines().collect();
    let columns = |line: &str| line.split('|').count();
    assert_eq!(lines.len(), 6, "{}", run.out);
    let first: Vec<&str> = lines[1..].iter().filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(first, ["In", " the", " beginning", " of", " the"]);
    assert!(
        lines[1..4].iter().all(|line| columns(line) == 2) && lines[4..].iter().all(|line| columns(line) == 1)
    );
    let some = redline(&[&ask[..], &["--prompt-logprobs", "0", "--prompt-logprobs-from", "3"]].concat()).ok();
    assert_eq!(some.out.lines().count(), 2, "{}", some.out);
}

#[test]
fn a_seed_without_sampling_is_noted() {
    let ask = ["generate", "--model", "demo", "--prompt", "In the", "--max-new-tokens", "1", "--seed", "3"];
    let note =
        |more: &[&str]| redline(&[&ask[..], more].concat()).ok().err.contains("note: --seed changes nothing");
    assert!(note(&[]));
    assert!(!note(&["--temperature", "1"]) && !note(&["--top-k", "3"]) && !note(&["--quiet"]));
    assert!(note(&["--top-k", "3", "--temperature", "0"]));
}

#[test]
fn a_table_shows_the_ids_of_its_prompts() {
    let ask = ["score", "--model", "demo", "--query", "I pledge", "--item", " to", "--label", " the"];
    let run = redline(&[&ask[..], &["--return-token-ids"]].concat()).ok();
    assert!(run.out.lines().nth(1).unwrap().ends_with("ids 0,42,561,281,438,284"), "{}", run.out);
    assert!(!redline(&ask).ok().out.contains("ids"));
}

#[test]
fn texts_that_failed_keep_their_place() {
    let long = long();
    let classify = ["classify", "--model", "demo", "--class", "king", "--class", "poor", "--item-errors"];
    let texts = ["--text", &long, "--text", "a"];
    let run = redline(&[&classify[..], &texts].concat()).ok();
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(lines[1].contains("error: text 0: 627 tokens exceed the context of 512"), "{}", run.out);
    assert!(lines[2].starts_with("\"a\"") && run.err.contains("note: 1 of 2 texts failed"), "{}", run.err);
    let json = redline(&[&classify[..], &texts, &["--json"]].concat()).ok();
    let answer: Classification = serde_json::from_str(&json.out).unwrap();
    let [failed, sound] = &answer.results[..] else { panic!("{}", json.out) };
    assert!(failed.error.as_ref().is_some_and(|error| error.contains("text 0: 627 tokens")), "{}", json.out);
    assert_eq!(
        (failed.index, &failed.class, &failed.probabilities, failed.prompt_tokens),
        (0, &None, &None, None)
    );
    assert!(sound.index == 1 && sound.class.is_some() && sound.error.is_none());
    let rerank = ["rerank", "--model", "demo", "--query", "x", "--item-errors"];
    let documents = ["--document", &long, "--document", "a"];
    let run = redline(&[&rerank[..], &documents].concat()).ok();
    let last = run.out.lines().last().unwrap();
    assert!(last.starts_with("0 ") && last.contains("error: document 0: 643 tokens"), "{}", run.out);
    assert!(
        run.err.contains("43 prompt tokens") && run.err.contains("note: 1 of 2 documents failed"),
        "{}",
        run.err
    );
    assert_eq!(redline(&[&rerank[..], &documents, &["--quiet"]].concat()).ok().err, "");
    let json = redline(&[&rerank[..], &documents, &["--json"]].concat()).ok();
    let answer: Reranking = serde_json::from_str(&json.out).unwrap();
    let places: Vec<_> = answer.results.iter().map(|result| (result.index, result.error.is_some())).collect();
    assert_eq!(places, [(1, false), (0, true)], "{}", json.out);
}

/// The ends of a line win over the flag.
#[test]
fn each_line_cuts_its_own_end() {
    let line = |end: &str| {
        format!("{{\"query\":\"{}\",\"items\":[\"{}\"]{end}}}\n", "first ".repeat(300), "last ".repeat(300))
    };
    let input = [line(",\"truncate\":\"left\""), line(",\"truncate\":\"right\""), line("")].concat();
    let ask = [
        "score",
        "--model",
        "demo",
        "--jsonl",
        "-",
        "--label",
        " the",
        "--return-token-ids",
        "--truncate",
        "right",
    ];
    let run = redline_reading(&ask, input.as_bytes()).ok();
    let ids: Vec<Vec<u32>> = run
        .out
        .lines()
        .map(|line| {
            let answer: redline_api::jsonl::score::Scoring = serde_json::from_str(line).unwrap();
            assert_eq!(answer.meta.truncated, [Some(true)]);
            answer.meta.token_ids.unwrap()[0].clone().unwrap()
        })
        .collect();
    assert!(ids[0] != ids[1] && ids[1] == ids[2], "left, right, the flag's right");
    let text = "first ".repeat(300) + &"last ".repeat(300);
    let whole = redline(&["tokenize", "--model", "demo", "--text", &text]).ok().out;
    let whole: Vec<u32> = whole.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let special = usize::from(whole[0] == 0);
    assert_eq!((ids[0].len(), ids[1].len()), (512, 512));
    assert!(whole.ends_with(&ids[0][special..]), "the left end is cut after the special token");
    assert!(whole.starts_with(&ids[1]), "the right end is cut");
}

/// Without a tokenizer a canvas is shown as ids.
#[test]
fn a_canvas_of_ids() {
    let dream = golden("dream-a");
    let ask =
        ["diffuse", "--model", &dream, "--prompt-ids", "1,2,3", "--max-new-tokens", "4", "--steps", "2"];
    let run = redline(&[&ask[..], &["--show-steps"]].concat()).ok();
    assert!(run.out.contains(" 1 2 3░░"), "{}", run.out);
    assert!(run.out.lines().next().unwrap().starts_with("pass 1 over"), "{}", run.out);
}

/// The tokenizer of a packed model is checked with its other files, and is that of the model it was made from.
#[test]
fn a_packed_model_has_its_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed").display().to_string();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo").display().to_string();
    redline(&["convert", &demo, &packed, "--format", "w8"]).ok();
    let ids = |model: &str| redline(&["tokenize", "--model", model, "--text", "In the beginning"]);
    assert_eq!(ids(&packed).ok().out, ids("demo").ok().out);
    let file = Path::new(&packed).join("tokenizer.json");
    let changed = std::fs::read_to_string(&file).unwrap().replacen("beginning", "beginninG", 1);
    std::fs::write(&file, changed).unwrap();
    ids(&packed).failed(&["tokenizer.json"]);
}
