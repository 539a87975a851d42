//! `score`: forms of input and output.

use std::fs;

use redline_api::json::input::LabelIds;

use crate::harness::{bits, redline, redline_reading, score};

const QUERY: &[&str] = &["--query", "And the king said unto"];

#[test]
fn the_document_has_the_documented_shape() {
    let arguments =
        [&["score", "--model", "demo", "--json"], QUERY, &["--item", " him", "--label-id", "7"]].concat();
    let run = redline(&arguments).ok();
    assert_eq!(run.out.matches('\n').count(), 1, "one document on one line");
    assert_eq!(run.err, "", "--json says everything in the document");
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&value["object"], &value["model"]), (&"scoring".into(), &"demo".into()));
    assert_eq!(value["schema"], 1);
    assert!(value.get("id").is_none() && value.get("created").is_none(), "two runs give the same answer");
    let usage = &value["usage"];
    assert_eq!(usage["completion_tokens"], 0);
    assert_eq!(usage["total_tokens"], usage["prompt_tokens"]);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    let meta = &value["meta"];
    assert_eq!(meta["label_token_ids"], serde_json::json!([7]));
    assert!(meta["cache_miss_count"].as_u64() > Some(0), "a new process without stored plans");
    assert!(meta["computed_tokens"].as_u64() > Some(0) && meta["compute_s"].as_f64() > Some(0.0), "{meta}");
    assert!(meta["kernel_path"].as_str().is_some_and(|path| path.contains("bf16")), "{meta}");
    assert!(meta.get("token_ids").is_none());
}

#[test]
fn labels_keep_the_order_of_typing() {
    let both =
        score(&[QUERY, &["--item", "", "--label-id", "9", "--label", " the", "--label-id", "8"]].concat());
    let ids = &both.meta.label_token_ids;
    assert_eq!((ids.len(), &ids[0], &ids[2]), (3, &LabelIds(vec![9]), &LabelIds(vec![8])));
    let second = ids[1].0[0];
    let as_ids = score(&[QUERY, &["--item", "", "--label-id", &second.to_string()]].concat());
    assert_eq!(bits(&both)[0][1], bits(&as_ids)[0][0]);
}

#[test]
fn items_come_from_a_file_or_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    fs::write(&path, " him\n\n her\r\n").unwrap();
    let flags =
        score(&[QUERY, &["--label-id", "7", "--item", " him", "--item", "", "--item", " her"]].concat());
    let file = score(&[QUERY, &["--label-id", "7", "--items-file", path.to_str().unwrap()]].concat());
    assert_eq!((bits(&file), file.usage), (bits(&flags), flags.usage));
    let arguments =
        [&["score", "--model", "demo", "--json", "--items-file", "-", "--label-id", "7"], QUERY].concat();
    let piped = redline_reading(&arguments, b" him\n\n her").ok().scoring();
    assert_eq!(bits(&piped), bits(&flags));
    let none = redline_reading(&arguments, b"").ok().scoring();
    assert_eq!((none.scores.len(), none.usage.prompt_tokens), (0, 0));
    redline_reading(&arguments, b"ok\n\xff\n").failed(&["not UTF-8", "line 2", "iconv"]);
}

#[test]
fn ids_and_text_of_the_same_tokens_score_alike() {
    let text = score(&[QUERY, &["--item", " him", "--label-id", "7", "--return-token-ids"]].concat());
    let ids = text.meta.token_ids.as_ref().unwrap()[0].clone().unwrap();
    let list = |ids: &[u32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (query, item) = ids.split_at(ids.len() - 1);
    let by_ids = score(&["--query-ids", &list(query), "--item-ids", &list(item), "--label-id", "7"]);
    assert_eq!(bits(&by_ids), bits(&text));
    assert_eq!(by_ids.meta.boundary_mismatch, [None]);
    let whole = score(&["--query-ids", &list(&ids), "--item-ids", "", "--label-id", "7"]);
    assert_eq!(bits(&whole), bits(&text));
}

#[test]
fn without_json_there_is_a_table() {
    let arguments =
        [&["score", "--model", "demo"], QUERY, &["--item", " him", "--item", "", "--label-id", "7"]].concat();
    let run = redline(&arguments).ok();
    let lines: Vec<_> = run.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.out);
    assert!(lines[0].starts_with("item ") && lines[0].ends_with("#7"), "{}", run.out);
    assert!(lines[1].starts_with("\" him\"") && lines[2].starts_with("\"\" "), "{}", run.out);
    let scores = score(&arguments[3..]).scores;
    for (line, row) in lines[1..].iter().zip(&scores) {
        let shown: f32 = line.split_whitespace().last().unwrap().parse().unwrap();
        assert!((shown - row.as_ref().unwrap()[0].0).abs() < 1e-3, "{line}");
    }
    assert!(run.err.contains("prompt tokens"), "{}", run.err);
    assert_eq!(redline(&[&arguments[..], &["--quiet"]].concat()).ok().err, "");
}

#[test]
fn every_format_scores() {
    for format in ["f32", "bf16"] {
        for kv in ["f32", "bf16"] {
            let scoring = score(
                &[QUERY, &["--item", "", "--label-id", "7", "--format", format, "--kv-format", kv]].concat(),
            );
            assert!(scoring.meta.cost.kernel_path.contains(format), "{}", scoring.meta.cost.kernel_path);
            assert!(scoring.scores[0].as_ref().unwrap()[0].0 > 0.0);
        }
    }
}

#[test]
fn a_brief_answer_is_the_matrix_alone() {
    let request = [QUERY, &["--item", " him", "--item", "", "--label-id", "7", "--label-id", "9"]].concat();
    let whole = score(&request);
    let brief = redline(&[&["score", "--model", "demo", "--brief"], &request[..]].concat()).ok();
    assert_eq!(brief.out, format!("{{\"scores\":{}}}\n", serde_json::to_string(&whole.scores).unwrap()));
    assert_eq!(brief.err, "");
    let lines = r#"{"query":"And the king said unto","items":[" him",""],"label_token_ids":[7,9]}
{"query":[1],"items":[[2],[99999999]],"label_token_ids":[7],"item_errors":true}
"#;
    let run =
        redline_reading(&["score", "--model", "demo", "--brief", "--jsonl", "-"], lines.as_bytes()).ok();
    let (first, second) = run.out.split_once('\n').unwrap();
    assert_eq!(first, brief.out.trim_end());
    let second: serde_json::Value = serde_json::from_str(second).unwrap();
    let second: Vec<Option<Vec<f64>>> = serde_json::from_value(second["scores"].clone()).unwrap();
    assert!(second[0].as_ref().is_some_and(|row| row.len() == 1) && second[1].is_none(), "{second:?}");
    redline(&["score", "--model", "demo", "--brief", "--json"]).usage(&["--brief", "cannot be used with"]);
}

#[test]
fn columns_line_up_under_wide_characters() {
    let items = ["--item", "日本", "--item", "e\u{301}", "--item", "plain"];
    let run =
        redline(&[&["score", "--model", "demo", "--quiet"], QUERY, &items, &["--label-id", "7"]].concat());
    let out = run.ok().out;
    let widths: Vec<usize> = out.lines().map(redline_system::width::of).collect();
    assert!(widths.len() == 4 && widths.iter().all(|width| *width == widths[0]), "{widths:?}\n{out}");
}
