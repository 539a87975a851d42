//! Chat templates: from messages to the text that a model was tuned on.
//!
//! Templates are Jinja as Hugging Face runs it: `messages`, `add_generation_prompt`, the special tokens by their names, `tools` and
//! `documents` none; blocks trimmed, loop controls, methods of Python's strings, `raise_exception`, `tojson` as Python writes it.
//! `strftime_now` is not defined: a text must not depend on when it is made (templates that ask for it have a date of their own).
//! A template is somebody else's program: it reaches nothing but its variables, and its instructions are counted. What a single
//! instruction may take of memory is not bounded: take templates from where models are taken.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;

use crate::{TokenizerError, directory};

/// Instructions of a template; real ones take some thousand for a long conversation.
const FUEL: u64 = 5_000_000;

/// What somebody says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl ChatMessage {
    /// Of a role.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }
}

/// A model's chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    place: String,
    source: String,
    /// The special tokens by their names, such as `bos_token`.
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// That of a model directory: `chat_template.jinja`, else what `tokenizer_config.json` has under `chat_template`, of several the one
    /// named `default`; `None` where there is neither.
    pub fn from_dir(dir: &Path) -> Result<Option<Self>, TokenizerError> {
        directory::chat_template(dir)
    }

    /// The template `source`; `place` names it in messages.
    pub fn new(place: &str, source: &str, tokens: BTreeMap<String, String>) -> Self {
        Self { place: place.to_owned(), source: source.to_owned(), tokens }
    }

    /// The text of a conversation. With `add_generation_prompt` it ends where the assistant's answer begins.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let failed = |error: &Error| TokenizerError::Form {
            place: self.place.clone(),
            reason: format!("the chat template failed: {}", told(error)),
        };
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| failed(&e))?,
        );
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise);
        environment.add_filter("tojson", to_json);
        // They make texts of any width out of a number.
        environment.remove_filter("indent");
        environment.remove_filter("format");
        let template = environment.template_from_str(&self.source).map_err(|error| failed(&error))?;
        let mut variables: BTreeMap<&str, Value> =
            self.tokens.iter().map(|(name, token)| (name.as_str(), Value::from(token.as_str()))).collect();
        variables.insert("messages", Value::from(Serde(messages)));
        variables.insert("add_generation_prompt", Value::from(add_generation_prompt));
        for name in ["tools", "documents"] {
            variables.insert(name, Value::from(()));
        }
        template.render(variables).map_err(|error| failed(&error))
    }
}

/// An error with its line and what lies beneath.
fn told(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line})"));
    }
    text
}

fn raise(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// JSON as Python writes it: a space behind commas and colons, no character but quotes, backslashes and controls escaped.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // What else Python's takes changes nothing here that templates rely on.
    let _: Option<Value> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::InvalidOperation, error.to_string());
    let mut bytes = Vec::new();
    match indent {
        Some(indent) => {
            let spaces = " ".repeat(indent.min(16));
            let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value
                .serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, pretty))
                .map_err(failed)?;
        }
        None => value
            .serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))
            .map_err(failed)?,
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Python's separators.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
