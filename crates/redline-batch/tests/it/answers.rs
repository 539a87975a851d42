//! Answers of every kind are those that the engine gives to the same requests one by one.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use redline_api::jsonl::{classify, embed};
use redline_batch::{TableRequest, kinds, run};
use redline_engine::{
    Cancel, ClassifyRequest, DiffuseRequest, EmbedRequest, GenerateRequest, Label, Pooling, Prompt,
    RerankRequest, ScoreRequest,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::tables::{Folder, answer, content, model, places, request, results};

const TEXTS: [&str; 3] = ["And the king said", "The ship sank in the sea.", "To be"];

/// A value as it is read from a line.
fn line(value: impl Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(&value).unwrap()).unwrap()
}

/// The results of a request about [`TEXTS`], in a column `text`.
fn of_texts(request: &TableRequest, name: &str) -> Vec<Value> {
    let folder = Folder::new();
    let lines = TEXTS.map(|text| json!({ "text": text }).to_string());
    let input = folder.lines("in.jsonl", &lines.each_ref().map(String::as_str));
    let output = folder.path("out");
    let summary = run(request, &places(&input, &output), model(name), &mut |_| (), &Cancel::new()).unwrap();
    assert_eq!((summary.answered, summary.failed, summary.files), (3, 0, 1));
    let rows = results(&output);
    for (row, text) in rows.iter().zip(TEXTS) {
        assert_eq!((&row["text"], &row["error"]), (&json!(text), &Value::Null));
    }
    rows
}

fn columns(kind: &str, column: &str, values: Value) -> TableRequest {
    TableRequest { columns: [(column.to_owned(), "text".to_owned())].into(), ..request(kind, values) }
}

#[test]
fn scores_are_those_of_single_requests() {
    let engine = &model("demo").model.engine;
    let labels = [" the", " a"];
    let rows = of_texts(&columns("score", "items", json!({ "query": "So", "labels": labels })), "demo");
    for (row, text) in rows.iter().zip(TEXTS) {
        let labels = labels.map(|label| Label::Text(label.to_owned())).to_vec();
        let single = ScoreRequest::new(Prompt::Text("So".into()), vec![Prompt::Text(text.into())], labels);
        let outcome = engine.score(single).unwrap();
        assert_eq!(row["scores"], line(&outcome.items[0].as_ref().unwrap().scores));
        assert_eq!(row["prompt_tokens"], json!(outcome.cost.usage.prompt_tokens));
    }
    // The text as the query, with items for all rows.
    let lists =
        of_texts(&columns("score", "query", json!({ "items": [" and", " or"], "labels": labels })), "demo");
    for row in lists {
        assert_eq!(
            row["scores"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().len()).sum::<usize>(),
            4
        );
    }
}

#[test]
fn classes_and_relevance_are_those_of_single_requests() {
    let engine = &model("demo").model.engine;
    let rows =
        of_texts(&request("classify", json!({ "classes": ["king", "ship"], "threshold": 0.6 })), "demo");
    let classes = ["king", "ship"].map(|class| Label::Text(class.to_owned())).to_vec();
    let texts = TEXTS.map(str::to_owned).to_vec();
    let single = ClassifyRequest { threshold: Some(0.6), ..ClassifyRequest::new(texts, classes) };
    let expected = classify::answer(model("demo").model, engine.classify(single).unwrap());
    for (row, expected) in rows.iter().zip(expected.results) {
        let expected = line(expected);
        for key in ["class", "probabilities", "margin", "prompt_tokens"] {
            assert_eq!(row[key], expected[key], "{key}");
        }
    }
    assert!(rows.iter().any(|row| row["class"].is_null()) && rows.iter().any(|row| row["class"].is_string()));
    let rows = of_texts(&columns("rerank", "documents", json!({ "query": "Who is king?" })), "demo");
    let relevance = |documents: &[&str]| {
        let documents = documents.iter().map(|text| (*text).to_owned()).collect();
        let outcome = engine.rerank(RerankRequest::new("Who is king?".to_owned(), documents)).unwrap();
        let mut ranked: Vec<_> = outcome.results.into_iter().map(Result::unwrap).collect();
        ranked.sort_by_key(|ranked| ranked.index);
        ranked.iter().map(|ranked| ranked.relevance).collect::<Vec<_>>()
    };
    for (row, expected) in rows.iter().zip(relevance(&TEXTS)) {
        assert_eq!(row["relevance"], line(expected));
    }
    let lists = of_texts(&columns("rerank", "query", json!({ "documents": TEXTS })), "demo");
    assert_eq!(lists[0]["relevance"].as_array().unwrap().len(), 3);
}

