//! What a chat template renders: messages, tools, documents, arguments, and a date.

use jiff::civil::Date;
use minijinja::value::{Value, ValueKind};

use crate::TokenizerError;

/// The fields of a message, in order.
pub(super) type Fields = Vec<(String, Value)>;

/// Variables that have a field of [`Conversation`], so that no argument may define them.
const DEFINED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];
/// The names under which templates read the reasoning of a message. The first is the usual one.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A JSON value that a template reads. The keys of objects keep their order.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatValue(pub(super) Value);

impl ChatValue {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self(Value::from(text))
    }

    /// Parses JSON.
    pub fn from_json(json: &str) -> Result<Self, TokenizerError> {
        let hint = "numbers must fit 64 bits, and lists and objects may be nested up to 127 times";
        serde_json::from_str(json)
            .map(Self)
            .map_err(|error| refused(format!("not valid JSON: {error}"), hint))
    }
}

/// The date that `strftime_now` formats. Its time is midnight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChatDate(pub(super) Date);

impl ChatDate {
    /// Parses a date such as `2026-07-26`.
    pub fn parse(text: &str) -> Result<Self, TokenizerError> {
        let date = Date::strptime("%Y-%m-%d", text).map(Self);
        date.map_err(|_| refused(format!("{text:?} is not a date"), "a date has the form 2026-07-26"))
    }
}

/// A message of a conversation: a role, and in most cases content.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage(Fields);

impl ChatMessage {
    /// Creates a message whose content is a text. The role is `system`, `user`, `assistant`, or another one that the template knows.
    pub fn new(role: &str, content: &str) -> Self {
        let field = |name: &str, value: &str| (name.to_owned(), Value::from(value));
        Self(vec![field("role", role), field("content", content)])
    }

    /// Reads a message from a JSON object; `index` is its place in the conversation, from 0. It has a `role`. Its `content` is a text or
    /// a list of parts of type `text`, and may be absent if the role is `assistant`. `tool_calls` is a list of objects. A template may read
    /// further fields. Fields with the value `null` count as absent.
    pub fn from_json(index: usize, json: &str) -> Result<Self, TokenizerError> {
        let wrong = |what: String| {
            let hint =
                "each message is an object with a `role` and, unless the role is `assistant`, a `content`";
            refused(format!("message {index}: {what}"), hint)
        };
        let ChatValue(object) = ChatValue::from_json(json).map_err(|error| wrong(error.to_string()))?;
        if object.kind() != ValueKind::Map {
            return Err(wrong(format!("a message is an object, not a {}", object.kind())));
        }
        let fields = object.try_iter().map_err(|error| wrong(error.to_string()))?.map(|name| {
            let value = object.get_item(&name).unwrap_or_default();
            (name.to_string(), value)
        });
        let message = Self(fields.filter(|(_, value)| !value.is_none()).collect());
        let Some(role) = message.role() else {
            return Err(wrong("`role` is missing or not a text".to_owned()));
        };
        match message.get("content") {
            None if role == "assistant" => {}
            None => return Err(wrong(format!("`content` is missing in a message of role `{role}`"))),
            Some(content) => check_content(content).map_err(wrong)?,
        }
        if message.get("tool_calls").is_some_and(|calls| !is_list_of_objects(calls)) {
            return Err(wrong("`tool_calls` is not a list of objects".to_owned()));
        }
        Ok(message)
    }

    /// The message as a JSON object.
    pub fn to_json(&self) -> String {
        // Values come from JSON, so that this cannot fail.
        serde_json::to_string(&Value::from_pairs(self.0.clone())).unwrap_or_default()
    }

    /// The role. `None` cannot occur in a message that was read or created here.
    pub fn role(&self) -> Option<&str> {
        self.get("role").and_then(Value::as_str)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// The fields that a template reads. Reasoning is also given under its other names.
    pub(super) fn fields(&self) -> Fields {
        let mut fields = self.0.clone();
        let Some(reasoning) = REASONING.iter().find_map(|name| self.get(name)).cloned() else {
            return fields;
        };
        if self.get("thinking").is_none() {
            fields.insert(0, ("thinking".to_owned(), reasoning.clone()));
        }
        match fields.iter_mut().find(|(name, _)| name == "reasoning_content") {
            Some((_, value)) => *value = reasoning,
            None => fields.push(("reasoning_content".to_owned(), reasoning)),
        }
        fields
    }
}

/// What a chat template renders.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The messages; at least one.
    pub messages: Vec<ChatMessage>,
    /// JSON schemas of the functions that the model may call. `Some` selects the template named `tool_use` if the model has one.
    pub tools: Option<Vec<ChatValue>>,
    /// Documents that the model may use; objects, usually with `title` and `text`.
    pub documents: Option<Vec<ChatValue>>,
    /// Further variables by name, such as `enable_thinking`. They take precedence over special tokens.
    pub arguments: Vec<(String, ChatValue)>,
    /// End the text where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// End the text with the content of the final message, so that the model continues it. Excludes `add_generation_prompt`.
    pub continue_final_message: bool,
    /// The date that `strftime_now` formats. If `None`, this function is not defined; many templates then print a date of their own.
    pub date: Option<ChatDate>,
}

