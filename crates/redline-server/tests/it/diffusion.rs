//! Generated text of a model that fills masks, on OpenAI's routes.

use std::time::Duration;

use redline_engine::{
    Algorithm, BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, Prompt, Sampling, Ticket,
};
use redline_server::ApiKey;
use serde_json::{Value, json};

use crate::bad_input::values;
use crate::server::{Held, Running, Streamed, chat, error, held_masked, masked, model, start_with};

const PROMPT: &str = "In the beginning";
const TEMPLATE: &str = "parts.jinja";
const ROUTES: [&str; 3] = ["/v1/completions", "/v1/chat/completions", "/v1/responses"];

/// A server of the model that fills masks, which has a chat template.
fn start() -> Running {
    start_with(masked(), |config| config.chat = Some(chat(TEMPLATE)))
}

/// A body with these fields too.
fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// A body of a route for 16 masks, with these fields too.
fn body(path: &str, fields: &Value) -> String {
    let messages = json!([{ "role": "user", "content": "Who is king?" }]);
    let body = match path {
        "/v1/completions" => json!({ "prompt": PROMPT, "max_tokens": 16 }),
        "/v1/responses" => json!({ "input": messages, "max_output_tokens": 16 }),
        _ => json!({ "messages": messages, "max_tokens": 16 }),
    };
    with(&body, fields).to_string()
}

/// The fields of the order in which masks are filled, with a valid value.
const FIELDS: [(&str, &str); 9] = [
    ("steps", "4"),
    ("algorithm", "\"entropy\""),
    ("alg_temp", "0"),
    ("eps", "0.5"),
    ("block_length", "4"),
    ("cfg_scale", "0"),
    ("threshold", "0.5"),
    ("cache", "\"none\""),
    ("refresh", "1"),
];

/// The id of the mask.
const MASK: u64 = 4096;

/// A list of numbers.
fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// What the engine fills in.
fn filled(request: DiffuseRequest) -> DiffuseOutcome {
    masked().engine.submit_diffuse(request, &Cancel::new()).and_then(Ticket::wait).unwrap()
}

fn request(new: usize) -> DiffuseRequest {
    DiffuseRequest::new(Prompt::Text(PROMPT.to_owned()), new)
}

/// Orders in which masks are filled, as fields and as requests of the engine.
fn orders() -> Vec<(Value, DiffuseRequest)> {
    let sampling = Sampling { temperature: 0.8, top_p: 0.9, top_k: 40, seed: 7, ..Sampling::default() };
    vec![
        (json!({}), request(16)),
        (json!({ "steps": 4 }), DiffuseRequest { steps: Some(4), ..request(16) }),
        (
            json!({ "algorithm": "maskgit-plus", "alg_temp": 0.5, "seed": 3, "eps": 0.01 }),
            DiffuseRequest {
                algorithm: Some(Algorithm::MaskgitPlus),
                alg_temp: 0.5,
                eps: 0.01,
                sampling: Sampling { seed: 3, ..Sampling::default() },
                ..request(16)
            },
        ),
        (
            json!({ "block_length": 4, "threshold": 0.3, "cache": "dual", "refresh": 2 }),
            DiffuseRequest {
                block_length: Some(4),
                threshold: Some(0.3),
                cache: BlockCache::Dual,
                refresh: Some(2),
                ..request(16)
            },
        ),
        (
            json!({ "block_length": 8, "cfg_scale": 0.5, "ignore_eos": true }),
            DiffuseRequest { block_length: Some(8), cfg_scale: 0.5, ignore_eos: true, ..request(16) },
        ),
        (
            json!({ "temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 7, "stop": ["e"] }),
            DiffuseRequest { sampling, stop: vec!["e".to_owned()], ..request(16) },
        ),
    ]
}

#[test]
fn a_completion_is_that_of_the_engine_for_every_order() {
    let server = start();
    for (fields, request) in orders() {
        let expect = filled(request);
        let fields = with(&fields, &json!({ "return_token_ids": true }));
        let answer = server.ok("/v1/completions", &body("/v1/completions", &fields));
        let choice = &answer["choices"][0];
        assert_eq!((&choice["text"], &choice["token_ids"]), (&json!(expect.text), &json!(expect.token_ids)));
        assert_eq!(choice["finish_reason"], expect.finish_reason.name(), "{fields}");
        assert_eq!((&answer["object"], &choice["logprobs"]), (&json!("text_completion"), &Value::Null));
        let new: usize = expect.passes.iter().map(|pass| pass.filled.len()).sum();
        let usage = &answer["usage"];
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(expect.prompt_tokens), &json!(new))
        );
        let meta = json!({ "algorithm": expect.algorithm.name(), "passes": expect.passes.len(),
            "computed_tokens": expect.computed_tokens, "prompt_masks": 0 });
        assert_eq!(answer["meta"], meta, "{fields}");
    }
}

