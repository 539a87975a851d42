//! What is wrong as a whole is refused before anything is written.

use std::collections::BTreeMap;
use std::fs;

use redline_batch::{BatchError, BatchPlaces, TableRequest, run};
use redline_engine::Cancel;
use redline_weights::{Disk, FileOperation};
use serde_json::{Value, json};

use crate::tables::{Folder, answer, content, model, places, request};

const CLASSES: &str = r#"{"classes": ["king", "ship"]}"#;

fn classify() -> TableRequest {
    request("classify", serde_json::from_str(CLASSES).unwrap())
}

/// The error of a request about a small table, with its hint.
fn refusal(request: &TableRequest) -> (String, String) {
    let folder = Folder::new();
    let input = folder.parquet("in.parquet", &[Some("the king"), Some("a ship")], 2);
    let output = folder.path("out");
    let error = answer(request, &places(&input, &output)).unwrap_err();
    assert!(!output.exists(), "something is written: {error}");
    (error.to_string(), error.hint().map(|hint| hint.to_string()).unwrap_or_default())
}

fn with(key: &str, value: Value) -> TableRequest {
    let mut request = classify();
    request.values.insert(key.to_owned(), value.into());
    request
}

fn of_column(kind: &str, key: &str, column: &str, values: Value) -> TableRequest {
    TableRequest { columns: [(key.to_owned(), column.to_owned())].into(), ..request(kind, values) }
}

#[test]
fn wrong_requests_are_refused_with_what_is_wrong() {
    for (request, fact, hint) in [
        (request("translate", json!({})), "`translate` cannot be asked of rows", "one of score, classify,"),
        (with("timeout_s", json!(1)), "`timeout_s` is given", "leave it out: whether a row is in time"),
        (with("item_errors", json!(true)), "`item_errors` has no effect on the results", "leave it out"),
        (with("colour", json!(1)), "unknown field `colour`", ""),
        (with("threshold", json!("x")), "`threshold`: invalid type: string", ""),
        (with("classes", json!(["king"])), "1 class leaves nothing to choose", "give at least two classes"),
        (with("adapter", json!("tone")), "no adapter is loaded", ""),
        (
            request("rerank", json!({ "query": "q" })),
            "no column is chosen for `documents`",
            "`columns` = documents=NAME",
        ),
        (request("generate", json!({})), "no column is chosen for `prompt`", "columns: id, text"),
        (of_column("score", "items", "text", json!({ "query": "q" })), "no label given", "give `labels`"),
        (
            of_column("generate", "prompt", "text", json!({ "n": 2 })),
            "`n` has no effect",
            "every row has one answer",
        ),
        (
            of_column("diffuse", "prompt", "text", json!({})),
            "predicts the token that follows and fills no masks",
            "",
        ),
        (of_column("classify", "text", "none", json!({})), "there is no column `none`", "columns: id, text"),
        (of_column("classify", "text", "id", json!({})), "column `id` holds Int64, and `text` is a text", ""),
        (
            TableRequest { keep: Some(vec!["x".to_owned()]), ..classify() },
            "there is no column `x`",
            "columns: id, text",
        ),
        (
            TableRequest { keep: Some(["id"; 2].map(str::to_owned).to_vec()), ..classify() },
            "column `id` is to be kept twice",
            "name it once",
        ),
        (TableRequest { rows_per_file: 0, ..classify() }, "files of 0 rows", "give each at least one row"),
    ] {
        let (found, advice) = refusal(&request);
        assert!(found.contains(fact) && advice.contains(hint), "{found}\n{advice}\n(for {fact})");
    }
    let mut both = with("text", json!("x"));
    both.columns.insert("text".to_owned(), "text".to_owned());
    assert_eq!(refusal(&both).0, "`text` has both a column and a value");
}

