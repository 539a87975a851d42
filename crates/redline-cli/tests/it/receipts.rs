//! Receipts of every command, confirmed with other instructions and threads; and 200 that were changed.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Run, redline, redline_reading, tiers, unread};

const PROMPT: &str = "And it came to pass in those days, that";

/// Runs a command that writes its receipt.
fn receipt(dir: &Path, name: &str, arguments: &[&str]) -> String {
    let path = dir.join(format!("{name}.json")).to_str().unwrap().to_owned();
    let run = redline(&[arguments, &["--receipt", &path, "--quiet"]].concat());
    assert_eq!(run.code, 0, "{name}: {}", run.err);
    path
}

fn of_every_command(dir: &Path) -> Vec<String> {
    let sampled = ["--temperature", "0.8", "--top-p", "0.9", "--seed", "7", "--n", "2", "--stop", "."];
    let generate = ["generate", "--model", "demo", "--prompt", PROMPT, "--max-new-tokens", "12"];
    let score = [
        "score",
        "--model",
        "demo",
        "--query",
        PROMPT,
        "--item",
        " the",
        "--item",
        " a man",
        "--label",
        " king",
        "--label",
        " ship",
        "--long-labels",
        "sum",
    ];
    let classify =
        ["classify", "--model", "demo", "--class", "king", "--class", "ship", "--text", "The ship sank."];
    let rerank = [
        "rerank",
        "--model",
        "demo",
        "--query",
        "who sank",
        "--document",
        "The ship.",
        "--document",
        "It rains.",
    ];
    let embed =
        ["embed", "--model", "demo", "--pooling", "mean", "--text", "The ship sank.", "--text", "It rains."];
    vec![
        receipt(dir, "greedy", &generate),
        receipt(dir, "sampled", &[&generate[..], &sampled].concat()),
        receipt(dir, "score", &score),
        receipt(dir, "classify", &[&classify[..], &["--calibrate"]].concat()),
        receipt(dir, "rerank", &rerank),
        receipt(dir, "embed", &embed),
    ]
}

fn verify(files: &[String], more: &[&str]) -> Run {
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    redline(&[&["verify"], &files[..], more].concat())
}

#[test]
fn every_command_writes_a_receipt_that_other_instructions_and_threads_confirm() {
    let folder = tempfile::tempdir().unwrap();
    let receipts = of_every_command(folder.path());
    for isa in tiers() {
        for threads in ["1", "2", "3"] {
            let run = verify(&receipts, &["--model", "demo", "--isa", isa, "--threads", threads]);
            assert_eq!(run.code, 0, "{isa}, {threads} threads: {}{}", run.out, run.err);
            assert_eq!(run.out.matches("confirmed: ").count(), receipts.len(), "{}", run.out);
        }
    }
    let canvas = receipt(
        folder.path(),
        "canvas",
        &[
            "diffuse",
            "--model",
            "demo-diffusion",
            "--prompt",
            PROMPT,
            "--max-new-tokens",
            "16",
            "--steps",
            "8",
        ],
    );
    for isa in tiers() {
        let run =
            verify(std::slice::from_ref(&canvas), &["--model", "demo-diffusion", "--isa", isa, "--json"]);
        let verdict: Value = serde_json::from_str(&run.out).unwrap();
        let place = format!("receipt 0 of `{canvas}`");
        let rows = verdict["rows"].as_u64().unwrap();
        let expected = json!({"in": place, "confirmed": true, "rows": rows, "layers": 4});
        assert_eq!((run.code, verdict, rows > 16), (0, expected, true), "{isa}: {}", run.err);
    }
}

