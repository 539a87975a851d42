//! `/api/chat`.

use std::collections::VecDeque;

use redline_chat::call_id;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::chat::keys::ChatKeys;
use crate::chat::tools::{MAX_TOOLS, ToolForm, ToolShape, ToolUse, past_call};
use crate::conversation::request::ChatRequest;
use crate::error::ApiError;
use crate::generation::mode::GenerationMode;
use crate::json::cases::top_logprobs;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::parts::with_parts;
use crate::json::shape;
use crate::json::text::JsonText;
use crate::ollama::{OllamaFields, OllamaForm, reasons, request as unprompted};

/// Characters in the id of a call that the client left out: those that Mistral's templates ask for.
const ID_LENGTH: usize = 9;

/// Asks for the answer to a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = top_logprobs)]
#[serde(deny_unknown_fields, remote = "OllamaChatBody")]
pub struct OllamaChatBody {
    /// The messages.
    #[serde(default)]
    pub messages: Vec<OllamaMessage>,
    /// The tools that the model may call, with JSON schemas of their arguments.
    #[schemars(with = "Option<Vec<ToolShape>>", length(max = MAX_TOOLS))]
    pub tools: Option<Vec<JsonText>>,
    /// How the answer is generated.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub fields: OllamaFields,
}

with_parts! {
    OllamaChatBody { fields: OllamaFields }
}

/// A message of a conversation. Other keys are not read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "OllamaMessage")]
pub struct OllamaMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: Option<String>,
    /// The reasoning before the text.
    pub thinking: Option<String>,
    /// Not supported.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub images: Option<JsonText>,
    /// The tools that the message calls.
    pub tool_calls: Option<Vec<OllamaCalled>>,
    /// Of a result: the name of the tool.
    pub tool_name: Option<String>,
    /// Of a result: the id of the call.
    pub tool_call_id: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "OllamaCalled")]
pub struct OllamaCalled {
    /// Identifies it.
    pub id: Option<String>,
    /// What is called.
    pub function: OllamaCalledFunction,
}

/// A function and its arguments.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(remote = "OllamaCalledFunction")]
pub struct OllamaCalledFunction {
    /// Its name.
    pub name: String,
    /// Its arguments, an object.
    #[schemars(with = "Option<shape::AnyObject>")]
    pub arguments: Option<Value>,
}

objects!(OllamaMessage, OllamaCalled, OllamaCalledFunction);

/// Builds the engine's request, but for its prompt.
pub fn request(
    mode: GenerationMode,
    mut form: OllamaForm,
    body: OllamaChatBody,
) -> Result<(ChatRequest, OllamaForm), ApiError> {
    form.is_chat = true;
    let mut keys = ChatKeys::default();
    let agent = reasons(body.fields.think.as_ref(), &mut keys)?;
    let tools = ToolUse::of(ToolForm::Nested, body.tools, None, None)?;
    let messages = messages(body.messages)?;
    let (request, grammar_param) = unprompted(mode, body.fields, &mut form)?;
    let request = ChatRequest::new(request, "messages", messages, keys, tools, &agent);
    Ok((ChatRequest { grammar_param, ..request }, form))
}

/// The messages of the chat template. Calls without an id get one, which the results after them share: by the name of the tool if they
/// say it, or else in their order.
fn messages(of: Vec<OllamaMessage>) -> Result<Vec<JsonText>, ApiError> {
    let (mut all, mut open) = (Vec::new(), VecDeque::new());
    for (index, message) in of.into_iter().enumerate() {
        if message.images.is_some_and(|images| !images.is_empty_list()) {
            let param = format!("messages[{index}].images");
            return Err(refused(&param, format!("`{param}` is not supported"), "leave it out"));
        }
        let mut json = json!({ "role": message.role, "content": message.content.unwrap_or_default() });
        if let Some(thinking) = message.thinking.filter(|text| !text.is_empty()) {
            json["reasoning_content"] = Value::from(thinking);
        }
        let mut calls = Vec::new();
        for (at, call) in message.tool_calls.unwrap_or_default().into_iter().enumerate() {
            let OllamaCalledFunction { name, arguments } = call.function;
            let id = call.id.unwrap_or_else(|| call_id(&format!("message {index}"), 0, at, ID_LENGTH));
            open.push_back((name.clone(), id.clone()));
            let param = format!("messages[{index}].tool_calls[{at}].function.arguments");
            calls.push(past_call(id, name, arguments, &param)?);
        }
        if !calls.is_empty() {
            json["tool_calls"] = Value::from(calls);
        }
        if message.role == "tool" {
            let named = message.tool_name.as_ref();
            let at = open.iter().position(|(name, _)| named.is_none_or(|named| named == name));
            let call = at.and_then(|at| open.remove(at));
            let name = message.tool_name.or(call.as_ref().map(|(name, _)| name.clone()));
            let id = message.tool_call_id.or(call.map(|(_, id)| id));
            for (key, value) in [("name", name), ("tool_call_id", id)] {
                if let Some(value) = value {
                    json[key] = Value::from(value);
                }
            }
        }
        all.push(JsonText::object(&json.to_string()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: Value) -> Result<Vec<Value>, String> {
        let of: Vec<OllamaMessage> = serde_json::from_value(json).map_err(|error| error.to_string())?;
        let all = messages(of).map_err(|error| error.to_string())?;
        Ok(all.iter().map(|message| serde_json::from_str(message.as_str()).unwrap()).collect())
    }

    #[test]
    fn results_get_the_ids_of_their_calls() {
        let call = |name: &str| json!({ "function": { "name": name, "arguments": { "y": 1, "x": 2 } } });
        let read = read(json!([
            { "role": "user", "content": "a", "images": [] },
            { "role": "assistant", "content": "", "thinking": "t", "tool_calls": [call("f"), call("g"), call("f")] },
            { "role": "tool", "content": "1", "tool_name": "g" },
            { "role": "tool", "content": "2" },
            { "role": "tool", "content": "3", "tool_call_id": "own" },
            { "role": "tool", "content": "4" }
        ]))
        .unwrap();
        assert_eq!(read[0], json!({ "role": "user", "content": "a" }));
        assert_eq!(read[1]["reasoning_content"], "t");
        let id = |at: usize| read[1]["tool_calls"][at]["id"].clone();
        assert_eq!(
            read[1]["tool_calls"][0]["function"],
            json!({ "name": "f", "arguments": { "y": 1, "x": 2 } })
        );
        assert!(id(0).as_str().unwrap().len() == ID_LENGTH && id(0) != id(1) && id(0) != id(2));
        let result = |content: &str, name: &str, id: Value| json!({ "role": "tool", "content": content, "name": name, "tool_call_id": id });
        let expected = [
            result("1", "g", id(1)),
            result("2", "f", id(0)),
            result("3", "f", json!("own")),
            json!({ "role": "tool", "content": "4" }),
        ];
        assert_eq!(read[2..], expected);
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_place() {
        for (message, expected) in [
            (
                json!({ "role": "user", "content": "a", "images": ["x"] }),
                "`messages[0].images` is not supported",
            ),
            (
                json!({ "role": "assistant", "tool_calls": [{ "function": { "name": "f", "arguments": [] } }] }),
                "`messages[0].tool_calls[0].function.arguments` is no object",
            ),
            (json!({ "content": "a" }), "missing field `role`"),
        ] {
            let error = read(json!([message])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
