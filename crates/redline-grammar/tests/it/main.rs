//! Grammars over a vocabulary of bytes, a few longer tokens and markers.

mod compiled;
mod walks;

use redline_grammar::{Compiler, Grammar, GrammarError, GrammarKind, Matcher, Words};

/// Tokens of several bytes, after those of one.
const LONGER: &[&str] = &["{\"", "\":", "true", "  ", "}]", "ab", "\u{e9}"];
/// Tokens that mark places.
const MARKERS: &[&str] = &["<end>", "<tool_call>"];
/// The token that ends a text.
const END: u32 = 256 + LONGER.len() as u32;

struct Bytes;

impl Words for Bytes {
    fn count(&self) -> usize {
        // The logits are wider than the vocabulary.
        300
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        match id {
            0..256 => vec![id as u8],
            _ => LONGER.get(id as usize - 256).map_or_else(Vec::new, |text| text.as_bytes().to_vec()),
        }
    }

    fn marker(&self, id: u32) -> Option<String> {
        Some((*MARKERS.get((id as usize).checked_sub(END as usize)?)?).to_owned())
    }

    fn ends(&self) -> Vec<u32> {
        vec![END]
    }
}

fn compiler() -> Compiler {
    Compiler::new(Box::new(Bytes))
}

fn matcher(kind: GrammarKind, source: &str) -> Result<Matcher, GrammarError> {
    compiler().matcher(&Grammar::new(kind, source), None)
}

/// Whether a text is an answer: every byte of it may come in turn, and then the end or nothing.
fn meets(matcher: &mut Matcher, text: &str) -> bool {
    for byte in text.bytes() {
        if !matcher.accepts(u32::from(byte)) {
            return false;
        }
        matcher.push(u32::from(byte));
    }
    matcher.is_complete() || matcher.accepts(END)
}

/// Whether each text is an answer to the grammar or not.
fn check(kind: GrammarKind, source: &str, answers: &[&str], others: &[&str]) {
    for (texts, expected) in [(answers, true), (others, false)] {
        for text in texts {
            let mut matcher = matcher(kind, source).unwrap_or_else(|error| panic!("{source}: {error}"));
            assert_eq!(meets(&mut matcher, text), expected, "{source}: {text:?}");
        }
    }
}
