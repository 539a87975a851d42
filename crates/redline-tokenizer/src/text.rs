//! Converts tokens to text, one token at a time.
//!
//! The library decodes a whole list of tokens at once. This module produces the same result piece by piece, so that
//! decoding and streaming share one implementation: a [`Decoder`] defines the conversion, a [`Text`] is the state
//! between two tokens.

use crate::decoder::{Decoder, Join};
use std::borrow::Cow;

/// The state of a text being decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text {
    /// Whether a token has been seen.
    started: bool,
    /// Bytes that may become a character, at most three.
    tail: Vec<u8>,
    /// Valid text of a run of byte tokens, which one bad byte would still turn into U+FFFD.
    run: String,
    /// Whether the run of byte tokens contains a bad byte.
    broken: bool,
    /// Whether text has been emitted, so that leading marks stay, and the number of marks removed.
    begun: bool,
    stripped: usize,
    /// Trailing marks held back until something follows them.
    held: usize,
}

impl Text {
    /// The state in the middle of a text, so that the next token is not the first.
    pub(crate) fn middle() -> Self {
        Self { started: true, begun: true, ..Self::default() }
    }
}

impl Decoder {
    /// Adds a token; text that has become final is appended to `out`.
    pub(crate) fn push(&self, text: &mut Text, token: &str, out: &mut String) {
        let first = !std::mem::replace(&mut text.started, true);
        let piece = self.each.iter().fold(Cow::Borrowed(token), |piece, each| each.apply(piece, first));
        match self.join {
            Join::Spaced if !first => {
                self.emit(text, " ", out);
                self.emit(text, &piece, out);
            }
            Join::Spaced | Join::Text => self.emit(text, &piece, out),
            Join::ByteLevel => {
                push_bytes(&piece, &mut text.tail);
                self.drain(text, out);
            }
            Join::Fallback => {
                if let Some(byte) = byte_token(&piece) {
                    self.push_fallback(text, byte, out);
                } else {
                    self.end_run(text, out);
                    self.emit(text, &piece, out);
                }
            }
        }
    }

    /// The bytes of one token in the middle of a text.
    pub(crate) fn bytes(&self, token: &str) -> Vec<u8> {
        let piece = self.each.iter().fold(Cow::Borrowed(token), |piece, each| each.apply(piece, false));
        let mut bytes = Vec::new();
        match (&self.join, byte_token(&piece)) {
            (Join::ByteLevel, _) => push_bytes(&piece, &mut bytes),
            (Join::Fallback, Some(byte)) => bytes.push(byte),
            (Join::Spaced, _) => bytes.extend([b" ", piece.as_bytes()].concat()),
            (Join::Text | Join::Fallback, _) => bytes.extend(piece.as_bytes()),
        }
        bytes
    }

    /// Ends the text. The text held back is appended to `out`; incomplete bytes become U+FFFD.
    pub(crate) fn finish(&self, text: &mut Text, out: &mut String) {
        match self.join {
            Join::Fallback => self.end_run(text, out),
            _ if !text.tail.is_empty() => self.emit(text, "\u{fffd}", out),
            _ => {}
        }
        *text = Text::default();
    }

    /// Emits the characters that `tail` completes, and keeps bytes that may still become one.
    fn drain(&self, text: &mut Text, out: &mut String) {
        let bytes = std::mem::take(&mut text.tail);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.emit(text, chunk.valid(), out);
            match chunk.invalid() {
                [] => {}
                open if chunks.peek().is_none() && is_prefix(open) => text.tail.extend_from_slice(open),
                _ => self.emit(text, "\u{fffd}", out),
            }
        }
    }

    fn push_fallback(&self, text: &mut Text, byte: u8, out: &mut String) {
        if text.broken {
            return self.emit(text, "\u{fffd}", out);
        }
        text.tail.push(byte);
        if let Ok(valid) = std::str::from_utf8(&text.tail) {
            text.run.push_str(valid);
            text.tail.clear();
        } else if !is_prefix(&text.tail) {
            text.broken = true;
            self.replace_run(text, out);
        }
    }

    fn end_run(&self, text: &mut Text, out: &mut String) {
        if text.tail.is_empty() {
            let run = std::mem::take(&mut text.run);
            self.emit(text, &run, out);
        } else {
            self.replace_run(text, out);
        }
        text.broken = false;
    }

    fn replace_run(&self, text: &mut Text, out: &mut String) {
        for _ in 0..text.run.len() + text.tail.len() {
            self.emit(text, "\u{fffd}", out);
        }
        text.run.clear();
        text.tail.clear();
    }

    /// The last stage: strips marks at the ends of the whole text.
    fn emit(&self, text: &mut Text, mut piece: &str, out: &mut String) {
        let Some(strip) = &self.strip else { return out.push_str(piece) };
        while !text.begun && text.stripped < strip.start {
            let Some(rest) = piece.strip_prefix(strip.mark) else { break };
            piece = rest;
            text.stripped += 1;
        }
        if piece.is_empty() {
            return;
        }
        text.begun = true;
        let body = piece.trim_end_matches(strip.mark);
        let marks = piece[body.len()..].chars().count();
        if !body.is_empty() {
            out.extend(std::iter::repeat_n(strip.mark, text.held));
            out.push_str(body);
            text.held = 0;
        }
        text.held += marks;
        let over = text.held.saturating_sub(strip.stop);
        out.extend(std::iter::repeat_n(strip.mark, over));
        text.held -= over;
    }
}

/// Whether more bytes could complete a character.
fn is_prefix(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// The byte of a token like `<0x0A>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// Reverses GPT-2's byte-to-character table. A token with any other character stands for its own UTF-8.
fn push_bytes(token: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for c in token.chars() {
        let Some(byte) = byte_of(c) else {
            bytes.truncate(start);
            return bytes.extend_from_slice(token.as_bytes());
        };
        bytes.push(byte);
    }
}

/// The byte of a character in GPT-2's table, which maps every byte to a visible character.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let byte = match c as u32 {
        n @ (33..=126 | 161..=172 | 174..=255) => n,
        n @ 256..=288 => n - 256,
        n @ 289..=322 => n - 289 + 127,
        323 => 173,
        _ => return None,
    };
    Some(byte as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_bytes_have_two_digits() {
        assert_eq!(["<0x0A>", "<0xff>", "<0x41>"].map(byte_token), [Some(0x0a), Some(0xff), Some(0x41)]);
        assert_eq!(["<0xA>", "<0x0AB>", "<0x>", "<0x4G>", "0x41", "<0x41"].map(byte_token), [None; 6]);
    }
}
