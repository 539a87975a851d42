//! Long texts of one kind, on which a naive encoder takes very long, overflows the stack or gets offsets wrong.

use crate::dice::Dice;
use crate::families::difference;
use crate::forms::{self, Form};
use crate::strings;

/// The repeated units of the texts.
const UNITS: [(&str, &str); 26] = [
    ("one letter", "a"),
    ("one capital", "A"),
    ("one digit", "7"),
    ("one mark of punctuation", "!"),
    ("slashes", "/"),
    ("apostrophes", "'"),
    ("letters with apostrophes", "a'"),
    ("contractions", "'s"),
    ("capitals and small letters in turn", "aB"),
    ("spaces", " "),
    ("line ends", "\n"),
    ("line ends in two characters", "\r\n"),
    ("spaces and line ends", "  \n"),
    ("tabs before a letter", "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\tx"),
    ("wide spaces", "\u{3000}"),
    ("combining marks", "\u{301}"),
    ("combining marks in the wrong order", "\u{345}\u{301}\u{327}"),
    ("letters that compose", "e\u{301}"),
    ("Hangul in letters", "\u{1100}\u{1161}\u{11a8}"),
    ("Hangul that never closes", "\u{1100}"),
    ("families of emoji", "👩‍👩‍👧‍👦"),
    ("joiners", "\u{200d}"),
    ("one ideograph", "漢"),
    ("marks of a space", "▁"),
    ("begun special tokens", "<|end"),
    ("a word of the vocabulary", " the"),
];

const LONG: usize = 200_000;
const SHORT: usize = 5_000;

/// All texts of that many bytes, including those that depend on the form.
fn texts(form: &Form, bytes: usize) -> Vec<(&'static str, String)> {
    let filled = |unit: &str| unit.repeat(bytes / unit.len() + 1);
    let mut texts: Vec<_> = UNITS.iter().map(|(name, unit)| (*name, filled(unit))).collect();
    texts.push(("special tokens", filled(&form.added[0])));
    texts.push(("special tokens and spaces", filled(&format!("{}  ", form.added[0]))));
    texts.push(("bytes of any value", strings::lossy(&mut Dice::new(9), bytes)));
    // A single letter among many spaces, and the reverse.
    texts.push(("spaces around a letter", format!("{0}x{0}", filled(" "))));
    texts.push(("letters around a space", format!("{0} {0}", filled("x"))));
    texts
}

fn forms() -> Vec<&'static Form> {
    let names = [
        "gpt2",
        "llama3",
        "qwen2",
        "o200k",
        "tekken",
        "gpt2 with merges in any order",
        "llama2",
        "llama2 with tokens over two words",
        "mistral first split true",
        "mistral never split false",
        "gemma",
        "qwen2 with added tokens of every kind",
        "llama2 with added tokens of every kind",
    ];
    names.map(forms::named).into()
}

fn check(form: &Form, name: &str, text: &str) {
    // Do not print the whole text.
    let difference = difference(form, text, false).map(|what| what.chars().take(400).collect::<String>());
    assert_eq!(difference, None, "{} with {} bytes of {name}", form.name, text.len());
}

#[test]
fn short_enough_for_the_reference() {
    for form in forms() {
        for (name, text) in texts(form, SHORT) {
            check(form, name, &text);
        }
    }
}

#[test]
fn long_ones_as_the_reference() {
    for (turn, form) in ["llama3", "qwen2", "llama2", "gemma"].map(forms::named).into_iter().enumerate() {
        for (name, text) in texts(form, LONG).into_iter().skip(turn).step_by(4) {
            check(form, name, &text);
        }
    }
}

#[test]
fn long_ones_come_back() {
    let lossless = ["gpt2", "llama3", "o200k", "tekken", "gpt2 with merges in any order"];
    for form in lossless.map(forms::named) {
        for (name, text) in texts(form, LONG) {
            let ids = form.ours.encode(&text, false).unwrap();
            assert!(form.ours.decode(&ids, false).unwrap() == text, "{}: {name}", form.name);
        }
    }
    // These forms normalise the text. After one round trip, another one changes nothing.
    for form in ["qwen2", "gemma"].map(forms::named) {
        for (name, text) in texts(form, LONG) {
            let ids = form.ours.encode(&text, false).unwrap();
            let once = form.ours.decode(&ids, false).unwrap();
            let again = form.ours.encode(&once, false).unwrap();
            assert!(form.ours.decode(&again, false).unwrap() == once, "{}: {name}", form.name);
        }
    }
}
