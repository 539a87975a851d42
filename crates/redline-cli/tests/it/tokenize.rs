//! `tokenize`: input forms, answers, and which encoder is used.

use std::fs;
use std::path::Path;

use redline_api::jsonl::fault::LineFault;
use redline_api::jsonl::tokenize::{TokenIds, Tokenized};
use redline_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::checkpoint::Copy;
use crate::harness::{Run, command, finish, redline, redline_reading};

const VOCABULARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo/tokenizer.json");
const TEXT: &str = "It was the best of times,\n  it wasn\u{2019}t \u{1f600} 42!\n";

fn tokenizer() -> Tokenizer {
    Tokenizer::from_file(Path::new(VOCABULARY)).unwrap()
}

fn tokenize(arguments: &[&str]) -> Run {
    redline(&[&["tokenize", "--model", "demo"], arguments].concat())
}

fn on_one_line(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ") + "\n"
}

#[track_caller]
fn document(run: Run) -> Tokenized {
    serde_json::from_str(&run.ok().out).unwrap()
}

#[track_caller]
fn ids(line: &str) -> TokenIds {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_text_has_the_same_ids_wherever_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    fs::write(&file, TEXT).unwrap();
    let file = file.to_str().unwrap();
    let expected = on_one_line(&tokenizer().encode(TEXT, true).unwrap());
    for form in [&[TEXT][..], &["--text", TEXT], &["--file", file]] {
        let run = tokenize(form).ok();
        assert_eq!((run.out, run.err), (expected.clone(), String::new()), "{form:?}");
    }
    // The byte order mark at the start of a file is no part of the text.
    fs::write(folder.path().join("marked"), format!("\u{feff}{TEXT}")).unwrap();
    let marked = folder.path().join("marked");
    assert_eq!(tokenize(&["--file", marked.to_str().unwrap()]).ok().out, expected);
    let piped = redline_reading(&["tokenize", "--model", "demo", "--file", "-"], TEXT.as_bytes()).ok();
    assert_eq!(piped.out, expected);
    // A tokenizer needs no model.
    assert_eq!(redline(&["tokenize", "--tokenizer", VOCABULARY, TEXT]).ok().out, expected);
    let named = finish(command(&["tokenize", TEXT]).env("REDLINE_MODEL", "demo").output().unwrap());
    assert_eq!(named.ok().out, expected);
    let alone = ["tokenize", "--tokenizer", VOCABULARY, TEXT];
    assert_eq!(finish(command(&alone).env("REDLINE_MODEL", "/none").output().unwrap()).ok().out, expected);
}

#[test]
fn what_the_tokenizer_puts_around_a_text_can_be_left_out() {
    let (with, without) =
        (document(tokenize(&["--json", TEXT])), document(tokenize(&["--json", "--no-special", TEXT])));
    assert_eq!(with.tokens.ids[1..], without.tokens.ids);
    assert_eq!((with.written[0].as_str(), with.count), ("<|bos|>", without.count + 1));
    // Special tokens written in the text are kept.
    assert_eq!(document(tokenize(&["--json", "--no-special", "<|eos|>"])).written, ["<|eos|>"]);
    assert_eq!(tokenize(&["--no-special", ""]).ok().out, "\n");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    assert_eq!(tokenize(&["--file", empty.to_str().unwrap()]).ok().out, "0\n");
}

#[test]
fn a_document_tells_tokens_and_on_request_their_places() {
    let plain = document(tokenize(&["--json", TEXT]));
    let told = document(tokenize(&["--json", "--offsets", TEXT]));
    assert_eq!(
        (plain.object.as_str(), plain.model.as_str(), plain.tokens.offsets),
        ("tokenization", "demo", None)
    );
    assert_eq!((plain.meta.encoder.as_str(), plain.meta.fallback), ("native", None));
    assert_eq!(
        (told.count, &told.tokens.ids, &told.written),
        (told.tokens.ids.len(), &plain.tokens.ids, &plain.written)
    );
    let offsets = told.tokens.offsets.unwrap();
    let expected = tokenizer().encode_with_offsets(TEXT, true).unwrap().offsets;
    assert!(expected.iter().map(|range| [range.start, range.end]).eq(offsets.iter().copied()), "{offsets:?}");
    let lines: Vec<String> =
        told.tokens.ids.iter().zip(&offsets).map(|(id, [a, b])| format!("{id} {a} {b}\n")).collect();
    assert_eq!(tokenize(&["--offsets", TEXT]).ok().out, lines.concat());
}

#[test]
fn lines_are_answered_in_order_whatever_the_threads() {
    let texts: Vec<String> = (0..500).map(|n| format!("{n} {}", TEXT.repeat(n % 97))).collect();
    let input: String = texts.iter().map(|text| json!({"text": text}).to_string() + "\n").collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    fs::write(&file, input).unwrap();
    let lines = |flags: &[&str]| tokenize(&[&["--jsonl", file.to_str().unwrap()], flags].concat()).ok().out;
    let one = lines(&["--threads", "1"]);
    assert_eq!(one.lines().count(), texts.len());
    let tokenizer = tokenizer();
    for (line, text) in one.lines().zip(&texts) {
        assert_eq!(ids(line), TokenIds { ids: tokenizer.encode(text, true).unwrap(), offsets: None });
    }
    assert_eq!(one, lines(&["--threads", "3"]));
    let told = lines(&["--threads", "3", "--offsets", "--no-special"]);
    assert_eq!(told, lines(&["--threads", "1", "--offsets", "--no-special"]));
    for (line, text) in told.lines().zip(&texts) {
        let (found, expected) = (ids(line), tokenizer.encode_with_offsets(text, false).unwrap());
        let places = expected.offsets.iter().map(|range| [range.start, range.end]).collect();
        assert_eq!(found, TokenIds { ids: expected.ids, offsets: Some(places) });
    }
}