/// The receipt of a generation, changed in one of four ways, each time elsewhere; and the place that is told.
fn changed(receipt: &Value, number: usize) -> (Value, String) {
    let mut receipt = receipt.clone();
    let digit = |value: &mut Value, at: usize| {
        let mut text: Vec<u8> = value.as_str().unwrap().into();
        // One bit of the number that the digit stands for.
        let digit = char::from(text[at]).to_digit(16).unwrap() ^ (1 << (number % 4));
        text[at] = char::from_digit(digit, 16).unwrap() as u8;
        *value = String::from_utf8(text).unwrap().into();
    };
    let at = number / 4;
    let place = match number % 4 {
        0 => {
            digit(&mut receipt["model"]["weights"], at);
            "model.weights".to_owned()
        }
        1 => {
            let prompt = receipt["prompts"][0]["token_ids"].as_array_mut().unwrap();
            let count = prompt.len();
            prompt[at % count] = (prompt[at % count].as_u64().unwrap() + 1 + at as u64).into();
            "prompts[0]".to_owned()
        }
        2 => {
            receipt["request"]["sampling"]["temperature"] = (0.8 + 0.001 * (at + 1) as f64).into();
            "request".to_owned()
        }
        _ => {
            let layers = receipt["layers"].as_array_mut().unwrap();
            let layer = at % layers.len();
            digit(&mut layers[layer]["sha256"], at);
            format!("layers[{layer}] (layer {layer})")
        }
    };
    (receipt, place)
}

#[test]
fn two_hundred_changed_receipts_are_refused_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["generate", "--model", "demo", "--prompt", PROMPT, "--max-new-tokens", "3"];
    let path =
        receipt(folder.path(), "one", &[&arguments[..], &["--temperature", "0.8", "--seed", "7"]].concat());
    let sound: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let changed: Vec<(Value, String)> = (0..200).map(|number| changed(&sound, number)).collect();
    let all = changed.iter().map(|(receipt, _)| receipt).chain([&sound]);
    let all = all.map(Value::to_string).collect::<Vec<_>>().join("\n");
    let run = redline_reading(&["verify", "-", "--model", "demo", "--json"], all.as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let verdicts: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(verdicts.len(), 201);
    assert_eq!(verdicts[200]["confirmed"], true);
    for (number, ((receipt, place), verdict)) in changed.iter().zip(&verdicts).enumerate() {
        assert_ne!(receipt, &sound, "{number}");
        let reason = if [1, 2].contains(&(number % 4)) { "changed" } else { "differs" };
        let told = (verdict["confirmed"].as_bool(), verdict["reason"].as_str(), verdict["place"].as_str());
        assert_eq!(told, (Some(false), Some(reason), Some(place.as_str())), "{number}: {verdict}");
    }
}

#[test]
fn a_reader_that_leaves_hides_no_receipt_that_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["generate", "--model", "demo", "--prompt", PROMPT, "--max-new-tokens", "3"];
    let sound = fs::read_to_string(receipt(folder.path(), "one", &arguments)).unwrap();
    let verify = ["verify", "-", "--model", "demo"];
    unread(&verify, sound.as_bytes()).ok();
    let changed = sound.replace("\"redline\":\"", "\"redline\":\"9.");
    assert_eq!(unread(&verify, format!("{sound}{changed}").as_bytes()).code, 1);
}

