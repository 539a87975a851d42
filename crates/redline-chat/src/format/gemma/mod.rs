//! `<|tool_call>call:f{k:<|"|>text<|"|>,n:42}<tool_call|>`: Gemma 4, and FunctionGemma with other marks.

mod rules;

use serde_json::{Map, Number, Value};

use super::{ChatFormat, Family};
use crate::buffer::{Buffer, Needle, find, marker_length, visible};
use crate::deltas::Deltas;
use crate::reader::{CallReader, Step};
use crate::tool::Tools;

/// Levels that a value may have.
const MAX_DEPTH: usize = 64;

/// Before a call, around a text, after a call.
type Marks = [&'static str; 3];
const OF_GEMMA_4: Marks = ["<|tool_call>", "<|\"|>", "<tool_call|>"];
const OF_FUNCTION_GEMMA: Marks = ["<start_function_call>", "<escape>", "<end_function_call>"];

pub(super) const GEMMA_4: Family = Family {
    name: "gemma4",
    fits: |source| source.has("<|tool_call>call:"),
    openers: &[OF_GEMMA_4[0]],
    starts: &[],
    marks: &[OF_GEMMA_4[1], OF_GEMMA_4[2]],
    reader: |format| Call::boxed(format, OF_GEMMA_4),
    rules: |rules| rules::add(rules, OF_GEMMA_4),
};

pub(super) const FUNCTION_GEMMA: Family = Family {
    name: "function-gemma",
    fits: |source| source.has("<start_function_call>"),
    openers: &[OF_FUNCTION_GEMMA[0]],
    starts: &[],
    marks: &[OF_FUNCTION_GEMMA[1], OF_FUNCTION_GEMMA[2]],
    reader: |format| Call::boxed(format, OF_FUNCTION_GEMMA),
    rules: |rules| rules::add(rules, OF_FUNCTION_GEMMA),
};

/// A call.
struct Call {
    open: Needle,
    /// Before and after a string.
    quote: Needle,
    close: Needle,
    /// Whether the name was reported.
    is_begun: bool,
}

impl Call {
    fn boxed(format: &ChatFormat, marks: Marks) -> Box<dyn CallReader> {
        let [open, quote, close] = marks.map(|mark| format.needle(mark));
        Box::new(Self { open, quote, close, is_begun: false })
    }
}

impl CallReader for Call {
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, _: &Tools) -> Step {
        if !self.is_begun {
            buffer.reset();
            buffer.skip(self.open.len());
            let Some((name, which)) = buffer.skip_until(&[&Needle::text("{"), &self.close]) else {
                return if buffer.has_no_name() { Step::Failed } else { Step::More };
            };
            let name = visible(&name);
            let name = name.trim().strip_prefix("call:").unwrap_or_default().trim();
            if name.is_empty() || which == 1 {
                return Step::Failed;
            }
            deltas.call(name);
            buffer.commit();
            self.is_begun = true;
        }
        let rest = buffer.rest();
        let Some(length) = object_length(rest, &self.quote, &self.close) else {
            return if buffer.ended { Step::Done } else { Step::More };
        };
        let mut reader = Reader { rest: &rest[..length], quote: &self.quote };
        let arguments = reader.object(MAX_DEPTH).unwrap_or_default();
        let has_close = {
            let after = &rest[length..];
            let space = after.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            match self.close.begins(&after[space..], buffer.ended) {
                None => return Step::More,
                Some(true) => space + self.close.len(),
                Some(false) => 0,
            }
        };
        deltas.arguments(&Value::from(arguments).to_string());
        buffer.skip(length + has_close);
        buffer.commit();
        Step::Done
    }
}

/// The length of an object whose first bracket was read, with its last one.
fn object_length(bytes: &[u8], quote: &Needle, close: &Needle) -> Option<usize> {
    let (mut at, mut depth) = (0, 1_usize);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if quote.begins(rest, true) == Some(true) {
            let text = at + quote.len();
            let (end, _) = find(&bytes[text..], &[quote])?;
            at = text + end + quote.len();
            continue;
        }
        if close.begins(rest, true) == Some(true) {
            return Some(at);
        }
        match rest[0] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += marker_length(rest).unwrap_or(1);
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Reads values with bare keys, and strings between marks.
struct Reader<'a> {
    rest: &'a [u8],
    quote: &'a Needle,
}

impl Reader<'_> {
    fn space(&mut self) {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.rest = &self.rest[count..];
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is_next = self.rest.first() == Some(&byte);
        self.rest = &self.rest[usize::from(is_next)..];
        is_next
    }

    /// The string that comes next, if one does.
    fn string(&mut self) -> Option<String> {
        self.space();
        if self.quote.begins(self.rest, true) != Some(true) {
            return None;
        }
        let text = &self.rest[self.quote.len()..];
        let (end, _) = find(text, &[self.quote])?;
        self.rest = &text[end + self.quote.len()..];
        Some(visible(&text[..end]))
    }

    /// What comes up to one of these bytes.
    fn word(&mut self, ends: &[u8]) -> String {
        self.space();
        let end = self.rest.iter().position(|byte| ends.contains(byte)).unwrap_or(self.rest.len());
        let word = visible(&self.rest[..end]).trim().to_owned();
        self.rest = &self.rest[end..];
        word
    }

    /// An object whose first bracket was read.
    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let depth = depth.checked_sub(1)?;
        let mut all = Map::new();
        loop {
            if self.take(b'}') || self.rest.is_empty() {
                return Some(all);
            }
            let key = self.string().unwrap_or_else(|| self.word(b":}"));
            if !self.take(b':') {
                return None;
            }
            all.insert(key, self.value(depth)?);
            if !self.take(b',') && self.rest.first().is_some_and(|byte| *byte != b'}') {
                return None;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        if let Some(text) = self.string() {
            return Some(Value::from(text));
        }
        if self.take(b'{') {
            return self.object(depth).map(Value::from);
        }
        if self.take(b'[') {
            let mut all = Vec::new();
            loop {
                if self.take(b']') {
                    return Some(Value::from(all));
                }
                all.push(self.value(depth)?);
                if !self.take(b',') && self.rest.first() != Some(&b']') {
                    return None;
                }
            }
        }
        let word = self.word(b",]}");
        Some(match &*word {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ => serde_json::from_str::<Number>(&word).map_or_else(|_| Value::from(word), Value::Number),
        })
    }
}