#[test]
fn what_the_tokenizer_adds_is_left_out_of_lines_and_of_places_too() {
    let bare = tokenizer().encode_with_offsets(TEXT, false).unwrap();
    let line = json!({"text": TEXT}).to_string();
    let ask = ["tokenize", "--model", "demo", "--no-special", "--jsonl", "-"];
    let run = redline_reading(&ask, line.as_bytes()).ok();
    assert_eq!(ids(&run.out), TokenIds { ids: bare.ids.clone(), offsets: None });
    let places = bare.ids.iter().zip(&bare.offsets);
    let lines: Vec<String> =
        places.map(|(id, range)| format!("{id} {} {}\n", range.start, range.end)).collect();
    assert_eq!(tokenize(&["--no-special", "--offsets", TEXT]).ok().out, lines.concat());
}

#[test]
fn a_bad_line_is_told_in_its_place_and_nothing_else_is_lost() {
    let mut input = b"{\"text\":\"one\"}\n\n{\"txt\":\"two\"}\n".to_vec();
    input.extend(b"{\"text\":\"\xff\"}\n{\"text\":3}\n{\"text\":\"one\"}");
    let run = redline_reading(&["tokenize", "--model", "demo", "--jsonl", "-"], &input);
    assert_eq!(run.code, 1, "{}", run.err);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (5, lines[4]));
    for (line, number, fact) in
        [(1, 3, "unknown field `txt`"), (2, 4, "invalid unicode"), (3, 5, "expected a string")]
    {
        let fault: LineFault = serde_json::from_str(lines[line]).unwrap();
        assert!(fault.line == number && fault.message.contains(fact), "{}", lines[line]);
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("latin"), b"caf\xe9 noir\n").unwrap();
    tokenize(&["--file", &path("latin")]).failed(&[
        "byte 3 is 0xe9",
        "not UTF-8",
        "latin`, line 1",
        "hint: ",
    ]);
    let cut = redline_reading(&["tokenize", "--model", "demo", "--file", "-"], b"a\nb\xc3");
    cut.failed(&["byte 3 is 0xc3", "in standard input, line 2"]);
    tokenize(&["--file", &path("none")]).failed(&["none`", "hint: "]);
    tokenize(&["--jsonl", &path("none")]).failed(&["none`"]);
    redline(&["tokenize", "--tokenizer", &path("none"), "t"]).failed(&["cannot read", "none`"]);
    fs::write(path("odd.json"), "{\"model\": {\"type\": \"Surprise\"}}").unwrap();
    redline(&["tokenize", "--tokenizer", &path("odd.json"), "t"]).failed(&[
        "Surprise",
        "odd.json`",
        "hint: ",
    ]);
    redline(&["tokenize", "--model", "/nonexistent/model", "t"]).failed(&["/nonexistent/model"]);
}

/// A copy of the demo model whose tokenizer only the library supports.
fn uncovered() -> Copy {
    let copy = Copy::new();
    let path = copy.file("tokenizer.json");
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let own = file["pre_tokenizer"].take();
    let first = json!({"type": "Punctuation", "behavior": "Isolated"});
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [first, own]});
    fs::write(path, file.to_string()).unwrap();
    copy
}

#[test]
fn that_the_library_encodes_is_said_once() {
    let copy = uncovered();
    let (dir, file) = (copy.dir(), copy.file("tokenizer.json"));
    let file = file.to_str().unwrap();
    let input = b"{\"text\":\"one\"}\n{\"text\":\"two\"}\n";
    let say = |words: &[&str]| redline_reading(words, input);
    let generate = ["generate", "--model", dir, "--prompt", "The", "--max-new-tokens", "1"];
    let commands: &[&[&str]] = &[
        &["tokenize", "--tokenizer", file, "one"],
        &["tokenize", "--model", dir, "--jsonl", "-"],
        &generate,
        &["score", "--model", dir, "--query", "The", "--item", " a", "--label-id", "7"],
        &["perplexity", "--model", dir, "--file", "-", "--against", dir],
        &[
            "bench",
            "generate",
            "--portable",
            "--model",
            dir,
            "--prompt-tokens",
            "3",
            "--new-tokens",
            "2",
            "--num-runs",
            "2",
            "--threads",
            "1,2",
        ],
    ];
    for words in commands {
        let run = say(words).ok();
        // A benchmark also warns about a busy machine.
        let of_encoder = |line: &&str| line.starts_with("warning: ") && line.contains("encode");
        let warnings: Vec<&str> = run.err.lines().filter(of_encoder).collect();
        assert_eq!(warnings.len(), 1, "{words:?}: {}", run.err);
        for part in ["`tokenizers` crate of Hugging Face", "Punctuation"] {
            assert!(warnings[0].contains(part), "{}", warnings[0]);
        }
    }
    let told = document(say(&["tokenize", "--tokenizer", file, "--json", "one"]));
    assert_eq!((told.model.as_str(), told.meta.encoder.as_str()), (file, "library"));
    assert!(told.meta.fallback.is_some_and(|reason| reason.contains("Punctuation")));
    let covered =
        redline(&["generate", "--model", "demo", "--prompt", "The", "--max-new-tokens", "1", "--quiet"]);
    assert_eq!(covered.ok().err, "");
}

#[test]
fn a_model_directory_goes_by_the_name_of_its_folder() {
    let copy = Copy::new();
    let told = document(redline(&["tokenize", "--model", copy.dir(), "--json", "one"]));
    assert_eq!(Path::new(copy.dir()).file_name().unwrap().to_str(), Some(told.model.as_str()));
}