impl Conversation {
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        if self.messages.is_empty() {
            return Err(refused("the conversation has 0 messages", "give at least one"));
        }
        if self.add_generation_prompt && self.continue_final_message {
            let fact = "both `add_generation_prompt` and `continue_final_message`";
            return Err(refused(fact, "one begins an answer, the other continues the last message"));
        }
        for (what, list) in [("tool", &self.tools), ("document", &self.documents)] {
            let place = list.iter().flatten().position(|value| value.0.kind() != ValueKind::Map);
            if let Some(index) = place {
                return Err(refused(format!("{what} {index} is not an object"), "each is a JSON object"));
            }
        }
        match self.arguments.iter().find(|(name, _)| DEFINED.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(refused(
                format!("the template argument `{name}` has a place of its own in a request"),
                "give it there",
            )),
        }
    }
}

/// Appends a tag to the text of the final message, whose end it marks. `names_content` is whether the template names this field.
pub(super) fn tag_final_message(
    messages: &mut [Fields],
    tag: &str,
    names_content: bool,
) -> Result<(), TokenizerError> {
    let hint = "the final message is the one whose `content` is continued";
    let content =
        messages.last_mut().and_then(|fields| fields.iter_mut().find(|(name, _)| name == "content"));
    let Some((_, content)) = content else {
        return Err(refused("the final message has no `content` to continue", hint));
    };
    if !names_content {
        return Err(refused("the template does not use the `content` of messages", hint));
    }
    if let Some(text) = content.as_str() {
        *content = Value::from(format!("{text}{tag}"));
        return Ok(());
    }
    let mut parts = items(content);
    let last = parts.iter_mut().rev().find_map(|part| text_of(part).map(|text| (part, text)));
    let Some((part, text)) = last else {
        return Err(refused("the final message has no text to continue", hint));
    };
    *part = Value::from_pairs([("type", "text".to_owned()), ("text", text + tag)]);
    *content = Value::from(parts);
    Ok(())
}

/// Gives messages without content and without `tool_calls` an empty content: templates expect one of the two.
pub(super) fn add_empty_content(messages: &mut [Fields]) {
    for fields in messages {
        let has = |name: &str| {
            fields.iter().any(|(field, value)| field == name && (name == "content" || value.is_true()))
        };
        if !has("content") && !has("tool_calls") {
            fields.push(("content".to_owned(), Value::from("")));
        }
    }
}

/// Makes the arguments of calls that are texts, as OpenAI writes them, the objects that they say: templates iterate over them.
pub(super) fn open_arguments(messages: &mut [Fields]) {
    for (name, value) in messages.iter_mut().flatten() {
        if name == "tool_calls" {
            *value = items(value)
                .iter()
                .map(|call| with_open(call, "function").unwrap_or_else(|| call.clone()))
                .collect();
        }
    }
}

/// A call whose arguments are an object, in itself or in this field of it; `None` if they are that already, or no text of an object.
fn with_open(call: &Value, field: &str) -> Option<Value> {
    let replaced = |of: &Value, name: &str, with: &Value| {
        let keys = of.try_iter().ok()?.map(|key| {
            let value =
                if key.as_str() == Some(name) { with.clone() } else { of.get_item(&key).unwrap_or_default() };
            (key.to_string(), value)
        });
        Some(Value::from_pairs(keys.collect::<Fields>()))
    };
    let object = |text: &Value| {
        let ChatValue(value) = ChatValue::from_json(text.as_str()?).ok()?;
        (value.kind() == ValueKind::Map).then_some(value)
    };
    let function = call.get_attr(field).ok().filter(|function| function.kind() == ValueKind::Map);
    match function {
        Some(function) => replaced(call, field, &with_open(&function, "")?),
        None => replaced(call, "arguments", &object(&call.get_attr("arguments").ok()?)?),
    }
}

/// Replaces content that is a list of parts with their texts, one a line.
pub(super) fn join_parts(messages: &mut [Fields]) {
    for (name, value) in messages.iter_mut().flatten() {
        if name == "content" && value.kind() == ValueKind::Seq {
            let texts: Vec<String> =
                items(value).iter().map(|part| text_of(part).unwrap_or_default()).collect();
            *value = Value::from(texts.join("\n"));
        }
    }
}

/// An error of a conversation.
pub(super) fn refused(reason: impl Into<String>, hint: &'static str) -> TokenizerError {
    TokenizerError::Conversation { reason: reason.into(), hint }
}

fn check_content(content: &Value) -> Result<(), String> {
    match content.kind() {
        ValueKind::String => Ok(()),
        ValueKind::Seq => items(content).iter().enumerate().try_for_each(|(place, part)| {
            let kind = part.get_attr("type").unwrap_or_default();
            match kind.as_str() {
                Some("text") if text_of(part).is_some() => Ok(()),
                Some("text") => Err(format!("part {place} of `content` has no `text`")),
                Some(kind) => {
                    Err(format!("part {place} of `content` is of type `{kind}`, but only `text` can be read"))
                }
                None => Err(format!("part {place} of `content` has no `type`")),
            }
        }),
        other => Err(format!("`content` is a {other}, not a text or a list of parts")),
    }
}

/// The text of a part of a message.
fn text_of(part: &Value) -> Option<String> {
    part.get_attr("text").ok().and_then(|text| text.as_str().map(str::to_owned))
}

fn is_list_of_objects(value: &Value) -> bool {
    value.kind() == ValueKind::Seq && items(value).iter().all(|item| item.kind() == ValueKind::Map)
}

/// The elements of a list.
fn items(list: &Value) -> Vec<Value> {
    list.try_iter().map(Iterator::collect).unwrap_or_default()
}
