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
                turn.take(&format!("input[{at}]"), item, &mut messages)?;
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
    /// Takes an item, which the field `place` holds. One that is not of this turn ends it, and adds its messages.
    fn take(&mut self, place: &str, item: ResponsesItem, all: &mut Vec<JsonText>) -> Result<(), ApiError> {
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
                if role == "assistant" {
                    self.begin_if_answered(all);
                    self.content = Some(texts.join("\n"));
                } else {
                    all.extend(self.end());
                    all.push(JsonText::message(&role, &texts));
                }
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
                all.extend(self.end());
                all.push(JsonText::object(&message.to_string()));
            }
            "reasoning" => {
                let content = item.content.unwrap_or(TextOrParts::Parts(Vec::new()));
                let text = texts(place, "content", content)?.join("\n");
                self.begin_if_answered(all);
                if !text.is_empty() {
                    self.reasoning.get_or_insert_default().push_str(&text);
                }
            }
            kind => {
                let param = format!("{place}.type");
                let fact = format!("`{param}` is {kind:?}");
                let hint = "give \"message\", \"function_call\", \"function_call_output\" or \"reasoning\"";
                return Err(refused(&param, fact, hint));
            }
        }
        Ok(())
    }

    /// Ends the turn if it has a text or a call already: another one follows without a message between them.
    fn begin_if_answered(&mut self, all: &mut Vec<JsonText>) {
        if self.content.is_some() || !self.calls.is_empty() {
            all.extend(self.end());
        }
    }

    /// The message of the turn, if there is one. Reasoning alone is none.
    fn end(&mut self) -> Option<JsonText> {
        let Self { reasoning, content, calls } = std::mem::take(self);
        if content.is_none() && calls.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: Value) -> Vec<Value> {
        let items = serde_json::from_value(input).unwrap();
        let all = messages(Some("s"), items).unwrap();
        all.iter().skip(1).map(|message| serde_json::from_str(message.as_str()).unwrap()).collect()
    }

    #[test]
    fn items_of_a_turn_are_one_message_and_turns_keep_their_order() {
        let text = |text: &str| json!({ "role": "assistant", "content": text });
        assert_eq!(read(json!([text("a"), text("b")])), [text("a"), text("b")]);
        let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
        let called =
            json!([{ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }]);
        let with_calls =
            |content: &str| json!({ "role": "assistant", "content": content, "tool_calls": called });
        assert_eq!(read(json!([call, text("a")])), [with_calls(""), text("a")]);
        assert_eq!(read(json!([text("a"), call])), [with_calls("a")]);
        let reasoning = |text: &str| json!({ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": text }] });
        let thought = |content: &str, reasoning: &str| json!({ "role": "assistant", "content": content, "reasoning_content": reasoning });
        let turns = json!([reasoning("r"), text("a"), { "type": "reasoning" }, reasoning("q"), text("b")]);
        assert_eq!(read(turns), [thought("a", "r"), thought("b", "q")]);
        let output = json!({ "type": "function_call_output", "call_id": "c", "output": "o" });
        let told = json!({ "role": "tool", "tool_call_id": "c", "content": "o" });
        assert_eq!(read(json!([call, output, text("a")])), [with_calls(""), told, text("a")]);
    }
}