#[test]
fn columns_of_one_name_are_refused() {
    let folder = Folder::new();
    let output = folder.path("out");
    let input = folder.lines("in.jsonl", &[r#"{"text": "a", "class": 1}"#]);
    let twice = answer(&classify(), &places(&input, &output)).unwrap_err();
    assert_eq!(twice.to_string(), "the results would have two columns `class`");
    assert!(!output.exists());
    let kept = TableRequest { keep: Some(vec!["text".to_owned()]), ..classify() };
    answer(&kept, &places(&input, &output)).unwrap();
    let named = TableRequest { prefix: "new_".to_owned(), ..classify() };
    answer(&named, &places(&input, &folder.path("named"))).unwrap();
    // Only a later line has it.
    let input = folder.lines("later.jsonl", &[r#"{"text": "a"}"#, r#"{"text": "b", "error": 1}"#]);
    let twice = answer(&classify(), &places(&input, &folder.path("later"))).unwrap_err();
    assert_eq!(twice.to_string(), "the results would have two columns `error`");
}

#[test]
fn inputs_that_are_no_tables_are_refused() {
    let folder = Folder::new();
    let output = folder.path("out");
    let of = |inputs: &[&str]| {
        let inputs = inputs.iter().map(|name| folder.path(name)).collect();
        let error = answer(&classify(), &BatchPlaces { inputs, ..places(&output, &output) }).unwrap_err();
        (error.to_string(), error.hint().map(|hint| hint.to_string()).unwrap_or_default())
    };
    folder.lines("a.tsv", &["text", "a"]);
    folder.lines("empty.jsonl", &["", "  "]);
    folder.lines("damaged.parquet", &["PAR1", "PAR1"]);
    folder.lines("a.jsonl", &[r#"{"text": "a"}"#]);
    folder.parquet("a.parquet", &[Some("a")], 1);
    fs::create_dir(folder.path("none")).unwrap();
    fs::write(folder.path("none/_hidden.parquet"), "").unwrap();
    assert_eq!(of(&[]).0, "no input is given\n  in `.`");
    let (fact, hint) = of(&["a.tsv"]);
    assert!(fact.starts_with("the ending of its name is of no format"), "{fact}");
    assert!(hint.contains("Parquet (.parquet, .pq)") && hint.contains("JSON Lines (.jsonl"), "{hint}");
    assert!(of(&["none"]).0.starts_with("no table is there"));
    assert!(of(&["missing.parquet"]).0.starts_with("could not look at the input: No such file"));
    assert!(of(&["a.parquet", "a.jsonl"]).0.contains("is Parquet, and this is not"));
    assert!(of(&["damaged.parquet"]).0.contains("damaged.parquet"));
    assert_eq!(of(&["empty.jsonl"]).0, "the 1 input files have no row");
    // Results among the inputs would be inputs of the next run.
    fs::create_dir(folder.path("both")).unwrap();
    fs::copy(folder.path("a.parquet"), folder.path("both/a.parquet")).unwrap();
    for input in ["both", "both/a.parquet"] {
        let places =
            BatchPlaces { inputs: vec![folder.path(input)], ..places(&output, &folder.path("both")) };
        let error = answer(&classify(), &places).unwrap_err().to_string();
        assert!(error.starts_with("the results would be among the inputs"), "{error}");
    }
    // Some line has every column that is asked for, even if the first one is damaged.
    let later = folder.lines("later.jsonl", &["damaged", r#"{"text": "a"}"#]);
    let summary = answer(&classify(), &places(&later, &folder.path("later"))).unwrap();
    assert_eq!((summary.rows, summary.failed), (2, 1));
    let misspelt = of_column("classify", "text", "tekst", json!({ "classes": ["king", "ship"] }));
    let error = answer(&misspelt, &places(&later, &folder.path("misspelt"))).unwrap_err().to_string();
    assert!(error.starts_with("there is no column `tekst`"), "{error}");
    assert!(!output.exists());
    // An empty one beside others is no mistake.
    let inputs = vec![folder.path("empty.jsonl"), folder.path("a.jsonl")];
    let summary = answer(&classify(), &BatchPlaces { inputs, ..places(&output, &output) }).unwrap();
    assert_eq!((summary.rows, summary.files), (1, 1));
}

#[test]
fn results_of_other_work_are_left_alone() {
    let folder = Folder::new();
    let output = folder.path("out");
    let input = folder.parquet("in.parquet", &[Some("the king"), Some("a ship")], 1);
    answer(&classify(), &places(&input, &output)).unwrap();
    let before = content(&output);
    let refused = |request: &TableRequest, places: &BatchPlaces, name: &str| {
        let error = run(request, places, model(name), &mut |_| (), &Cancel::new()).unwrap_err();
        assert!(matches!(error, BatchError::OtherWork { .. }), "{error}");
        error.to_string()
    };
    let places = places(&input, &output);
    let other = refused(&with("threshold", json!(0.5)), &places, "demo");
    let fact = "its results are of another request: `request.values.threshold` was null, and is 0.5";
    assert!(other.starts_with(fact), "{other}");
    let fewer = refused(&TableRequest { rows_per_file: 1, ..classify() }, &places, "demo");
    assert!(fewer.contains("`request.rows_per_file` was 4096, and is 1"), "{fewer}");
    let another = folder.parquet("another.parquet", &[Some("the king"), Some("a ship")], 1);
    let named =
        refused(&classify(), &BatchPlaces { inputs: vec![another.clone()], ..places.clone() }, "demo");
    assert!(
        named.starts_with("its results are of the input `in.parquet` where this work has `another"),
        "{named}"
    );
    let more =
        refused(&classify(), &BatchPlaces { inputs: vec![input.clone(), another], ..places.clone() }, "demo");
    assert!(more.starts_with("its results are of 1 inputs, without `another.parquet`"), "{more}");
    folder.parquet("in.parquet", &[Some("the king"), Some("a shop")], 1);
    let changed = refused(&classify(), &places, "demo");
    assert!(changed.starts_with("`in.parquet` changed: its digest or size"), "{changed}");
    folder.parquet("in.parquet", &[Some("the king"), Some("a ship")], 1);
    assert_eq!(content(&output), before);
    assert!(answer(&classify(), &places).is_ok_and(|summary| summary.answered == 0));
    // Another model.
    let score = of_column("score", "items", "text", json!({ "query": "", "labels": ["a"] }));
    let places = BatchPlaces { output: folder.path("scores"), ..places };
    answer(&score, &places).unwrap();
    let model = refused(&score, &places, "demo-diffusion");
    assert!(model.contains("another model: `model."), "{model}");
}

#[test]
fn an_input_that_changes_meanwhile_ends_the_work() {
    let folder = Folder::new();
    let input = folder.parquet("in.parquet", &[Some("the king"), Some("a ship"), Some("the sea")], 1);
    let places = places(&input, &folder.path("out"));
    let path = input.clone();
    let disk = Disk::observed(move |operation| {
        if matches!(operation, FileOperation::Rename(_, to) if to.to_string_lossy().contains("part-00000001"))
        {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, [&bytes[..], b"\n"].concat()).unwrap();
        }
        Ok(())
    });
    let error = answer(&classify(), &BatchPlaces { disk, ..places.clone() }).unwrap_err();
    assert!(matches!(error, BatchError::Changed { .. }), "{error}");
    let files: BTreeMap<_, _> = content(&places.output);
    assert_eq!(files.keys().filter(|name| name.starts_with("part-")).count(), 1, "{:?}", files.keys());
}
