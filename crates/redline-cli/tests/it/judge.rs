//! `classify` and `rerank`: forms of input and output.

use std::fs;

use redline_api::json::finite::Finite;
use redline_api::jsonl::classify::Classification;
use redline_api::jsonl::rerank::Reranking;

use crate::harness::{Run, redline, redline_reading, score};

const VERSES: [&str; 3] = [
    "And the king said unto his servants, Go ye out.",
    "He that hath pity upon the poor lendeth unto the Lord.",
    "The king shall joy in thy strength.",
];
const CLASSIFY: &[&str] = &["classify", "--model", "demo", "--class", "king", "--class", "poor"];
const RERANK: &[&str] = &["rerank", "--model", "demo", "--query", "Who is king?"];

fn each<'a>(flag: &'a str, texts: &[&'a str]) -> Vec<&'a str> {
    texts.iter().flat_map(|&text| [flag, text]).collect()
}

fn run(command: &[&str], more: &[&str]) -> Run {
    redline(&[command, more].concat()).ok()
}

fn classification(run: &Run) -> Classification {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.out))
}

fn reranking(run: &Run) -> Reranking {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.out))
}

fn bits(row: &[Finite<f32>]) -> Vec<u32> {
    row.iter().map(|x| x.0.to_bits()).collect()
}

/// The last cells of a line of a table, as numbers.
fn numbers(line: &str, count: usize) -> Vec<f32> {
    let cells: Vec<_> = line.split_whitespace().collect();
    cells[cells.len() - count..].iter().map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn a_classification_is_one_document_with_the_scores_of_score() {
    let run = run(CLASSIFY, &[&["--json"], &each("--text", &VERSES)[..]].concat());
    assert_eq!((run.out.matches('\n').count(), run.err.as_str()), (1, ""));
    let answer = classification(&run);
    assert_eq!((answer.object.as_str(), answer.model.as_str()), ("classification", "demo"));
    assert_eq!(answer.classes, ["king", "poor"]);
    let prompts =
        VERSES.map(|verse| format!("Classify the text as one of: king, poor\n\nText: {verse}\n\nClass:"));
    let items: Vec<_> = prompts.iter().flat_map(|prompt| ["--item", prompt]).collect();
    let labels = ["--query", "", "--label", " king", "--label", " poor", "--softmax", "--long-labels", "sum"];
    let scored = score(&[&labels, &items[..]].concat());
    assert_eq!((answer.usage, &answer.meta.label_token_ids), (scored.usage, &scored.meta.label_token_ids));
    assert_eq!(answer.meta.cost.shared_prefix_tokens, scored.meta.cost.shared_prefix_tokens);
    for (index, (result, row)) in answer.results.iter().zip(&scored.scores).enumerate() {
        let (probabilities, row) = (result.probabilities.as_ref().unwrap(), row.as_ref().unwrap());
        assert_eq!((result.index, bits(probabilities)), (index, bits(row)));
        let best = if row[1].0 > row[0].0 { "poor" } else { "king" };
        assert_eq!(result.class.as_deref(), Some(best));
        assert_eq!(result.margin.unwrap().0, (row[0].0 - row[1].0).abs());
        assert_eq!((result.truncated, &result.error), (Some(false), &None));
    }
}

#[test]
fn a_reranking_is_one_document_with_the_scores_of_score() {
    let run = run(RERANK, &[&["--json"], &each("--document", &VERSES)[..]].concat());
    assert_eq!((run.out.matches('\n').count(), run.err.as_str()), (1, ""));
    let answer = reranking(&run);
    assert_eq!((answer.object.as_str(), answer.model.as_str()), ("rerank", "demo"));
    let prompts = VERSES.map(|verse| {
        let question = "Does the document answer the query? Reply with yes or no.\n\n";
        format!("{question}Query: Who is king?\n\nDocument: {verse}\n\nAnswer:")
    });
    let items: Vec<_> = prompts.iter().flat_map(|prompt| ["--item", prompt]).collect();
    let labels = ["--query", "", "--label", " yes", "--label", " no", "--softmax", "--long-labels", "sum"];
    let scored = score(&[&labels, &items[..]].concat());
    assert_eq!((answer.usage, &answer.meta.label_token_ids), (scored.usage, &scored.meta.label_token_ids));
    assert_eq!(answer.results.len(), 3);
    for result in &answer.results {
        let relevance = result.relevance.unwrap();
        assert_eq!(bits(&[relevance]), bits(&scored.scores[result.index].as_ref().unwrap()[..1]));
    }
    assert!(answer.results.is_sorted_by(|a, b| a.relevance.unwrap().0 >= b.relevance.unwrap().0));
    let top = reranking(&self::run(
        RERANK,
        &[&["--json", "--top-n", "1"], &each("--document", &VERSES)[..]].concat(),
    ));
    assert_eq!(top.results, answer.results[..1]);
}

#[test]
fn without_json_there_are_tables() {
    let texts = each("--text", &VERSES);
    let plain = run(CLASSIFY, &texts);
    let lines: Vec<_> = plain.out.lines().collect();
    let header: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["text", "best", "margin", "\"king\"", "\"poor\""], "{}", plain.out);
    let answer = classification(&run(CLASSIFY, &[&["--json"], &texts[..]].concat()));
    assert_eq!(lines.len(), 4, "{}", plain.out);
    for (line, result) in lines[1..].iter().zip(&answer.results) {
        assert!(line.contains(&format!("  {:?}  ", result.class.as_ref().unwrap())), "{line}");
        let told = numbers(line, 3);
        assert!((told[0] - result.margin.unwrap().0).abs() < 1e-5, "{line}");
        assert!((told[2] - result.probabilities.as_ref().unwrap()[1].0).abs() < 1e-5, "{line}");
    }
    let took = &answer.meta.cost;
    let told = format!(
        "{} prompt tokens, {} computed, {} shared by all texts; ",
        answer.usage.prompt_tokens, took.computed_tokens, took.shared_prefix_tokens
    );
    assert!(plain.err.contains(&told), "no `{told}` in {}", plain.err);
    assert_eq!(run(CLASSIFY, &[&["--quiet"], &texts[..]].concat()).err, "");

    let documents = each("--document", &VERSES);
    let plain = run(RERANK, &documents);
    let lines: Vec<_> = plain.out.lines().collect();
    assert_eq!(lines[0], "index  relevance  document");
    let answer = reranking(&run(RERANK, &[&["--json"], &documents[..]].concat()));
    for (line, result) in lines[1..].iter().zip(&answer.results) {
        assert!(line.starts_with(&format!("{}  ", result.index)), "{line}");
        assert!(line.ends_with(&format!("{:?}", VERSES[result.index])), "{line}");
    }
    assert_eq!(lines.len(), 4, "{}", plain.out);
    assert!(plain.err.contains("shared by all documents"), "{}", plain.err);
}

