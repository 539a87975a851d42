//! The input of a response as messages of the chat template.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::text::JsonText;
use crate::openai::responses::body::{ResponsesItem, ResponsesPart, TextOrParts};

/// The messages of the chat template.
pub(super) fn messages(
    instructions: Option<&str>,
    input: TextOrParts<ResponsesItem>,
) -> Result<Vec<JsonText>, ApiError> {
    let system = instructions.map(|text| JsonText::message("system", &[text.to_owned()]));
    let mut messages: Vec<_> = system.into_iter().collect();
    match input {
        TextOrParts::Text(text) => messages.push(JsonText::message("user", &[text])),
        TextOrParts::Parts(items) => {
            let mut turn = Turn::default();
            for (at, item) in items.into_iter().enumerate() {
                let place = format!("input[{at}]");
                if let Some(message) = turn.take(&place, item)? {
                    messages.extend(turn.end());
                    messages.push(message);
                }
            }
            messages.extend(turn.end());
        }
    }
    Ok(messages)
}

/// What the assistant said in one turn: reasoning, a text and calls, which are items of their own.
#[derive(Default)]
struct Turn {
    reasoning: Option<String>,
    content: Option<String>,
    calls: Vec<Value>,
}

impl Turn {
    /// Takes an item of the assistant; returns the message that another item is. `place` is the field of the item.
    fn take(&mut self, place: &str, item: ResponsesItem) -> Result<Option<JsonText>, ApiError> {
        let missing = |name: &str, hint: &'static str| {
            let param = format!("{place}.{name}");
            let fact = format!("`{param}` is missing");
            refused(&param, fact, hint)
        };
        match item.kind.as_deref().unwrap_or("message") {
            "message" => {
                let hint = "a message has `role` and `content`";
                let role = item.role.ok_or_else(|| missing("role", hint))?;
                let content = item.content.ok_or_else(|| missing("content", hint))?;
                let texts = texts(place, "content", content)?;
                if role != "assistant" {
                    return Ok(Some(JsonText::message(&role, &texts)));
                }
                if self.content.is_some() || !self.calls.is_empty() {
                    // Another turn follows without a message between them.
                    let before = self.end();
                    self.content = Some(texts.join("\n"));
                    return Ok(before);
                }
                self.content = Some(texts.join("\n"));
            }
            "function_call" => {
                let hint = "a call has `call_id`, `name` and `arguments`";
                let id = item.call_id.ok_or_else(|| missing("call_id", hint))?;
                let name = item.name.ok_or_else(|| missing("name", hint))?;
                let arguments = item.arguments.ok_or_else(|| missing("arguments", hint))?;
                let function = json!({ "name": name, "arguments": arguments });
                self.calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            "function_call_output" => {
                let hint = "the result of a call has `call_id` and `output`";
                let id = item.call_id.ok_or_else(|| missing("call_id", hint))?;
                let output = item.output.ok_or_else(|| missing("output", hint))?;
                let text = texts(place, "output", output)?.join("\n");
                let message = json!({ "role": "tool", "tool_call_id": id, "content": text });
                return Ok(Some(JsonText::object(&message.to_string())));
            }
            "reasoning" => {
                let content = item.content.unwrap_or(TextOrParts::Parts(Vec::new()));
                let text = texts(place, "content", content)?.join("\n");
                self.reasoning = Some(text).filter(|text| !text.is_empty());
            }
            kind => {
                let param = format!("{place}.type");
                let fact = format!("`{param}` is {kind:?}");
                let hint = "give \"message\", \"function_call\", \"function_call_output\" or \"reasoning\"";
                return Err(refused(&param, fact, hint));
            }
        }
        Ok(None)
    }

    /// The message of the turn, if there is one.
    fn end(&mut self) -> Option<JsonText> {
        let Self { reasoning, content, calls } = std::mem::take(self);
        if content.is_none() && calls.is_empty() {
            self.reasoning = reasoning;
            return None;
        }
        let mut message = json!({ "role": "assistant", "content": content.unwrap_or_default() });
        if let Some(reasoning) = reasoning {
            message["reasoning_content"] = Value::from(reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = Value::from(calls);
        }
        Some(JsonText::object(&message.to_string()))
    }
}

/// The texts of a field of an item.
fn texts(place: &str, name: &str, of: TextOrParts<ResponsesPart>) -> Result<Vec<String>, ApiError> {
    let parts = match of {
        TextOrParts::Text(text) => return Ok(vec![text]),
        TextOrParts::Parts(parts) => parts,
    };
    let text = |(at, part): (usize, ResponsesPart)| {
        let param = format!("{place}.{name}[{at}]");
        if !ResponsesPart::KINDS.contains(&part.kind.as_str()) {
            let fact = format!("`{param}` is of type {:?}, and only texts are supported", part.kind);
            return Err(refused(&format!("{param}.type"), fact, "give parts of type \"input_text\""));
        }
        let missing = || refused(&format!("{param}.text"), format!("`{param}` has no text"), "give it");
        part.text.ok_or_else(missing)
    };
    parts.into_iter().enumerate().map(text).collect()
}