#[test]
fn several_prompts_have_their_order_and_masks_in_a_prompt_are_filled() {
    let server = start();
    let holes = "The <|mask|> said unto <|mask|>";
    let body = json!({ "prompt": [PROMPT, holes], "max_tokens": 8 });
    let answer = server.ok("/v1/completions", &body.to_string());
    let prompts = [Prompt::Text(PROMPT.to_owned()), Prompt::Text(holes.to_owned())];
    let expect: Vec<_> = prompts.into_iter().map(|prompt| filled(DiffuseRequest::new(prompt, 8))).collect();
    let texts: Vec<_> = answer["choices"].as_array().unwrap().iter().map(|one| one["text"].clone()).collect();
    assert_eq!(texts, expect.iter().map(|one| json!(one.text)).collect::<Vec<_>>());
    assert_eq!(answer["meta"]["prompt_masks"], 2);
    assert_eq!(answer["meta"]["passes"], expect.iter().map(|one| one.passes.len()).sum::<usize>());
    let ids = server.ok("/v1/completions", &json!({ "prompt": [[5, 6]], "max_tokens": 8 }).to_string());
    let expect = filled(DiffuseRequest::new(Prompt::Ids(vec![5, 6]), 8));
    assert_eq!(ids["choices"][0]["text"], expect.text);
    // Only the masks of the prompt.
    let answer = server.ok("/v1/completions", &json!({ "prompt": holes, "max_tokens": 0 }).to_string());
    let expect = filled(DiffuseRequest::new(Prompt::Text(holes.to_owned()), 0));
    assert_eq!(answer["choices"][0]["text"], expect.text);
    assert_eq!(answer["usage"]["completion_tokens"], 2);
}

#[test]
fn conversations_are_formatted_and_end_where_the_template_ends_answers() {
    let server = start();
    let text = "<|user|>Who is king?<|end|><|assistant|>";
    let mut request = DiffuseRequest::new(Prompt::Formatted(text.to_owned()), 16);
    request.stop_ids.extend(chat(TEMPLATE).stop_id(&request.prompt, false, &masked().engine));
    let expect = filled(request);
    let answer = server.ok(ROUTES[1], &body(ROUTES[1], &json!({})));
    assert_eq!(answer["choices"][0]["message"]["content"], expect.text);
    assert_eq!(
        (&answer["object"], &answer["meta"]["passes"]),
        (&json!("chat.completion"), &json!(expect.passes.len()))
    );
    let chat_meta = answer["meta"].clone();
    let answer = server.ok(ROUTES[2], &body(ROUTES[2], &json!({})));
    assert_eq!(answer["output"][0]["content"][0]["text"], expect.text);
    assert_eq!(answer["meta"], chat_meta);
    let events = server.events(ROUTES[2], &body(ROUTES[2], &json!({ "stream": true })));
    assert_eq!(events.last().unwrap()["response"]["meta"], chat_meta);
    assert!(events[0]["response"].get("meta").is_none());
    assert_eq!(answer["usage"]["output_tokens"], 16);
    // Without a number, an answer has as many masks as the command line takes.
    let long = server.ok(ROUTES[1], &body(ROUTES[1], &json!({ "max_tokens": null })));
    assert_eq!(long["usage"]["completion_tokens"], 128);
}

#[test]
fn a_token_that_ends_answers_ends_a_canvas() {
    let whole = filled(request(16));
    let end = whole.token_ids[5];
    let cut = filled(DiffuseRequest { stop_ids: vec![i64::from(end)], ..request(16) });
    let at = whole.token_ids.iter().position(|&id| id == end).unwrap();
    assert_eq!((&cut.token_ids[..], cut.finish_reason.name()), (&whole.token_ids[..=at], "stop"));
    assert!(cut.passes.len() <= whole.passes.len());
}

