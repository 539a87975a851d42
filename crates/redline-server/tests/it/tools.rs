//! Calls of tools, and reasoning.

use serde_json::{Value, json};

use crate::server::{Running, error, start_chat};

fn tools() -> Value {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 8 }, "days": { "enum": [1, 2, 3] } },
        "required": ["city", "days"],
        "additionalProperties": false
    });
    json!([
        { "type": "function", "function": { "name": "get_weather", "parameters": schema } },
        { "type": "function", "function": { "name": "now" } }
    ])
}

fn body(fields: Value) -> Value {
    let common = json!({
        "messages": [{ "role": "user", "content": "Who is king?" }], "max_tokens": 128, "tools": tools(), "seed": 1,
        "temperature": 1
    });
    with(&common, &fields)
}

fn choice(server: &Running, fields: Value) -> Value {
    server.ok("/v1/chat/completions", &body(fields).to_string())["choices"][0].clone()
}

/// The chunks of a streamed answer put together, as OpenAI's client does.
fn streamed(server: &Running, mut fields: Value) -> Value {
    fields["stream"] = json!(true);
    let mut whole = json!({ "role": "", "content": null });
    let mut reason = Value::Null;
    for event in server.events("/v1/chat/completions", &body(fields).to_string()) {
        let Some(choice) = event["choices"].get(0) else { continue };
        let delta = &choice["delta"];
        for (key, value) in delta.as_object().unwrap() {
            match value {
                Value::String(text) => {
                    let before = whole[key].as_str().unwrap_or_default().to_owned();
                    whole[key] = json!(before + text);
                }
                Value::Array(calls) => {
                    for call in calls {
                        let index = call["index"].as_u64().unwrap() as usize;
                        let all =
                            whole.as_object_mut().unwrap().entry("tool_calls").or_insert_with(|| json!([]));
                        let all = all.as_array_mut().unwrap();
                        if index == all.len() {
                            all.push(json!({ "id": call["id"], "type": call["type"],
                                "function": { "name": call["function"]["name"], "arguments": "" } }));
                        } else {
                            assert!(
                                call.get("id").is_none() && call["function"].get("name").is_none(),
                                "{call}"
                            );
                        }
                        let arguments = &mut all[index]["function"]["arguments"];
                        let more = call["function"]["arguments"].as_str().unwrap();
                        *arguments = json!(arguments.as_str().unwrap().to_owned() + more);
                    }
                }
                other => panic!("{key}: {other}"),
            }
        }
        if !choice["finish_reason"].is_null() {
            reason = choice["finish_reason"].clone();
        }
    }
    if whole["content"] == "" && whole.get("tool_calls").is_some() {
        whole["content"] = Value::Null;
    }
    whole["refusal"] = Value::Null;
    json!({ "message": whole, "finish_reason": reason })
}

/// The first object with the fields of the second.
fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// Templates of families whose marks are no tokens of the model.
const TEMPLATES: [&str; 3] = ["qwen-3.jinja", "qwen-2.5.jinja", "mistral-v0.3.jinja"];

#[test]
fn a_call_that_is_demanded_meets_the_schema_of_its_tool() {
    for template in TEMPLATES {
        let server = start_chat(template);
        let named = json!({ "type": "function", "function": { "name": "get_weather" } });
        for (fields, reason) in
            [(json!({ "tool_choice": "required" }), "tool_calls"), (json!({ "tool_choice": named }), "stop")]
        {
            let fields = with(&fields, &json!({ "parallel_tool_calls": false }));
            let choice = choice(&server, fields.clone());
            assert_eq!(choice["finish_reason"], reason, "{template}: {choice}");
            let message = &choice["message"];
            assert_eq!(
                (&message["content"], message["tool_calls"].as_array().unwrap().len()),
                (&Value::Null, 1)
            );
            let call = &message["tool_calls"][0];
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            if reason == "stop" || call["function"]["name"] == "get_weather" {
                assert!(
                    arguments["city"].is_string() && [1, 2, 3].contains(&arguments["days"].as_i64().unwrap())
                );
            }
            let id = call["id"].as_str().unwrap();
            assert_eq!(id.len(), if template.starts_with("mistral") { 9 } else { 29 }, "{id}");
            // The same request gives the same ids; a stream gives the same message.
            let mut again = streamed(&server, fields);
            again["index"] = json!(0);
            again["logprobs"] = Value::Null;
            assert_eq!(again, choice, "{template}");
        }
    }
}

#[test]
fn several_calls_and_several_answers_have_ids_of_their_own() {
    let server = start_chat("qwen-3.jinja");
    let answer = server.ok(
        "/v1/chat/completions",
        &body(json!({ "tool_choice": "required", "n": 3, "max_tokens": 200 })).to_string(),
    );
    let calls = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|choice| choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default());
    let ids: Vec<String> = calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
    assert!(ids.len() >= 3, "{answer}");
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn a_call_and_its_result_are_read_back() {
    for template in TEMPLATES {
        let server = start_chat(template);
        let call = json!({ "id": "abcdefghi", "type": "function",
            "function": { "name": "get_weather", "arguments": "{\"city\": \"Rome\", \"days\": 1}" } });
        let messages = json!([
            { "role": "user", "content": "Who is king?" },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "abcdefghi", "content": "It rains." }
        ]);
        server
            .ok("/v1/chat/completions", &body(json!({ "messages": messages, "max_tokens": 4 })).to_string());
    }
}

