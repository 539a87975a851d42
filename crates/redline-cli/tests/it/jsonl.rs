//! `score --jsonl` and `generate --jsonl`.

use std::fs;

use redline_api::jsonl::fault::LineFault;
use redline_api::jsonl::generate::TextCompletion;
use redline_api::jsonl::score::Scoring;

use crate::harness::{Run, bits, generate, redline, redline_reading, score, unread};

fn score_lines(flags: &[&str], input: &str) -> Run {
    redline_reading(&[&["score", "--model", "demo", "--jsonl", "-"], flags].concat(), input.as_bytes())
}

fn lines(run: &Run) -> Vec<&str> {
    run.out.lines().collect()
}

#[test]
fn requests_are_answered_in_order() {
    let input = r#"{"query":"And the","items":[" king"," queen"],"label_token_ids":[7,8]}
{"query":"And the","items":" king","label_token_ids":[8],"labels":[" the"],"apply_softmax":true}
{"query":[5,6],"items":[[7],[]],"label_token_ids":[9]}
{"query":"x","items":[],"label_token_ids":[9]}
"#;
    let run = score_lines(&[], input).ok();
    let answers: Vec<Scoring> = lines(&run).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 4);
    let first = score(&[
        "--query",
        "And the",
        "--item",
        " king",
        "--item",
        " queen",
        "--label-id",
        "7",
        "--label-id",
        "8",
    ]);
    assert_eq!(bits(&answers[0]), bits(&first));
    let second =
        score(&["--query", "And the", "--item", " king", "--label", " the", "--label-id", "8", "--softmax"]);
    assert_eq!(bits(&answers[1]), bits(&second));
    assert_eq!(answers[2].scores.len(), 2);
    assert_eq!((answers[3].scores.len(), answers[3].usage.prompt_tokens), (0, 0));
}

#[test]
fn items_may_have_labels_of_their_own_and_requests_a_time() {
    let input = r#"{"query":"And the","items":[" king"," queen"],"item_labels":[[7,8],[" the",[5,6]]],"long_labels":"sum"}
{"query":"And the","items":[" king"],"label_token_ids":[7,8],"timeout_s":1000}
{"query":"And the","items":[" king"],"label_token_ids":[7],"timeout_s":0}
{"query":"And the","items":[" king"],"item_labels":[[7],[8]]}
"#;
    let run = score_lines(&[], input);
    assert_eq!(run.code, 1, "{}", run.err);
    let answers = lines(&run);
    let first: Scoring = serde_json::from_str(answers[0]).unwrap();
    let second: Scoring = serde_json::from_str(answers[1]).unwrap();
    assert_eq!(first.scores[0], second.scores[0]);
    assert!(first.meta.label_token_ids.is_empty());
    let told = serde_json::to_value(&first.meta.item_label_token_ids).unwrap();
    assert_eq!((&told[0], &told[1][1]), (&serde_json::json!([7, 8]), &serde_json::json!([5, 6])));
    for (line, fact) in [(answers[2], "a timeout of 0 seconds"), (answers[3], "2 lists of labels for 1 item")]
    {
        let fault: LineFault = serde_json::from_str(line).unwrap();
        assert!(fault.message.contains(fact), "{line}");
    }
}

/// A line of more than 64 MiB gets an error object, and the work continues after it.
#[test]
fn a_line_beyond_the_limit_loses_nothing_else() {
    let good = "{\"query\":\"And\",\"items\":[\" a\"],\"label_token_ids\":[7]}\n";
    let input = format!("{good}{}\n{good}", "x".repeat((64 << 20) + 1));
    let run = score_lines(&[], &input);
    assert_eq!(run.code, 1, "{}", run.err);
    let answers = lines(&run);
    let fault: LineFault = serde_json::from_str(answers[1]).unwrap();
    let limit =
        fault.message.strip_prefix("the line is longer than ").and_then(|rest| rest.strip_suffix(" MiB"));
    assert_eq!(
        (fault.line, limit.is_some_and(|limit| (1..=64).contains(&limit.parse().unwrap()))),
        (2, true)
    );
    let scored = |line: &str| bits(&serde_json::from_str(line).unwrap());
    assert_eq!((answers.len(), scored(answers[0])), (3, scored(answers[2])));
}

#[test]
fn a_file_of_requests_may_begin_with_a_byte_order_mark() {
    let line = r#"{"query":"And","items":[" a"],"label_token_ids":[7]}"#;
    let answer = |run: Run| bits(&serde_json::from_str(&run.ok().out).unwrap());
    assert_eq!(answer(score_lines(&[], &format!("\u{feff}{line}"))), answer(score_lines(&[], line)));
}

