//! `classify` and `rerank`: JSON lines, files of answers that are continued, CSV, thresholds, ends of classes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use redline_api::jsonl::classify::Classification;
use redline_api::jsonl::fault::LineFault;
use redline_api::jsonl::rerank::Reranking;
use serde_json::{Value, json};

use crate::harness::{command, redline, redline_reading};

const CLASSIFY: &[&str] = &["classify", "--model", "demo"];
const CLASSES: &[&str] = &["--class", "king", "--class", "poor"];

/// So many requests, each with a text of its own and an id.
fn requests(count: usize) -> String {
    let line = |n| json!({ "id": format!("request {n}"), "text": format!("Verse {n} of the king.") });
    (0..count).map(|n| line(n).to_string() + "\n").collect()
}

fn lines_of(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn ids(answers: &[Value]) -> Vec<String> {
    answers.iter().map(|answer| answer["id"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn lines_are_answered_as_the_flags_would_be() {
    let input = concat!(
        r#"{"id":{"row":7},"text":"The king\nsat down.","classes":["king","poor"],"threshold":0.1}"#,
        "\n",
        r#"{"texts":["a king","a poor man"],"length":"mean","label_end":"always","calibrate":"N/A"}"#,
        "\n",
        r#"{"id":3,"text":"x","classes":["one"]}"#,
        "\n",
        r#"{"id":4,"text":"x","clases":["one"]}"#,
        "\n",
    );
    let run = redline_reading(&[CLASSIFY, CLASSES, &["--jsonl", "-"]].concat(), input.as_bytes());
    assert_eq!(run.code, 1, "{}", run.err);
    let answers = lines_of(&run.out);
    assert_eq!(answers.len(), 4);
    assert_eq!((&answers[0]["id"], &answers[1]["id"]), (&json!({ "row": 7 }), &Value::Null));
    assert!(answers[1].get("id").is_none());
    let alone = |more: &[&str]| -> Value {
        let run = redline(&[CLASSIFY, CLASSES, &["--json"], more].concat()).ok();
        serde_json::from_str::<Value>(&run.out).unwrap()["results"].clone()
    };
    assert_eq!(answers[0]["results"], alone(&["--text", "The king\nsat down."]));
    let flags = [
        "--length",
        "mean",
        "--label-end",
        "always",
        "--calibrate",
        "--text",
        "a king",
        "--text",
        "a poor man",
    ];
    assert_eq!(answers[1]["results"], alone(&flags));
    for (answer, id, fact) in
        [(&answers[2], 3, "1 class leaves nothing"), (&answers[3], 4, "unknown field `clases`")]
    {
        let fault: LineFault = serde_json::from_value(answer.clone()).unwrap();
        assert!(fault.message.contains(fact), "{}", fault.message);
        assert_eq!(answer["id"], id);
    }
}

#[test]
fn rerankings_are_lines_too() {
    let input = concat!(
        r#"{"id":"a","query":"Who is king?","documents":["David\nreigned.","a ship"],"top_n":1}"#,
        "\n",
        r#"{"id":"b","documents":["David reigned.","a ship"],"threshold":0.0}"#,
        "\n",
    );
    let command = ["rerank", "--model", "demo", "--jsonl", "-", "--query", "What sails?"];
    let run = redline_reading(&command, input.as_bytes()).ok();
    let answers: Vec<Reranking> = run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ids(&lines_of(&run.out)), ["a", "b"]);
    assert_eq!((answers[0].results.len(), answers[1].results.len()), (1, 2));
    let alone = [
        "rerank",
        "--model",
        "demo",
        "--json",
        "--query",
        "What sails?",
        "--document",
        "David reigned.",
        "--document",
        "a ship",
    ];
    let alone: Reranking = serde_json::from_str(&redline(&alone).ok().out).unwrap();
    assert_eq!(answers[1].results, alone.results);
    let none =
        redline_reading(&["rerank", "--model", "demo", "--jsonl", "-"], br#"{"id":1,"documents":["x"]}"#);
    assert_eq!(none.code, 1);
    assert!(none.out.contains("query") && none.out.contains(r#""id":1"#), "{}", none.out);
}

#[test]
fn an_interrupted_file_of_answers_is_continued_without_a_lost_or_doubled_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, answers, whole) = (path("input"), path("answers"), path("whole"));
    fs::write(&input, requests(600)).unwrap();
    let run = [CLASSIFY, CLASSES, &["--jsonl", &input, "--quiet"]].concat();
    redline(&[&run[..], &["-o", &whole]].concat()).ok();
    // Killed in the middle, several times, and once in the middle of a line.
    for stop in [1, 64, 200] {
        let mut child =
            command(&[&run[..], &["--resume", &answers]].concat()).stderr(Stdio::null()).spawn().unwrap();
        while fs::read_to_string(&answers).map_or(0, |text| text.lines().count()) < stop {
            assert!(child.try_wait().unwrap().is_none(), "all is answered before it was stopped");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    fs::OpenOptions::new().append(true).open(&answers).unwrap().write_all(b"{\"object\":\"classif").unwrap();
    redline(&[&run[..], &["--resume", &answers]].concat()).ok();
    let strip = |path: &str| -> Vec<Value> {
        let mut lines = lines_of(&fs::read_to_string(path).unwrap());
        // What the cache already held differs; results do not.
        for line in &mut lines {
            drop((line["meta"].take(), line["usage"].take()));
        }
        lines
    };
    assert_eq!(ids(&strip(&answers)), (0..600).map(|n| format!("request {n}")).collect::<Vec<_>>());
    assert_eq!(strip(&answers), strip(&whole));
    // Nothing is left to do.
    let before = fs::read(&answers).unwrap();
    redline(&[&run[..], &["--resume", &answers]].concat()).ok();
    assert_eq!(fs::read(&answers).unwrap(), before);
    // A file that belongs to another input is left alone.
    fs::write(&input, requests(3)).unwrap();
    redline(&[&run[..], &["--resume", &answers]].concat()).usage(&["600 answers", "3 lines"]);
    assert_eq!(fs::read(&answers).unwrap(), before);
}

#[test]
fn errors_in_a_file_that_is_continued_are_still_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, answers) = (path("input"), path("answers"));
    fs::write(&input, "{\"id\":null,\"text\":\"a\"}\n{\"id\":\"wrong\"}\n").unwrap();
    let run = |file: &str| redline(&[CLASSIFY, CLASSES, &["--jsonl", &input, file, &answers]].concat());
    let note = "note: 1 of the lines that were answered got an error instead";
    for file in ["-o", "--resume"] {
        let run = run(file);
        assert!(run.code == 1 && run.err.contains(note), "{file}: {} {}", run.code, run.err);
        let text = fs::read_to_string(&answers).unwrap();
        assert!(text.starts_with("{\"id\":null,\"object\":\"classification\","), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}

#[test]
fn answers_come_before_the_end_of_the_input() {
    let mut child = command(&[CLASSIFY, CLASSES, &["--jsonl", "-", "--quiet"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut answers) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for n in 0..3 {
        stdin.write_all(requests(1).as_bytes()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let answer: Classification = serde_json::from_str(&line).unwrap();
        assert_eq!(answer.results.len(), 1, "line {n}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_threshold_leaves_texts_without_a_class_and_documents_out() {
    let at = |threshold| {
        let flags = ["--threshold", threshold, "--text", "The king", "--json"];
        let run = redline(&[CLASSIFY, CLASSES, &flags[..]].concat()).ok();
        serde_json::from_str::<Classification>(&run.out).unwrap().results.remove(0).class
    };
    assert!(at("0").is_some());
    assert_eq!(at("1"), None);
    let table = redline(&[CLASSIFY, CLASSES, &["--threshold", "1", "--text", "The king"]].concat()).ok().out;
    assert!(table.lines().nth(1).unwrap().contains("  -  "), "{table}");
    let rerank =
        ["rerank", "--model", "demo", "--query", "q", "--document", "a", "--threshold", "1", "--json"];
    assert!(serde_json::from_str::<Reranking>(&redline(&rerank).ok().out).unwrap().results.is_empty());
    redline(&[CLASSIFY, CLASSES, &["--text", "x", "--threshold", "1.5"]].concat())
        .usage(&["1.5", "--threshold"]);
}

#[test]
fn values_separated_by_commas() {
    let flags = ["--csv", "--text", "The king, and\nhis \"men\"", "--text", "poor"];
    let run = redline(&[CLASSIFY, CLASSES, &flags[..]].concat()).ok();
    let mut reader = csv::Reader::from_reader(run.out.as_bytes());
    assert_eq!(reader.headers().unwrap(), vec!["text", "class", "margin", "king", "poor", "error"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!((&rows[0][0], &rows[1][0]), ("The king, and\nhis \"men\"", "poor"));
    for row in &rows {
        let shares: Vec<f32> = [3, 4].map(|column: usize| row[column].parse().unwrap()).into();
        assert!((shares[0] + shares[1] - 1.0).abs() < 1e-6);
        assert_eq!(&row[1], if shares[0] >= shares[1] { "king" } else { "poor" });
        assert_eq!(row[2].parse::<f32>().unwrap(), (shares[0] - shares[1]).abs());
        assert_eq!(&row[5], "");
    }
    let documents =
        ["rerank", "--model", "demo", "--query", "q", "--document", "a,b", "--document", "c", "--csv"];
    let run = redline(&documents).ok();
    let rows =
        csv::Reader::from_reader(run.out.as_bytes()).into_records().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().any(|row| row.iter().any(|cell| cell == "a,b")), "{}", run.out);
}

#[test]
fn a_class_that_begins_another_is_ended_or_warned_of() {
    let nested = ["--class", "neutral", "--class", "neutral positive", "--text", "It was good.", "--json"];
    let run = redline(&[CLASSIFY, &nested[..]].concat()).ok();
    let answer: Classification = serde_json::from_str(&run.out).unwrap();
    assert_eq!(answer.meta.end_token_ids.len(), 1);
    assert_eq!(run.err, "");
    let run = redline(&[CLASSIFY, &nested[..], &["--label-end", "never"]].concat()).ok();
    let answer: Classification = serde_json::from_str(&run.out).unwrap();
    assert_eq!(answer.results[0].class.as_deref(), Some("neutral"));
    assert!(run.err.contains("`neutral positive` begins with `neutral`"), "{}", run.err);
    let silent = redline(&[CLASSIFY, &nested[..], &["--label-end", "never", "--quiet"]].concat()).ok();
    assert_eq!(silent.err, "");
    let twice = ["--class", "a", "--class", "b", "--class", "a", "--text", "x"];
    redline(&[CLASSIFY, &twice[..]].concat()).usage(&["class 0 and class 2 are the same tokens"]);
    // One note for many lines.
    let lines = r#"{"text":"x"}"#.to_owned() + "\n";
    let flags = ["--class", "neutral", "--class", "neutral positive", "--label-end", "never", "--jsonl", "-"];
    let run = redline_reading(&[CLASSIFY, &flags[..]].concat(), lines.repeat(3).as_bytes()).ok();
    assert_eq!(run.err.matches("begins with").count(), 1, "{}", run.err);
}

#[test]
fn files_of_answers_belong_to_lines() {
    for flags in [["-o", "x"], ["--output", "x"], ["--resume", "x"]] {
        redline(&[CLASSIFY, CLASSES, &["--text", "x"], &flags[..]].concat()).usage(&["--jsonl"]);
    }
    let missing = ["--jsonl", "/dev/null", "-o", "/nonexistent/answers"];
    redline(&[CLASSIFY, CLASSES, &missing[..]].concat()).failed(&["/nonexistent/answers"]);
    redline(&[CLASSIFY, CLASSES, &["--jsonl", "-", "-o", "a", "--resume", "b"]].concat())
        .usage(&["--resume"]);
}
