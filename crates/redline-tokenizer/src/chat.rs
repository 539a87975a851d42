//! Chat templates: format messages as the text on which a model was tuned.
//!
//! Templates are Jinja as in Hugging Face's implementation: `messages`, `add_generation_prompt` and the special tokens by name are
//! defined, `tools` and `documents` are none; trimmed blocks, loop controls, methods of Python strings, `raise_exception`, `tojson`
//! with Python's formatting. `strftime_now` is not defined, because a text must not depend on the time; templates that use it have
//! a fallback date. A template is untrusted code: it can access only its variables, and its instructions are counted. The memory
//! that a single instruction may use is not bounded, so use templates only from sources you would trust with a model.

use std::collections::BTreeMap;
use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;

use crate::TokenizerError;

/// Maximum number of template instructions; a long conversation takes some thousand.
const FUEL: u64 = 5_000_000;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, or another role that the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl ChatMessage {
    /// Creates a message.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }
}

/// A model's chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    place: String,
    source: String,
    /// The special tokens by name, such as `bos_token`.
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Creates a template from its source; `place` names it in messages.
    pub fn new(place: &str, source: &str, tokens: BTreeMap<String, String>) -> Self {
        Self { place: place.to_owned(), source: source.to_owned(), tokens }
    }

    /// Renders a conversation. With `add_generation_prompt` the text ends where the assistant's answer begins.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        add_generation_prompt: bool,
    ) -> Result<String, TokenizerError> {
        let failed = |error: &Error| TokenizerError::Form {
            place: self.place.clone(),
            reason: format!("the chat template failed: {}", description(error)),
        };
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| failed(&e))?,
        );
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise);
        environment.add_filter("tojson", to_json);
        // This filter can create a text of any width from a number.
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

/// Formats an error with its line and its causes.
fn description(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line})"));
    }
    text
}

fn raise(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// JSON as Python writes it: a space after commas and colons, and only quotes, backslashes and control characters
/// escaped.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Python's other arguments have no effect that templates rely on.
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