/// The texts that the events of a stream add up to, by choice, and why each ended.
fn added_up(path: &str, events: &[Value], choices: usize) -> Vec<(String, Value)> {
    let mut all = vec![(String::new(), Value::Null); choices];
    for event in events {
        if path == "/v1/responses" {
            all[0].0 += event["delta"].as_str().unwrap_or_default();
            if let Some(status) = event["response"]["status"].as_str() {
                all[0].1 = json!(status);
            }
            continue;
        }
        for choice in event["choices"].as_array().into_iter().flatten() {
            let (text, end) = &mut all[choice["index"].as_u64().unwrap() as usize];
            assert!(end.is_null(), "nothing follows the end: {choice}");
            let delta = if path == "/v1/completions" { &choice["text"] } else { &choice["delta"]["content"] };
            *text += delta.as_str().unwrap_or_default();
            *end = choice["finish_reason"].clone();
        }
    }
    all
}

#[test]
fn a_stream_adds_up_to_the_answer_without_one() {
    let server = start();
    for path in ROUTES {
        for (fields, _) in orders() {
            let mut fields = fields;
            if path == "/v1/responses" && fields.as_object_mut().unwrap().remove("stop").is_some() {
                continue;
            }
            let whole = server.ok(path, &body(path, &fields));
            let streamed = server.events(path, &body(path, &with(&fields, &json!({ "stream": true }))));
            let expect = match path {
                "/v1/completions" => (&whole["choices"][0]["text"], &whole["choices"][0]["finish_reason"]),
                "/v1/responses" => (&whole["output"][0]["content"][0]["text"], &whole["status"]),
                _ => (&whole["choices"][0]["message"]["content"], &whole["choices"][0]["finish_reason"]),
            };
            let (text, end) = added_up(path, &streamed, 1).remove(0);
            assert_eq!((&json!(text), &end), expect, "{path} {fields}");
            assert!(streamed.iter().all(|event| event["choices"][0].get("canvas").is_none()), "{fields}");
        }
    }
}

#[test]
fn blocks_are_sent_in_order_before_the_last_pass() {
    let server = start();
    let fields = json!({ "block_length": 4, "ignore_eos": true, "stream": true,
        "stream_options": { "include_canvas": true } });
    let events = server.events(ROUTES[0], &body(ROUTES[0], &fields));
    // Masks that were left when each text came.
    let (mut left, mut all) = (0, Vec::new());
    for choice in events.iter().flat_map(|event| event["choices"].as_array().into_iter().flatten()) {
        left = choice["canvas"]["masks_left"].as_u64().unwrap_or(left);
        if choice["text"] != "" {
            all.push(left);
        }
    }
    assert!(all.len() >= 4 && all[0] >= 12, "{all:?}");
    for block in [12, 8, 4, 0] {
        assert!(all.contains(&block), "the block that leaves {block} masks is sent at its end: {all:?}");
    }
}

