//! Compares texts of one kind at two lengths: the longer should take twice the time of the shorter, for every kind.

use crate::vocabulary::Public;
use crate::{clock, spread};
use redline_tokenizer::Tokenizer;
use serde_json::{Value, json};

const SPECIAL: &str = "<|endoftext|>";

const UNITS: [(&str, &str); 8] = [
    ("one letter", "a"),
    ("one mark of punctuation", "!"),
    ("spaces", " "),
    ("line ends", "\n"),
    ("combining marks", "\u{301}"),
    ("combining marks out of order", "\u{345}\u{301}\u{327}"),
    ("families of emoji", "👩‍👩‍👧‍👦"),
    ("special tokens", SPECIAL),
];

/// Number of timings per length; the median is printed.
const TIMES: usize = 3;

/// Prints a row for each kind of text and normaliser.
pub(crate) fn print(public: &Public, bytes: usize) {
    println!("{:<38}{:>14} B{:>14} B{:>8}", "seconds for one text", bytes, 2 * bytes, "ratio");
    for (form, normalizer) in [("", Value::Null), (", NFC", json!({ "type": "NFC" }))] {
        let mut value = public.json(&[SPECIAL]);
        value["normalizer"] = normalizer;
        let tokenizer = Tokenizer::from_bytes(public.name, value.to_string().as_bytes()).expect("it loads");
        for (name, unit) in UNITS {
            let [shorter, longer] = [bytes, 2 * bytes].map(|bytes| {
                let text = unit.repeat(bytes.div_ceil(unit.len()));
                let once = || tokenizer.encode(&text, false).expect("ids");
                spread(&(0..TIMES).map(|_| clock::seconds(once)).collect::<Vec<_>>()).1
            });
            let ratio = longer / shorter;
            println!("{:<38}{shorter:>16.4}{longer:>16.4}{ratio:>8.2}", format!("{name}{form}"));
        }
    }
}
