//! The guides name every field of the JSON output.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::harness::redline;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The names of all fields.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.insert(name.clone());
                fields(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

/// Checks that the tables of these guides name each field that the commands print.
fn check(guides: &[&str], commands: &[&[&str]]) {
    let text: String =
        guides.iter().map(|guide| fs::read_to_string(format!("{DOCS}/{guide}.md")).unwrap()).collect();
    let tables: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let mut names = BTreeSet::new();
    for command in commands {
        let run = redline(&[command, &["--json", "--quiet"][..]].concat()).ok();
        fields(&serde_json::from_str(&run.out).unwrap(), &mut names);
    }
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let forms = [format!("`{name}`"), format!(".{name}`"), format!("`{name}.")];
        let named = |line: &str| forms.iter().any(|form| line.contains(form));
        assert!(tables.iter().any(|line| named(line)), "{}: no table names `{name}`", guides[0]);
    }
}

#[test]
fn of_scores() {
    let long = "x ".repeat(600);
    let masked = ["score", "--model", "demo-diffusion", "--query", "a", "--item", "b", "--label", " c"];
    let score = ["score", "--model", "demo", "--query", "a", "--item", "b", "--label", " c"];
    let all = [&score[..], &["--item", &long, "--item-errors", "--return-token-ids"]].concat();
    check(&["scoring"], &[&score, &all, &masked]);
}

#[test]
fn of_judgements() {
    let long = "x ".repeat(600);
    let classify =
        ["classify", "--model", "demo", "--item-errors", "--text", "a", "--class", "b", "--class", "b c"];
    check(&["classification", "scoring"], &[&[&classify[..], &["--text", &long]].concat()]);
    let rerank = ["rerank", "--model", "demo", "--item-errors", "--query", "a", "--document", "b"];
    let all = [&rerank[..], &["--label-end", "always", "--document", &long]].concat();
    check(&["reranking", "scoring"], &[&all]);
}

#[test]
fn of_texts() {
    let one = ["generate", "--model", "demo", "--prompt", "In the", "--max-new-tokens", "2"];
    let logprobs = [&one[..], &["--logprobs", "1", "--prompt-logprobs", "1"]].concat();
    let best = [&one[..], &["--temperature", "1", "--best-of", "2"]].concat();
    check(&["generation"], &[&one, &logprobs, &best]);
    let canvas = ["diffuse", "--model", "demo-diffusion", "--max-new-tokens", "2", "--trace", "--prompt"];
    check(&["diffusion"], &[&[&canvas[..], &["In <|mask|>"]].concat()]);
}