#[test]
fn the_events_of_a_canvas_can_be_replayed() {
    let server = start();
    let all = orders().into_iter().map(|(fields, _)| with(&fields, &json!({ "prompt": PROMPT })));
    let holes = json!({ "prompt": [PROMPT, "The <|mask|> said unto <|mask|> again"] });
    for fields in all.chain([holes]) {
        let asked = json!({ "return_token_ids": true, "stream": true, "stream_options": { "include_canvas": true, "include_usage": true } });
        let mut events = server.events(ROUTES[0], &body(ROUTES[0], &with(&fields, &asked)));
        let whole =
            server.ok(ROUTES[0], &body(ROUTES[0], &with(&fields, &json!({ "return_token_ids": true }))));
        let choices = whole["choices"].as_array().unwrap();
        assert_eq!(events.pop(), Some(Value::Null), "the mark of the end");
        let last = events.pop().unwrap();
        assert_eq!((&last["usage"], &last["meta"]), (&whole["usage"], &whole["meta"]));
        let texts: Vec<_> =
            added_up(ROUTES[0], &events, choices.len()).into_iter().map(|one| one.0).collect();
        assert_eq!(texts, choices.iter().map(|one| one["text"].as_str().unwrap()).collect::<Vec<_>>());
        let mut token_ids = vec![json!([]); choices.len()];
        for one in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
            let own = token_ids[one["index"].as_u64().unwrap() as usize].as_array_mut().unwrap();
            own.extend(one["token_ids"].as_array().unwrap().iter().cloned());
        }
        let mut passes = 0;
        for (index, choice) in choices.iter().enumerate() {
            let own = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
            let mut events = own.filter(|one| one["index"] == index).filter_map(|one| one.get("canvas"));
            let first = events.next().unwrap();
            let (mut canvas, mut left) = (ids(&first["token_ids"]), first["masks_left"].as_u64().unwrap());
            let shown: Vec<_> = first["texts"].as_array().unwrap().iter().map(Value::is_null).collect();
            let masks: Vec<_> = canvas.iter().map(|&id| id == MASK).collect();
            assert_eq!((shown, left), (masks.clone(), masks.iter().filter(|mask| **mask).count() as u64));
            let mut text = vec![String::new(); canvas.len()];
            for pass in events {
                passes += 1;
                let (places, tokens) = (ids(&pass["positions"]), ids(&pass["token_ids"]));
                assert!(
                    pass["step"].is_u64()
                        && pass["rows"].as_u64().unwrap() + pass["from"].as_u64().unwrap()
                            <= canvas.len() as u64
                );
                assert_eq!(places.len(), pass["confidences"].as_array().unwrap().len());
                for (at, (&place, &token)) in places.iter().zip(&tokens).enumerate() {
                    assert_eq!(canvas[place as usize], MASK, "a mask is filled once");
                    canvas[place as usize] = token;
                    text[place as usize] = pass["texts"][at].as_str().unwrap().to_owned();
                }
                left -= places.len() as u64;
                assert_eq!(pass["masks_left"], left);
            }
            let prompt = canvas.len() - 16;
            let new = ids(&choice["token_ids"]);
            assert_eq!(&token_ids[index], &choice["token_ids"], "{fields}");
            assert_eq!(canvas[prompt..prompt + new.len()], new[..], "{fields}");
            if index == 0 && fields.get("stop").is_none() {
                assert_eq!(
                    text[prompt..prompt + new.len()].concat().replace("<|eos|>", ""),
                    choice["text"].as_str().unwrap()
                );
            }
        }
        assert_eq!(whole["meta"]["passes"], passes);
    }
}

#[test]
fn responses_send_what_is_new_of_the_canvas_in_events_of_their_own() {
    let server = start();
    let asked = |canvas: bool| {
        let options = json!({ "stream": true, "steps": 8, "block_length": 8, "stream_options": { "include_canvas": canvas } });
        let canvases = |path: &str| {
            let events = server.events(path, &body(path, &options));
            let choices = |event: &Value| event["choices"].as_array().cloned().unwrap_or_default();
            let all = events.iter().flat_map(|event| [choices(event), vec![event.clone()]].concat());
            (all.filter_map(|one| one.get("canvas").cloned()).collect::<Vec<_>>(), events)
        };
        [canvases(ROUTES[1]), canvases(ROUTES[2])]
    };
    let [(of_chat, _), (of_response, events)] = asked(true);
    assert_eq!(of_response, of_chat);
    assert_eq!(of_response.len(), 9);
    let own = events.iter().filter(|event| event["type"] == "response.canvas");
    for event in own.clone() {
        assert_eq!((&event["output_index"], &event["content_index"]), (&json!(0), &json!(0)), "{event}");
        assert_eq!(event["item_id"], events[2]["item"]["id"], "{event}");
    }
    assert_eq!(own.count(), 9);
    let places: Vec<_> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(places, (0..events.len() as u64).collect::<Vec<_>>());
    let [_, (without, others)] = asked(false);
    assert!(without.is_empty());
    let rest = events.iter().filter(|event| event["type"] != "response.canvas");
    let texts = |event: &Value| event["delta"].as_str().map(str::to_owned);
    assert_eq!(
        rest.filter_map(texts).collect::<String>(),
        others.iter().filter_map(texts).collect::<String>()
    );
}

#[test]
fn the_last_chunk_of_a_canvas_has_the_token_ids_and_no_chunk_says_nothing() {
    let server = start();
    let fields = json!({ "return_token_ids": true, "stream": true });
    let mut events = server.events(ROUTES[0], &body(ROUTES[0], &fields));
    assert_eq!(events.pop(), Some(Value::Null), "the mark of the end");
    let last = events.pop().unwrap();
    assert_eq!(ids(&last["choices"][0]["token_ids"]).len(), 16);
    for event in events {
        let choice = &event["choices"][0];
        assert!(choice["text"] != "" && choice["token_ids"] == json!([]), "{choice}");
    }
}

