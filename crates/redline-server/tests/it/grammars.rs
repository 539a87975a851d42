//! Structured output: what a text has to be, by every name and in every route for generated text.

use serde_json::{Value, json};

use crate::server::{Running, error, start_chat};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 8 }, "age": { "type": "integer", "minimum": 1, "maximum": 99 } },
        "required": ["name", "age"],
        "additionalProperties": false
    })
}

fn named_schema() -> Value {
    json!({ "type": "json_schema", "json_schema": { "name": "person", "strict": true, "schema": schema() } })
}

/// A body of the route with these fields too.
fn body(path: &str, fields: Value) -> String {
    let mut body = match path {
        CHAT => json!({ "messages": [{ "role": "user", "content": "Who is king?" }], "max_tokens": 200 }),
        COMPLETIONS => json!({ "prompt": "The king", "max_tokens": 200 }),
        _ => json!({ "input": "Who is king?", "max_output_tokens": 200 }),
    };
    let Value::Object(fields) = fields else { panic!("{fields}") };
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

fn text(path: &str, answer: &Value) -> String {
    let text = match path {
        CHAT => &answer["choices"][0]["message"]["content"],
        COMPLETIONS => &answer["choices"][0]["text"],
        _ => &answer["output"][0]["content"][0]["text"],
    };
    text.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn is_person(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    value.as_object().is_some_and(|keys| keys.len() == 2)
        && value["name"].as_str().is_some_and(|name| name.chars().count() <= 8)
        && value["age"].as_u64().is_some_and(|age| (1..=99).contains(&age))
}

#[test]
fn a_schema_is_met_by_every_name() {
    let server = start_chat("parts.jinja");
    let as_text = Value::from(schema().to_string());
    let format = json!({ "type": "json_schema", "name": "person", "schema": schema(), "strict": true });
    for (path, fields) in [
        (CHAT, json!({ "response_format": named_schema() })),
        (CHAT, json!({ "response_format": { "type": "json_object", "schema": schema() } })),
        (CHAT, json!({ "structured_outputs": { "json": schema() } })),
        (CHAT, json!({ "guided_json": schema(), "temperature": 1, "seed": 4 })),
        (COMPLETIONS, json!({ "json_schema": as_text })),
        (COMPLETIONS, json!({ "response_format": named_schema() })),
        (RESPONSES, json!({ "text": { "format": format } })),
    ] {
        let answer = server.ok(path, &body(path, fields.clone()));
        assert!(is_person(&text(path, &answer)), "{fields}: {answer}");
        match path {
            RESPONSES => {
                assert_eq!(
                    (&answer["status"], &answer["text"]["format"]["type"]),
                    (&json!("completed"), &json!("json_schema"))
                );
            }
            _ => assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}"),
        }
    }
    let object = server
        .ok(CHAT, &body(CHAT, json!({ "response_format": { "type": "json_object" }, "max_tokens": 400 })));
    let whole = object["choices"][0]["finish_reason"] == "stop";
    assert!(text(CHAT, &object).trim_start().starts_with('{'), "{object}");
    assert!(!whole || serde_json::from_str::<Value>(&text(CHAT, &object)).unwrap().is_object(), "{object}");
}

#[test]
fn other_grammars_are_met_too() {
    let server = start_chat("parts.jinja");
    for (fields, texts) in [
        (json!({ "choice": ["yes", "no"] }), &["yes", "no"][..]),
        (json!({ "structured_outputs": { "choice": ["maybe"] } }), &["maybe"]),
        (json!({ "regex": "(red|blue) sea" }), &["red sea", "blue sea"]),
        (json!({ "grammar": "start: \"a\" | \"b\"" }), &["a", "b"]),
        (json!({ "ebnf": "root ::= [cd]" }), &["c", "d"]),
    ] {
        for path in [CHAT, COMPLETIONS, RESPONSES] {
            let answer = server.ok(path, &body(path, fields.clone()));
            assert!(texts.contains(&&*text(path, &answer)), "{path} {fields}: {answer}");
        }
    }
}

#[test]
fn a_stream_is_the_whole_answer() {
    let server = start_chat("parts.jinja");
    let fields = json!({ "response_format": named_schema() });
    let whole = text(CHAT, &server.ok(CHAT, &body(CHAT, fields.clone())));
    let mut streamed = fields;
    streamed["stream"] = Value::Bool(true);
    let events = server.events(CHAT, &body(CHAT, streamed));
    let delta =
        |event: &Value| event["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned();
    assert_eq!(events.iter().map(delta).collect::<String>(), whole);
    assert!(events.iter().any(|event| event["choices"][0]["finish_reason"] == "stop"));
}

#[test]
fn a_grammar_that_cannot_be_used_is_refused_by_its_field() {
    let server = start_chat("parts.jinja");
    let refused = |server: &Running, path: &str, fields: Value, param: &str, fact: &str| {
        let answer = server.client.post(path, &body(path, fields)).unwrap();
        let told = (answer.status, error(&answer).2);
        assert_eq!(told, (400, Some(param.to_owned())), "{}", answer.text());
        assert!(answer.text().contains(fact), "{}", answer.text());
    };
    let format =
        |schema: Value| json!({ "type": "json_schema", "json_schema": { "name": "a", "schema": schema } });
    let schema_param = "response_format.json_schema.schema";
    for (fields, param, fact) in [
        (
            json!({ "response_format": format(json!({ "not": {} })) }),
            schema_param,
            "`#/not` is not supported",
        ),
        (json!({ "response_format": format(json!({ "type": "x" })) }), schema_param, "x"),
        (json!({ "response_format": format(json!([1])) }), schema_param, "a JSON schema is an object"),
        (json!({ "response_format": { "type": "json_schema" } }), schema_param, "no schema is given"),
        (json!({ "response_format": { "type": "yaml" } }), "response_format.type", "\\\"yaml\\\""),
        (json!({ "regex": "(" }), "regex", "unclosed group"),
        (json!({ "regex": "a", "choice": ["b"] }), "choice", "`regex` and `choice` both"),
        (json!({ "grammar": "root ::= b" }), "grammar", "there is no rule `b`"),
        (json!({ "structured_outputs": {} }), "structured_outputs", "exactly one"),
        (json!({ "choice": [] }), "choice", "0 choices"),
    ] {
        refused(&server, CHAT, fields.clone(), param, fact);
        // Again: what was found out about a grammar is kept.
        refused(&server, CHAT, fields, param, fact);
    }
    let format = json!({ "format": { "type": "json_schema", "name": "a", "schema": { "if": {} } } });
    refused(&server, RESPONSES, json!({ "text": format }), "text.format.schema", "`#/if` is not supported");
    let both = json!({ "text": { "format": { "type": "json_object" } }, "regex": "a" });
    refused(&server, RESPONSES, both, "text.format", "both");
    // Nobody else notices.
    assert_eq!(text(CHAT, &server.ok(CHAT, &body(CHAT, json!({ "choice": ["yes"] })))), "yes");
}

/// A schema that takes seconds to compile does not keep others waiting, nor its own client beyond its time.
#[test]
fn a_schema_that_takes_long_ends_with_its_time() {
    let server = start_chat("parts.jinja");
    let slow = json!({ "json_schema": { "type": "integer", "multipleOf": 99_991 }, "timeout_s": 0.001 });
    let answer = server.client.post(CHAT, &body(CHAT, slow)).unwrap();
    assert_eq!((answer.status, error(&answer).1.as_str()), (408, "deadline_exceeded"), "{}", answer.text());
    let plain = body(CHAT, json!({ "max_tokens": 3 }));
    assert_eq!(server.ok(CHAT, &plain)["usage"]["completion_tokens"], 3);
}

/// A small model would write keys on and on, where the schema does not name them.
#[test]
fn objects_have_the_keys_that_their_schema_names() {
    let server = start_chat("qwen-2.5.jinja");
    let schema = json!({ "type": "object", "properties": { "land": { "enum": ["Israel", "Judah"] } }, "required": ["land"] });
    let format = json!({ "type": "json_object", "value": schema });
    let tool = json!({ "type": "function", "function": { "name": "find", "parameters": schema } });
    let ask = |fields: Value| {
        let mut body =
            json!({ "messages": [{ "role": "user", "content": "Who is king?" }], "max_tokens": 96 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.ok("/v1/chat/completions", &body.to_string())["choices"][0]["message"].clone()
    };
    let text = ask(json!({ "response_format": format }))["content"].as_str().unwrap().to_owned();
    let called = ask(json!({ "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false }));
    let called = called["tool_calls"][0]["function"]["arguments"].as_str().unwrap().to_owned();
    for json in [text, called] {
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["land"], "{json}");
    }
}

#[test]
fn log_probabilities_tell_how_much_the_grammar_forbade() {
    let server = start_chat("parts.jinja");
    let fields = json!({ "logprobs": true, "choice": ["king", "priest"] });
    let answer = server.ok(CHAT, &body(CHAT, fields));
    let positions = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    for position in positions {
        let masked = position["masked_mass"].as_f64().unwrap();
        let own = position["logprob"].as_f64().unwrap().exp();
        assert!((0.0..=1.0).contains(&masked) && own <= 1.0 - masked + 1e-6, "{position}");
    }
    // The model alone would have begun with something else.
    assert!(positions[0]["masked_mass"].as_f64() > Some(0.9), "{positions:?}");
    let lists = json!({ "logprobs": 0, "choice": [" was", " is"] });
    let answer = server.ok(COMPLETIONS, &body(COMPLETIONS, lists));
    let lists = &answer["choices"][0]["logprobs"];
    let [masses, tokens] = ["masked_mass", "tokens"].map(|key| lists[key].as_array().unwrap());
    assert!(masses.len() == tokens.len() && masses.iter().all(Value::is_f64), "{lists}");
    // Without a grammar, nothing is said of it.
    let free = server.ok(CHAT, &body(CHAT, json!({ "logprobs": true, "max_tokens": 2 })));
    assert_eq!(free["choices"][0]["logprobs"]["content"][0].get("masked_mass"), None);
    let free = server.ok(COMPLETIONS, &body(COMPLETIONS, json!({ "logprobs": 0, "max_tokens": 2 })));
    assert_eq!(free["choices"][0]["logprobs"].get("masked_mass"), None);
}
