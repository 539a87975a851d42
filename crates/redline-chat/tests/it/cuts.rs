//! However an answer is cut into pieces, its parts are the same; and nothing is lost.

use proptest::prelude::*;
use redline_chat::{Marker, Tools};

use crate::{MARKS, TEMPLATES, format, inputs, parsed, tools};

/// Pieces of calls and of text, beside marks.
const PIECES: &[&str] = &[
    "{\"name\": \"now\"",
    ", \"arguments\": {",
    "\"a\": \"b\\\"",
    "\"}",
    "}}",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ",",
    ";",
    "<function=now>",
    "<parameter=text>",
    "\n</parameter>",
    "</function>",
    "call:now{",
    "now(",
    "text=",
    "'x'",
    "\"",
    "'",
    "\\",
    "\n",
    " ",
    "to=functions.now",
    "analysis",
    "commentary",
    "json",
    "é",
    "😀",
    "text",
    "5",
    "<",
    "|",
];

/// The same pieces, with texts cut into characters.
fn cut(pieces: &[Result<Marker, String>]) -> Vec<Result<Marker, String>> {
    let of_text = |text: &String| text.chars().map(|c| Err(c.to_string())).collect::<Vec<_>>();
    pieces
        .iter()
        .flat_map(|piece| piece.as_ref().map_or_else(of_text, |marker| vec![Ok(marker.clone())]))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_answer_in_any_pieces_has_the_same_parts(
        family in 0..TEMPLATES.len(),
        picked in prop::collection::vec(prop::sample::select([MARKS, PIECES].concat()), 0..30),
        has_tokens: bool,
        reasons: bool,
    ) {
        let name = TEMPLATES[family].0;
        let has_tokens = has_tokens || name == "harmony";
        let text = picked.concat();
        let pieces = inputs(&text, has_tokens);
        let whole = parsed(format(name, has_tokens), tools(), &pieces, reasons);
        let by_characters = parsed(format(name, has_tokens), tools(), &cut(&pieces), reasons);
        prop_assert_eq!(whole, by_characters);
    }

    /// Without marks and tools, an answer is its text.
    #[test]
    fn text_without_marks_is_kept(family in 0..TEMPLATES.len(), text in "\\PC{0,40}") {
        let name = TEMPLATES[family].0;
        prop_assume!(name != "harmony" && !text.contains('<') && !text.contains('['));
        let whole = parsed(format(name, true), Tools::default(), &[Err(text.clone())], false);
        prop_assert_eq!(whole.content, text);
    }
}