#[test]
fn token_counts_grow_with_the_masks_that_are_filled() {
    let server = start();
    let fields = json!({ "steps": 4, "ignore_eos": true, "stream": true, "stream_options": { "continuous_usage_stats": true } });
    let events = server.events(ROUTES[0], &body(ROUTES[0], &fields));
    let counts: Vec<_> =
        events.iter().filter_map(|chunk| chunk["usage"]["completion_tokens"].as_u64()).collect();
    assert!(counts.is_sorted() && counts.first() == Some(&0) && counts.last() == Some(&16), "{counts:?}");
    let prompt = filled(request(1)).prompt_tokens;
    assert!(
        events
            .iter()
            .filter(|event| event.is_object())
            .all(|event| event["usage"]["prompt_tokens"] == prompt)
    );
}

#[test]
fn a_canvas_has_the_same_bytes_alone_and_beside_others() {
    let server = start();
    let alone: Vec<_> = orders()
        .into_iter()
        .map(|(fields, _)| {
            let fields = body(ROUTES[0], &fields);
            let mut answer = server.ok(ROUTES[0], &fields);
            answer["id"] = Value::Null;
            answer["created"] = Value::Null;
            (fields, answer)
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            for (fields, expect) in &alone {
                let server = &server;
                scope.spawn(move || {
                    let mut answer = server.ok(ROUTES[0], fields);
                    answer["id"] = Value::Null;
                    answer["created"] = Value::Null;
                    assert_eq!(&answer, expect, "{fields}");
                });
            }
        }
    });
}

#[test]
fn what_canvases_do_not_have_is_refused_by_name_and_what_changes_nothing_is_not() {
    let server = start();
    let refused = |path: &str, fields: Value, param: &str| {
        let answer = server.client.post(path, &body(path, &fields)).unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some(param.to_owned())),
            "{}",
            answer.text()
        );
        assert!(answer.text().contains("; "), "a hint: {}", answer.text());
        if param == "n" {
            assert!(
                answer.text().contains("`n` is not supported by models that fill masks; "),
                "{}",
                answer.text()
            );
        }
    };
    for path in &ROUTES[..2] {
        for (param, value) in [
            ("n", json!(2)),
            ("min_p", json!(0.5)),
            ("typical_p", json!(0.5)),
            ("logit_bias", json!({ "5": 1 })),
            ("presence_penalty", json!(1)),
            ("frequency_penalty", json!(-1)),
            ("repetition_penalty", json!(1.5)),
            ("logprobs", if *path == ROUTES[0] { json!(0) } else { json!(true) }),
        ] {
            refused(path, json!({ param: value }), param);
        }
        let neutral = json!({ "n": 1, "min_p": 0, "typical_p": 1, "logit_bias": {}, "presence_penalty": 0,
            "frequency_penalty": 0, "repetition_penalty": 1, "cache_salt": "s", "logprobs": null, "steps": null,
            "algorithm": null, "cache": null, "user": "u" });
        let plain = server.ok(path, &body(path, &json!({})));
        assert_eq!(server.ok(path, &body(path, &neutral))["choices"], plain["choices"]);
    }
    refused(ROUTES[0], json!({ "best_of": 2 }), "best_of");
    refused(ROUTES[0], json!({ "echo": true }), "echo");
    refused(ROUTES[0], json!({ "suffix": "x" }), "suffix");
    refused(ROUTES[2], json!({ "min_p": 0.5 }), "min_p");
    let canvas = json!({ "include_canvas": true });
    refused(ROUTES[0], json!({ "stream_options": canvas }), "stream_options");
}

