//! Verdicts on JSON-Schema-Test-Suite: `cargo run --release --example schema_suite -- FOLDER`, with the folder
//! `json/tests/draft2020-12` of the source distribution of the Python package `jsonschema`.
//!
//! An instance is fed byte by byte. Prints the counts by verdict, and with `--list` each case on which the schema and the grammar
//! differ, or which is refused. `--library` gives the schemas to the library as they are, without what this crate checks and refuses.

use std::collections::BTreeMap;
use std::path::PathBuf;

use redline_grammar::{Compiler, Grammar, GrammarKind, Words, json_value};
use serde_json::Value;

/// The token that ends a text.
const END: u32 = 256;

/// A vocabulary of bytes.
struct Bytes;

impl Words for Bytes {
    fn count(&self) -> usize {
        257
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        if id < END { vec![id as u8] } else { Vec::new() }
    }

    fn marker(&self, id: u32) -> Option<String> {
        (id == END).then(|| "<end>".to_owned())
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("give the folder of the suite"));
    let is_given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (lists, of_library) = (is_given("--list"), is_given("--library"));
    let compiler = Compiler::new(Box::new(Bytes));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder cannot be read")
        .filter_map(|entry| {
            Some(entry.ok()?.path()).filter(|path| path.extension().is_some_and(|end| end == "json"))
        })
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("the file cannot be read");
        let groups: Vec<Value> = serde_json::from_str(&text).expect("the file is not a list");
        for group in groups {
            let schema = &group["schema"];
            let grammar = if of_library {
                Grammar::new(GrammarKind::Lark, format!("start: %json {schema}\n"))
            } else {
                // As it is, although objects are closed otherwise.
                match json_value(schema).ok().filter(|_| schema.is_object()) {
                    Some(value) => Grammar::new(GrammarKind::Lark, format!("start: {value}\n")),
                    None => Grammar::new(GrammarKind::JsonSchema, schema.to_string()),
                }
            };
            let compiled = compiler.matcher(&grammar, None);
            for test in group["tests"].as_array().into_iter().flatten() {
                let valid = test["valid"] == true;
                let verdict = match &compiled {
                    Err(_) => "refused",
                    Ok(matcher) => {
                        let mut matcher = matcher.clone();
                        let taken = test["data"].to_string().bytes().all(|byte| {
                            let accepts = matcher.accepts(u32::from(byte));
                            if accepts {
                                matcher.push(u32::from(byte));
                            }
                            accepts
                        });
                        let accepted = taken && (matcher.is_complete() || matcher.accepts(END));
                        match (accepted, valid) {
                            (true, true) | (false, false) => "right",
                            (true, false) => "too lax",
                            (false, true) => "too strict",
                        }
                    }
                };
                *counts.entry(verdict).or_default() += 1;
                if lists && verdict != "right" {
                    let name = file.file_stem().unwrap_or_default().to_string_lossy();
                    println!("{verdict}: {name}: {}: {}", group["description"], test["description"]);
                }
            }
        }
    }
    for (verdict, count) in counts {
        println!("{count} {verdict}");
    }
}