#[test]
fn responses_have_calls_as_items_and_take_them_back() {
    let server = start_chat("qwen-3.jinja");
    let tool = json!({ "type": "function", "name": "get_weather", "parameters": tools()[0]["function"]["parameters"] });
    let body = |input: Value, fields: Value| {
        let all =
            json!({ "input": input, "tools": [tool], "max_output_tokens": 160, "seed": 1, "temperature": 1 });
        with(&all, &fields).to_string()
    };
    let named =
        json!({ "tool_choice": { "type": "function", "name": "get_weather" }, "parallel_tool_calls": false });
    let answer = server.ok("/v1/responses", &body(json!("Who is king?"), named.clone()));
    assert_eq!(answer["status"], "completed", "{answer}");
    assert_eq!(answer["tools"][0]["name"], "get_weather");
    let output = answer["output"].as_array().unwrap();
    assert_eq!(output.len(), 1, "{answer}");
    let call = &output[0];
    assert_eq!(
        (&call["type"], &call["name"], &call["status"]),
        (&json!("function_call"), &json!("get_weather"), &json!("completed"))
    );
    assert!(
        call["id"].as_str().unwrap().starts_with("fc_")
            && call["call_id"].as_str().unwrap().starts_with("call_")
    );

    let events = server
        .events("/v1/responses", &body(json!("Who is king?"), with(&named, &json!({ "stream": true }))));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let middle = kinds.iter().filter(|kind| **kind == "response.function_call_arguments.delta").count();
    let expected = ["response.created", "response.in_progress", "response.output_item.added"];
    assert_eq!(kinds[..3], expected);
    assert_eq!(
        kinds[3 + middle..],
        ["response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    );
    let sum: String = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(json!(sum), call["arguments"]);
    let last = &events.last().unwrap()["response"]["output"][0];
    assert_eq!((&last["call_id"], &last["arguments"]), (&call["call_id"], &call["arguments"]));

    let result = json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "It rains." });
    let input = json!([{ "role": "user", "content": "Who is king?" }, { "type": "reasoning", "id": "rs_1", "summary": [] }, call, result]);
    server.ok("/v1/responses", &body(input, json!({ "tool_choice": "none", "max_output_tokens": 4 })));
}

#[test]
fn tools_that_make_no_sense_are_refused_by_name() {
    let server = start_chat("qwen-3.jinja");
    let refused = |fields: Value, param: &str, told: &str| {
        let answer = server.client.post("/v1/chat/completions", &body(fields).to_string()).unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some(param.to_owned())),
            "{}",
            answer.text()
        );
        assert!(answer.text().contains(told), "{}", answer.text());
    };
    let tool = |schema: Value, strict: bool| json!([{ "type": "function", "function": { "name": "f", "parameters": schema, "strict": strict } }]);
    let odd = json!({ "type": "object", "not": {} });
    refused(json!({ "tools": tool(odd.clone(), true), "tool_choice": "required" }), "tools", "#/not");
    refused(json!({ "tools": tool(json!([]), false) }), "tools[0].function.parameters", "no object");
    refused(
        json!({ "tool_choice": { "type": "function", "function": { "name": "g" } } }),
        "tool_choice",
        "get_weather",
    );
    refused(
        json!({ "tool_choice": "required", "response_format": { "type": "json_object" } }),
        "tool_choice",
        "demands a call",
    );
    let many: Vec<Value> = (0..10_000)
        .map(|index| json!({ "type": "function", "function": { "name": format!("f{index}") } }))
        .collect();
    refused(json!({ "tools": many }), "tools", "10000 tools");
    // Without `strict`, what cannot be met is left out.
    let free = choice(
        &server,
        json!({ "tools": tool(odd, false), "tool_choice": "required", "max_tokens": 200, "parallel_tool_calls": false }),
    );
    assert_eq!(free["message"]["tool_calls"][0]["function"]["name"], "f", "{free}");
}

#[test]
fn a_template_that_knows_no_tools_says_so() {
    for template in ["gemma-2.jinja", "phi-3.jinja"] {
        let server = start_chat(template);
        let messages = json!([{ "role": "user", "content": "Who?" }]);
        let answer = server
            .client
            .post("/v1/chat/completions", &body(json!({ "messages": messages })).to_string())
            .unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("tools".to_owned())));
        assert!(answer.text().contains("no calls of tools"), "{}", answer.text());
        let none = json!({ "messages": messages, "tool_choice": "none", "max_tokens": 2 });
        server.ok("/v1/chat/completions", &body(none).to_string());
    }
}

#[test]
fn schemas_and_tools_go_together() {
    let server = start_chat("qwen-3.jinja");
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": { "enum": [1, 2] } } });
    let answer = choice(
        &server,
        json!({ "response_format": format, "tool_choice": "auto", "max_tokens": 200, "parallel_tool_calls": false,
        "chat_template_kwargs": { "enable_thinking": false } }),
    );
    let message = &answer["message"];
    let text = message["content"].as_str().unwrap_or_default().trim();
    assert!(["1", "2"].contains(&text) || message["tool_calls"].is_array(), "{answer}");
}
