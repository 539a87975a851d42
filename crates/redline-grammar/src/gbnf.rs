//! Grammars as llama.cpp writes them (GBNF), in Lark.
//!
//! A rule becomes a rule, a class of characters a regular expression of one character, and a text the same text.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use crate::error::GrammarError;

/// Maximum number of brackets inside each other.
const MAX_DEPTH: usize = 100;
/// Maximum number of repetitions.
const MAX_COUNT: usize = 2000;

const HINT: &str = "write rules such as root ::= \"a\" | [0-9]+";

/// The grammar in Lark.
pub(crate) fn to_lark(source: &str) -> Result<String, GrammarError> {
    let mut reader = Reader { rest: source.chars().peekable(), used: BTreeSet::new() };
    let mut lark = "start: r_root\n".to_owned();
    let mut defined = BTreeSet::new();
    reader.skip_space();
    while reader.rest.peek().is_some() {
        let name = reader.name()?;
        reader.skip_space();
        reader.expect("::=")?;
        let body = reader.alternatives(0)?;
        let _ = writeln!(lark, "{name}: {body}");
        if !defined.insert(name.clone()) {
            return Err(GrammarError::new(format!("the rule `{}` is defined twice", shown(&name)), HINT));
        }
    }
    reader.used.insert("r_root".to_owned());
    if let Some(name) = reader.used.difference(&defined).next() {
        return Err(GrammarError::new(format!("there is no rule `{}`", shown(name)), HINT));
    }
    Ok(lark)
}

/// A name as it was written.
fn shown(name: &str) -> String {
    name.trim_start_matches("r_").replace('_', "-")
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// The rules that others name.
    used: BTreeSet<String>,
}

