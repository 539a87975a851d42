//! Converts new tokens to text. UTF-8 sequences are never split, and no part of a stop string is released.

use std::sync::Arc;

use redline_tokenizer::{TextStream, Tokenizer, TokenizerError};

/// The text of one generation as it grows.
#[derive(Clone)]
pub(crate) struct Transcript {
    tokenizer: Option<Arc<Tokenizer>>,
    stream: Option<TextStream<Arc<Tokenizer>>>,
    stops: Vec<String>,
    /// Everything decoded so far, up to a stop string.
    text: String,
    /// Number of bytes of `text` that were released.
    shown: usize,
    stopped: bool,
}

impl Transcript {
    /// Without a tokenizer the text stays empty.
    pub(crate) fn new(tokenizer: Option<Arc<Tokenizer>>, stops: Vec<String>) -> Self {
        Self {
            stream: tokenizer.clone().map(TextStream::new),
            tokenizer,
            stops,
            text: String::new(),
            shown: 0,
            stopped: false,
        }
    }

    /// Takes a token; returns the text that has become final. An id that the tokenizer does not know (embeddings are
    /// often padded beyond the vocabulary) has no text.
    pub(crate) fn push(&mut self, id: u32) -> Result<&str, TokenizerError> {
        let known = self.tokenizer.as_ref().is_some_and(|t| t.token(id).is_some());
        let piece = match &mut self.stream {
            Some(stream) if known => stream.push(id)?,
            _ => String::new(),
        };
        Ok(self.extend(&piece))
    }

    /// Releases the text that was held back.
    pub(crate) fn finish(&mut self) -> &str {
        let from = self.shown;
        if !self.stopped {
            let rest = self.stream.take().map_or_else(String::new, |mut stream| stream.finish());
            self.extend(&rest);
        }
        &self.text[from..]
    }

    /// Whether a stop string was found.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the whole text, leaving none.
    pub(crate) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The text that an id alone decodes to; empty if the tokenizer does not know it.
    pub(crate) fn text_of(&self, id: u32) -> Result<String, TokenizerError> {
        match &self.tokenizer {
            Some(tokenizer) if tokenizer.token(id).is_some() => tokenizer.token_text(id),
            _ => Ok(String::new()),
        }
    }

    fn extend(&mut self, piece: &str) -> &str {
        if self.stopped {
            return "";
        }
        self.text.push_str(piece);
        let from = self.shown;
        // A stop string can begin in the text that is held back, but not earlier.
        let earliest = self.stops.iter().filter_map(|s| self.text[from..].find(s.as_str())).min();
        if let Some(at) = earliest {
            self.text.truncate(from + at);
            self.stopped = true;
            self.shown = self.text.len();
        } else {
            self.shown = self.text.len() - self.held_back(from);
        }
        &self.text[from..self.shown]
    }

    /// Number of bytes at the end of the text that may be the beginning of a stop string.
    fn held_back(&self, from: usize) -> usize {
        let tail = &self.text[from..];
        let longest = |stop: &String| {
            (1..stop.len())
                .rev()
                .find(|&n| stop.is_char_boundary(n) && tail.ends_with(&stop[..n]))
                .unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, String, bool) {
        let stops = stops.iter().map(ToString::to_string).collect();
        let mut transcript = Transcript::new(None, stops);
        let mut out: Vec<String> = pieces.iter().map(|p| transcript.extend(p).to_owned()).collect();
        out.push(transcript.finish().to_owned());
        let stopped = transcript.stopped();
        (out, transcript.take_text(), stopped)
    }

    #[test]
    fn a_stop_string_over_several_tokens_never_shows() {
        let (out, text, stopped) = run(&["END"], &["one E", "N", "D two"]);
        assert_eq!(out, ["one ", "", "", ""]);
        assert_eq!((text.as_str(), stopped), ("one ", true));
    }

    #[test]
    fn a_false_start_is_let_out() {
        let (out, text, stopped) = run(&["END"], &["E", "NO", "EN"]);
        assert_eq!(out, ["", "ENO", "", "EN"]);
        assert_eq!((text.as_str(), stopped), ("ENOEN", false));
    }

    #[test]
    fn as_much_is_held_back_as_any_stop_string_needs() {
        for stops in [["END", "xyz"], ["xyz", "END"]] {
            let (out, text, stopped) = run(&stops, &["one E", "N", "D two"]);
            assert_eq!(out, ["one ", "", "", ""]);
            assert_eq!((text.as_str(), stopped), ("one ", true));
        }
        let (out, ..) = run(&["ab", "bcd"], &["xab", "y"]);
        assert_eq!(out, ["x", "", ""]);
        assert_eq!(run(&["bX", "abcd"], &["1ab", "c", "d"]).0, ["1", "", "", ""]);
    }

    #[test]
    fn the_earliest_stop_string_wins() {
        let (_, text, stopped) = run(&["b", "abc"], &["xabc"]);
        assert_eq!((text.as_str(), stopped), ("x", true));
    }

    #[test]
    fn text_without_stop_strings_flows_at_once() {
        let (out, ..) = run(&[], &["a", "\u{e9}", ""]);
        assert_eq!(out, ["a", "\u{e9}", "", ""]);
    }

    #[test]
    fn a_stop_string_of_wide_characters_is_held_back_whole() {
        let (out, text, stopped) = run(&["\u{e9}!"], &["a", "\u{e9}", "!b"]);
        assert_eq!(out, ["a", "", "", ""]);
        assert_eq!((text.as_str(), stopped), ("a", true));
        let (out, text, stopped) = run(&["a\u{e9}"], &["xa", "\u{e8}"]);
        assert_eq!(out, ["x", "a\u{e8}", ""]);
        assert_eq!((text.as_str(), stopped), ("xa\u{e8}", false));
    }

    #[test]
    fn an_id_beyond_the_tokenizer_has_no_text() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/tokenizer.json");
        let tokenizer = Arc::new(Tokenizer::from_file(&path).unwrap());
        let (he, beyond) = (tokenizer.id("he").unwrap(), tokenizer.vocab_size() as u32);
        let mut transcript = Transcript::new(Some(tokenizer), Vec::new());
        for id in [beyond, u32::MAX] {
            assert_eq!(transcript.push(id).unwrap(), "");
            assert_eq!(transcript.text_of(id).unwrap(), "");
        }
        assert_eq!(transcript.push(he).unwrap(), "he");
        assert!(!transcript.text_of(beyond - 1).unwrap().is_empty());
    }

    /// A vocabulary may leave ids out, and a model has rows for them.
    #[test]
    fn an_id_without_a_token_has_no_text() {
        let json = r#"{
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 3}, "merges": []}
        }"#;
        let tokenizer = Tokenizer::from_bytes("tokenizer.json", json.as_bytes()).unwrap();
        let mut transcript = Transcript::new(Some(Arc::new(tokenizer)), Vec::new());
        let texts: Vec<String> = (0..5).map(|id| transcript.text_of(id).unwrap()).collect();
        assert_eq!(texts, ["a", "", "", "b", ""]);
        assert_eq!(transcript.push(1).unwrap(), "");
        assert_eq!(transcript.push(3).unwrap(), "b");
    }
}
