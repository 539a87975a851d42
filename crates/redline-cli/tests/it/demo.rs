//! `demo`.

use redline_api::jsonl::score::Scoring;
use serde_json::{Value, json};

use crate::harness::{redline, redline_reading};

/// How many of the first questions the demo model answers, out of so many, one request each.
fn right(count: usize) -> usize {
    let text = include_str!("../../../../models/demo/cloze.jsonl");
    let questions: Vec<Value> =
        text.lines().take(count).map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |question: &Value| {
        json!({"query": question["context"], "items": [""], "labels": question["choices"]}).to_string() + "\n"
    };
    let lines: String = questions.iter().map(line).collect();
    let ask = ["score", "--model", "demo", "--softmax", "--jsonl", "-"];
    let answers = redline_reading(&ask, lines.as_bytes()).ok().out;
    let is_right = |(line, question): &(&str, &Value)| {
        let scoring: Scoring = serde_json::from_str(line).unwrap();
        let scores: Vec<f32> = scoring.scores[0].as_ref().unwrap().iter().map(|score| score.0).collect();
        let best = (1..scores.len()).fold(0, |best, at| if scores[at] > scores[best] { at } else { best });
        question["answer"] == best
    };
    assert_eq!(answers.lines().count(), count);
    answers.lines().zip(&questions).filter(is_right).count()
}

#[test]
fn the_main_job_is_shown() {
    let run = redline(&["demo"]).ok();
    for expect in [
        "machine",
        "model",
        "questions right",
        "Score",
        "Generate",
        "tokens/s",
        "Diffuse",
        "passes",
        "of the",
    ] {
        assert!(run.out.contains(expect), "no `{expect}` in {}", run.out);
    }
    assert!(run.out.matches(" %  <- ").count() >= 4, "{}", run.out);
    let told = format!("  {} of 20 such questions right (guessing: 5); ", right(20));
    assert!(run.out.contains(&told), "no `{told}` in {}", run.out);
    assert_eq!(run.err, "");
}
