//! The messages of Anthropic's routes as messages of the chat template.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::chat::tools::past_call;
use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::shape::{one_of, schemas};
use crate::json::text::JsonText;
use crate::openai::responses::body::TextOrParts;

/// A message of a conversation. Other keys are not read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "ClientMessage")]
pub struct ClientMessage {
    /// `user` or `assistant`.
    #[schemars(with = "Role")]
    pub role: String,
    /// The text, or blocks.
    pub content: TextOrParts<Block>,
}

/// A block of a message. Other keys are not read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "Block")]
pub struct Block {
    /// `text`, `tool_use`, `tool_result`, `thinking` or `redacted_thinking`.
    #[serde(rename = "type")]
    #[schemars(with = "BlockKind")]
    pub kind: String,
    /// The text.
    pub text: Option<String>,
    /// The reasoning.
    pub thinking: Option<String>,
    /// Of a call: identifies it.
    pub id: Option<String>,
    /// Of a call: the name of the tool.
    pub name: Option<String>,
    /// Of a call: the arguments, an object.
    #[schemars(with = "Option<crate::json::shape::AnyObject>")]
    pub input: Option<Map<String, Value>>,
    /// Of a result: identifies the call.
    pub tool_use_id: Option<String>,
    /// Of a result: the text, or blocks with texts.
    pub content: Option<TextOrParts<ResultBlock>>,
}

/// A block of the result of a call. Other keys are not read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "ResultBlock")]
pub struct ResultBlock {
    /// Only `text`.
    #[serde(rename = "type")]
    #[schemars(with = "crate::json::shape::TextName")]
    pub kind: String,
    /// The text.
    pub text: Option<String>,
}

objects!(ClientMessage, Block, ResultBlock);

/// The role of a message.
struct Role;
/// The type of a block.
struct BlockKind;

schemas! {
    Role: |_g| one_of(&["user", "assistant"]);
    BlockKind: |_g| one_of(&["text", "tool_use", "tool_result", "thinking", "redacted_thinking"]);
}

/// The messages of the chat template.
pub(super) fn messages(of: Vec<ClientMessage>) -> Result<Vec<JsonText>, ApiError> {
    if of.is_empty() {
        return Err(refused("messages", "`messages` is empty", "give at least one"));
    }
    let mut all = Vec::new();
    for (index, message) in of.into_iter().enumerate() {
        let place = format!("messages[{index}]");
        let blocks = match message.content {
            TextOrParts::Text(text) => {
                let place = format!("{place}.role");
                is_user(&place, &message.role)?;
                all.push(JsonText::message(&message.role, &[text]));
                continue;
            }
            TextOrParts::Parts(blocks) => blocks,
        };
        for (at, block) in blocks.iter().enumerate() {
            check_results(&format!("{place}.content[{at}]"), block)?;
        }
        if is_user(&format!("{place}.role"), &message.role)? {
            user(&place, blocks, &mut all)?;
        } else {
            all.push(assistant(&place, blocks)?);
        }
    }
    Ok(all)
}

/// Refuses parts of a result that are no texts, also in blocks that have none.
fn check_results(place: &str, block: &Block) -> Result<(), ApiError> {
    let Some(TextOrParts::Parts(parts)) = &block.content else { return Ok(()) };
    match parts.iter().enumerate().find(|(_, part)| part.kind != "text") {
        Some((at, part)) => Err(unknown(&format!("{place}.content[{at}]"), &part.kind)),
        None => Ok(()),
    }
}

/// Whether a role is that of the user.
fn is_user(place: &str, role: &str) -> Result<bool, ApiError> {
    match role {
        "user" => Ok(true),
        "assistant" => Ok(false),
        other => {
            let hint = "give \"user\" or \"assistant\"; the system message is `system`";
            Err(refused(place, format!("`{place}` is {other:?}"), hint))
        }
    }
}

