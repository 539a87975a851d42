//! Chat templates: format messages as the text on which a model was tuned.
//!
//! Templates are Jinja as in Hugging Face's transformers: `messages`, `tools`, `documents`, `add_generation_prompt`, the special tokens by
//! name and the caller's arguments are defined; blocks are trimmed; there are loop controls, methods of Python strings, `raise_exception`,
//! `tojson` with Python's formatting, `strftime_now` with the date of the request, and `{% generation %}`. A template is compiled once
//! and shared by all renderings. It is untrusted code: it can access only its variables, and its instructions are counted. The memory that
//! a single instruction may use is not bounded, so use templates only from sources you would trust with a model.

mod conversation;
mod generation;
mod python;

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};

use crate::TokenizerError;
pub use conversation::{ChatDate, ChatMessage, ChatValue, Conversation};

/// Maximum number of template instructions; a long conversation takes some thousand.
const FUEL: u64 = 5_000_000;
/// The template that is used unless another one applies.
const DEFAULT: &str = "default";
/// The template that is used if tools are given.
const TOOL_USE: &str = "tool_use";
/// The names of the templates that are read. A model may have others, which nothing selects.
pub(crate) const NAMES: [&str; 2] = [DEFAULT, TOOL_USE];
/// Follows the message to be continued, so that its end can be located in the text (the tag of transformers).
const FINAL_MESSAGE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// A model's chat template, or its two: one for conversations with tools and one for all others. Clones share what was compiled.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    /// Each template by its name in `environment`; `default` is one of them.
    named: BTreeMap<String, Named>,
    /// The special tokens by name, such as `bos_token`.
    tokens: BTreeMap<String, String>,
}

/// What is known about one template.
#[derive(Clone, Debug)]
struct Named {
    /// Where the template comes from, for messages.
    place: String,
    /// Whether the template itself reads content that is a list of parts.
    reads_parts: bool,
    /// Whether the source names the field `content`.
    names_content: bool,
    source: String,
}

impl ChatTemplate {
    /// Compiles a template; `place` names it in messages.
    pub fn new(place: &str, source: &str, tokens: BTreeMap<String, String>) -> Result<Self, TokenizerError> {
        let source = (place.to_owned(), source.to_owned());
        Self::of_several(BTreeMap::from([(DEFAULT.to_owned(), source)]), tokens)
    }

    /// Compiles templates by name, each given by its place and its source. There must be one named `default`.
    pub(crate) fn of_several(
        sources: BTreeMap<String, (String, String)>,
        tokens: BTreeMap<String, String>,
    ) -> Result<Self, TokenizerError> {
        let mut environment = environment().map_err(|error| failed("", &error))?;
        let mut named = BTreeMap::new();
        for (name, (place, source)) in sources {
            let names_content = source.contains("content");
            environment
                .add_template_owned(name.clone(), generation::replaced(&source))
                .map_err(|error| failed(&place, &error))?;
            named.insert(name, Named { place, reads_parts: false, names_content, source });
        }
        let mut template = Self { environment: Arc::new(environment), named: BTreeMap::new(), tokens };
        for (name, known) in &mut named {
            known.reads_parts = template.reads_parts(name);
        }
        template.named = named;
        Ok(template)
    }

    /// The source of the template that is used unless tools are given.
    pub fn source(&self) -> &str {
        self.named.get(DEFAULT).map_or("", |named| &named.source)
    }

    /// The source of the template that is used if tools are given.
    pub fn tool_source(&self) -> &str {
        let named = self.named.get(TOOL_USE).or_else(|| self.named.get(DEFAULT));
        named.map_or("", |named| &named.source)
    }

