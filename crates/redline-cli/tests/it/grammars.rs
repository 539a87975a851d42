//! `generate` held to a schema, an expression, a choice or a grammar.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{generate, redline, redline_reading, tiers};

const SCHEMA: &str = r#"{"type":"array","items":{"enum":["king","priest"]},"minItems":1,"maxItems":2}"#;
const ASK: &[&str] = &["--prompt", "The people are:"];

fn text(more: &[&str]) -> String {
    generate(&[ASK, more].concat()).choices[0].text.clone()
}

fn is_met(text: &str) -> bool {
    let Ok(Value::Array(values)) = serde_json::from_str(text) else { return false };
    (1..=2).contains(&values.len()) && values.iter().all(|value| value == "king" || value == "priest")
}

#[test]
fn each_flag_says_what_the_text_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (schema, lark) =
        (file("schema.json", SCHEMA), file("grammar.lark", "start: \" a\" | \" b\" rest\nrest: \"c\"\n"));
    let inline = text(&["--json-schema", SCHEMA]);
    assert!(is_met(&inline), "{inline}");
    assert_eq!(text(&["--json-schema", &schema]), inline);
    assert!([" a", " bc"].contains(&&*text(&["--grammar", &lark])));
    assert!([" yes", " no"].contains(&&*text(&["--choice", " yes", "--choice", " no"])));
    let matched = text(&["--regex", " [0-9]{3}"]);
    assert!(matched.len() == 4 && matched[1..].bytes().all(|byte| byte.is_ascii_digit()), "{matched:?}");
    for tier in tiers() {
        assert_eq!(text(&["--json-schema", SCHEMA, "--isa", tier, "--threads", "1"]), inline, "{tier}");
    }
}

#[test]
fn a_line_has_a_grammar_of_its_own_or_that_of_the_flags() {
    let lines = [
        json!({ "id": 1, "prompt": "The people are:" }),
        json!({ "id": 2, "prompt": "The people are:", "choice": [" yes"] }),
        json!({ "id": 3, "prompt": "The people are:", "response_format": { "type": "json_schema", "schema": { "not": {} } } }),
        json!({ "id": 4, "prompt": "The people are:", "structured_outputs": { "regex": " x{3}" } }),
    ];
    let input = lines.map(|line| line.to_string()).join("\n");
    let run = redline_reading(
        &["generate", "--model", "demo", "--jsonl", "-", "--json-schema", SCHEMA],
        input.as_bytes(),
    );
    assert_eq!(run.code, 1, "{}", run.err);
    let answers: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |index: usize| answers[index]["choices"][0]["text"].as_str().unwrap_or_default();
    assert!(is_met(text(0)), "{}", answers[0]);
    assert_eq!((text(1), text(3)), (" yes", " xxx"));
    assert!(answers[2]["message"].as_str().unwrap().contains("`#/not` is not supported"), "{}", answers[2]);
}

#[test]
fn a_receipt_is_confirmed_by_the_version_of_the_library_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("receipt.json");
    let path = path.to_str().unwrap();
    let ask = [
        "generate",
        "--model",
        "demo",
        "--json-schema",
        SCHEMA,
        "--temperature",
        "1",
        "--seed",
        "3",
        "--quiet",
        "--receipt",
        path,
    ];
    redline(&[&ask, ASK].concat()).ok();
    redline(&["verify", "--model", "demo", path, "--isa", "scalar"]).ok();
    let mut receipt: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let grammar = &mut receipt["request"]["grammar"];
    assert_eq!(*grammar, json!({ "kind": "json_schema", "source": SCHEMA, "library": "llguidance 1.9.1" }));
    grammar["library"] = json!("llguidance 0.1.0");
    fs::write(path, receipt.to_string()).unwrap();
    let run = redline(&["verify", "--model", "demo", path]);
    assert!(run.code != 0 && run.out.contains("request"), "{} {}", run.out, run.err);
}

#[test]
fn what_makes_no_grammar_is_refused() {
    let refused = |more: &[&str]| redline(&[&["generate", "--model", "demo"], ASK, more].concat());
    refused(&["--json-schema", "{"]).usage(&["`--json-schema` is not valid JSON"]);
    refused(&["--json-schema", "/nonexistent/schema.json"]).failed(&["/nonexistent/schema.json"]);
    refused(&["--json-schema", SCHEMA, "--regex", "a"]).usage(&["--regex"]);
    refused(&["--regex", "("]).failed(&["unclosed group"]);
    refused(&["--choice", ""]).failed(&["a choice is empty"]);
    refused(&["--json-schema", r#"{"uniqueItems":true}"#]).failed(&["`#/uniqueItems` is not supported"]);
}
