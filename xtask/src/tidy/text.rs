//! Text rules: the first line of Rust files, and forbidden text.

use super::lexer::is_word;
use super::tree::{Findings, Tree, extension};

/// Allowed number of `cfg(feature = ...)` in the repository: builds do not vary in content.
const FEATURE_CFGS: usize = 0;

/// Markers of unfinished work in comments.
const CONFESSIONS: &[&str] = &["FIXME", "HACK"];

/// Phrases that a reader has to decode, in lower case, with plain ones to use instead.
const PHRASES: &[(&str, &str)] = &[
    ("see the module.", "what the item is"),
    ("somebody", "the caller, the user, another process"),
    ("whoever", "the caller, the user, another process"),
    ("sees to it that", "ensures that"),
    ("as it is where nothing is said", "the default"),
    ("told of", "reported to"),
    ("no thread can do no work", "a positive statement"),
];

/// Texts that the tokenizer is measured with, a list of words of the demo model, and the phrases themselves.
const QUOTATIONS: [&str; 4] = [
    "crates/redline-lab/src/lanes/tokenizer/texts.rs",
    "models/demo/cloze.py",
    "xtask/src/tidy/examples.rs",
    "xtask/src/tidy/text.rs",
];

/// Comments, documents and what programs print are in plain English. The change log is not checked, because it quotes old names; nor
/// are the literals of tests.
pub(super) fn language(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    findings.expect(tree, &QUOTATIONS);
    let mut texts: Vec<(String, String)> = Vec::new();
    for source in tree.rust(&[""], &mut findings) {
        let is_test = !source.path.contains("src/") || source.path.ends_with("tests.rs");
        if !is_test {
            let lines = source.literals.lines().enumerate();
            let printed = lines.map(|(index, line)| if source.in_tests(index + 1) { "" } else { line });
            texts.push((source.path.to_owned(), printed.collect::<Vec<_>>().join("\n")));
        }
        texts.push((source.path.to_owned(), source.comments));
    }
    let is_checked = |path: &str| matches!(extension(path), "md" | "py") && path != "CHANGELOG.md";
    let documents = tree.files.iter().filter(|file| is_checked(&file.path));
    texts.extend(documents.map(|file| (file.path.clone(), file.text.clone())));
    findings.seen = texts.len();
    for (path, text) in texts.iter().filter(|(path, _)| !QUOTATIONS.contains(&path.as_str())) {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, plain) in PHRASES.iter().filter(|(phrase, _)| line.contains(phrase)) {
                findings.broken(path, index + 1, format!("`{phrase}` in prose: say {plain}"));
            }
        }
    }
    findings
}

/// The first line of every Rust file is its documentation.
pub(super) fn module_docs(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for source in tree.rust(&[""], &mut findings) {
        if !source.text.starts_with("//!") {
            findings.broken(source.path, 1, "does not begin with a `//!` line that says what the file is");
        }
    }
    findings
}

/// The number of `cfg(feature)` is within its limit.
pub(super) fn feature_cfgs(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    let mut places = Vec::new();
    for source in tree.rust(&[""], &mut findings) {
        for at in source.find(source.all(), "feature =") {
            if at > 0 && matches!(source.token(at - 1), "(" | ",") {
                places.push((source.path.to_string(), source.line(at)));
            }
        }
    }
    if places.len() > FEATURE_CFGS {
        let count = places.len();
        for (path, line) in places {
            findings.broken(&path, line, format!("one of {count} `cfg(feature)`, limit {FEATURE_CFGS}"));
        }
    }
    findings
}

/// No comment speaks of unfinished work, and no test is skipped. In code, clippy finds it (`todo`, `unimplemented`, `dbg_macro`).
pub(super) fn unfinished(tree: &Tree) -> Findings {
    let mut findings = Findings::default();
    for source in tree.rust(&[""], &mut findings) {
        for at in source.find(source.all(), "# [ ignore") {
            findings.broken(source.path, source.line(at), "a test that does not run");
        }
        for (index, line) in source.comments.lines().enumerate() {
            let words = line.split(|c: char| !(c.is_ascii() && is_word(c as u8)));
            for word in words.filter(|w| CONFESSIONS.contains(w)) {
                findings.broken(
                    source.path,
                    index + 1,
                    format!("`{word}` in a comment: do it, or write an issue"),
                );
            }
        }
    }
    findings
}
