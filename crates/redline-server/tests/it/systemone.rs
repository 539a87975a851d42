//! `/v1/systemone`: the answers to questions about a state, in TypeSafe's form. The cases are those that llama.cpp's tests of this route
//! have, as far as they concern what this server does.

use redline_engine::PrefixCacheSize;
use serde_json::{Value, json};

use crate::decisions::{reasoning, wide};
use crate::metrics::values;
use crate::server::{Running, held, json as document, model, model_with, start, start_with};

const STATE: &str = "I was charged twice for my order last week and nobody has replied.";

fn questions() -> Value {
    json!({
        "route": { "type": "choice", "instructions": "Which team should handle this?",
            "criteria": { "billing": "payments and refunds", "shipping": null, "technical": null } },
        "urgency": { "type": "score", "instructions": "How urgent is this?",
            "criteria": ["can wait", "this week", "today", "right now"] },
        "angry": { "type": "noul", "instructions": "Is the customer angry?" },
    })
}

/// A server that keeps prefixes.
fn caching() -> Running {
    start_with(model_with(|options| options.prefix_cache = Some(PrefixCacheSize::Automatic)), |_| ())
}

/// The questions with their names in the order of the text: the tests' JSON sorts keys.
fn ordered() -> String {
    let all = questions();
    let entries: Vec<String> =
        ["route", "urgency", "angry"].iter().map(|name| format!("\"{name}\":{}", all[*name])).collect();
    format!("{{\"state\":{},\"questions\":{{{}}}}}", json!(STATE), entries.join(","))
}

fn noul(instructions: &Value) -> Value {
    json!({ "state": STATE, "questions": { "q": { "type": "noul", "instructions": instructions } } })
}

