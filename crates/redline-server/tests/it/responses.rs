//! `/v1/responses`.

use serde_json::{Value, json};

use crate::server::{error, start_chat};

const TEMPLATE: &str = "parts.jinja";

/// A body with these fields too.
fn body(fields: Value) -> String {
    let mut body = json!({ "input": "Who is king?", "max_output_tokens": 24 });
    let Value::Object(fields) = fields else { panic!("{fields}") };
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

#[test]
fn an_answer_is_that_of_the_chat() {
    let server = start_chat(TEMPLATE);
    let messages =
        json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Who is king?" }]);
    let chat = json!({ "messages": messages, "max_tokens": 24, "temperature": 0.8, "top_p": 0.5, "seed": 3 });
    let chat = server.ok("/v1/chat/completions", &chat.to_string());
    let fields = json!({ "instructions": "Be brief.", "temperature": 0.8, "top_p": 0.5, "seed": 3, "metadata": { "a": "b" },
        "user": "u", "store": true });
    let answer = server.ok("/v1/responses", &body(fields));
    let message = &answer["output"][0];
    let part = json!({ "type": "output_text", "text": chat["choices"][0]["message"]["content"], "annotations": [], "logprobs": [] });
    assert_eq!(message["content"], json!([part]));
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    assert!(answer["id"].as_str().unwrap().starts_with("resp_") && answer["created_at"].is_u64());
    assert_eq!((&answer["object"], &answer["model"]), (&json!("response"), &json!("demo")));
    assert_eq!((&answer["status"], &message["status"]), (&json!("incomplete"), &json!("incomplete")));
    assert_eq!(answer["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!((&answer["temperature"], &answer["top_p"]), (&json!(0.8), &json!(0.5)));
    assert_eq!((&answer["instructions"], &answer["max_output_tokens"]), (&json!("Be brief."), &json!(24)));
    assert_eq!(
        (&answer["metadata"], &answer["user"], &answer["store"]),
        (&json!({ "a": "b" }), &json!("u"), &json!(false))
    );
    let usage = &answer["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(
        (&usage["output_tokens"], &usage["total_tokens"]),
        (&json!(24), &chat["usage"]["total_tokens"])
    );
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["output_tokens_details"], json!({ "reasoning_tokens": 0 }));
}

#[test]
fn messages_are_items_of_the_input() {
    let server = start_chat(TEMPLATE);
    let plain = server.ok("/v1/responses", &body(json!({})));
    for input in [
        json!([{ "role": "user", "content": "Who is king?" }]),
        json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Who is king?" }] }]),
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "Who is" }, { "type": "input_text", "text": " king?" }] }]),
    ] {
        let answer = server.ok("/v1/responses", &body(json!({ "input": input })));
        assert_eq!(answer["output"][0]["content"], plain["output"][0]["content"], "{input}");
        assert_eq!(answer["usage"], plain["usage"]);
    }
    // An earlier answer as the client got it.
    let before = &plain["output"][0];
    let input =
        json!([{ "role": "user", "content": "Who is king?" }, before, { "role": "user", "content": "Why?" }]);
    let answer = server.ok("/v1/responses", &body(json!({ "input": input })));
    assert!(answer["usage"]["input_tokens"].as_u64() > plain["usage"]["input_tokens"].as_u64());
}

#[test]
fn the_events_of_a_stream_come_in_order_and_add_up() {
    let server = start_chat(TEMPLATE);
    for fields in [json!({}), json!({ "max_output_tokens": null, "temperature": 1, "seed": 1 })] {
        let whole = server.ok("/v1/responses", &body(fields.clone()));
        let mut fields = fields;
        fields["stream"] = json!(true);
        let events = server.events("/v1/responses", &body(fields));
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let deltas = kinds.iter().filter(|kind| **kind == "response.output_text.delta").count();
        let end = format!("response.{}", whole["status"].as_str().unwrap());
        let expect: Vec<&str> = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        .into_iter()
        .chain(std::iter::repeat_n("response.output_text.delta", deltas))
        .chain(["response.output_text.done", "response.content_part.done", "response.output_item.done", &end])
        .collect();
        assert_eq!(kinds, expect);
        assert!(events.iter().enumerate().all(|(at, event)| event["sequence_number"] == at));
        let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(text, whole["output"][0]["content"][0]["text"]);
        let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
        assert_eq!(of("response.output_text.done")["text"], text.as_str());
        assert_eq!(of("response.content_part.done")["part"]["text"], text.as_str());
        assert_eq!(
            (&of("response.created")["response"]["status"], &of("response.created")["response"]["usage"]),
            (&json!("in_progress"), &Value::Null)
        );
        let mut last = events.last().unwrap()["response"].clone();
        let item = of("response.output_item.done")["item"].clone();
        assert_eq!(last["output"], json!([item]));
        let ids: Vec<_> = events.iter().filter_map(|event| event.get("item_id")).collect();
        assert!(ids.iter().all(|id| **id == item["id"]));
        // But for ids and times, the answer without a stream.
        for key in ["id", "created_at"] {
            last[key] = whole[key].clone();
        }
        last["output"][0]["id"] = whole["output"][0]["id"].clone();
        assert_eq!(last, whole);
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let server = start_chat(TEMPLATE);
    let refused = |fields: Value, param: &str| {
        let answer = server.client.post("/v1/responses", &body(fields)).unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some(param.to_owned())),
            "{}",
            answer.text()
        );
    };
    refused(json!({ "previous_response_id": "resp_1" }), "previous_response_id");
    refused(json!({ "conversation": "c" }), "conversation");
    refused(json!({ "background": true }), "background");
    refused(json!({ "prompt": { "id": "p" } }), "prompt");
    refused(json!({ "text": { "format": { "type": "yaml" } } }), "text.format.type");
    refused(json!({ "text": { "verbosity": "low" } }), "text.verbosity");
    refused(json!({ "truncation": "auto" }), "truncation");
    refused(json!({ "include": ["message.output_text.logprobs"] }), "include");
    refused(json!({ "top_logprobs": 1 }), "top_logprobs");
    refused(json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type");
    refused(json!({ "tools": [{ "type": "function", "name": "f" }] }), "tools");
    refused(json!({ "tool_choice": { "type": "function", "name": "f" } }), "tool_choice");
    refused(json!({ "max_output_tokens": 0 }), "max_output_tokens");
    refused(json!({ "temperature": -1 }), "temperature");
    refused(json!({ "input": [] }), "input");
    refused(json!({ "input": [{ "type": "computer_call" }] }), "input[0].type");
    refused(
        json!({ "input": [{ "type": "function_call", "call_id": "c", "name": "f" }] }),
        "input[0].arguments",
    );
    refused(json!({ "input": [{ "type": "function_call_output", "output": "x" }] }), "input[0].call_id");
    refused(json!({ "input": [{ "content": "a" }] }), "input[0].role");
    refused(json!({ "input": [{ "role": "user" }] }), "input[0].content");
    let part = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
    refused(part(json!({ "type": "input_image", "image_url": "u" })), "input[0].content[0].type");
    refused(part(json!({ "type": "input_text" })), "input[0].content[0].text");
    server.ok("/v1/responses", &body(json!({ "tools": [], "truncation": "disabled", "include": ["reasoning.encrypted_content"], "background": false,
        "text": { "format": { "type": "text" } }, "parallel_tool_calls": false, "service_tier": "auto", "reasoning": { "effort": "low", "summary": "auto" } })));
}