#[test]
fn the_memory_of_answers_holds_the_logits_of_guidance() {
    let server = start_with(masked(), |config| {
        config.chat = Some(chat(TEMPLATE));
        config.limits.all_answer_bytes = 1 << 20;
    });
    let guided = json!({ "cfg_scale": 1, "steps": 1 });
    for path in ROUTES {
        server.ok(path, &body(path, &guided));
        let number = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        let long = with(&guided, &json!({ number: 64 }));
        let answer = server.client.post(path, &body(path, &long)).unwrap();
        assert_eq!((error(&answer).0, error(&answer).1), (400, "answer_too_large".to_owned()));
        let plain = with(&long, &json!({ "cfg_scale": 0 }));
        server.ok(path, &body(path, &plain));
    }
    // Masks of a prompt count, also if a template writes them.
    let holes = "<|mask|> ".repeat(64);
    for prompt in [json!(holes), json!(vec![MASK; 64])] {
        let fields = with(&guided, &json!({ "prompt": prompt }));
        let answer = server.client.post(ROUTES[0], &body(ROUTES[0], &fields)).unwrap();
        assert_eq!(error(&answer).1, "answer_too_large", "{}", answer.text());
    }
    for (path, field) in [(ROUTES[1], "messages"), (ROUTES[2], "input")] {
        let fields = with(&guided, &json!({ field: [{ "role": "user", "content": holes }] }));
        let answer = server.client.post(path, &body(path, &fields)).unwrap();
        let expect = (400, "answer_too_large".to_owned(), Some(field.to_owned()));
        assert_eq!(error(&answer), expect, "{}", answer.text());
    }
}

#[test]
fn orders_that_make_no_sense_are_refused_by_name() {
    let server = start();
    for path in ROUTES {
        for (fields, param) in [
            (json!({ "steps": 0 }), "steps"),
            (json!({ "steps": 5000 }), "steps"),
            (json!({ "steps": 9_223_372_036_854_775_807_u64 }), "steps"),
            (json!({ "steps": 6, "block_length": 4 }), "steps"),
            (json!({ "steps": 4, "threshold": 0.5 }), "steps"),
            (json!({ "block_length": 0 }), "block_length"),
            (json!({ "block_length": 5 }), "block_length"),
            (json!({ "eps": 0 }), "eps"),
            (json!({ "eps": 2.5 }), "eps"),
            (json!({ "alg_temp": -1 }), "alg_temp"),
            (json!({ "alg_temp": 1, "threshold": 0.5 }), "alg_temp"),
            (json!({ "cfg_scale": -0.5 }), "cfg_scale"),
            (json!({ "cfg_scale": 1, "cache": "dual" }), "cfg_scale"),
            (json!({ "threshold": 1.5 }), "threshold"),
            (json!({ "threshold": 0.5, "algorithm": "entropy" }), "algorithm"),
            (json!({ "algorithm": "origin", "alg_temp": 1 }), "algorithm"),
            (json!({ "refresh": 0 }), "refresh"),
            (json!({ "refresh": 2 }), "refresh"),
        ] {
            let answer = server.client.post(path, &body(path, &fields)).unwrap();
            let expect = (400, "invalid_value".to_owned(), Some(param.to_owned()));
            assert_eq!(error(&answer), expect, "{path} {fields}: {}", answer.text());
        }
    }
    // A canvas that is far too long takes no memory.
    for (prompt, new) in [(json!(PROMPT), 600_u64), (json!(""), u64::MAX >> 1), (json!([5]), 9_000_000_000)] {
        let answer = server
            .client
            .post(ROUTES[0], &json!({ "prompt": prompt, "max_tokens": new }).to_string())
            .unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some("prompt".to_owned())),
            "{}",
            answer.text()
        );
    }
}

#[test]
fn every_new_field_with_a_value_of_another_kind_is_answered_or_refused_by_name() {
    let values = values();
    let servers = [start(), start_with(model(), |config| config.chat = Some(chat(TEMPLATE)))];
    for server in &servers {
        for path in ROUTES {
            for (field, _) in FIELDS {
                for value in &values {
                    let rest = body(path, &json!({}));
                    let body = format!("{{\"{field}\":{value},{}", rest.trim_start_matches('{'));
                    let answer = server.client.post(path, &body).unwrap();
                    let shown = format!("{path} {}: {}", &body[..body.len().min(120)], answer.text());
                    let shown: String = shown.chars().take(600).collect();
                    assert!(answer.status == 200 || answer.status == 400, "{shown}");
                    if answer.status == 400 {
                        let (_, code, param) = error(&answer);
                        let named = param.as_deref() == Some(field) || code == "invalid_json";
                        assert!(named, "{shown}");
                    }
                }
                let unknown = format!("{{\"{field}s\":1,{}", body(path, &json!({})).trim_start_matches('{'));
                let answer = server.client.post(path, &unknown).unwrap();
                assert_eq!(error(&answer).1, "unknown_parameter");
            }
        }
    }
}