#[test]
fn embeddings_and_texts_are_those_of_single_requests() {
    let engine = &model("demo").model.engine;
    let rows = of_texts(&request("embed", json!({ "pooling": "mean" })), "demo");
    let texts = TEXTS.map(|text| Prompt::Text(text.to_owned())).to_vec();
    let single = EmbedRequest { pooling: Some(Pooling::Mean), ..EmbedRequest::new(texts) };
    let expected = embed::answer(model("demo").model, engine.embed(single).unwrap());
    let expected = line(expected.embeddings);
    assert_eq!(json!(rows.iter().map(|row| &row["embedding"]).collect::<Vec<_>>()), expected);

    let sampled = json!({ "max_new_tokens": 6, "temperature": 0.8, "seed": 3 });
    let rows = of_texts(&columns("generate", "prompt", sampled), "demo");
    for (row, text) in rows.iter().zip(TEXTS) {
        let mut single = GenerateRequest::new(Prompt::Text(text.to_owned()), 6);
        (single.sampling.temperature, single.sampling.seed) = (0.8, 3);
        let outcome = engine.generate(single, &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!((&row["generated"], &row["token_ids"]), (&json!(outcome.text), &json!(outcome.token_ids)));
        assert_eq!(row["finish_reason"], json!(outcome.finish_reason.name()));
        assert_eq!(row["prompt_tokens"], json!(outcome.usage.prompt_tokens));
    }

    let rows = of_texts(&columns("diffuse", "prompt", json!({ "max_new_tokens": 4 })), "demo-diffusion");
    let engine = &model("demo-diffusion").model.engine;
    let single = DiffuseRequest::new(Prompt::Text(TEXTS[0].to_owned()), 4);
    let outcome = engine.diffuse(single, &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!(
        (&rows[0]["generated"], &rows[0]["token_ids"]),
        (&json!(outcome.text), &json!(outcome.token_ids))
    );
}

const SCHEMA: &str = r#"{"type":"object","properties":{"who":{"enum":["David","Saul"]},"age":{"type":"integer","minimum":1,"maximum":9},
    "old":{"type":"boolean"},"share":{"enum":[0.5]},"names":{"type":"array","items":{"const":"Saul"},"minItems":2,"maxItems":2},
    "at":{"type":"object","properties":{"x":{"const":1},"b":{"const":null}},"required":["x","b"]}},"required":["who","age","old","share","names","at"]}"#;

