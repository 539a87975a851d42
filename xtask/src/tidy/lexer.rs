//! Separates code from comments and literals, accurately enough for checks on words and braces.

use std::ops::Range;

/// The kind of a byte in a source file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Three views of a source file: only code, only comments, only literals. Each byte keeps its position; other bytes are
/// blank, and line breaks stay.
pub(super) struct Views {
    pub(super) code: String,
    pub(super) comments: String,
    pub(super) literals: String,
}

/// Separates `text` into its views.
pub(super) fn views(text: &str) -> Views {
    let bytes = text.as_bytes();
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (kind, end) = piece(bytes, at);
        kinds[at..end].fill(kind);
        at = end;
    }
    let [code, comments, literals] =
        [Kind::Code, Kind::Comment, Kind::Literal].map(|kind| only(bytes, &kinds, kind));
    Views { code, comments, literals }
}

/// The bytes of one kind, with blanks elsewhere.
fn only(bytes: &[u8], kinds: &[Kind], kind: Kind) -> String {
    let keep = |(&byte, &k): (&u8, &Kind)| if k == kind || byte == b'\n' { byte } else { b' ' };
    let kept: Vec<u8> = bytes.iter().zip(kinds).map(keep).collect();
    String::from_utf8_lossy(&kept).into_owned()
}

/// The kind and the end of the piece that begins at `at`.
fn piece(bytes: &[u8], at: usize) -> (Kind, usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return (Kind::Comment, at + find(rest, b"\n").unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, at + block_comment(rest));
    }
    let word = rest.iter().take_while(|&&b| is_word(b)).count();
    let literal = match &rest[..word] {
        b"" | b"b" | b"c" => quoted(&rest[word..]),
        b"r" | b"br" | b"cr" => raw_string(&rest[word..]),
        _ => None,
    };
    match literal {
        Some(length) => (Kind::Literal, at + word + length),
        None => (Kind::Code, at + word.max(1)),
    }
}

/// Whether `byte` can be part of an identifier or a number.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where `needle` begins in `bytes`.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|w| w == needle)
}

/// The length of the block comment at the beginning of `rest`, including nested ones.
fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        match &rest[at..rest.len().min(at + 2)] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string or character literal at the beginning of `rest`; `None` for a lifetime.
fn quoted(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'"', ..] => Some(closed(rest, 1, b'"')),
        [b'\'', b'\\', _, ..] => Some(closed(rest, 1, b'\'')),
        [b'\'', first, ..] => {
            let width = [0x80, 0xE0, 0xF0].iter().filter(|&&least| *first >= least).count() + 1;
            (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
        _ => None,
    }
}

/// The end of a literal whose content begins at `at`, after its closing quote.
fn closed(rest: &[u8], mut at: usize, quote: u8) -> usize {
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    rest.len().min(at + 1)
}

/// The length of the `#"..."#` at the beginning of `rest`; `None` for a raw identifier.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&b| b == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let inside = &rest[hashes + 1..];
    Some(find(inside, &end).map_or(rest.len(), |at| hashes + 1 + at + end.len()))
}

/// A word, a number, `::`, `->`, `=>` or a single other character of code.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) span: Range<usize>,
    pub(super) line: usize,
}

/// The tokens of a code view, with line numbers from 1.
pub(super) fn tokens(code: &str) -> Vec<Token> {
    let bytes = code.as_bytes();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let word = bytes[at..].iter().take_while(|&&b| is_word(b)).count();
        let length = match &bytes[at..bytes.len().min(at + 2)] {
            _ if word > 0 => word,
            b"::" | b"->" | b"=>" => 2,
            _ => 1,
        };
        if bytes[at] == b'\n' {
            line += 1;
        } else if !bytes[at].is_ascii_whitespace() {
            tokens.push(Token { span: at..at + length, line });
        }
        at += length;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, comments: &str) {
        let words = |view: &str| view.split_whitespace().collect::<Vec<_>>().join(" ");
        let views = views(text);
        assert_eq!(words(&views.code), code, "code of {text}");
        assert_eq!(words(&views.comments), comments, "comments of {text}");
        assert_eq!(views.code.len(), text.len());
        assert_eq!(views.comments.len(), text.len());
    }

    #[test]
    fn comments_are_not_code() {
        check("a // b\nc", "a c", "// b");
        check("a /* b /* c */ d */ e", "a e", "/* b /* c */ d */");
        check("//! é\nf()", "f()", "//! é");
        check("a /* open", "a", "/* open");
    }

    #[test]
    fn literals_are_neither() {
        check(r#"f("} // \" {", x)"#, "f( , x)", "");
        check(r##"f(r#"" { "#, br"\", c"{")"##, "f( , , )", "");
        check("f('{', b'}', '\\'', '\\u{7d}', '→', '🦀')", "f( , , , , , )", "");
        check("for\"x\"", "for", "");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        check("fn f<'a, 'b>(x: &'a str) {}", "fn f<'a, 'b>(x: &'a str) {}", "");
        check("r#type + 'label: loop {}", "r#type + 'label: loop {}", "");
    }

    #[test]
    fn tokens_know_their_lines() {
        let code = "a::b\n  c -> 1";
        let found: Vec<(&str, usize)> =
            tokens(code).iter().map(|t| (&code[t.span.clone()], t.line)).collect();
        assert_eq!(found, [("a", 1), ("::", 1), ("b", 1), ("c", 2), ("->", 2), ("1", 2)]);
    }
}