#[test]
fn lines_have_receipts_and_what_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        json!({"prompt": PROMPT, "receipt": true}),
        json!({"prompt": PROMPT}),
        json!({"prompt": PROMPT, "temperature": 1, "seed": 5, "receipt": {"layers": [1]}}),
        json!({"prompt": PROMPT, "receipt": false}),
        json!({"prompt": PROMPT, "receipt": {"layers": [99]}}),
        json!({"prompt": PROMPT, "receipt": 3}),
    ];
    let lines = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let arguments = ["generate", "--model", "demo", "--jsonl", "-", "--max-new-tokens", "8"];
    let answered = redline_reading(&arguments, lines.as_bytes());
    let answers: Vec<Value> = answered.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has: Vec<bool> = answers.iter().map(|answer| answer["receipt"].is_object()).collect();
    assert_eq!(has, [true, false, true, false, false, false], "{}", answered.out);
    assert_eq!(answers[2]["receipt"]["layers"].as_array().unwrap().len(), 1);
    let error = |index: usize| answers[index]["message"].to_string();
    assert!(error(4).contains("a receipt of layer 99 was asked for"), "{}", error(4));
    assert!(error(5).contains("expected `true`, `false`, or an object with `layers`"), "{}", error(5));
    let run = redline_reading(&["verify", "-", "--model", "demo", "--threads", "1"], answered.out.as_bytes());
    assert_eq!((run.code, run.out.matches("confirmed: ").count()), (0, 2), "{}{}", run.out, run.err);
    assert!(run.out.contains("in receipt 2 of standard input"), "{}", run.out);

    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = answers[0]["receipt"].to_string();
    for (name, text, told) in [
        ("none", "{\"choices\": []}", "there is no receipt"),
        ("empty", "", "there is no receipt"),
        ("broken", &whole[..whole.len() / 2], "the JSON value is not complete"),
        ("list", "[1]", "there is no receipt"),
        ("old", &whole.replace("\"schema\":1", "\"schema\":2"), "expected version 1"),
        ("more", &whole.replace("\"object\":", "\"more\":1,\"object\":"), "unknown field `more`"),
    ] {
        let run = verify(&[file(name, text)], &["--model", "demo"]);
        assert_eq!(run.code, 1, "{name}: {}", run.out);
        assert!(run.err.contains(told) && run.err.contains(name), "{name}: {}", run.err);
    }
    // Another model, another version, and an adapter that is not loaded.
    let sound = file("sound", &whole);
    let other = verify(std::slice::from_ref(&sound), &["--model", "demo", "--format", "w8"]);
    assert_eq!(other.code, 1);
    assert!(other.out.starts_with("refused: `model.weights` differs\n  in receipt 0 of"), "{}", other.out);
    let version = file("version", &whole.replace("\"redline\":\"", "\"redline\":\"9."));
    let run = verify(&[sound, version], &["--model", "demo"]);
    assert_eq!(run.code, 1);
    assert!(
        run.out.starts_with("confirmed: ") && run.out.contains("refused: `redline` differs"),
        "{}",
        run.out
    );
    let quiet = verify(&[file("again", &whole)], &["--model", "demo", "--quiet"]);
    assert_eq!((quiet.code, quiet.out.as_str()), (0, ""));
}

/// What cannot be read or run has a verdict too, and the others are verified.
#[test]
fn every_receipt_has_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["generate", "--model", "demo", "--prompt", PROMPT, "--max-new-tokens", "8"];
    let whole = fs::read_to_string(receipt(folder.path(), "whole", &arguments)).unwrap();
    let mut layers: Value = serde_json::from_str(&whole).unwrap();
    layers["layers"][3]["layer"] = 77.into();
    let numbers = format!("{:?}", [0, 1, 2, 77]).replace(' ', "");
    layers["digests"]["layers"] = redline_weights::Sha256Digest::of(numbers.as_bytes()).to_string().into();
    let forged = whole.replace("\"redline\":\"0", "\"redline\":\"\\u001b[31m\\nconfirmed: 0");
    let list = format!("[{whole}, {layers}]\n{forged}\n{{\"receipt\": {{}}}}\n{whole}\n{{\"object\"");
    let run = redline_reading(&["verify", "-", "nowhere.json", "--model", "demo"], list.as_bytes());
    let told = [
        "confirmed: ",
        "refused: `layers[3].layer` differs",
        "refused: `redline` differs",
        "failed: missing field `object`",
        "confirmed: ",
        "failed: the JSON value is not complete",
        "failed: No such file or directory",
    ];
    let verdicts: Vec<&str> = run.out.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!((run.code, verdicts.len()), (1, told.len()), "{}{}", run.out, run.err);
    for (verdict, told) in verdicts.iter().zip(told) {
        assert!(verdict.starts_with(told), "{verdict}: {}", run.out);
    }
    assert!(run.out.contains("\\u{1b}[31m\\nconfirmed: 0"), "{}", run.out);
}
