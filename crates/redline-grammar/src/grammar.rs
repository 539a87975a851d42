//! A grammar as it is asked for.

use serde_json::{Value, json};

use crate::closed::closed;
use crate::error::GrammarError;
use crate::gbnf;
use crate::schema::{self, MAX_CHOICES};

/// The library that compiles grammars, with its version: other versions may allow other tokens.
pub const VERSION: &str = "llguidance 1.9.1";

/// Maximum length of a grammar in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum length of a regular expression in bytes.
const MAX_REGEX_BYTES: usize = 16 << 10;

/// White space between the parts of JSON: at most eight characters in a place, because models that may write any number of them sometimes
/// write nothing else.
const SPACE: &str = r"[\x20\x0A\x0D\x09]{1,8}";

/// What a grammar is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrammarKind {
    /// A JSON schema, whose objects are [closed]; the answer is a value that it allows.
    JsonSchema,
    /// The same, without white space between the parts of the answer.
    CompactJsonSchema,
    /// A regular expression in the syntax of the crate `regex`, which the whole answer matches.
    Regex,
    /// A JSON list of strings, of which the answer is one.
    Choice,
    /// A grammar of llguidance's variant of Lark, which begins with the rule `start`.
    Lark,
    /// A grammar as llama.cpp writes them, which begins with the rule `root`.
    Gbnf,
}

impl GrammarKind {
    /// All kinds, with their names in receipts and messages.
    const NAMES: &[(Self, &str)] = &[
        (Self::JsonSchema, "json_schema"),
        (Self::CompactJsonSchema, "compact_json_schema"),
        (Self::Regex, "regex"),
        (Self::Choice, "choice"),
        (Self::Lark, "lark"),
        (Self::Gbnf, "gbnf"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
    }
}

/// What an answer has to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grammar {
    /// What `source` is.
    pub kind: GrammarKind,
    /// The grammar.
    pub source: String,
}

impl Grammar {
    /// A grammar of this kind.
    pub fn new(kind: GrammarKind, source: impl Into<String>) -> Self {
        Self { kind, source: source.into() }
    }

    /// The grammar of a JSON schema, with white space between the parts of JSON unless it is `compact`. What is too large, or no JSON, is
    /// refused when it is compiled.
    pub fn of_schema(schema: String, compact: bool) -> Self {
        Self::new(if compact { GrammarKind::CompactJsonSchema } else { GrammarKind::JsonSchema }, schema)
    }

    /// The grammar of any JSON object.
    pub fn json_object() -> Self {
        Self::new(GrammarKind::JsonSchema, r#"{"type":"object"}"#)
    }

    /// The grammar as the body of a rule of another one, in Lark.
    ///
    /// # Errors
    /// As those of compiling it, as far as they show in the source.
    pub fn nested(&self) -> Result<String, GrammarError> {
        Ok(format!("%lark {{\n{}\n}}", self.lark()?))
    }

    /// The grammar in Lark.
    pub(crate) fn lark(&self) -> Result<String, GrammarError> {
        let (bytes, most) = (self.source.len(), MAX_BYTES);
        if bytes > most {
            return Err(GrammarError::new(format!("the grammar has {bytes} bytes"), "give at most 1 MiB"));
        }
        match self.kind {
            GrammarKind::JsonSchema => of_schema(&self.source, true),
            GrammarKind::CompactJsonSchema => of_schema(&self.source, false),
            GrammarKind::Regex => of_regex(&self.source),
            GrammarKind::Choice => of_choices(&self.source),
            GrammarKind::Lark => Ok(self.source.clone()),
            GrammarKind::Gbnf => gbnf::to_lark(&self.source),
        }
    }
}

fn of_schema(source: &str, has_space: bool) -> Result<String, GrammarError> {
    let mut schema: Value = serde_json::from_str(source)
        .map_err(|error| GrammarError::new(format!("not valid JSON: {error}"), "give a JSON schema"))?;
    if let Some(closed) = closed(&schema) {
        schema = closed;
    }
    schema::check(&mut schema)?;
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let Value::Object(keys) = &mut schema else {
        return Err(GrammarError::new(
            "a JSON schema is an object",
            "give an object, such as {\"type\": \"object\"}",
        ));
    };
    let options = if has_space {
        json!({ "whitespace_flexible": true, "whitespace_pattern": SPACE })
    } else {
        json!({ "whitespace_flexible": false })
    };
    keys.insert("x-guidance".to_owned(), options);
    // Models write empty lines after their reasoning, and vocabularies with marks for spaces begin words with one.
    Ok(if has_space {
        format!("start: SPACE? value\nSPACE: /{SPACE}/\nvalue: %json {schema}\n")
    } else {
        format!("start: %json {schema}\n")
    })
}

/// The values of a JSON schema as the body of a rule in Lark. Where models write a space between the parts of JSON, there may be one.
///
/// # Errors
/// The schema is wrong, or has keys that cannot be met.
pub fn json_value(schema: &Value) -> Result<String, GrammarError> {
    let mut schema = schema.clone();
    schema::check(&mut schema)?;
    if let Value::Object(keys) = &mut schema {
        let options =
            json!({ "whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?" });
        keys.insert("x-guidance".to_owned(), options);
    }
    Ok(format!("%json {schema}"))
}

fn of_regex(source: &str) -> Result<String, GrammarError> {
    if source.len() > MAX_REGEX_BYTES {
        let fact = format!("the regular expression has {} bytes", source.len());
        return Err(GrammarError::new(fact, "give at most 16 KiB"));
    }
    Ok(format!("start: TEXT\nTEXT: /{}/\n", llguidance::regex_to_lark(source, "")))
}

fn of_choices(source: &str) -> Result<String, GrammarError> {
    let hint = "give a list of different strings, such as [\"yes\", \"no\"]";
    let choices: Vec<String> = serde_json::from_str(source)
        .map_err(|error| GrammarError::new(format!("not a list of strings: {error}"), hint))?;
    if choices.is_empty() || choices.len() > MAX_CHOICES {
        let fact = format!("{} choices are given", choices.len());
        return Err(GrammarError::new(fact, "give from 1 to 10,000"));
    }
    if choices.iter().any(String::is_empty) {
        return Err(GrammarError::new("a choice is empty", hint));
    }
    let quoted: Vec<String> = choices.iter().map(|choice| Value::from(choice.as_str()).to_string()).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", quoted.join(" | ")))
}