#[test]
fn texts_come_from_a_file_or_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts");
    fs::write(&path, VERSES.join("\n")).unwrap();
    let path = path.to_str().unwrap();
    let typed = classification(&run(CLASSIFY, &[&["--json"], &each("--text", &VERSES)[..]].concat()));
    let file = classification(&run(CLASSIFY, &["--json", "--file", path]));
    assert_eq!(file.results, typed.results);
    let typed = reranking(&run(RERANK, &[&["--json"], &each("--document", &VERSES)[..]].concat()));
    let piped = [RERANK, &["--json", "--file", "-"]].concat();
    let input = VERSES.join("\n") + "\n";
    assert_eq!(reranking(&redline_reading(&piped, input.as_bytes()).ok()).results, typed.results);
    let none = reranking(&redline_reading(&piped, b"").ok());
    assert_eq!((none.results.len(), none.usage.prompt_tokens), (0, 0));
    redline_reading(&piped, b"ok\n\xff\n").failed(&["not UTF-8", "line 2", "iconv"]);
    redline(&[CLASSIFY, &["--file", "/nonexistent/texts"]].concat()).failed(&["/nonexistent/texts"]);
}

#[test]
fn an_over_long_document_is_refused_told_or_cut() {
    let long = VERSES[0].repeat(20);
    let documents = ["--document", &long, "--document", VERSES[1], "--max-context", "96"];
    let refused = redline(&[RERANK, &documents[..]].concat());
    refused.failed(&["document 0: ", "context of 96", "--truncate"]);
    let told = run(RERANK, &[&documents[..], &["--item-errors"]].concat());
    let lines: Vec<_> = told.out.lines().collect();
    assert!(lines[1].starts_with("1 ") && lines[2].starts_with("0 "), "{}", told.out);
    assert!(lines[2].contains("-  error: document 0: ") && lines[2].contains("96"), "{}", told.out);
    assert!(told.err.contains("note: 1 of 2 documents failed"), "{}", told.err);
    let json = reranking(&run(RERANK, &[&documents[..], &["--item-errors", "--json"]].concat()));
    assert_eq!((json.results[1].index, json.results[1].relevance), (0, None));
    assert!(json.results[1].error.as_ref().unwrap().starts_with("document 0: "));
    let cut = run(RERANK, &[&documents[..], &["--truncate", "right"]].concat());
    assert!(cut.err.contains("note: prompts were cut to fit the context (to 9"), "{}", cut.err);
    let json = reranking(&run(RERANK, &[&documents[..], &["--truncate", "right", "--json"]].concat()));
    for result in json.results {
        assert_eq!(result.truncated, Some(result.index == 0));
    }
}

#[test]
fn templates_labels_and_means_are_taken() {
    let own = ["--template", "{document} -- {query} It is", "--yes", " he", "--no", " the king of Babylon"];
    let answer = reranking(&run(RERANK, &[&own, &["--json", "--document", VERSES[0]][..]].concat()));
    let prompt = format!("{} -- Who is king? It is", VERSES[0]);
    let labels = ["--label", " he", "--label", " the king of Babylon", "--softmax"];
    let asked =
        |how| score(&[&["--query", &prompt, "--item", "", "--long-labels", how], &labels[..]].concat());
    let scored = asked("sum").scores[0].clone().unwrap();
    assert_eq!(bits(&[answer.results[0].relevance.unwrap()]), bits(&scored[..1]));
    let classify = |more: &[&str]| {
        let fixed = ["--class", " he", "--class", " the king of Babylon", "--text", VERSES[0], "--json"];
        let template = ["classify", "--model", "demo", "--template", "{text} -- Who is king? It is"];
        let answer = classification(&run(&[&template, &fixed[..]].concat(), more));
        bits(answer.results[0].probabilities.as_ref().unwrap())
    };
    assert_eq!(classify(&[]), bits(&scored));
    assert_eq!(classify(&["--length", "mean"]), bits(asked("mean").scores[0].as_ref().unwrap()));
    assert_ne!(classify(&["--length", "mean"]), classify(&[]));
}