#[test]
fn a_model_that_predicts_the_next_token_refuses_the_fields_of_canvases() {
    let server = start_with(model(), |config| config.chat = Some(chat(TEMPLATE)));
    for path in ROUTES {
        for (param, value) in FIELDS {
            let value: Value = serde_json::from_str(value).unwrap();
            let answer = server.client.post(path, &body(path, &json!({ param: value }))).unwrap();
            assert_eq!(
                error(&answer),
                (400, "invalid_value".to_owned(), Some(param.to_owned())),
                "{path} {param}"
            );
            assert!(answer.text().contains("for models that fill masks") && answer.text().contains("Dream"));
        }
    }
    let canvas = json!({ "stream": true, "stream_options": { "include_canvas": true } });
    let answer = server.client.post(ROUTES[0], &body(ROUTES[0], &canvas)).unwrap();
    assert_eq!(error(&answer).2.as_deref(), Some("stream_options.include_canvas"));
}

#[test]
fn the_server_tells_how_its_model_generates() {
    for (server, expect) in [(start(), "diffusion"), (start_with(model(), |_| ()), "autoregressive")] {
        let get = |path: &str| crate::server::json(&server.client.get(path).unwrap());
        assert_eq!(get("/v1/models")["data"][0]["generation"], expect);
        assert_eq!(get("/info")["generation"], expect);
    }
}

