//! `/v1/decisions`: the answers to questions about an input, in OpenAI's form.

use std::path::Path;

use redline_api::chat::template::{Chat, ChatOptions};
use redline_api::model::LoadedModel;
use redline_engine::{Engine, Label, LongLabels, Options, PrefixCacheSize, Prompt, ScoreRequest, Source};
use redline_server::ServerConfig;
use serde_json::{Value, json};

use crate::server::{Running, error, json as document, model, model_with, start, start_with};

const INPUT: &str = "The king said unto him, I will give thee thy portion.";

/// A server that keeps prefixes.
fn caching() -> Running {
    start_with(model_with(|options| options.prefix_cache = Some(PrefixCacheSize::Automatic)), |_| ())
}

/// The demo model with a context of 4096 tokens.
pub(crate) fn wide() -> (tempfile::TempDir, LoadedModel) {
    let (folder, from) =
        (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo"));
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let config = config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 4096");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let options = Options { threads: 1, ..Options::new(Source::Path(folder.path().to_owned())) };
    (folder, LoadedModel { name: "wide".to_owned(), engine: Engine::load(options).unwrap() })
}

fn predicate(text: &str) -> Value {
    json!({ "type": "predicate", "name": text, "instructions": text })
}

fn choice(count: usize) -> Value {
    let choices: Vec<Value> = (0..count).map(|at| json!({ "value": format!("option {at}") })).collect();
    json!({ "type": "choice", "name": "c", "instructions": "Which one?", "choices": choices })
}

fn score(levels: &[&str]) -> Value {
    let levels: Vec<Value> = levels.iter().map(|label| json!({ "label": label })).collect();
    json!({ "type": "score", "instructions": "How much?", "levels": levels })
}

fn body(questions: &[Value]) -> String {
    json!({ "input": INPUT, "questions": questions }).to_string()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn shares(answer: &Value) -> Vec<f64> {
    answer["probabilities"].as_array().unwrap().iter().map(|entry| number(&entry["probability"])).collect()
}

/// The prompt of the predicate `text`, as docs/serving.md describes it.
fn prompt(text: &str) -> String {
    format!("State:\n{INPUT}\n\nQuestion: {text}\nReply with yes or no.\n\nAnswer:")
}

#[test]
fn a_predicate_is_the_share_of_yes_among_the_labels_of_the_documented_prompt() {
    let server = start();
    let answer = server.ok("/v1/decisions", &body(&[predicate("Is it so?")]));
    let labels = [" yes", " Yes", " no", " No"].map(|label| Label::Text(label.to_owned())).to_vec();
    let mut request =
        ScoreRequest::new(Prompt::Text(prompt("Is it so?")), vec![Prompt::Text(String::new())], labels);
    (request.long_labels, request.softmax) = (LongLabels::Sum, true);
    let outcome = model().engine.score(request.clone()).unwrap();
    let expect = &outcome.items[0].as_ref().unwrap().scores;
    let yes = number(&answer["answers"][0]["probability"]);
    assert!((yes - f64::from(expect[0] + expect[1])).abs() < 1e-6, "{answer} {expect:?}");
    // Without a softmax, the scores are the probabilities over the vocabulary.
    request.softmax = false;
    let outcome = model().engine.score(request).unwrap();
    let mass: f32 = outcome.items[0].as_ref().unwrap().scores.iter().sum();
    let told = number(&answer["diagnostics"][0]["label_mass"]);
    assert!((told - f64::from(mass)).abs() < 1e-6, "{answer} {mass}");
    assert_eq!(answer["diagnostics"][0]["argmax_is_label"], json!(false));
    assert_eq!(answer["answers"][0]["name"], "Is it so?");
    assert_eq!((&answer["object"], &answer["model"]), (&json!("decision"), &json!("demo")));
}

#[test]
fn every_type_has_its_fields_in_the_order_of_the_questions() {
    let server = start();
    let typed = json!({ "type": "choice", "instructions": "Is it?", "choices": [{ "value": true }, { "value": "true" },
        { "value": false, "description": "if it is not" }] });
    let questions = [choice(3), predicate("p"), score(&["low", "middle", "high"]), typed];
    let answer = server.ok("/v1/decisions", &body(&questions));
    let answers = answer["answers"].as_array().unwrap();
    let types: Vec<&str> = answers.iter().map(|answer| answer["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["choice", "predicate", "score", "choice"]);
    assert_eq!(answer["diagnostics"].as_array().unwrap().len(), 4);

    let three = shares(&answers[0]);
    let best = three.iter().copied().fold(0.0, f64::max);
    let at = three.iter().position(|&share| share == best).unwrap();
    assert_eq!(answers[0]["choice"], format!("option {at}"));
    assert!((number(&answers[0]["confidence"]) - (3.0 * best - 1.0) / 2.0).abs() < 1e-6);

    let levels = shares(&answers[2]);
    let expected: f64 = levels.iter().enumerate().map(|(level, share)| level as f64 * share).sum();
    assert!((number(&answers[2]["score"]) - expected).abs() < 1e-6);
    let entry = &answers[2]["probabilities"][2];
    assert_eq!((&entry["value"], &entry["label"]), (&json!(2), &json!("high")));
    assert_eq!(answers[2]["name"], Value::Null);

    let values: Vec<&Value> =
        answers[3]["probabilities"].as_array().unwrap().iter().map(|entry| &entry["value"]).collect();
    assert_eq!(values, [&json!(true), &json!("true"), &json!(false)]);
    for answer in [&answers[0], &answers[2], &answers[3]] {
        assert!((shares(answer).iter().sum::<f64>() - 1.0).abs() < 1e-5, "{answer}");
        assert!((0.0..=1.0).contains(&number(&answer["confidence"])));
    }
}

#[test]
fn up_to_255_options_and_10_levels_are_answered() {
    let server = start();
    let ten: Vec<String> = (0..10).map(|level| format!("level {level}")).collect();
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    for count in [2, 26, 27] {
        let answer = server.ok("/v1/decisions", &body(&[choice(count)]));
        assert_eq!(shares(&answer["answers"][0]).len(), count);
    }
    let many = server.client.post("/v1/decisions", &body(&[choice(255)])).unwrap();
    assert_eq!(
        error(&many),
        (400, "invalid_value".to_owned(), Some("questions".to_owned())),
        "the context is 512"
    );
    assert!(
        many.text().contains("questions[0]: ") && many.text().contains("shorten the state"),
        "{}",
        many.text()
    );
    let (_folder, wide) = wide();
    let wide = start_with(wide, |_| ());
    let answer = wide.ok("/v1/decisions", &body(&[choice(255)]));
    let p = shares(&answer["answers"][0]);
    assert!(p.len() == 255 && (p.iter().sum::<f64>() - 1.0).abs() < 1e-4);
    let answer = server.ok("/v1/decisions", &body(&[score(&ten)]));
    assert_eq!(shares(&answer["answers"][0]).len(), 10);
}

#[test]
fn an_answer_does_not_depend_on_the_questions_beside_it_nor_on_the_cache() {
    let server = start();
    let questions =
        [predicate("p"), choice(5), score(&["a", "b", "c"]), predicate("q"), choice(30), score(&["x", "y"])];
    let all = server.ok("/v1/decisions", &body(&questions));
    let told = |answer: &Value, at: usize| (answer["answers"][at].clone(), answer["diagnostics"][at].clone());
    for (at, question) in questions.iter().enumerate() {
        let fresh = caching();
        let alone = fresh.ok("/v1/decisions", &body(std::slice::from_ref(question)));
        assert_eq!(told(&alone, 0), told(&all, at), "{question}");
        let again = fresh.ok("/v1/decisions", &body(std::slice::from_ref(question)));
        assert_eq!(told(&again, 0), told(&all, at), "{question}");
        assert!(number(&again["usage"]["input_tokens_details"]["cached_tokens"]) > 0.0, "{again}");
    }
    let mut reversed = questions.clone();
    reversed.reverse();
    let answer = server.ok("/v1/decisions", &body(&reversed));
    for at in 0..questions.len() {
        assert_eq!(told(&answer, questions.len() - 1 - at), told(&all, at));
    }
}

#[test]
fn the_input_counts_once() {
    let server = start();
    let long = json!({ "input": INPUT.repeat(16), "questions": [predicate("p")] });
    let one = server.ok("/v1/decisions", &long.to_string());
    let questions: Vec<Value> = ["p", "q", "r", "s"].map(predicate).to_vec();
    let four = json!({ "input": INPUT.repeat(16), "questions": questions });
    let fresh = caching();
    let four = fresh.ok("/v1/decisions", &four.to_string());
    let tokens = |answer: &Value| number(&answer["usage"]["input_tokens"]);
    assert!(tokens(&four) < 1.6 * tokens(&one), "{} {}", one["usage"], four["usage"]);
    assert_eq!(number(&four["usage"]["total_tokens"]), tokens(&four));
    assert_eq!(number(&four["usage"]["output_tokens"]), 0.0);
    let details = &four["usage"]["input_tokens_details"];
    assert_eq!(number(&details["cached_tokens"]), 0.0);
    assert!(number(&details["cache_write_tokens"]) > 100.0);
    assert_eq!(four["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

#[test]
fn an_input_of_messages_is_one_state() {
    let server = start();
    let plain = server.ok("/v1/decisions", &body(&[predicate("p")]));
    let parts = json!([{ "role": "user", "content": [{ "type": "input_text", "text": INPUT }] }]);
    let one =
        server.ok("/v1/decisions", &json!({ "input": parts, "questions": [predicate("p")] }).to_string());
    assert_eq!(one["answers"], plain["answers"]);
    let parts = json!([{ "type": "input_text", "text": "p" }]);
    let question = json!({ "type": "predicate", "name": "p", "instructions": parts });
    let one = server.ok("/v1/decisions", &body(&[question]));
    assert_eq!(one["answers"], plain["answers"]);
    let more = json!([{ "role": "user", "content": INPUT }, { "role": "assistant", "content": "So be it." }]);
    let more =
        server.ok("/v1/decisions", &json!({ "input": more, "questions": [predicate("p")] }).to_string());
    assert_ne!(more["answers"], plain["answers"]);
}

/// A server whose model has a chat template that lets it reason.
pub(crate) fn reasoning() -> Running {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/template.jinja");
    let options = ChatOptions { file: Some(file), ..ChatOptions::default() };
    let chat = Chat::open("demo", &Source::Path(Path::new("/").to_owned()), options);
    start_with(model(), |config: &mut ServerConfig| config.chat = Some(chat))
}

#[test]
fn a_chat_template_formats_the_prompt() {
    let server = reasoning();
    let answer = server.ok("/v1/decisions", &body(&[predicate("Is it so?")]));
    let prompt = prompt("Is it so?").replace("\n\nAnswer:", "");
    let labels = ["yes", "Yes", "no", "No"].map(|label| Label::Text(label.to_owned())).to_vec();
    let prompt = Prompt::Formatted(format!("<|bos|>user: {prompt}\nassistant:\n"));
    let mut request = ScoreRequest::new(prompt, vec![Prompt::Text(String::new())], labels);
    (request.long_labels, request.softmax) = (LongLabels::Sum, true);
    let outcome = model().engine.score(request).unwrap();
    let expect = &outcome.items[0].as_ref().unwrap().scores;
    let yes = number(&answer["answers"][0]["probability"]);
    assert!((yes - f64::from(expect[0] + expect[1])).abs() < 1e-6, "{answer} {expect:?}");
    let mut thinks: Value = serde_json::from_str(&body(&[predicate("p")])).unwrap();
    thinks["chat_template_kwargs"] = json!({ "enable_thinking": true });
    let answer = server.client.post("/v1/decisions", &thinks.to_string()).unwrap();
    let expect = (400, "invalid_value".to_owned(), Some("chat_template_kwargs".to_owned()));
    assert_eq!(error(&answer), expect);
    assert!(answer.text().contains("reason before it answers"), "{}", answer.text());
}

#[test]
fn each_limit_of_a_question_names_its_field() {
    let server = start();
    let check = |body: Value, param: &str| {
        let answer = server.client.post("/v1/decisions", &body.to_string()).unwrap();
        let expect = (400, "invalid_value".to_owned(), Some(param.to_owned()));
        let shown: String = answer.text().chars().take(300).collect();
        assert_eq!(error(&answer), expect, "{shown}");
    };
    let with = |question: Value, param: &str| {
        check(json!({ "input": "i", "questions": [predicate("p"), question] }), param);
    };
    check(json!({ "input": "i", "questions": [] }), "questions");
    let many: Vec<Value> = (0..2001).map(|_| predicate("p")).collect();
    check(json!({ "input": "i", "questions": many }), "questions");
    check(json!({ "input": [], "questions": [predicate("p")] }), "input");
    check(json!({ "input": "i", "questions": [predicate("p")], "temperature": 0.5 }), "temperature");
    let options = json!({ "ttl": "1h" });
    check(
        json!({ "input": "i", "questions": [predicate("p")], "prompt_cache_options": options }),
        "prompt_cache_options.ttl",
    );
    check(
        json!({ "input": "i", "questions": [predicate("p")], "chat_template_kwargs": { "a": 1 } }),
        "chat_template_kwargs",
    );
    check(json!({ "input": "word ".repeat(2000), "questions": [predicate("p")] }), "questions");
    with(json!({ "type": "predicate", "instructions": "" }), "questions[1].instructions");
    with(json!({ "type": "predicate", "instructions": [] }), "questions[1].instructions");
    with(json!({ "type": "predicate", "instructions": "p", "choices": [] }), "questions[1].choices");
    with(json!({ "type": "choice", "instructions": "p", "levels": [] }), "questions[1].levels");
    with(json!({ "type": "choice", "instructions": "p" }), "questions[1].choices");
    with(json!({ "type": "score", "instructions": "p" }), "questions[1].levels");
    with(json!({ "type": "score", "instructions": "p", "choices": [] }), "questions[1].choices");
    with(choice(1), "questions[1].choices");
    with(choice(256), "questions[1].choices");
    with(score(&["one"]), "questions[1].levels");
    with(score(&["x"; 11]), "questions[1].levels");
    with(score(&["x", ""]), "questions[1].levels[1].label");
    let twice = json!([{ "value": "a" }, { "value": "a" }]);
    with(json!({ "type": "choice", "instructions": "p", "choices": twice }), "questions[1].choices[1].value");
    let image = json!([{ "type": "input_image", "image_url": "data:image/png;base64,AA" }]);
    with(json!({ "type": "predicate", "instructions": image }), "questions[1].instructions[0]");
}

#[test]
fn a_value_of_another_kind_names_its_field() {
    let server = start();
    let check = |question: Value, code: &str, param: &str| {
        let body = json!({ "input": "i", "questions": [question] });
        let answer = server.client.post("/v1/decisions", &body.to_string()).unwrap();
        assert_eq!(error(&answer), (400, code.to_owned(), Some(param.to_owned())), "{}", answer.text());
    };
    check(json!({ "type": "maybe", "instructions": "p" }), "invalid_type", "questions[0].type");
    check(json!({ "instructions": "p" }), "missing_field", "questions[0].type");
    check(json!({ "type": "predicate" }), "missing_field", "questions[0].instructions");
    check(json!({ "type": "predicate", "instructions": 7 }), "invalid_type", "questions[0].instructions");
    check(json!({ "type": "predicate", "instructions": "p", "x": 1 }), "unknown_parameter", "questions[0].x");
    let wrong = json!([{ "value": "a" }, { "value": 1 }]);
    let question = json!({ "type": "choice", "instructions": "p", "choices": wrong });
    check(question, "invalid_type", "questions[0].choices[1].value");
    let answer = server.client.post("/v1/decisions", r#"{"questions":[]}"#).unwrap();
    assert_eq!(document(&answer)["error"]["param"], "input");
}
