//! Encoders and rerankers with tokenizers: a directory and the GGUF file that llama.cpp made of it answer alike.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::redline;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");

/// A GGUF file, and beside it the folder of the tokenizer, or of the whole checkpoint.
fn file(name: &str) -> (String, PathBuf) {
    let folder = Path::new(GOLDEN).join("gguf/encoders");
    (folder.join(format!("{name}.gguf")).to_str().unwrap().to_owned(), folder.join(name))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The answer of a command as JSON.
fn answer(model: &str, arguments: &[&str]) -> Value {
    let out = redline(&[arguments, &["--model", model, "--format", "bf16", "--json"]].concat()).ok().out;
    serde_json::from_str(&out).unwrap()
}

#[test]
fn embeddings_of_a_gguf_file_are_those_of_its_directory() {
    for (name, special) in [("bert-a", "the [MASK] and [PAD] [SEP]"), ("roberta-b", "the <mask> and </s>")] {
        let work = tempfile::tempdir().unwrap();
        let ((file, tokenizer), dir) = (file(name), work.path().join(name));
        copy(&Path::new(GOLDEN).join("encoders").join(name), &dir);
        copy(&tokenizer, &dir);
        let texts =
            ["In the beginning", "God said: LET THERE BE LIGHT!", "été 王 \u{1F600} ﬁn\t(x)", "", special];
        let arguments: Vec<&str> = texts.iter().flat_map(|text| ["--text", text]).collect();
        let arguments = [&["embed"], &arguments[..]].concat();
        let (ours, theirs) = (answer(&file, &arguments), answer(dir.to_str().unwrap(), &arguments));
        for field in ["embeddings", "prompt_tokens", "truncated"] {
            assert_eq!(ours[field], theirs[field], "{name}: {field}");
        }
        let tokens: Vec<u64> =
            ours["prompt_tokens"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
        assert_eq!((tokens.len(), tokens[3]), (5, 2), "{name}: {tokens:?}");
        assert!(tokens[0] > 4 && ours["embeddings"][0] != ours["embeddings"][1], "{name}: {ours}");
    }
}

/// Index, tokens and relevance of every document.
fn results(model: &str, arguments: &[&str]) -> Vec<(u64, u64, f64)> {
    let answer = answer(model, arguments);
    let number = |result: &Value, field: &str| result[field].as_u64().unwrap();
    let row = |result: &Value| {
        (number(result, "index"), number(result, "prompt_tokens"), result["relevance"].as_f64().unwrap())
    };
    answer["results"].as_array().unwrap().iter().map(row).collect()
}

/// The directory has the template by its name, the file by its chat template.
#[test]
fn a_gguf_file_of_a_reranker_scores_as_its_directory() {
    let (file, dir) = file("Qwen3-Reranker-tiny");
    let documents = ["The king of Israel", "darkness upon the deep", "It rains.", ""];
    let arguments: Vec<&str> = documents.iter().flat_map(|document| ["--document", document]).collect();
    let arguments = [&["rerank", "--query", "Who is king?"], &arguments[..]].concat();
    let [ours, theirs] = [&file, dir.to_str().unwrap()].map(|model| results(model, &arguments));
    // Indices, tokens and relevances by transformers in f32.
    let want = [(0, 144, 0.06922), (2, 146, 0.06124), (3, 139, 0.03585), (1, 144, 0.02646)];
    for ((ours, theirs), want) in ours.iter().zip(&theirs).zip(want) {
        assert_eq!((ours.0, ours.1), (want.0, want.1), "{ours:?}");
        assert_eq!((theirs.0, theirs.1), (want.0, want.1), "{theirs:?}");
        // A directory divides probabilities, a file takes the softmax of two logits.
        assert!((ours.2 - theirs.2).abs() < 1e-7, "{ours:?} {theirs:?}");
        assert!((ours.2 - want.2).abs() < 2e-3, "{ours:?}");
    }
    assert_eq!((ours.len(), theirs.len()), (4, 4));
    let other = [&arguments[..], &["--template", "{query} {document}"]].concat();
    assert_ne!(results(&file, &other), ours);
}

/// The directories of a library, and what conversions keep of them; as a table, as comma-separated values, and as JSON.
#[test]
fn sparse_vectors_and_vectors_of_tokens_are_printed() {
    let work = tempfile::tempdir().unwrap();
    for (name, flag, header) in [
        ("distilbert-splade-a", "--sparse", "text,index,weight"),
        ("colbert-a", "--multi-vector", "text,vector,0,1,2"),
        ("colbert-stanford-a", "--multi-vector", "text,vector,0,1,2"),
    ] {
        let dir = Path::new(GOLDEN).join("vectors").join(name).to_str().unwrap().to_owned();
        let run = |model: &str, more: &[&str]| {
            let texts = ["--text", "The old king.", "--text", "Rain falls.", "--quiet", "--format", "bf16"];
            redline(&[&["embed", "--model", model, flag], &texts[..], more].concat()).ok().out
        };
        let table = run(&dir, &[]);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.lines().nth(1).unwrap().starts_with("\"The old king.\""), "{table}");
        let csv = run(&dir, &["--csv"]);
        assert!(csv.starts_with(header), "{csv}");
        let json: Value = serde_json::from_str(&run(&dir, &["--json"])).unwrap();
        // A line for each weight, or for each vector.
        let of = |text: usize| &json["embeddings"][text];
        let count = |text: usize| of(text)["indices"].as_array().or(of(text).as_array()).unwrap().len();
        assert_eq!(csv.lines().count(), 1 + count(0) + count(1), "{csv}");
        let converted = work.path().join(name);
        let to = converted.to_str().unwrap();
        redline(&["convert", &dir, to, "--format", "bf16"]).ok();
        let again: Value = serde_json::from_str(&run(to, &["--json"])).unwrap();
        assert_eq!(again["embeddings"], json["embeddings"], "{name}");
    }
}
