//! `/v1/chat/completions`.

use redline_engine::{Cancel, GenerateRequest, Prompt, Ticket};
use serde_json::{Value, json};

use crate::server::{chat, error, model, start, start_chat, start_with};

const TEMPLATE: &str = "parts.jinja";

fn messages() -> Value {
    json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Who is king?" }])
}

/// A body with these fields too.
fn body(fields: Value) -> String {
    let mut body = json!({ "messages": messages(), "max_tokens": 24 });
    let Value::Object(fields) = fields else { panic!("{fields}") };
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

#[test]
fn tokens_of_a_conversation_are_those_of_its_prompt() {
    // The second template prints the date.
    for template in [TEMPLATE, "llama-3.2.jinja"] {
        let server = start_chat(template);
        let user = json!({ "role": "user", "content": "Who is king?" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        let of_two = json!([text("Be "), text("brief.")]);
        for (system, messages) in [
            (json!("Be brief."), json!([{ "role": "system", "content": "Be brief." }, user])),
            (of_two.clone(), json!([{ "role": "system", "content": of_two }, user])),
            (json!([]), json!([user])),
            (Value::Null, json!([user])),
        ] {
            let fields = json!({ "system": system, "messages": [user], "tools": [] });
            let counted = server.ok("/v1/messages/count_tokens", &fields.to_string());
            let answer = server.ok("/v1/chat/completions", &body(json!({ "messages": messages })));
            assert_eq!(counted, json!({ "input_tokens": answer["usage"]["prompt_tokens"] }), "{fields}");
        }
    }
    let server = start_chat(TEMPLATE);
    for (fields, param) in [
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": messages() }), "messages[0].role"),
        (json!({ "messages": [{ "role": "user", "content": "a" }], "tools": [{}] }), "tools[0].name"),
        (json!({ "messages": [{ "role": "king", "content": "a" }] }), "messages[0].role"),
    ] {
        let answer = server.client.post("/v1/messages/count_tokens", &fields.to_string()).unwrap();
        assert_eq!((answer.status, error(&answer).2.as_deref()), (400, Some(param)), "{}", answer.text());
    }
}

#[test]
fn an_answer_continues_the_formatted_conversation() {
    let server = start_chat(TEMPLATE);
    let answer = server.ok("/v1/chat/completions", &body(json!({})));
    let text = "<|system|>Be brief.<|end|><|user|>Who is king?<|end|><|assistant|>";
    let mut request = GenerateRequest::new(Prompt::Formatted(text.to_owned()), 24);
    let engine = model().engine;
    request.stop_ids.extend(chat(TEMPLATE).stop_id(&request.prompt, false, &engine));
    let expect = engine.submit_generate(request, &Cancel::new()).and_then(Ticket::wait).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": expect.text, "refusal": null }));
    assert_eq!((&answer["object"], &choice["logprobs"]), (&json!("chat.completion"), &Value::Null));
    assert_eq!(answer["usage"]["prompt_tokens"], expect.prompt_token_ids.len());
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let parts = json!([{ "role": "system", "content": [{ "type": "text", "text": "Be " }, { "type": "text", "text": "brief." }] },
        { "role": "user", "content": "Who is king?" }]);
    let of_parts = server.ok("/v1/chat/completions", &body(json!({ "messages": parts })));
    assert_eq!(of_parts["choices"], answer["choices"]);
}

#[test]
fn a_stream_adds_up_to_the_answer_without_one() {
    let server = start_chat(TEMPLATE);
    for fields in [
        json!({}),
        json!({ "n": 3, "temperature": 1.5, "seed": 4, "stop": ["e"] }),
        json!({ "logprobs": true, "top_logprobs": 2, "temperature": 6, "seed": 3, "max_tokens": 60 }),
    ] {
        let whole = server.ok("/v1/chat/completions", &body(fields.clone()));
        let mut fields = fields;
        fields["stream"] = json!(true);
        fields["stream_options"] = json!({ "include_usage": true });
        let mut events = server.events("/v1/chat/completions", &body(fields));
        assert_eq!(events.pop(), Some(Value::Null));
        let usage = events.pop().unwrap();
        assert_eq!((&usage["usage"], &usage["choices"]), (&whole["usage"], &json!([])));
        for choice in whole["choices"].as_array().unwrap() {
            let own = || {
                events.iter().map(|event| &event["choices"][0]).filter(|own| own["index"] == choice["index"])
            };
            let first = own().next().unwrap();
            assert_eq!(first["delta"], json!({ "role": "assistant", "content": "" }));
            assert_eq!(own().filter(|own| own["delta"]["role"].is_string()).count(), 1);
            let text: String = own().filter_map(|own| own["delta"]["content"].as_str()).collect();
            assert_eq!(text, choice["message"]["content"]);
            let last = own().next_back().unwrap();
            assert_eq!((&last["finish_reason"], &last["delta"]), (&choice["finish_reason"], &json!({})));
            assert_eq!(own().filter(|own| !own["finish_reason"].is_null()).count(), 1);
            let told: Vec<_> =
                own().filter_map(|own| own["logprobs"]["content"].as_array()).flatten().collect();
            let expect = choice["logprobs"]["content"].as_array();
            assert_eq!(told, expect.into_iter().flatten().collect::<Vec<_>>());
        }
        assert!(events.iter().all(|event| event["object"] == "chat.completion.chunk"));
    }
}

#[test]
fn log_probabilities_have_the_bytes_of_their_tokens() {
    let server = start_chat(TEMPLATE);
    let fields = json!({ "logprobs": true, "top_logprobs": 20, "temperature": 8, "seed": 1, "max_tokens": 64, "ignore_eos": true });
    let answer = server.ok("/v1/chat/completions", &body(fields));
    let positions = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(positions.len(), 64);
    let mut bytes = Vec::new();
    for position in positions {
        assert_eq!(position["top_logprobs"].as_array().unwrap().len(), 20);
        for token in position["top_logprobs"].as_array().unwrap().iter().chain([position]) {
            let own: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
            assert_eq!(String::from_utf8_lossy(&own), token["token"].as_str().unwrap());
        }
        let own: Vec<u8> = serde_json::from_value(position["bytes"].clone()).unwrap();
        if !["<|bos|>", "<|eos|>"].contains(&position["token"].as_str().unwrap()) {
            bytes.extend(own);
        }
    }
    assert_eq!(String::from_utf8_lossy(&bytes), answer["choices"][0]["message"]["content"].as_str().unwrap());
}

#[test]
fn an_answer_without_a_maximum_ends_with_the_context() {
    let server = start_chat(TEMPLATE);
    let fields = json!({ "max_tokens": null, "ignore_eos": true });
    let answer = server.ok("/v1/chat/completions", &body(fields));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["total_tokens"], model().engine.info().context);
    let fields = json!({ "max_completion_tokens": 3, "max_tokens": null, "ignore_eos": true });
    assert_eq!(server.ok("/v1/chat/completions", &body(fields))["usage"]["completion_tokens"], 3);
    let answer = server.client.post("/v1/chat/completions", &body(json!({ "max_tokens": 100_000 }))).unwrap();
    assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("messages".to_owned())));
}