#[test]
fn more_scores_than_memory_holds_are_refused_by_number() {
    let (items, ids) = (vec!["\" a\""; 3000].join(","), vec!["7"; 3000].join(","));
    let request = format!(r#"{{"query":"And","items":[{items}],"label_token_ids":[{ids}]}}"#);
    let run = score_lines(&[], &request);
    let fault: LineFault = serde_json::from_str(&run.out).unwrap();
    let fact = "3000 items with their labels are 9000000 label tokens, more than 8388608";
    assert_eq!((run.code, &*fault.message), (1, fact));
    assert!(fault.hint.is_some_and(|hint| hint.contains("several requests")));
    // Items with labels of their own: 1100 with 8000 labels, the others with one.
    let own = |labels: usize| format!("[{}]", vec!["7"; labels].join(","));
    let lists = [vec![own(8000); 1100], vec![own(1); 1900]].concat().join(",");
    let request = format!(r#"{{"query":"And","items":[{items}],"item_labels":[{lists}]}}"#);
    let fault: LineFault = serde_json::from_str(&score_lines(&[], &request).out).unwrap();
    assert!(fault.message.starts_with("3000 items with their labels are 8801900 "), "{}", fault.message);
}

#[test]
fn flags_fill_what_a_line_leaves_out() {
    let run = score_lines(
        &["--label-id", "7", "--label-id", "9", "--softmax"],
        r#"{"query":"And","items":[" a"]}"#,
    )
    .ok();
    let answer: Scoring = serde_json::from_str(&run.out).unwrap();
    let flags = score(&["--query", "And", "--item", " a", "--label-id", "7", "--label-id", "9", "--softmax"]);
    assert_eq!(bits(&answer), bits(&flags));
}

#[test]
fn a_bad_line_is_answered_with_an_error_and_nothing_else_is_lost() {
    let good = r#"{"query":"And","items":[" a"],"label_token_ids":[7]}"#;
    let bad = [
        ("nonsense", "the line is not a JSON object: it begins with `n`"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[7],"itmes":[]}"#, "unknown field `itmes`"),
        (r#"{"query":"And","items":[" a"]}"#, "no label"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[]}"#, "label"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":null}"#, "no label"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[-4]}"#, "-4"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[1.5]}"#, "1.5"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[true]}"#, "true"),
        (r#"{"query":"And","items":[" a",[5]],"label_token_ids":[7]}"#, "item 1"),
        (r#"{"query":[5],"items":[[5]," a"],"label_token_ids":[7]}"#, "item 1"),
        (r#"{"query":[5],"items":[[5],[-5]],"label_token_ids":[7]}"#, "-5"),
        (r#"[null,"And",[" a"]]"#, "the line is not a JSON object"),
        (r#"{"query":"And","items":[" a"],"seed":"x"}"#, "expected a whole number of 64 bits at column 40"),
        (r#"{"items":[" a"],"label_token_ids":[7]}"#, "neither `query` nor `messages` is given"),
        (r#"{"query":"And","label_token_ids":[7]}"#, "missing field `items`"),
        (r#"{"query":"And","items":[5],"label_token_ids":[7]}"#, "expected a string or a list of token ids"),
        (r#"{"query":"And","items":[" a"],"label_token_ids":[7]"#, "the JSON value is not complete"),
    ];
    for (line, expect) in bad {
        let run = score_lines(&[], &format!("{good}\n{line}\n\n{good}\n"));
        assert_eq!(run.code, 1, "{line}: {}", run.err);
        let answers = lines(&run);
        assert_eq!(answers.len(), 3, "{line}: {}", run.out);
        let fault: LineFault =
            serde_json::from_str(answers[1]).unwrap_or_else(|e| panic!("{e}: {}", answers[1]));
        assert_eq!((&*fault.object, fault.line), ("error", 2));
        assert!(fault.message.contains(expect), "{line}: {}", fault.message);
        let [first, last] =
            [answers[0], answers[2]].map(|line| serde_json::from_str::<Scoring>(line).unwrap());
        assert_eq!(bits(&first), bits(&last));
    }
}

#[test]
fn prompts_are_continued_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.jsonl");
    let input = r#"{"prompt":"And the king","max_new_tokens":6}
{"prompt":"In the beginning","max_new_tokens":4,"temperature":0.9,"seed":3,"top_k":20}
{"prompt":"x","max_tokens":4}
{"prompt":[5,6,7],"max_new_tokens":3,"kv_cache":false}
{"prompt":"x","temperature":-1}
{"prompt":"x","max_new_tokens":0}
"#;
    fs::write(&path, input).unwrap();
    let run = redline(&["generate", "--model", "demo", "--jsonl", path.to_str().unwrap(), "--ignore-eos"]);
    assert_eq!(run.code, 1, "{}", run.err);
    let answers = lines(&run);
    assert_eq!(answers.len(), 6, "{}", run.out);
    let text =
        |line: &str| serde_json::from_str::<TextCompletion>(line).unwrap().choices[0].token_ids.clone();
    let flags = ["--prompt", "And the king", "--max-new-tokens", "6", "--ignore-eos"];
    assert_eq!(text(answers[0]), generate(&flags).choices[0].token_ids);
    let flags =
        ["--prompt", "In the beginning", "--max-new-tokens", "4", "--temperature", "0.9", "--seed", "3"];
    assert_eq!(
        text(answers[1]),
        generate(&[&flags[..], &["--top-k", "20", "--ignore-eos"]].concat()).choices[0].token_ids
    );
    assert_eq!(text(answers[3]).len(), 3);
    for (at, expect) in [(2, "unknown field `max_tokens`"), (4, "temperature"), (5, "0 new tokens")] {
        let fault: LineFault = serde_json::from_str(answers[at]).unwrap();
        assert_eq!(fault.line, at as u64 + 1);
        assert!(fault.message.contains(expect), "{}", fault.message);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for command in ["score", "generate"] {
        redline(&[command, "--model", "demo", "--jsonl", "/nonexistent/requests"])
            .failed(&["/nonexistent/requests"]);
    }
    redline(&["score", "--model", "demo", "--jsonl", "/"]).failed(&["`/`"]);
}

#[test]
fn a_reader_that_leaves_hides_no_line_that_failed() {
    let score = ["score", "--model", "demo", "--jsonl", "-"];
    assert_eq!(unread(&score, b"{}\n").code, 1);
    unread(&score, b"{\"query\":\"And\",\"items\":[\" a\"],\"label_token_ids\":[7]}\n").ok();
}