/// Status, code and the place of the fault.
fn refusal(server: &Running, body: &str) -> (u16, String, Value) {
    let answer = server.client.post("/v1/systemone", body).unwrap();
    let document = document(&answer);
    let error = &document["error"];
    assert!(error["message"].is_string(), "{document}");
    assert!(document.get("answers").is_none());
    (answer.status, error["code"].as_str().unwrap().to_owned(), document["detail"][0]["loc"].clone())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn shares(answer: &Value) -> Vec<f64> {
    answer["probabilities"].as_object().unwrap().values().map(number).collect()
}

#[test]
fn each_type_has_its_form() {
    let server = start();
    let answer = server.client.post("/v1/systemone", &ordered()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let places: Vec<usize> = ["\"route\":{\"type\"", "\"urgency\":{\"type\"", "\"angry\":{\"type\""]
        .map(|key| text.find(key).unwrap())
        .to_vec();
    assert!(places.is_sorted(), "answers keep the order of the questions: {text}");
    let places: Vec<usize> =
        ["\"billing\":", "\"shipping\":", "\"technical\":"].map(|key| text.find(key).unwrap()).to_vec();
    assert!(places.is_sorted(), "options keep their order: {text}");

    let document = document(&answer);
    assert_eq!((&document["model"], &document["object"]), (&json!("demo"), &json!("structured_decision")));
    let usage = document["usage"].as_object().unwrap();
    assert!(usage.len() == 2 && number(&usage["input_tokens"]) > 0.0 && usage["output_tokens"] == 0);
    let answers = &document["answers"];
    let keys = |of: &Value| {
        let mut keys: Vec<_> = of.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys
    };

    let route = &answers["route"];
    assert_eq!(keys(route), ["choice", "confidence", "probabilities", "type"]);
    let p = shares(route);
    let best = p.iter().copied().fold(0.0, f64::max);
    assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-5);
    assert_eq!(number(&route["probabilities"][route["choice"].as_str().unwrap()]), best);
    assert!((number(&route["confidence"]) - (3.0 * best - 1.0) / 2.0).abs() < 1e-6);

    let urgency = &answers["urgency"];
    assert_eq!(keys(urgency), ["confidence", "legend", "probabilities", "score", "type"]);
    assert_eq!(
        urgency["legend"],
        json!({ "0": "can wait", "1": "this week", "2": "today", "3": "right now" })
    );
    let p = shares(urgency);
    let score: f64 = p.iter().enumerate().map(|(level, share)| level as f64 * share).sum();
    assert!((number(&urgency["score"]) - score).abs() < 1e-5);
    let mode = (0..4).rev().max_by(|&a, &b| p[a].total_cmp(&p[b])).unwrap();
    let mean: f64 = p.iter().enumerate().map(|(level, share)| share * level.abs_diff(mode) as f64).sum();
    assert!((number(&urgency["confidence"]) - (1.0 - mean).max(0.0)).abs() < 1e-6, "{urgency}");

    let angry = &answers["angry"];
    assert_eq!(keys(angry), ["noul", "type"]);
    assert!((0.0..=1.0).contains(&number(&angry["noul"])));
    for name in ["route", "urgency", "angry"] {
        let told = &document["diagnostics"][name];
        assert!((0.0..=1.0).contains(&number(&told["label_mass"])) && told["argmax_is_label"].is_boolean());
    }
}

#[test]
fn the_model_that_answered_is_named_whatever_of_its_vendor_was_asked_for() {
    let server = start();
    for model in ["jev-latest", "jev-preview", "", "demo"] {
        let body = json!({ "model": model, "state": STATE, "questions": questions() });
        assert_eq!(server.ok("/v1/systemone", &body.to_string())["model"], "demo", "{model}");
    }
    let body = json!({ "model": 123, "state": STATE, "questions": questions() });
    assert_eq!(
        refusal(&server, &body.to_string()),
        (422, "invalid_type".to_owned(), json!(["body", "model"]))
    );
    let body = json!({ "model": "some-router-name", "state": STATE, "questions": questions() });
    assert_eq!(refusal(&server, &body.to_string()).0, 404);
}

#[test]
fn the_name_of_a_question_changes_no_answer() {
    let server = start();
    let answers =
        server.ok("/v1/systemone", &json!({ "state": STATE, "questions": questions() }).to_string());
    let all = questions();
    let renamed: Value =
        all.as_object().unwrap().iter().map(|(name, q)| (format!("question 18 {name}"), q.clone())).collect();
    let other = server.ok("/v1/systemone", &json!({ "state": STATE, "questions": renamed }).to_string());
    for (name, answer) in answers["answers"].as_object().unwrap() {
        assert_eq!(&other["answers"][format!("question 18 {name}")], answer);
    }
}

#[test]
fn a_state_of_json_is_its_compact_text() {
    let server = start();
    let question =
        r#""questions":{"q":{"type":"noul","instructions":"?","criteria":{"false":"none","true":null}}}"#;
    let object =
        server.ok("/v1/systemone", &format!("{{\"state\":{{\"b\": 1,\n \"a\": [\"\\u00e9\"]}},{question}}}"));
    let text =
        server.ok("/v1/systemone", &format!("{{\"state\":{},{question}}}", json!("{\"b\":1,\"a\":[\"é\"]}")));
    assert_eq!(object["answers"], text["answers"]);
    assert_eq!(object["usage"], text["usage"]);
    let structured = json!({ "state": ["x"], "questions": { "q": { "type": "choice", "instructions": { "task": "t" },
        "criteria": { "a": { "when": 1 }, "b": ["c"] } }, "s": { "type": "score", "criteria": [{ "level": 0 }, "high"] } } });
    let answer = server.ok("/v1/systemone", &structured.to_string());
    assert_eq!(answer["answers"]["s"]["legend"]["0"], json!({ "level": 0 }));
}

#[test]
fn instructions_say_something() {
    let server = start();
    let place = json!(["body", "questions", "q", "instructions"]);
    for instructions in
        [json!(""), json!({}), json!([]), json!(0), json!(1.5), json!(false), json!(true), json!(null)]
    {
        let (status, code, loc) = refusal(&server, &noul(&instructions).to_string());
        assert_eq!((status, code.as_str()), (422, "invalid_value"), "{instructions}");
        assert_eq!(loc, place, "{instructions}");
    }
    // A choice and a score can do without, and so can a question whose outcomes are described.
    let body = json!({ "state": STATE, "questions": {
        "c": { "type": "choice", "criteria": { "a": null, "b": null } },
        "n": { "type": "noul", "instructions": null, "criteria": { "true": "all is well" } },
        "s": { "type": "score", "criteria": ["a", "b"] },
    } });
    server.ok("/v1/systemone", &body.to_string());
}

#[test]
fn nesting_that_is_too_deep_is_unprocessable() {
    let server = start();
    for depth in [80, 5_000] {
        let body = format!(
            "{{\"state\":{}\"x\"{},\"questions\":{}}}",
            "[".repeat(depth),
            "]".repeat(depth),
            questions()
        );
        let (status, code, _) = refusal(&server, &body);
        assert_eq!((status, code.as_str()), (422, "nested_too_deeply"));
    }
    // Brackets of a text are no nesting.
    let text = json!({ "state": "[{".repeat(100), "questions": questions() });
    server.ok("/v1/systemone", &text.to_string());
}

#[test]
fn a_request_that_is_too_large_is_told_so() {
    let server = start();
    let many: Value =
        (0..2_001).map(|at| (format!("q{at}"), json!({ "type": "noul", "instructions": "?" }))).collect();
    let (status, code, _) = refusal(&server, &json!({ "state": STATE, "questions": many }).to_string());
    assert_eq!((status, code.as_str()), (413, "request_too_large"));
    let body = json!({ "state": "word ".repeat(2_000), "questions": questions() });
    let answer = server.client.post("/v1/systemone", &body.to_string()).unwrap();
    assert_eq!(answer.status, 413);
    let message = document(&answer)["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("exceed the context of ")
            && message.ends_with("; shorten the state or the question"),
        "{message}"
    );
    assert!(message.starts_with("questions."), "{message}");
    assert!(answer.header("retry-after").is_none());
    // The server goes on.
    server.ok("/v1/systemone", &ordered());
}

#[test]
fn images_and_videos_are_refused_unless_there_are_none() {
    let server = start();
    for key in ["videos", "images", "assets"] {
        for none in [json!(null), json!([])] {
            server.ok(
                "/v1/systemone",
                &json!({ "state": STATE, "questions": questions(), (key): none }).to_string(),
            );
        }
        for some in [json!(""), json!(0), json!(["x"]), json!({ "a": 1 })] {
            let body = json!({ "state": STATE, "questions": questions(), (key): some });
            let (status, _, loc) = refusal(&server, &body.to_string());
            assert_eq!((status, loc), (422, json!(["body", key])));
        }
    }
}

#[test]
fn what_is_no_question_is_unprocessable() {
    let server = start();
    let check = |body: Value, loc: &[&str]| {
        let (status, _, told) = refusal(&server, &body.to_string());
        let loc: Vec<&str> = std::iter::once("body").chain(loc.iter().copied()).collect();
        assert_eq!((status, told), (422, json!(loc)), "{body}");
    };
    check(json!({ "questions": questions() }), &["state"]);
    check(json!({ "state": STATE }), &["questions"]);
    check(json!({ "state": STATE, "questions": {} }), &["questions"]);
    check(json!({ "state": STATE, "questions": [] }), &["questions"]);
    check(json!({ "state": null, "questions": questions() }), &["state"]);
    check(json!({ "state": 5, "questions": questions() }), &["state"]);
    // Fields of other servers, or of `/v1/decisions`.
    for field in ["temperature", "prompt_format_version", "return_prompt_token_ids", "input"] {
        check(json!({ "state": STATE, "questions": questions(), (field): 1 }), &[field]);
    }
    check(
        json!({ "state": STATE, "questions": { "": { "type": "noul", "instructions": "x" } } }),
        &["questions"],
    );
    let with = |question: Value, field: &str| {
        let loc: Vec<&str> = ["questions", "q"].into_iter().chain(field.split('.')).collect();
        check(json!({ "state": STATE, "questions": { "q": question } }), &loc);
    };
    let options: Value = (0..256).map(|at| (format!("o{at}"), json!(null))).collect();
    for question in [json!(null), json!([]), json!("x")] {
        check(json!({ "state": STATE, "questions": { "q": question } }), &["questions", "q"]);
    }
    for kind in [json!("unknown"), json!(null), json!({}), json!({ "noul": null }), json!(1)] {
        with(json!({ "type": kind, "instructions": "x" }), "type");
    }
    with(json!({ "type": "box", "instructions": "x" }), "type");
    with(json!({ "type": "choice", "instructions": "x" }), "criteria");
    with(json!({ "type": "choice", "instructions": "x", "criteria": {} }), "criteria");
    with(json!({ "type": "choice", "instructions": "x", "criteria": ["a", "b"] }), "criteria");
    with(json!({ "type": "choice", "instructions": "x", "criteria": options }), "criteria");
    with(json!({ "type": "choice", "instructions": "x", "criteria": { "a": 5 } }), "criteria.a");
    with(json!({ "type": "score", "instructions": "x", "criteria": ["only one"] }), "criteria");
    with(json!({ "type": "score", "instructions": "x", "criteria": vec!["a"; 11] }), "criteria");
    with(json!({ "type": "score", "instructions": "x", "criteria": { "a": "b" } }), "criteria");
    with(json!({ "type": "noul", "instructions": "x", "criteria": { "maybe": "b" } }), "criteria.maybe");
    with(json!({ "type": "noul", "instructions": "x", "criteria": ["a"] }), "criteria");
    with(json!({ "type": "noul", "instructions": "x", "criteria": "text" }), "criteria");
    with(json!({ "type": "noul" }), "instructions");
    with(json!({ "type": "noul", "criteria": { "true": "", "false": null } }), "instructions");
    with(json!({ "instructions": "x" }), "type");
    with(json!({ "type": "choice", "instruction": "x", "criteria": { "a": null } }), "instruction");
    with(json!({ "type": "noul", "instructions": "x", "samples": 3 }), "samples");
    let twice = r#"{"state":"s","questions":{"q":{"type":"noul","instructions":"x"},"q":{"type":"noul","instructions":"y"}}}"#;
    assert_eq!(refusal(&server, twice).2, json!(["body", "questions", "q"]));
    for level in [json!(""), json!(null), json!(5), json!([])] {
        let body =
            json!({ "state": STATE, "questions": { "q": { "type": "score", "criteria": ["a", level] } } });
        assert_eq!(refusal(&server, &body.to_string()).2, json!(["body", "questions", "q", "criteria", 1]));
    }
}

#[test]
fn a_body_that_is_no_json_is_a_bad_request() {
    let server = start();
    for body in [r#"{"state": "unterminated"#, ""] {
        let (status, code, _) = refusal(&server, body);
        assert_eq!((status, code.as_str()), (400, "invalid_json"), "{body}");
    }
}

#[test]
fn the_state_is_computed_once_and_counts_the_same_from_a_cache() {
    let server = caching();
    let all = questions();
    let first = server.ok("/v1/systemone", &json!({ "state": STATE, "questions": all }).to_string());
    let again = server.ok("/v1/systemone", &json!({ "state": STATE, "questions": all }).to_string());
    assert_eq!((&first["answers"], &first["usage"]), (&again["answers"], &again["usage"]));
    let mut sum = 0.0;
    for (name, question) in all.as_object().unwrap() {
        let alone = start()
            .ok("/v1/systemone", &json!({ "state": STATE, "questions": { "x": question } }).to_string());
        assert_eq!(alone["answers"]["x"], first["answers"][name], "{name}");
        assert_eq!(alone["diagnostics"]["x"], first["diagnostics"][name], "{name}");
        sum += number(&alone["usage"]["input_tokens"]);
    }
    assert!(number(&first["usage"]["input_tokens"]) < sum, "{first}");
    let (_, log) = server.end();
    let cached: Vec<u64> = log.iter().filter_map(|line| line["cached_tokens"].as_u64()).collect();
    assert!(cached.len() == 2 && cached[0] == 0 && cached[1] > 0, "{cached:?}");
}

#[test]
fn instructions_of_the_request_and_salts_are_taken() {
    let server = start();
    let plain = server.ok("/v1/systemone", &ordered());
    let with = |rest: &str| {
        server.ok("/v1/systemone", &format!("{},{rest}}}", ordered().trim_end_matches('}').to_owned() + "}}"))
    };
    let told = with(r#""instructions":"Be strict.""#);
    assert_ne!(told["answers"], plain["answers"]);
    assert_eq!(with(r#""cache_salt":"s","timeout_s":60"#)["answers"], plain["answers"]);
}

#[test]
fn validation_precedes_the_queue_and_a_full_queue_says_when_to_come_again() {
    let held = held(|config| config.limits.queue = 1);
    let running = held.server.client.send("POST", "/v1/systemone", ordered().as_bytes()).unwrap();
    held.holding.recv().unwrap();
    let (status, code, _) = refusal(&held.server, &noul(&json!("")).to_string());
    assert_eq!((status, code.as_str()), (422, "invalid_value"));
    assert_eq!(refusal(&held.server, r#"{"state": "unterminated"#).0, 400);
    let answer = held.server.client.post("/v1/systemone", &ordered()).unwrap();
    assert_eq!(answer.status, 429);
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert_eq!(document(&answer)["error"]["type"], "rate_limit_error");
    drop(held.go);
    drop(running);
}

#[test]
fn answers_have_the_request_id_that_the_client_reads() {
    let server = start();
    let answer = server.client.post("/v1/systemone", &ordered()).unwrap();
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(answer.header("x-typesafe-request-id"), Some(id));
    let refused = server.client.post("/v1/systemone", "{}").unwrap();
    assert!(refused.header("x-typesafe-request-id").is_some());
}

#[test]
fn a_key_of_many_indices_is_refused_like_any_other() {
    let server = start();
    let body = format!(r#"{{"{}":1}}"#, "[0]".repeat(300_000));
    let answer = server.client.post("/v1/systemone", &body).unwrap();
    assert_eq!(answer.status, 422);
    assert!(answer.body.len() < 10_000, "{}", answer.body.len());
    assert_eq!(server.client.get("/health").unwrap().status, 200);
}

/// A question with so many options, or levels.
fn with_options(count: usize) -> Value {
    let options: Value = (0..count).map(|at| (format!("o{at}"), json!(null))).collect();
    json!({ "type": "choice", "criteria": options })
}

fn with_levels(count: usize) -> Value {
    let levels: Vec<String> = (0..count).map(|at| format!("level {at}")).collect();
    json!({ "type": "score", "criteria": levels })
}

fn about(state: &Value, question: &Value) -> String {
    json!({ "state": state, "questions": { "q": question } }).to_string()
}

#[test]
fn the_largest_question_is_answered_and_a_larger_one_is_told_the_limit() {
    let (_folder, wide) = wide();
    let server = start_with(wide, |_| ());
    let state = json!({});
    for (question, count) in [
        (with_options(1), 1),
        (with_options(77), 77),
        (with_options(255), 255),
        (with_levels(2), 2),
        (with_levels(10), 10),
    ] {
        let answer = server.ok("/v1/systemone", &about(&state, &question))["answers"]["q"].clone();
        let p = shares(&answer);
        assert!(p.len() == count && (p.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{answer}");
        assert_eq!(number(&answer["confidence"]) == 1.0, count == 1, "{answer}");
    }
    for (question, told) in [
        (with_options(256), "there are 256 options; give 1 to 255"),
        (with_levels(11), "there are 11 levels; give 2 to 10"),
    ] {
        let answer = server.client.post("/v1/systemone", &about(&state, &question)).unwrap();
        assert_eq!(answer.status, 422);
        assert!(answer.text().contains(told), "{}", answer.text());
    }
}

#[test]
fn an_empty_state_is_one_too() {
    let server = start();
    let question = json!({ "type": "noul", "instructions": "Is it empty?" });
    let noul =
        |state: Value| number(&server.ok("/v1/systemone", &about(&state, &question))["answers"]["q"]["noul"]);
    let empty = [json!(""), json!({}), json!([])].map(noul);
    assert!(empty[0] != empty[1] && empty[1] != empty[2] && empty[0] != empty[2], "{empty:?}");
    assert_eq!([json!("{}"), json!("[]")].map(noul), empty[1..]);
}

#[test]
fn answers_are_those_of_decisions_to_the_bit() {
    let own = json!({ "state": STATE, "questions": questions() });
    let text = |question: &str| questions()[question]["instructions"].clone();
    let levels = ["can wait", "this week", "today", "right now"].map(|label| json!({ "label": label }));
    let choices = json!([{ "value": "billing", "description": "payments and refunds" }, { "value": "shipping" },
        { "value": "technical" }]);
    // In the order of the names, which is that of the tests' JSON.
    let other = json!({ "input": STATE, "questions": [
        { "type": "predicate", "instructions": text("angry") },
        { "type": "choice", "instructions": text("route"), "choices": choices },
        { "type": "score", "instructions": text("urgency"), "levels": levels },
    ] });
    for server in [start(), reasoning()] {
        let own = server.ok("/v1/systemone", &own.to_string());
        let other = server.ok("/v1/decisions", &other.to_string());
        let [angry, route, urgency] = ["angry", "route", "urgency"].map(|name| &own["answers"][name]);
        assert_eq!(angry["noul"], other["answers"][0]["probability"]);
        for (at, one) in [(1, route), (2, urgency)] {
            let of_other = other["answers"][at]["probabilities"].as_array().unwrap();
            let of_other: Vec<f64> = of_other.iter().map(|entry| number(&entry["probability"])).collect();
            assert_eq!(shares(one), of_other, "{at}");
            assert_eq!(one["confidence"], other["answers"][at]["confidence"]);
        }
        assert_eq!(route["choice"], other["answers"][1]["choice"]);
        assert_eq!(urgency["score"], other["answers"][2]["score"]);
        for (at, name) in ["angry", "route", "urgency"].iter().enumerate() {
            assert_eq!(own["diagnostics"][name], other["diagnostics"][at], "{name}");
        }
        assert_eq!(own["usage"]["input_tokens"], other["usage"]["input_tokens"]);
    }
}

#[test]
fn a_template_that_reasons_is_refused_and_reasoning_in_a_state_is_not() {
    let server = reasoning();
    let question = json!({ "type": "noul", "instructions": "Is it done?" });
    for state in ["<think> draft", "<think> draft </think> done <think>"] {
        server.ok("/v1/systemone", &about(&json!(state), &question));
    }
    let body = json!({ "state": STATE, "questions": { "q": question }, "chat_template_kwargs": { "enable_thinking": true } });
    let (status, code, loc) = refusal(&server, &body.to_string());
    assert_eq!((status, code.as_str(), loc), (422, "invalid_value", json!(["body", "chat_template_kwargs"])));
}

#[test]
fn a_prompt_of_the_whole_context_is_answered_and_one_token_more_is_not() {
    let server = start();
    let body = |words: usize| {
        about(&json!(format!("s{}", " the".repeat(words))), &json!({ "type": "noul", "instructions": "?" }))
    };
    let tokens =
        |words: usize| number(&server.ok("/v1/systemone", &body(words))["usage"]["input_tokens"]) as usize;
    let refused = |words: usize| {
        let answer = server.client.post("/v1/systemone", &body(words)).unwrap();
        assert_eq!(answer.status, 413);
        document(&answer)["error"]["message"].as_str().unwrap().to_owned()
    };
    let least = tokens(0);
    assert_eq!((tokens(1), tokens(7)), (least + 1, least + 7), "a word is a token");
    let message = refused(2_000);
    let context = message.split_once("the context of ").unwrap().1;
    let context: usize = context.split_once(';').unwrap().0.parse().unwrap();
    assert!(
        message.contains(&format!(" {} tokens exceed the context of {context};", least + 2_000)),
        "{message}"
    );
    assert_eq!(tokens(context - least), context);
    let message = refused(context - least + 1);
    assert!(
        message.contains(&format!(" {} tokens exceed the context of {context};", context + 1)),
        "{message}"
    );
}

#[test]
fn a_request_with_a_question_that_is_too_large_is_not_computed_in_part() {
    let server = start();
    let small = |text: &str| json!({ "type": "noul", "instructions": text }).to_string();
    let state = "The customer wrote in again about the same billing problem. ".repeat(18);
    let options: Value =
        (0..20).map(|at| (format!("team {at}"), json!("a description that takes many tokens"))).collect();
    let large = json!({ "type": "choice", "criteria": options }).to_string();
    let body = |questions: [(&str, &str); 3]| {
        let questions = questions.map(|(name, question)| format!("\"{name}\":{question}")).join(",");
        format!("{{\"state\":\"{state}\",\"questions\":{{{questions}}}}}")
    };
    let (one, two) = (small("Is the customer angry?"), small("Is a refund asked for?"));
    for questions in
        [[("large", &*large), ("a", &*one), ("b", &*two)], [("a", &*one), ("b", &*two), ("large", &*large)]]
    {
        let answer = server.client.post("/v1/systemone", &body(questions)).unwrap();
        assert_eq!(answer.status, 413, "{}", answer.text());
        assert!(answer.text().contains("questions.large: "), "{}", answer.text());
    }
    let now = values(&server);
    for name in [
        "redline_prompt_tokens_total",
        "redline_score_items_total",
        "redline_requests_running",
        "redline_requests_waiting",
        "redline_queue_places_used",
        "redline_kv_pages_used",
    ] {
        assert_eq!(now[name], 0.0, "{name}");
    }
    // A refusal for the size is none for the load.
    assert!(!now.keys().any(|name| name.starts_with("redline_requests_refused_total")), "{now:?}");
    server.ok("/v1/systemone", &body([("a", &*one), ("b", &*two), ("c", &*one)]));
    assert_eq!(values(&server)["redline_score_items_total"], 3.0);
}

#[test]
fn a_server_with_one_place_answers_any_number_of_requests_in_turn() {
    let server = start_with(model(), |config| config.limits.queue = 1);
    for _ in 0..12 {
        server.ok("/v1/systemone", &ordered());
    }
    let now = values(&server);
    assert!(!now.keys().any(|name| name.starts_with("redline_requests_refused_total")), "{now:?}");
    assert_eq!(now["redline_queue_places_used"], 0.0);
}