/// A message of the user: the results of calls, which are messages of their own, and then its texts.
fn user(place: &str, blocks: Vec<Block>, all: &mut Vec<JsonText>) -> Result<(), ApiError> {
    let mut texts = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        let place = format!("{place}.content[{at}]");
        match &*block.kind {
            "text" => texts.push(needed(block.text, &place, "text")?),
            "tool_result" => {
                let id = needed(block.tool_use_id, &place, "tool_use_id")?;
                let text = match block.content {
                    None => String::new(),
                    Some(TextOrParts::Text(text)) => text,
                    Some(TextOrParts::Parts(parts)) => {
                        let text = |(at, part): (usize, ResultBlock)| {
                            let place = format!("{place}.content[{at}]");
                            needed(part.text, &place, "text")
                        };
                        parts.into_iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")
                    }
                };
                let message = json!({ "role": "tool", "tool_call_id": id, "content": text });
                all.push(JsonText::object(&message.to_string()));
            }
            kind => return Err(unknown(&place, kind)),
        }
    }
    if !texts.is_empty() {
        all.push(JsonText::message("user", &texts));
    }
    Ok(())
}

/// A message of the assistant.
fn assistant(place: &str, blocks: Vec<Block>) -> Result<JsonText, ApiError> {
    let (mut texts, mut calls, mut thinking) = (Vec::new(), Vec::new(), Vec::new());
    for (at, block) in blocks.into_iter().enumerate() {
        let place = format!("{place}.content[{at}]");
        match &*block.kind {
            "text" => texts.push(needed(block.text, &place, "text")?),
            "thinking" => thinking.push(needed(block.thinking, &place, "thinking")?),
            "redacted_thinking" => {}
            "tool_use" => {
                let id = needed(block.id, &place, "id")?;
                let name = needed(block.name, &place, "name")?;
                calls.push(past_call(id, name, block.input.map(Value::Object), &format!("{place}.input"))?);
            }
            kind => return Err(unknown(&place, kind)),
        }
    }
    let mut message = json!({ "role": "assistant", "content": texts.concat() });
    if !thinking.is_empty() {
        message["reasoning_content"] = Value::from(thinking.concat());
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::from(calls);
    }
    Ok(JsonText::object(&message.to_string()))
}

fn needed(value: Option<String>, place: &str, name: &str) -> Result<String, ApiError> {
    let param = format!("{place}.{name}");
    value.ok_or_else(|| refused(&param, format!("`{param}` is missing"), "give it"))
}

fn unknown(place: &str, kind: &str) -> ApiError {
    let param = format!("{place}.type");
    let hint = "give blocks of type \"text\", calls as \"tool_use\", and their results as \"tool_result\"";
    refused(&param, format!("`{param}` is {kind:?}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: Value) -> Result<Vec<Value>, String> {
        let of: Vec<ClientMessage> = serde_json::from_value(json).map_err(|error| error.to_string())?;
        let all = messages(of).map_err(|error| error.to_string())?;
        Ok(all.iter().map(|message| serde_json::from_str(message.as_str()).unwrap()).collect())
    }

    #[test]
    fn calls_and_results_become_messages_of_their_own() {
        let read = read(json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "t", "signature": "" }, { "type": "redacted_thinking", "data": "x" },
                { "type": "text", "text": "b" },
                { "type": "tool_use", "id": "toolu_1", "name": "f", "input": { "y": 1, "x": 2 } }
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1", "content": [{ "type": "text", "text": "r" }] },
                { "type": "text", "text": "c", "cache_control": { "type": "ephemeral" } }
            ] }
        ]));
        let call = json!({ "id": "toolu_1", "type": "function", "function": { "name": "f", "arguments": { "y": 1, "x": 2 } } });
        let expected = [
            json!({ "role": "user", "content": "a" }),
            json!({ "role": "assistant", "content": "b", "reasoning_content": "t", "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": "toolu_1", "content": "r" }),
            json!({ "role": "user", "content": "c" }),
        ];
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_place() {
        let user = |block: Value| json!([{ "role": "user", "content": [block] }]);
        for (messages, expected) in [
            (json!([]), "`messages` is empty"),
            (json!([{ "role": "system", "content": "a" }]), "`messages[0].role` is \"system\""),
            (user(json!({ "type": "image", "source": {} })), "`messages[0].content[0].type` is \"image\""),
            (user(json!({ "type": "text" })), "`messages[0].content[0].text` is missing"),
            (user(json!({ "type": "tool_result" })), "`messages[0].content[0].tool_use_id` is missing"),
            (
                json!([{ "role": "assistant", "content": [{ "type": "tool_use", "id": "i", "name": "f", "input": [] }] }]),
                "invalid type: sequence, expected a map",
            ),
            (
                user(json!({ "type": "text", "text": "a", "input": [null] })),
                "invalid type: sequence, expected a map",
            ),
        ] {
            let error = read(messages).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