impl Reader<'_> {
    /// Skips white space and comments.
    fn skip_space(&mut self) {
        while let Some(&next) = self.rest.peek() {
            if next == '#' {
                while self.rest.next().is_some_and(|next| next != '\n') {}
            } else if next.is_whitespace() {
                self.rest.next();
            } else {
                return;
            }
        }
    }

    fn refused(&mut self, expected: &str) -> GrammarError {
        let found = self.rest.peek().map_or_else(|| "the end".to_owned(), |found| format!("`{found}`"));
        GrammarError::new(format!("expected {expected}, found {found}"), HINT)
    }

    fn expect(&mut self, text: &str) -> Result<(), GrammarError> {
        for expected in text.chars() {
            if self.rest.next_if_eq(&expected).is_none() {
                return Err(self.refused(&format!("`{text}`")));
            }
        }
        Ok(())
    }

    /// The name of a rule, as that of a rule in Lark.
    fn name(&mut self) -> Result<String, GrammarError> {
        let mut name = "r_".to_owned();
        while let Some(next) =
            self.rest.next_if(|next| next.is_ascii_alphanumeric() || matches!(next, '-' | '_'))
        {
            match next {
                '-' | '_' => name.push('_'),
                'A'..='Z' => name.extend(["__", &next.to_ascii_lowercase().to_string()]),
                _ => name.push(next),
            }
        }
        if name.len() == 2 { Err(self.refused("the name of a rule")) } else { Ok(name) }
    }

    /// Whether the next name begins another rule.
    fn begins_rule(&self) -> bool {
        let mut rest = self.rest.clone();
        while rest.next_if(|next| next.is_ascii_alphanumeric() || matches!(next, '-' | '_')).is_some() {}
        while rest.next_if(|next| next.is_whitespace()).is_some() {}
        "::=".chars().all(|expected| rest.next_if_eq(&expected).is_some())
    }

    fn alternatives(&mut self, depth: usize) -> Result<String, GrammarError> {
        if depth > MAX_DEPTH {
            return Err(GrammarError::new("brackets are nested too deeply", "nest at most 100"));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.rest.next_if_eq(&'|').is_some() {
            all.push(self.sequence(depth)?);
        }
        Ok(all.join(" | "))
    }

    fn sequence(&mut self, depth: usize) -> Result<String, GrammarError> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            let item = match self.rest.peek().copied() {
                Some('"') => self.text()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.rest.next();
                    "/(?s:.)/".to_owned()
                }
                Some('(') => {
                    self.rest.next();
                    let inner = self.alternatives(depth + 1)?;
                    self.expect(")")?;
                    format!("({inner})")
                }
                Some(next) if next.is_ascii_alphanumeric() && !self.begins_rule() => {
                    let name = self.name()?;
                    self.used.insert(name.clone());
                    name
                }
                None | Some('|' | ')') => return Ok(items.join(" ")),
                Some(next) if next.is_ascii_alphanumeric() => return Ok(items.join(" ")),
                Some(_) => return Err(self.refused("a text, a class, a rule or a bracket")),
            };
            items.push(self.repeated(item)?);
        }
    }

    /// An item with the number of its repetitions.
    fn repeated(&mut self, item: String) -> Result<String, GrammarError> {
        // An empty text is none, however often.
        let of = |count: &str| if item.is_empty() { String::new() } else { format!("({item}){count}") };
        if let Some(sign) = self.rest.next_if(|next| matches!(next, '*' | '+' | '?')) {
            return Ok(of(&sign.to_string()));
        }
        if self.rest.next_if_eq(&'{').is_none() {
            return Ok(item);
        }
        let least = self.count()?.unwrap_or(0);
        let most = if self.rest.next_if_eq(&',').is_some() { self.count()? } else { Some(least) };
        self.expect("}")?;
        match most {
            None => Ok(format!("{} {}", of(&format!("{{{least}}}")), of("*"))),
            Some(most) if most >= least => Ok(of(&format!("{{{least},{most}}}"))),
            Some(most) => Err(GrammarError::new(
                format!("from {least} to {most} repetitions"),
                "give the smaller number first",
            )),
        }
    }

    fn count(&mut self) -> Result<Option<usize>, GrammarError> {
        let mut digits = String::new();
        while let Some(digit) = self.rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let count = digits.parse::<usize>().ok();
        if digits.is_empty() || count.is_some_and(|count| count <= MAX_COUNT) {
            return Ok(count);
        }
        Err(GrammarError::new(format!("{digits} repetitions"), "give at most 2000"))
    }

    /// A text, as one in Lark; empty if it is.
    fn text(&mut self) -> Result<String, GrammarError> {
        self.rest.next();
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('"') if text.is_empty() => return Ok(String::new()),
                Some('"') => return Ok(Value::from(text).to_string()),
                Some('\\') => text.push(self.escaped()?),
                Some(next) => text.push(next),
                None => return Err(self.refused("`\"`")),
            }
        }
    }

    /// A class of characters, as a regular expression.
    fn class(&mut self) -> Result<String, GrammarError> {
        self.rest.next();
        let mut class = if self.rest.next_if_eq(&'^').is_some() { "/[^".to_owned() } else { "/[".to_owned() };
        loop {
            let first = match self.rest.next() {
                Some(']') => return Ok(class + "]/"),
                Some('\\') => self.escaped()?,
                Some(next) => next,
                None => return Err(self.refused("`]`")),
            };
            let _ = write!(class, "\\x{{{:x}}}", u32::from(first));
            // A dash before the end stands for itself.
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']') {
                self.rest.next();
                let last = match self.rest.next() {
                    Some('\\') => self.escaped()?,
                    Some(next) => next,
                    None => return Err(self.refused("`]`")),
                };
                let _ = write!(class, "-\\x{{{:x}}}", u32::from(last));
            }
        }
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Result<char, GrammarError> {
        let digits = match self.rest.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(next) if next.is_ascii_punctuation() => return Ok(next),
            _ => return Err(self.refused("a character after `\\`")),
        };
        let digits: String = (0..digits).filter_map(|_| self.rest.next_if(char::is_ascii_hexdigit)).collect();
        let character = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
        character.ok_or_else(|| self.refused("the number of a character"))
    }
}