    /// The special token of this name, such as `pad_token`, as the configuration of the tokenizer has it.
    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.tokens.get(name).map(String::as_str)
    }

    /// Renders a conversation. Text and errors are those of transformers, with two exceptions: content that is a list of parts is joined,
    /// with line ends between the parts, if the template does not read lists; and a message with neither content nor calls is empty.
    pub fn render(&self, conversation: &Conversation) -> Result<String, TokenizerError> {
        conversation.check()?;
        let tools =
            conversation.tools.as_ref().map(|_| TOOL_USE).filter(|name| self.named.contains_key(*name));
        let name = tools.unwrap_or(DEFAULT);
        let Some(Named { place, reads_parts, names_content, .. }) = self.named.get(name) else {
            return Err(TokenizerError::Form {
                place: name.to_owned(),
                reason: "there is no such template".into(),
            });
        };
        let mut messages: Vec<_> = conversation.messages.iter().map(ChatMessage::fields).collect();
        if conversation.continue_final_message {
            conversation::tag_final_message(&mut messages, FINAL_MESSAGE_TAG, *names_content)?;
        }
        conversation::add_empty_content(&mut messages);
        conversation::open_arguments(&mut messages);
        if !reads_parts {
            conversation::join_parts(&mut messages);
        }
        let messages: Value = messages.into_iter().map(Value::from_pairs).collect();
        let text =
            self.run(name, self.variables(conversation, messages)).map_err(|error| failed(place, &error))?;
        if conversation.continue_final_message { until_tag(text) } else { Ok(text) }
    }

    /// The variables of a rendering. The caller's arguments take precedence over special tokens.
    fn variables(&self, conversation: &Conversation, messages: Value) -> BTreeMap<String, Value> {
        let mut variables = BTreeMap::new();
        if let Some(date) = conversation.date {
            let now = move |format: &str| python::strftime(date, format);
            variables.insert("strftime_now".to_owned(), Value::from_function(now));
        }
        let tokens = self.tokens.iter().map(|(name, token)| (name.clone(), Value::from(token.as_str())));
        variables.extend(tokens);
        let arguments = conversation.arguments.iter().map(|(name, value)| (name.clone(), value.0.clone()));
        variables.extend(arguments);
        let list = |values: &Option<Vec<ChatValue>>| {
            let list = values.as_ref().map(|values| values.iter().map(|value| value.0.clone()).collect());
            list.unwrap_or_else(|| Value::from(()))
        };
        variables.insert("messages".to_owned(), messages);
        variables.insert("tools".to_owned(), list(&conversation.tools));
        variables.insert("documents".to_owned(), list(&conversation.documents));
        let prompt = Value::from(conversation.add_generation_prompt);
        variables.insert("add_generation_prompt".to_owned(), prompt);
        variables
    }

    fn run(&self, name: &str, variables: BTreeMap<String, Value>) -> Result<String, Error> {
        self.environment.get_template(name)?.render(variables)
    }

    /// Whether a template prints the text of a part rather than the list of parts, or nothing.
    fn reads_parts(&self, name: &str) -> bool {
        const TEXT: &str = "the text of a part";
        let part = Value::from_pairs([("type", "text"), ("text", TEXT)]);
        let content = Value::from(vec![part]);
        let message = Value::from_pairs([("role", Value::from("user")), ("content", content)]);
        let conversation = Conversation { date: Some(ChatDate::default()), ..Conversation::default() };
        let variables = self.variables(&conversation, Value::from(vec![message]));
        let prints_list = |text: &str| text.contains("'type'") || text.contains("\"type\"");
        self.run(name, variables).is_ok_and(|text| text.contains(TEXT) && !prints_list(&text))
    }
}

/// The environment of templates, as transformers has it.
fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python::method);
    environment.add_function("raise_exception", raise);
    environment.add_filter("tojson", python::to_json);
    environment.add_filter("indent", python::indent);
    // This filter can create a text of any width from a number.
    environment.remove_filter("format");
    Ok(environment)
}

/// The text up to the tag, without the space before it if the template trimmed the message.
fn until_tag(mut text: String) -> Result<String, TokenizerError> {
    let Some(at) = text.rfind(FINAL_MESSAGE_TAG.trim_end()) else {
        return Err(conversation::refused(
            "the final message to continue does not appear in the text of the template",
            "the template drops a part of this message; end the conversation with another one",
        ));
    };
    let is_trimmed = !text[at..].starts_with(FINAL_MESSAGE_TAG);
    text.truncate(at);
    if is_trimmed {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

/// The error of a template, with its line.
fn failed(place: &str, error: &Error) -> TokenizerError {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    if let Some(line) = error.line() {
        text.push_str(&format!(" (line {line})"));
    }
    TokenizerError::Form { place: place.to_owned(), reason: format!("the chat template failed: {text}") }
}

fn raise(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}