#[test]
fn a_conversation_that_goes_on_comes_from_the_cache() {
    let server = start_with(model(), |config| config.chat = Some(chat(TEMPLATE)));
    let cached = |fields| {
        let usage = server.ok("/v1/chat/completions", &body(fields))["usage"].clone();
        (
            usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
            usage["prompt_tokens"].as_u64().unwrap(),
        )
    };
    let (before, prompt) = cached(json!({}));
    let (again, _) = cached(json!({}));
    assert_eq!((before, again), (0, prompt - 1));
    assert_eq!(cached(json!({ "cache_salt": "other" })).0, 0);
}

#[test]
fn the_template_gets_its_variables() {
    let server = start_chat("qwen-3.jinja");
    let tokens =
        |fields| server.ok("/v1/chat/completions", &body(fields))["usage"]["prompt_tokens"].as_u64().unwrap();
    let plain = tokens(json!({}));
    assert!(tokens(json!({ "chat_template_kwargs": { "enable_thinking": false } })) > plain);
    assert!(tokens(json!({ "add_generation_prompt": false })) < plain);
    let begun =
        json!([{ "role": "user", "content": "Who?" }, { "role": "assistant", "content": "The king" }]);
    let whole = tokens(json!({ "messages": begun }));
    assert!(tokens(json!({ "messages": begun, "continue_final_message": true })) < whole);
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    assert_eq!(tokens(json!({ "tools": [], "tool_choice": "none" })), plain);
    let told = tokens(json!({ "tools": tools }));
    assert!(told > plain);
    assert_eq!(
        tokens(json!({ "tools": tools, "tool_choice": "none" })),
        told,
        "the prompt of a conversation does not depend on whether tools are called now"
    );
    assert_eq!(tokens(json!({ "reasoning_effort": "high" })), plain);
    assert!(tokens(json!({ "reasoning_effort": "none" })) > plain);
    let explicit = json!({ "reasoning_effort": "none", "chat_template_kwargs": { "enable_thinking": true } });
    assert_eq!(tokens(explicit), plain, "variables that are given themselves count");
}

