//! Answers to grammars: what they are, that they are the same in any company, and that receipts of them are confirmed.

use redline_engine::{
    Cancel, Engine, EngineError, FinishReason, GenerateOutcome, GenerateRequest, Grammar, GrammarKind,
    Options, ReceiptOptions, ReceiptRequest, Sampling, Tier,
};

use crate::models::{demo, demo_dir, golden, ids, options, refusal, text};

const SCHEMA: &str = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer",
    "minimum":0,"maximum":120},"kin":{"type":"array","items":{"enum":["son","daughter"]},"maxItems":2}},
    "required":["name","age","kin"],"additionalProperties":false}"#;

fn asked(grammar: Grammar, temperature: f32) -> GenerateRequest {
    let sampling = Sampling { temperature, seed: 7, ..Sampling::default() };
    GenerateRequest { grammar: Some(grammar), sampling, ..GenerateRequest::new(text("And the king"), 400) }
}

fn schema(temperature: f32) -> GenerateRequest {
    asked(Grammar::new(GrammarKind::JsonSchema, SCHEMA), temperature)
}

fn run(engine: &Engine, request: GenerateRequest) -> Result<GenerateOutcome, EngineError> {
    engine.generate(request, &Cancel::new(), &mut |_| ())
}

/// Whether a text is what the schema asks for.
fn is_met(text: &str) -> bool {
    let Ok(serde_json::Value::Object(value)) = serde_json::from_str(text) else { return false };
    let kin = value["kin"].as_array();
    value.len() == 3
        && value["name"].as_str().is_some_and(|name| name.chars().count() <= 12)
        && value["age"].as_u64().is_some_and(|age| age <= 120)
        && kin.is_some_and(|kin| kin.len() <= 2 && kin.iter().all(|one| one == "son" || one == "daughter"))
}

#[test]
fn an_answer_is_a_value_of_the_schema_and_ends_with_it() {
    let engine = demo();
    for temperature in [0.0, 1.0] {
        let several = if temperature > 0.0 { 4 } else { 1 };
        let mut outcome = run(&engine, GenerateRequest { n: several, ..schema(temperature) }).unwrap();
        for one in outcome.take_continuations() {
            assert!(is_met(&one.text), "{}", one.text);
            assert_eq!(one.finish_reason, FinishReason::Stop);
            // It ended without a token of its own.
            assert!(!one.token_ids.iter().any(|id| engine.end_ids().contains(id)), "{:?}", one.token_ids);
        }
    }
    let cut = run(&engine, GenerateRequest { max_new_tokens: 9, ..schema(0.0) }).unwrap();
    assert_eq!((cut.token_ids.len(), cut.finish_reason), (9, FinishReason::Length));
}

#[test]
fn a_text_that_may_go_on_ends_with_an_end_token() {
    let engine = demo();
    let bias = engine.end_ids().iter().map(|id| (i64::from(*id), 100.0)).collect();
    let request =
        GenerateRequest { logit_bias: bias, ..asked(Grammar::new(GrammarKind::Regex, " [a-z]+"), 0.0) };
    let outcome = run(&engine, request).unwrap();
    // The end may not come before the expression is matched, however probable it is.
    assert!(outcome.text.len() >= 2 && outcome.text.starts_with(' '), "{:?}", outcome.text);
    assert!(engine.end_ids().contains(outcome.token_ids.last().unwrap()));
}

/// The token with which a chat template ends answers may come wherever an end may.
#[test]
fn a_text_ends_with_a_stop_token_too() {
    let engine = demo();
    let word = engine.tokenizer().unwrap().id("ĠIsrael").map(i64::from).unwrap();
    let request = GenerateRequest {
        logit_bias: vec![(word, 100.0)],
        stop_ids: vec![word],
        ..asked(Grammar::new(GrammarKind::Regex, "[0-9]+"), 0.0)
    };
    let outcome = run(&engine, request).unwrap();
    assert!(
        !outcome.text.is_empty() && outcome.text.bytes().all(|byte| byte.is_ascii_digit()),
        "{}",
        outcome.text
    );
    assert_eq!(
        (outcome.token_ids.last().copied(), outcome.finish_reason),
        (Some(word as u32), FinishReason::Stop)
    );
}

/// The most probable token is chosen without a mask where it may come: that changes nothing.
#[test]
fn greedy_answers_are_those_of_the_mask() {
    let engine = demo();
    let greedy = run(&engine, schema(0.0)).unwrap();
    // So cold that the most probable of the allowed tokens is drawn, but by way of the mask.
    let cold = run(&engine, schema(1e-6)).unwrap();
    assert_eq!(greedy.token_ids, cold.token_ids);
    assert!(is_met(&greedy.text), "{}", greedy.text);
}

#[test]
fn company_threads_and_tiers_change_no_answer() {
    let engine = demo();
    let plain = || GenerateRequest::new(text("In the beginning"), 40);
    let (alone, free) = (run(&engine, schema(1.0)).unwrap(), run(&engine, plain()).unwrap());
    let choice = || asked(Grammar::new(GrammarKind::Choice, r#"[" of Israel"," of Judah"]"#), 0.0);
    let tickets: Vec<_> = [schema(1.0), plain(), choice(), schema(1.0)]
        .map(|request| engine.submit_generate(request, &Cancel::new()).unwrap())
        .into();
    let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert_eq!((&outcomes[0].token_ids, &outcomes[3].token_ids), (&alone.token_ids, &alone.token_ids));
    assert_eq!(outcomes[1].token_ids, free.token_ids);
    for other in [
        Options { threads: 1, ..options(&demo_dir()) },
        Options { threads: 3, tier: Some(Tier::Scalar), ..options(&demo_dir()) },
    ] {
        assert_eq!(run(&Engine::load(other).unwrap(), schema(1.0)).unwrap().token_ids, alone.token_ids);
    }
}

#[test]
fn a_receipt_of_an_answer_is_confirmed_with_its_grammar_only() {
    let engine = demo();
    let request = GenerateRequest { receipt: Some(ReceiptOptions::default()), ..schema(1.0) };
    let receipt = *run(&engine, request).unwrap().receipt.unwrap();
    assert_eq!(engine.verify(&receipt, &Cancel::new()).unwrap(), None);
    let mut other = receipt;
    let ReceiptRequest::Generate(request) = &mut other.request else { panic!("{other:?}") };
    request.grammar = None;
    assert!(engine.verify(&other, &Cancel::new()).unwrap().is_some());
}

#[test]
fn what_cannot_be_met_is_an_error_of_the_request() {
    let engine = demo();
    let refused = |request| refusal(run(&engine, request).map(|outcome| outcome.text));
    let wrong = refused(asked(Grammar::new(GrammarKind::JsonSchema, r#"{"not":{}}"#), 0.0));
    assert!(wrong.contains("`#/not` is not supported"), "{wrong}");
    // A prompt in ids needs a tokenizer too, because grammars are about bytes.
    let grammar = Grammar::new(GrammarKind::Regex, "a");
    let none = GenerateRequest { grammar: Some(grammar), ..GenerateRequest::new(ids(&[1]), 3) };
    assert!(matches!(run(&golden(), none), Err(EngineError::NoTokenizer(_))));
    // Others are answered as before.
    assert!(run(&engine, schema(0.0)).is_ok());
}
