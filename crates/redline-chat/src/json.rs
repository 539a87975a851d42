//! Reads calls in JSON as they are written: `{"name": "f", "arguments": {...}}`.

use crate::buffer::{Buffer, marker_length, visible};
use crate::deltas::Deltas;
use crate::reader::Step;

/// Keys of the name of a tool.
const NAMES: [&str; 2] = ["name", "function"];
/// Keys of the arguments.
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];

/// Follows a value to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Value {
    /// Number of open brackets.
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl Value {
    /// Takes the next byte of an object, a list or a string; whether it is the last one.
    fn ends(&mut self, byte: u8) -> bool {
        if self.quoted {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.quoted = !ends;
            return ends && self.depth == 0;
        }
        match byte {
            b'"' => self.quoted = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// Reads to the end of the value, which is added to `json`; whether it came. Control characters in strings, which JSON does not
    /// have, are escaped. A marker that the value cannot contain ends it too.
    pub(crate) fn read(&mut self, buffer: &mut Buffer, json: &mut Vec<u8>) -> bool {
        while let Some(&byte) = buffer.rest().first() {
            if let Some(length) = marker_length(buffer.rest()) {
                if !self.quoted {
                    return true;
                }
                json.extend_from_slice(visible(&buffer.rest()[..length]).as_bytes());
                buffer.skip(length);
                continue;
            }
            match byte {
                b'\n' if self.quoted => json.extend_from_slice(b"\\n"),
                b'\t' if self.quoted => json.extend_from_slice(b"\\t"),
                b'\r' if self.quoted => json.extend_from_slice(b"\\r"),
                0..0x20 if self.quoted => json.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                byte => json.push(byte),
            }
            buffer.skip(1);
            if self.ends(byte) {
                return true;
            }
        }
        false
    }
}

/// Where in an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Open,
    /// Before a key, or the end.
    Key,
    InKey,
    Colon,
    /// Before a value.
    Value,
    InValue,
    /// In an object with the arguments.
    InArguments,
    /// In a number, `true`, `false` or `null`.
    InScalar,
    /// After a value.
    Comma,
}

/// A call as an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallObject {
    place: Place,
    value: Value,
    /// What was read of the key or of the value.
    text: Vec<u8>,
    key: String,
    name: Option<String>,
    arguments: Option<Vec<u8>>,
    /// Whether the call was reported.
    begun: bool,
}

impl CallObject {
    /// Reads on. `is_call` says whether a name is that of a tool.
    pub(crate) fn read(
        &mut self,
        buffer: &mut Buffer,
        deltas: &mut Deltas,
        is_call: &dyn Fn(&str) -> bool,
    ) -> Step {
        loop {
            if !matches!(self.place, Place::InKey | Place::InValue | Place::InArguments | Place::InScalar) {
                buffer.skip_space();
            }
            let Some(&byte) = buffer.rest().first() else { break };
            match (self.place, byte) {
                (Place::Open, b'{') | (Place::Comma, b',') => self.go(buffer, Place::Key),
                (Place::Key, b'"') => (self.place, self.value) = (Place::InKey, Value::default()),
                (Place::InKey, _) => {
                    if self.value.read(buffer, &mut self.text) {
                        self.key = self.take_string().unwrap_or_default();
                        self.place = Place::Colon;
                    }
                }
                (Place::Colon, b':') => self.go(buffer, Place::Value),
                (Place::Value, b'{') if ARGUMENTS.contains(&&*self.key) && self.arguments.is_none() => {
                    (self.place, self.value) = (Place::InArguments, Value::default());
                }
                (Place::Value, b'"' | b'{' | b'[') => {
                    (self.place, self.value) = (Place::InValue, Value::default());
                }
                (Place::Value, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => {
                    self.place = Place::InScalar;
                }
                (Place::InArguments, _) => {
                    if self.value.read(buffer, self.arguments.get_or_insert_default()) {
                        self.place = Place::Comma;
                    }
                }
                (Place::InValue, _) => {
                    if self.value.read(buffer, &mut self.text) {
                        self.keep();
                        self.place = Place::Comma;
                    }
                }
                (Place::InScalar, b',' | b'}' | b' ' | b'\n' | b'\t' | b'\r') => {
                    self.text.clear();
                    self.place = Place::Comma;
                }
                (Place::InScalar, 0..0x80) => buffer.skip(1),
                (Place::Key | Place::Comma, b'}') => {
                    buffer.skip(1);
                    self.arguments.get_or_insert_with(|| b"{}".to_vec());
                    let is_call = self.report(buffer, deltas, is_call) && self.begun;
                    return if is_call { Step::Done } else { Step::Failed };
                }
                _ if self.begun => return Step::Done,
                _ => return Step::Failed,
            }
            if !self.report(buffer, deltas, is_call) {
                return Step::Failed;
            }
        }
        match (buffer.ended, self.begun) {
            (false, _) => Step::More,
            (true, true) => Step::Done,
            (true, false) => Step::Failed,
        }
    }

    fn go(&mut self, buffer: &mut Buffer, place: Place) {
        buffer.skip(1);
        self.place = place;
    }

    /// Keeps a value that is no object of arguments, if it says something about the call.
    fn keep(&mut self) {
        let text = self.take_string();
        match text {
            Some(name) if NAMES.contains(&&*self.key) => self.name = self.name.take().or(Some(name)),
            // Some models write the arguments as a text.
            Some(json) if ARGUMENTS.contains(&&*self.key) && self.arguments.is_none() => {
                self.arguments = Some(json.into_bytes());
            }
            _ => {}
        }
    }

    /// The string that was read.
    fn take_string(&mut self) -> Option<String> {
        serde_json::from_slice(&std::mem::take(&mut self.text)).ok()
    }

    /// Reports what is known of the call; whether it is one.
    fn report(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, is_call: &dyn Fn(&str) -> bool) -> bool {
        let (Some(name), Some(arguments)) = (&self.name, &mut self.arguments) else { return true };
        if !self.begun {
            if !is_call(name) {
                return false;
            }
            deltas.call(name);
            self.begun = true;
        }
        buffer.commit();
        deltas.arguments(&String::from_utf8_lossy(&std::mem::take(arguments)));
        true
    }
}