#[test]
fn what_changes_nothing_is_accepted() {
    let server = start_chat(TEMPLATE);
    let plain = server.ok("/v1/chat/completions", &body(json!({})));
    let harmless = json!({ "user": "u", "metadata": { "a": "b" }, "store": true, "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": true, "response_format": { "type": "text" }, "modalities": ["text"], "n": 1, "stop": null,
        "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "logprobs": false, "top_logprobs": 0,
        "logit_bias": {}, "stream": false, "functions": [], "function_call": "none", "audio": null, "documents": null });
    assert_eq!(server.ok("/v1/chat/completions", &body(harmless))["choices"], plain["choices"]);
}

#[test]
fn an_answer_without_content_is_empty() {
    let server = start_chat("qwen-2.5.jinja");
    let answered = |content: Value| {
        let answer = json!({ "role": "assistant", "content": content });
        let messages =
            json!([{ "role": "user", "content": "Who?" }, answer, { "role": "user", "content": "Who?" }]);
        server.ok("/v1/chat/completions", &body(json!({ "messages": messages })))["choices"].clone()
    };
    assert_eq!(answered(Value::Null), answered(json!("")));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let server = start_chat(TEMPLATE);
    let refused = |fields: Value, param: &str| {
        let answer = server.client.post("/v1/chat/completions", &body(fields)).unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some(param.to_owned())),
            "{}",
            answer.text()
        );
    };
    refused(json!({ "tools": [{ "type": "function" }] }), "tools[0].function.name");
    refused(json!({ "tools": [{ "type": "function", "function": { "name": "f" } }] }), "tools");
    refused(json!({ "tool_choice": "required" }), "tool_choice");
    refused(json!({ "functions": [{ "name": "f" }] }), "functions");
    refused(json!({ "function_call": { "name": "f" } }), "function_call");
    refused(json!({ "response_format": { "type": "yaml" } }), "response_format.type");
    refused(json!({ "modalities": ["text", "audio"] }), "modalities");
    refused(json!({ "audio": { "voice": "v" } }), "audio");
    refused(json!({ "prediction": { "type": "content" } }), "prediction");
    refused(json!({ "thinking_token_budget": 0 }), "thinking_token_budget");
    refused(json!({ "top_logprobs": 2 }), "top_logprobs");
    refused(json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs");
    refused(json!({ "max_completion_tokens": 9 }), "max_tokens");
    refused(json!({ "max_tokens": 0 }), "max_tokens");
    refused(json!({ "date": "today" }), "date");
    refused(json!({ "messages": [] }), "messages");
    refused(json!({ "messages": [{ "role": "user" }] }), "messages");
    refused(json!({ "messages": [3] }), "messages");
    let image =
        json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "u" } }] }]);
    refused(json!({ "messages": image }), "messages");
    refused(json!({ "continue_final_message": true, "add_generation_prompt": true }), "messages");
    refused(json!({ "chat_template_kwargs": { "messages": 1 } }), "messages");
}

#[test]
fn what_a_template_refuses_is_the_fault_of_the_messages() {
    let server = start_chat("gemma-2.jinja");
    let answer = server.client.post("/v1/chat/completions", &body(json!({}))).unwrap();
    assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("messages".to_owned())));
    assert!(answer.text().contains("There is no system role"), "{}", answer.text());
}

#[test]
fn a_model_without_a_template_says_so() {
    let server = start();
    for (path, body, param) in [
        ("/v1/chat/completions", body(json!({ "stream": true })), "messages"),
        ("/v1/responses", json!({ "input": "Who is king?" }).to_string(), "input"),
    ] {
        let answer = server.client.post(path, &body).unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some(param.to_owned())));
        let text = answer.text();
        assert!(
            text.contains("`demo` has no chat template") && text.contains("the server's `chat_template`"),
            "{text}"
        );
    }
}