#[test]
fn answers_in_json_are_typed_columns() {
    let folder = Folder::new();
    let compact =
        json!({ "json": serde_json::from_str::<Value>(SCHEMA).unwrap(), "disable_any_whitespace": true });
    let values = json!({ "structured_outputs": compact, "max_new_tokens": 120 });
    let request = TableRequest { prefix: "a_".to_owned(), ..columns("generate", "prompt", values) };
    let texts = [Some("The king"), None, Some("A ship")];
    let input = folder.parquet("in.parquet", &texts, 8);
    let output = folder.path("parquet");
    assert_eq!(answer(&request, &places(&input, &output)).unwrap().failed, 1);
    let name = content(&output).into_keys().find(|name| name.starts_with("part-")).unwrap();
    let file = std::fs::File::open(output.join(name)).unwrap();
    let mut batches = ParquetRecordBatchReader::try_new(file, 8).unwrap();
    let batch = batches.next().unwrap().unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    let new = ["a_generated", "a_token_ids", "a_finish_reason", "a_prompt_tokens"];
    assert_eq!(names[2..6], new);
    assert_eq!(names[6..], ["a_who", "a_age", "a_old", "a_share", "a_names", "a_at", "a_error"]);
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let text = |name: &str, row| column(name).as_string::<i32>().value(row).to_owned();
    for row in [0, 2] {
        let whole: Value = serde_json::from_str(&text("a_generated", row)).unwrap();
        assert_eq!(json!(text("a_who", row)), whole["who"]);
        assert_eq!(json!(column("a_age").as_primitive::<Int64Type>().value(row)), whole["age"]);
        assert_eq!(json!(column("a_old").as_boolean().value(row)), whole["old"]);
        assert_eq!(column("a_share").as_primitive::<Float64Type>().value(row), 0.5);
        let list = column("a_names").as_list::<i32>().value(row);
        assert_eq!(list.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("Saul"); 2]);
        assert_eq!(text("a_at", row), r#"{"x":1,"b":null}"#);
    }
    assert!(names[6..12].iter().all(|name| column(name).is_null(1)) && !column("a_error").is_null(1));
    // As lines they are JSON. One that was cut has none.
    let values = json!({ "guided_json": r#"{"type":"object","properties":{"b":{"enum":["x"]},"a":{"enum":[[1,{"c":2}]]}},"required":["b","a"]}"#, "max_new_tokens": 120 });
    let lines = of_texts(&columns("generate", "prompt", values), "demo");
    for row in &lines {
        let whole: Value = serde_json::from_str(row["generated"].as_str().unwrap()).unwrap();
        assert_eq!((&row["b"], &row["a"], &whole["a"]), (&json!("x"), &json!([1, { "c": 2 }]), &row["a"]));
    }
    let cut = json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": serde_json::from_str::<Value>(SCHEMA).unwrap() } }, "max_new_tokens": 9 });
    for row in of_texts(&columns("generate", "prompt", cut), "demo") {
        assert_eq!(
            (&row["finish_reason"], &row["who"], row.get("names")),
            (&json!("length"), &Value::Null, Some(&Value::Null))
        );
    }
}

#[test]
fn properties_with_the_name_of_another_column_are_refused() {
    let folder = Folder::new();
    let input = folder.lines("in.jsonl", &[r#"{"prompt": "a", "who": 1}"#]);
    let refused = |name: &str| {
        let schema = json!({ "properties": { name: {} } });
        let output = folder.path("out");
        let error = answer(&request("generate", json!({ "json_schema": schema })), &places(&input, &output))
            .unwrap_err();
        assert!(!output.exists());
        error.to_string()
    };
    assert_eq!(
        refused("token_ids"),
        "the schema has a property `token_ids`, and the results have another column of this name"
    );
    assert_eq!(
        refused("error"),
        "the schema has a property `error`, and the results have another column of this name"
    );
    assert_eq!(refused("who"), "the results would have two columns `who`");
}

#[test]
fn a_row_that_cannot_be_answered_says_why_and_the_others_are_answered() {
    let folder = Folder::new();
    let long = "word ".repeat(600);
    let input = folder.lines(
        "in.jsonl",
        &[
            r#"{"text": "the king", "n": 1}"#,
            r#"{"text": null, "n": 2}"#,
            r#"{"n": 3}"#,
            "no object",
            r#"{"text": 7, "n": 5}"#,
            &json!({ "text": long, "n": 6 }).to_string(),
            r#"{"text": "the ship", "n": 7}"#,
        ],
    );
    let output = folder.path("out");
    let request = TableRequest {
        keep: Some(vec!["n".to_owned()]),
        prefix: "answer_".to_owned(),
        rows_per_file: 3,
        ..request("classify", json!({ "classes": ["king", "ship"] }))
    };
    let summary = answer(&request, &places(&input, &output)).unwrap();
    assert_eq!((summary.rows, summary.answered, summary.failed, summary.files), (7, 7, 5, 3));
    let rows = results(&output);
    let errors: Vec<_> = rows.iter().map(|row| row["answer_error"].as_str().unwrap_or_default()).collect();
    assert_eq!(errors[1..3], ["column `text` has no value (null)"; 2]);
    assert!(errors[3].starts_with("column `text`: the line is no JSON object"), "{}", errors[3]);
    assert!(errors[4].starts_with("`text`: invalid type: integer `7`"), "{}", errors[4]);
    assert!(errors[5].contains("exceed"), "{}", errors[5]);
    assert_eq!([errors[0], errors[6]], [""; 2]);
    for (index, row) in rows.iter().enumerate() {
        let keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(row["n"].is_null(), index == 3, "{row}");
        assert!(!keys.contains(&"text") && keys.contains(&"answer_margin"), "{keys:?}");
        assert_eq!(row["answer_class"].is_null(), ![0, 6].contains(&index), "{row}");
    }
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(output.join("_manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["rows"], &manifest["failed"]), (&json!(7), &json!(5)));
    assert_eq!(summary.manifest, Some((output.join("_manifest.json"), 5)));
    let failed: Vec<_> = manifest["results"].as_array().unwrap().iter().map(|file| &file["failed"]).collect();
    assert_eq!(failed, [2, 3, 0]);
}

#[test]
fn every_kind_has_a_name_and_answers_from_columns_of_its_own() {
    assert_eq!(kinds().collect::<Vec<_>>(), ["score", "classify", "rerank", "embed", "generate", "diffuse"]);
    let folder = Folder::new();
    let line = r#"{"query": "Who?", "item": " the king", "document": "The king.", "prompt": "So", "messages": null}"#;
    let input = folder.lines("in.jsonl", &[line]);
    for (kind, values, column) in [
        ("score", json!({ "labels": [" the"] }), "scores"),
        ("rerank", json!({}), "relevance"),
        ("generate", json!({ "max_new_tokens": 1 }), "generated"),
    ] {
        let output = folder.path(kind);
        answer(&request(kind, values), &places(&input, &output)).unwrap();
        assert!(!results(&output)[0][column].is_null(), "{kind}");
    }
}
