//! `/v1/messages`.

use serde_json::{Value, json};

use crate::server::{Running, start_chat};

const PATH: &str = "/v1/messages";

fn body(fields: &Value) -> String {
    let mut body = json!({ "model": "demo", "max_tokens": 24, "messages": [{ "role": "user", "content": "Who is king?" }] });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string()
}

fn weather() -> Value {
    let schema = json!({ "type": "object", "properties": { "days": { "enum": [1, 2] } }, "required": ["days"], "additionalProperties": false });
    json!([{ "name": "get_weather", "description": "w", "input_schema": schema }])
}

/// The events of an answer put together, as Anthropic's client does.
fn streamed(server: &Running, fields: &Value) -> Value {
    let mut fields = fields.clone();
    fields["stream"] = json!(true);
    let events = server.events(PATH, &body(&fields));
    assert_eq!(events[0]["type"], "message_start");
    let mut message = events[0]["message"].clone();
    assert_eq!(message["usage"]["output_tokens"], 0);
    let mut json = Vec::new();
    for event in &events[1..] {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(content.len(), index);
                content.push(event["content_block"].clone());
                json.push(String::new());
            }
            "content_block_delta" => {
                let (block, delta) = (&mut message["content"][index], &event["delta"]);
                for (from, to) in [("text", "text"), ("thinking", "thinking")] {
                    if let Some(text) = delta[from].as_str() {
                        block[to] = Value::from(block[to].as_str().unwrap().to_owned() + text);
                    }
                }
                json[index] += delta["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" => {
                if message["content"][index]["type"] == "tool_use" {
                    message["content"][index]["input"] = serde_json::from_str(&json[index]).unwrap();
                }
            }
            "message_delta" => {
                for key in ["stop_reason", "stop_sequence"] {
                    message[key] = event["delta"][key].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            kind => assert_eq!(kind, "message_stop"),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message["id"] = Value::Null;
    message
}

fn whole(server: &Running, fields: &Value) -> Value {
    let mut message = server.ok(PATH, &body(fields));
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    message["id"] = Value::Null;
    message
}

#[test]
fn an_answer_has_blocks_and_a_reason() {
    let server = start_chat("qwen-3.jinja");
    let plain = whole(&server, &json!({}));
    let chat = json!({ "messages": [{ "role": "user", "content": "Who is king?" }], "max_tokens": 24,
        "chat_template_kwargs": { "enable_thinking": false } });
    let text =
        server.ok("/v1/chat/completions", &chat.to_string())["choices"][0]["message"]["content"].clone();
    assert_eq!(plain["content"], json!([{ "type": "text", "text": text }]));
    assert_eq!((&plain["stop_reason"], &plain["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    assert_eq!(plain["usage"]["output_tokens"], 24);
    assert_eq!(streamed(&server, &json!({})), plain);

    let stop: String = text.as_str().unwrap().chars().skip(6).take(3).collect();
    let fields = json!({ "stop_sequences": ["\u{1F600}", stop] });
    let stopped = whole(&server, &fields);
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(streamed(&server, &fields), stopped);
}

#[test]
fn a_call_is_a_block_and_its_result_comes_back() {
    let server = start_chat("qwen-3.jinja");
    let fields = json!({ "tools": weather(), "tool_choice": { "type": "any", "disable_parallel_tool_use": true }, "max_tokens": 128 });
    let message = whole(&server, &fields);
    let content = message["content"].as_array().unwrap();
    assert_eq!((message["stop_reason"].as_str(), content.len()), (Some("tool_use"), 1), "{message}");
    let call = &content[0];
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("get_weather")));
    assert!([1, 2].contains(&call["input"]["days"].as_i64().unwrap()));
    assert!(call["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!(streamed(&server, &fields), message);
    let messages = json!([
        { "role": "user", "content": "Who is king?" }, { "role": "assistant", "content": content },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": call["id"], "content": "It rains." }] }
    ]);
    let more = json!({ "messages": messages, "tools": weather(), "max_tokens": 4 });
    let answered = server.ok(PATH, &body(&more));
    let count = json!({ "messages": messages, "tools": weather() });
    let counted = server.ok("/v1/messages/count_tokens", &count.to_string());
    let usage = &answered["usage"];
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(usage["input_tokens"].as_u64().unwrap() + cached, counted["input_tokens"].as_u64().unwrap());
}

#[test]
fn a_call_that_was_cut_is_left_out() {
    let server = start_chat("qwen-3.jinja");
    let fields = json!({ "tools": weather(), "tool_choice": { "type": "tool", "name": "get_weather" }, "max_tokens": 1 });
    let message = whole(&server, &fields);
    assert_eq!(message["stop_reason"], "max_tokens");
    assert!(
        message["content"].as_array().unwrap().iter().all(|block| block["type"] != "tool_use"),
        "{message}"
    );
}

#[test]
fn a_schema_is_met_and_errors_have_the_form_of_the_route() {
    let server = start_chat("qwen-3.jinja");
    let format =
        json!({ "output_config": { "format": { "type": "json_schema", "schema": { "enum": [1, 2] } } } });
    let message = whole(&server, &format);
    assert!(["1", "2"].contains(&message["content"][0]["text"].as_str().unwrap().trim()), "{message}");
    for (fields, status, kind, param) in [
        (json!({ "model": "other" }), 404, "not_found_error", Value::from("model")),
        (json!({ "max_tokens": 0 }), 400, "invalid_request_error", Value::from("max_tokens")),
        (json!({ "messages": [] }), 400, "invalid_request_error", Value::from("messages")),
        (json!({ "n": 2, "temperature": 1 }), 400, "invalid_request_error", Value::from("n")),
        (
            json!({ "tool_choice": { "type": "any" } }),
            400,
            "invalid_request_error",
            Value::from("tool_choice"),
        ),
        (
            json!({ "output_config": { "format": { "type": "json_schema", "schema": { "not": {} } } } }),
            400,
            "invalid_request_error",
            Value::from("output_config.format.schema"),
        ),
    ] {
        let answer = server.client.post(PATH, &body(&fields)).unwrap();
        let told: Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(answer.status, status, "{told}");
        assert_eq!(
            (&told["type"], &told["error"]["type"], &told["error"]["param"]),
            (&json!("error"), &json!(kind), &param)
        );
    }
}