/// The value of a metric.
fn metric(server: &Running, name: &str) -> f64 {
    let text = server.client.get("/metrics").unwrap().text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn canvases_are_counted_as_other_requests_are() {
    let server = start();
    let fields = json!({ "steps": 4, "ignore_eos": true });
    let answer = server.ok(ROUTES[0], &body(ROUTES[0], &fields));
    let count = |name: &str| metric(&server, name) as u64;
    assert_eq!(count("redline_generation_tokens_total "), 16);
    assert_eq!(answer["usage"]["prompt_tokens"], count("redline_prompt_tokens_total "));
    assert_eq!(count("redline_engine_requests_total{end=\"finished\"}"), 1);
    assert_eq!(count("redline_time_to_first_token_seconds_count"), 1);
    let text = server.client.get("/metrics").unwrap().text();
    let passes = text.lines().filter(|line| line.starts_with("redline_passes_total{"));
    let passes: f64 = passes.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert_eq!(passes, 4.0, "{text}");
}

#[test]
fn a_client_that_leaves_a_canvas_cancels_it_before_its_next_pass() {
    let Held { server, holding, go } = held_masked(|config| config.limits.queue = 1);
    let fields = json!({ "max_tokens": 400, "ignore_eos": true, "stream": true, "stream_options": { "include_canvas": true } });
    let mut connection = server.open();
    let body = body(ROUTES[0], &fields);
    let stream = Streamed::of(connection.send("POST", ROUTES[0], body.as_bytes()).unwrap());
    holding.recv().unwrap();
    drop(stream);
    // The server notices while the engine is held in the first pass.
    while server.client.post("/tokenize", r#"{"prompt":"a"}"#).unwrap().status == 429 {}
    drop(go);
    while metric(&server, "redline_requests_running ") > 0.0 {}
    assert_eq!(metric(&server, "redline_kv_pages_used ") as u64, 0);
    assert_eq!(metric(&server, "redline_sequences_running ") as u64, 0);
    let text = server.client.get("/metrics").unwrap().text();
    let passes = text.lines().filter(|line| line.starts_with("redline_passes_total{"));
    let passes: f64 = passes.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert_eq!(passes, 1.0, "{text}");
    let (summary, log) = server.end();
    assert_eq!(summary.admitted, summary.ended);
    assert_eq!(log.iter().filter(|line| line["status"] == 499).count(), 1, "{log:?}");
}

#[test]
fn a_client_that_does_not_read_a_canvas_is_cut_off() {
    let server = start_with(masked(), |config| {
        config.limits.queue = 32;
        config.limits.stream_bytes = 1024;
        config.limits.send_time = Duration::from_millis(100);
    });
    // Far more than the system holds for a connection.
    let prompts: Vec<_> = (0..32).map(|_| vec![5; 40]).collect();
    let body = json!({ "prompt": prompts, "max_tokens": 440, "ignore_eos": true, "stream": true,
        "stream_options": { "include_canvas": true, "continuous_usage_stats": true } });
    let stream = server.client.send("POST", ROUTES[0], body.to_string().as_bytes()).unwrap();
    // It may be cut off before its first pass.
    let counted = format!("redline_http_requests_total{{route=\"{}\"", ROUTES[0]);
    while !server.client.get("/metrics").unwrap().text().contains(&counted) {
        std::thread::yield_now();
    }
    drop(stream);
    let (summary, log) = server.end();
    assert_eq!(summary.admitted, summary.ended);
    let line = log.iter().find(|line| line["route"] == ROUTES[0]).unwrap();
    assert!(line["status"] == 499 || line["code"] == "slow_reader", "{line}");
    assert!(line["completion_tokens"].as_u64().unwrap() < 32 * 440, "{line}");
}

#[test]
fn a_canvas_that_takes_too_long_ends_with_an_error() {
    let Held { server, holding, go } = held_masked(|_| ());
    let fields = json!({ "stream": true, "timeout_s": 0.05 });
    let mut connection = server.open();
    let body = body(ROUTES[0], &fields);
    let mut stream = Streamed::of(connection.send("POST", ROUTES[0], body.as_bytes()).unwrap());
    // Held until the time has passed: the server's clock goes on while it refuses requests that are already late.
    if holding.recv_timeout(Duration::from_secs(20)).is_ok() {
        std::thread::sleep(Duration::from_millis(60));
    }
    drop(go);
    let text = stream.rest();
    assert!(text.contains(r#""code":"deadline_exceeded""#) && !text.contains("[DONE]"), "{text}");
}

#[test]
fn a_stream_of_a_canvas_that_outlives_the_server_says_so() {
    let Held { server, holding, go } = held_masked(|config| config.limits.drain_time = Duration::ZERO);
    let mut connection = server.open();
    let body = body(ROUTES[0], &json!({ "stream": true, "ignore_eos": true }));
    let mut stream = Streamed::of(connection.send("POST", ROUTES[0], body.as_bytes()).unwrap());
    holding.recv().unwrap();
    server.stop();
    // The requests are cancelled after the port has closed.
    while server.client.get("/health").is_ok() {}
    drop(go);
    let mut last = None;
    while let Some((_, data)) = stream.next() {
        last = Some(data);
    }
    let last: Value = serde_json::from_str(&last.unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "draining");
    let (summary, _) = server.end();
    assert_eq!((summary.admitted, summary.ended), (1, 1));
}

#[test]
fn canvases_wait_and_are_refused_as_other_requests() {
    let two = |config: &mut redline_server::ServerConfig| {
        config.keys = vec![ApiKey::new("alice", "one"), ApiKey::new("bob", "two")];
        config.limits.queue = 8;
    };
    let Held { server, holding, go } = held_masked(two);
    let alice = server.client.clone().with_header("x-api-key", "one");
    let bob = server.client.clone().with_header("x-api-key", "two");
    assert_eq!(error(&server.client.post(ROUTES[0], &body(ROUTES[0], &json!({}))).unwrap()).0, 401);
    let six = json!({ "prompt": vec!["a"; 6], "max_tokens": 2 }).to_string();
    let running = alice.send("POST", ROUTES[0], six.as_bytes()).unwrap();
    holding.recv().unwrap();
    // Two of eight places are left, which is a quarter.
    let one = body(ROUTES[0], &json!({}));
    let refused = alice.post(ROUTES[0], &one).unwrap();
    assert_eq!(error(&refused), (429, "queue_full".to_owned(), None));
    // Another key has a place, and is told that it was not begun in time.
    let brief = bob.clone().with_header("x-queue-timeout", "0");
    let waiting = std::thread::spawn(move || brief.post(ROUTES[0], &one).unwrap());
    let metrics = || bob.get("/metrics").unwrap().text();
    let in_engine = |text: &str| {
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        value("redline_requests_waiting ") + value("redline_requests_running ")
    };
    while in_engine(&metrics()) < 7.0 {}
    drop(go);
    assert_eq!(error(&waiting.join().unwrap()), (503, "queue_timeout".to_owned(), None));
    drop(running);
}
