//! Values as Python writes them, which includes JSON.

use serde_json::{Map, Number, Value};

/// Levels that a value may have.
const MAX_DEPTH: usize = 64;

/// The value that a text is; `None` if it is no literal.
pub(crate) fn value(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text.trim() };
    let value = reader.value(MAX_DEPTH)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

/// The length of the value with which `text` begins: up to one of these characters outside brackets and quotes. `None` if none has come.
pub(crate) fn length(text: &str, ends: &[char]) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if depth == 0 && ends.contains(&c) => return Some(at),
            None => match c {
                '"' | '\'' => quote = Some(c),
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            },
        }
    }
    None
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        let depth = depth.checked_sub(1)?;
        match self.rest.chars().next()? {
            '"' | '\'' => self.string().map(Value::from),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.object(depth),
            _ => self.word(),
        }
    }

    fn list(&mut self, end: char, depth: usize) -> Option<Value> {
        let mut all = Vec::new();
        self.rest = &self.rest[1..];
        loop {
            self.space();
            if self.rest.starts_with(end) {
                self.rest = &self.rest[1..];
                return Some(Value::from(all));
            }
            all.push(self.value(depth)?);
            self.space();
            if !self.take(",") && !self.rest.starts_with(end) {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut all = Map::new();
        self.rest = &self.rest[1..];
        loop {
            self.space();
            if self.take("}") {
                return Some(Value::from(all));
            }
            let key = match self.value(depth)? {
                Value::String(key) => key,
                Value::Array(_) | Value::Object(_) => return None,
                other => other.to_string(),
            };
            self.space();
            if !self.take(":") {
                return None;
            }
            all.insert(key, self.value(depth)?);
            self.space();
            if !self.take(",") && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let triple = quote.to_string().repeat(3);
        let close = if self.rest.starts_with(&triple) { triple } else { quote.to_string() };
        self.rest = &self.rest[close.len()..];
        let mut text = String::new();
        loop {
            if self.take(&close) {
                return Some(text);
            }
            let c = self.next()?;
            if c != '\\' {
                text.push(c);
                continue;
            }
            match self.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                'x' => text.push(char::from_u32(self.code(2)?)?),
                'u' => text.push(self.unit()?),
                'U' => text.push(char::from_u32(self.code(8)?)?),
                '\n' => {}
                c @ ('\\' | '\'' | '"' | '/') => text.push(c),
                c => text.extend(['\\', c]),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn code(&mut self, digits: usize) -> Option<u32> {
        let code = u32::from_str_radix(self.rest.get(..digits)?, 16).ok()?;
        self.rest = &self.rest[digits..];
        Some(code)
    }

    /// A character of `\u` and four digits, or of two of them.
    fn unit(&mut self) -> Option<char> {
        let first = self.code(4)?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        let second = if self.take("\\u") { self.code(4)? } else { return None };
        let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + low)
    }

    fn word(&mut self) -> Option<Value> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            number => serde_json::from_str::<Number>(number.trim_start_matches('+')).ok().map(Value::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_of_python_and_json_are_read() {
        for (text, expected) in [
            ("'a\\'b'", json!("a'b")),
            (r#""\u00e9\ud83d\ude00\x41\n\d""#, json!("é😀A\n\\d")),
            ("'''a'b\n'''", json!("a'b\n")),
            (
                "[1, -2.5, True, None, (3,), {'a': [], \"b\": false}]",
                json!([1, -2.5, true, null, [3], {"a": [], "b": false}]),
            ),
            (" {} ", json!({})),
            ("1e3", json!(1000.0)),
            ("{1: 2}", json!({"1": 2})),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        for text in ["", "a", "'a", "[1 2]", "{'a'}", "1 2", "[1", "f(1)", r#""\ud83d""#, "nan"] {
            assert_eq!(value(text), None, "{text}");
        }
        assert_eq!(value(&"[".repeat(10_000)), None);
        assert!(value(&format!("{}{}", "[".repeat(60), "]".repeat(60))).is_some());
    }

    #[test]
    fn a_value_ends_outside_brackets_and_quotes() {
        assert_eq!(length("'a,)', b", &[',', ')']), Some(5));
        assert_eq!(length("[1, (2)]), x", &[',', ')']), Some(8));
        assert_eq!(length(r#""\",""#, &[',']), None);
        assert_eq!(length("f(1,", &[',']), None);
    }
}
