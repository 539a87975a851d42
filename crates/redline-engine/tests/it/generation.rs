//! Generation: the cache, stop conditions, log-probabilities, streaming, cancellation, durations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{
    Cancel, Engine, FinishReason, GenerateOutcome, GenerateRequest, Options, PromptLogprobs, Sampling,
};
use redline_kernels::Format;

use crate::models::{demo, demo_dir, generation, golden, golden_dir, ids, long, options, text};

fn run(engine: &Engine, request: GenerateRequest) -> (GenerateOutcome, Vec<String>) {
    let mut pieces = Vec::new();
    let outcome = engine.generate(request, &Cancel::new(), &mut |t| pieces.push(t.to_owned())).unwrap();
    (outcome, pieces)
}

#[test]
fn with_and_without_cache_the_logprobs_are_the_same_bits() {
    for &format in Format::ALL {
        let engine = Engine::load(Options { format: Some(format), ..options(&demo_dir()) }).unwrap();
        let request = GenerateRequest { logprobs: Some(5), ..generation(text("And the LORD said unto"), 40) };
        let (on, _) = run(&engine, request.clone());
        let (off, _) = run(&engine, GenerateRequest { kv_cache: false, ..request });
        assert_eq!(on.token_ids, off.token_ids);
        assert_eq!(on.logprobs, off.logprobs);
    }
}

#[test]
fn prompts_longer_than_a_pass_continue_alike_with_and_without_cache() {
    let dir = tempfile::tempdir().unwrap();
    let engine = long(dir.path());
    let prompt: Vec<i64> = (0..700).map(|i| (i * 17) % 300).collect();
    let request = GenerateRequest { logprobs: Some(3), ..generation(ids(&prompt), 6) };
    let (on, _) = run(&engine, request.clone());
    let (off, _) = run(&engine, GenerateRequest { kv_cache: false, ..request });
    assert_eq!((on.token_ids, on.logprobs), (off.token_ids, off.logprobs));
}

#[test]
fn the_streamed_pieces_are_the_text() {
    let engine = demo();
    let (outcome, pieces) = run(&engine, generation(text("In the beginning"), 30));
    assert_eq!(pieces.concat(), outcome.text);
    assert!(pieces.len() > 5);
    assert_eq!(outcome.finish_reason, FinishReason::Length);
    assert_eq!(outcome.usage.completion_tokens, 30);
    assert_eq!(engine.tokenizer().unwrap().decode(&outcome.token_ids, true).unwrap(), outcome.text);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let engine = demo();
    let (free, _) = run(&engine, generation(text("In the beginning"), 30));
    // A stop string in the middle of the text, across a token boundary wherever it falls.
    let at = (free.text.len() / 2..free.text.len()).find(|&i| free.text.is_char_boundary(i)).unwrap();
    let end = (at + 3..free.text.len()).find(|&i| free.text.is_char_boundary(i)).unwrap();
    let stop = free.text[at..end].to_owned();
    let first = free.text.find(&stop).unwrap();
    let (stopped, pieces) =
        run(&engine, GenerateRequest { stop: vec![stop], ..generation(text("In the beginning"), 30) });
    assert_eq!(stopped.text, free.text[..first]);
    assert_eq!(pieces.concat(), stopped.text);
    assert_eq!(stopped.finish_reason, FinishReason::Stop);
    assert!(stopped.token_ids.len() < 30 && free.token_ids.starts_with(&stopped.token_ids));
}

#[test]
fn logprobs_hold_the_chosen_token_and_are_sorted() {
    let engine = demo();
    let request = GenerateRequest { logprobs: Some(4), ..generation(text("In the beginning"), 8) };
    let (outcome, _) = run(&engine, request);
    let positions = outcome.logprobs.unwrap();
    assert_eq!(positions.len(), 8);
    for (position, id) in positions.iter().zip(&outcome.token_ids) {
        assert_eq!(position.chosen.id, *id);
        assert_eq!(position.top[0], position.chosen, "greedy takes the most probable");
        assert!(position.top.windows(2).all(|w| w[0].logprob >= w[1].logprob));
        assert!(position.top.iter().map(|t| t.logprob.exp()).sum::<f32>() <= 1.0 + 1e-5);
    }
}

#[test]
fn sampling_depends_on_the_seed_only() {
    let engine = demo();
    let sampling = Sampling { temperature: 1.0, top_p: 0.95, seed: 3, ..Sampling::default() };
    let request = GenerateRequest { sampling, ..generation(text("In the beginning"), 20) };
    let (one, _) = run(&engine, request.clone());
    let (again, _) = run(&engine, GenerateRequest { kv_cache: false, ..request.clone() });
    assert_eq!(one.token_ids, again.token_ids);
    let other = GenerateRequest { sampling: Sampling { seed: 4, ..sampling }, ..request };
    assert_ne!(one.token_ids, run(&engine, other).0.token_ids);
}

#[test]
fn an_end_token_ends_and_is_not_text() {
    let engine = golden();
    // One of the greedy ids of this checkpoint is declared to be an end token: any that occurs after the first.
    let (free, _) = run(&engine, generation(ids(&[5, 9, 30, 77]), 30));
    assert_eq!(free.finish_reason, FinishReason::Length);
    let honest = GenerateRequest { ignore_eos: false, ..generation(ids(&[5, 9, 30, 77]), 30) };
    let (outcome, _) = run(&engine, honest);
    assert!(free.token_ids.starts_with(&outcome.token_ids));
    match outcome.finish_reason {
        FinishReason::Stop => assert!(outcome.token_ids.len() <= 30),
        FinishReason::Length => assert_eq!(outcome.token_ids, free.token_ids),
        FinishReason::Cancelled => panic!("nobody cancelled"),
    }
}

/// `generation_config.json` names the end tokens; `config.json` does so only if the other names none.
#[test]
fn end_tokens_come_from_either_configuration() {
    let prompt = || ids(&[5, 9, 30, 77]);
    let (free, _) = run(&golden(), generation(prompt(), 12));
    let end = free.token_ids[4];
    let first = free.token_ids.iter().position(|&id| id == end).unwrap();
    let never = (0..131).find(|id| !free.token_ids.contains(id)).unwrap();
    let config = std::fs::read_to_string(golden_dir().join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["eos_token_id"] = end.into();
    let cases = [
        (None, first + 1),
        (Some("{}".to_owned()), first + 1),
        (Some(format!("{{\"eos_token_id\": {never}}}")), 12),
        (Some(format!("{{\"eos_token_id\": [{never}, {end}]}}")), first + 1),
    ];
    for (other, tokens) in cases {
        let folder = tempfile::tempdir().unwrap();
        let weights = "model.safetensors";
        std::fs::copy(golden_dir().join(weights), folder.path().join(weights)).unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        if let Some(other) = &other {
            std::fs::write(folder.path().join("generation_config.json"), other).unwrap();
        }
        let engine = Engine::load(options(folder.path())).unwrap();
        let request = GenerateRequest { ignore_eos: false, ..generation(prompt(), 12) };
        assert_eq!(run(&engine, request).0.token_ids, free.token_ids[..tokens], "{other:?}");
    }
}

#[test]
fn cancelling_keeps_what_there_is() {
    let engine = demo();
    let cancel = Cancel::new();
    let mut pieces = 0;
    let outcome = engine
        .generate(generation(text("In the beginning"), 400), &cancel, &mut |_| {
            pieces += 1;
            if pieces == 3 {
                cancel.cancel();
            }
        })
        .unwrap();
    assert!((3..=400).contains(&outcome.token_ids.len()));
    assert!(outcome.finish_reason == FinishReason::Cancelled || outcome.token_ids.len() == 400);
    // The engine is free again.
    assert_eq!(run(&engine, generation(text("In"), 2)).0.token_ids.len(), 2);
}

#[test]
fn every_token_has_its_time() {
    // One second passes between two clock readings, so no two are equal.
    let readings = AtomicU64::new(5);
    let clock = Arc::new(move || readings.fetch_add(1, Ordering::Relaxed) * 1_000_000_000);
    let engine = Engine::load(Options { clock, ..options(&demo_dir()) }).unwrap();
    let mut before = 0.0;
    for kv_cache in [true, false] {
        let request = GenerateRequest { kv_cache, ..generation(text("In the beginning"), 6) };
        let (outcome, _) = run(&engine, request);
        let times = &outcome.token_s;
        assert_eq!((times.len(), outcome.token_ids.len()), (6, 6));
        assert!(times.is_sorted() && times[0] < times[5], "{times:?}");
        assert_eq!(times[0], outcome.prefill_s);
        assert!(outcome.queue_s < times[0] && times[5] <= outcome.prefill_s + outcome.decode_s);
        assert!(outcome.arrived_s > before, "after the last token of the request before");
        before = outcome.arrived_s + times[5];
    }
    let (outcome, _) = run(&engine, generation(text("In the beginning"), 6));
    assert_eq!(
        outcome.decode_tokens_per_s,
        Some(5.0 / outcome.decode_s),
        "the prompt's pass gives the first token"
    );
    assert_eq!(run(&engine, generation(text("In the beginning"), 1)).0.decode_tokens_per_s, None);
    let cancel = Cancel::new();
    let stop = &mut |_: &str| cancel.cancel();
    let cut = engine.generate(generation(text("In the beginning"), 400), &cancel, stop).unwrap();
    assert_eq!(cut.token_s.len(), cut.token_ids.len());
}

#[test]
fn the_prompts_log_probabilities_are_those_of_generating_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = long(dir.path());
    let prompt: Vec<i64> = (0..600).map(|i| (i * 17) % 300).collect();
    let (made, _) = run(&engine, GenerateRequest { logprobs: Some(2), ..generation(ids(&prompt), 30) });
    let all: Vec<i64> = [prompt, made.token_ids.iter().map(|&id| id.into()).collect()].concat();
    let ask = |from, top| GenerateRequest {
        prompt_logprobs: Some(PromptLogprobs { from, top }),
        ..generation(ids(&all), 1)
    };
    // Requested from the middle on; earlier tokens come from the cache.
    let (tail, _) = run(&engine, ask(600, 2));
    let told = tail.prompt_logprobs.unwrap();
    assert_eq!((told.len(), tail.usage.cached_tokens), (630, 599));
    assert!(told[..600].iter().all(Option::is_none));
    assert_eq!(told[600..].iter().flatten().cloned().collect::<Vec<_>>(), made.logprobs.unwrap());
    // Requested in full, everything is run, with the same bits.
    let (whole, _) = run(&engine, ask(0, 2));
    let all_told = whole.prompt_logprobs.unwrap();
    assert_eq!((all_told.len(), whole.usage.cached_tokens), (630, 0));
    assert!(all_told[0].is_none() && all_told[1..].iter().all(Option::is_some));
    assert_eq!(all_told[600..], told[600..]);
    for (one, &id) in all_told.iter().zip(&all).skip(1) {
        assert_eq!(one.as_ref().map(|p| (p.chosen.id, p.top.len())), Some((id as u32, 2)));
    }
    assert_eq!(whole.token_ids, tail.token_ids);
    // There are no log-probabilities beyond the prompt.
    let (none, _) = run(&engine, ask(9999, 0));
    assert!(none.prompt_logprobs.unwrap().iter().all(Option::is_none));
}

#[test]
fn a_generation_ends_after_a_token_that_the_request_names() {
    let engine = demo();
    let whole = || generation(text("In the beginning"), 20);
    let (plain, _) = run(&engine, whole());
    let at = 7;
    let stop_ids = vec![i64::from(plain.token_ids[at])];
    let first = plain.token_ids.iter().position(|&id| i64::from(id) == stop_ids[0]).unwrap();
    for ignore_eos in [true, false] {
        let request = GenerateRequest { stop_ids: stop_ids.clone(), ignore_eos, ..whole() };
        let (outcome, pieces) = run(&engine, request);
        assert_eq!(outcome.token_ids, plain.token_ids[..=first]);
        assert_eq!(outcome.finish_reason, FinishReason::Stop);
        assert_eq!(pieces.concat(), outcome.text);
        assert!(plain.text.starts_with(&outcome.text) && outcome.text.len() < plain.text.len());
    }
    let unknown = GenerateRequest { stop_ids: vec![1 << 40], ..whole() };
    let refused = engine.submit_generate(unknown, &Cancel::new()).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("stop_token_ids"), "{refused}");
}

#[test]
fn a_generation_that_may_ends_where_the_context_or_the_memory_does() {
    let prompt = || ids(&[5; 30]);
    let fitting = |new| GenerateRequest { fit_context: true, ..generation(prompt(), new) };
    let short = Engine::load(Options { max_context: Some(40), ..options(&demo_dir()) }).unwrap();
    for (asked, made) in [(4, 4), (10, 10), (11, 10), (usize::MAX, 10)] {
        assert_eq!(run(&short, fitting(asked)).0.token_ids.len(), made, "{asked} asked for");
    }
    assert_eq!(run(&short, fitting(10)).0.token_ids, run(&short, generation(prompt(), 10)).0.token_ids);
    let full = GenerateRequest { fit_context: true, ..generation(ids(&[5; 40]), 3) };
    assert!(short.submit_generate(full, &Cancel::new()).is_err());
    // The memory of two pages less than the context: the last page is for continuations that part.
    let info = demo();
    let info = info.info();
    let page = info.kv_bytes_per_token * 64;
    let memory = info.weight_bytes + info.activation_bytes + 3 * page;
    let tight = Engine::load(Options { memory: Some(memory), ..options(&demo_dir()) }).unwrap();
    assert_eq!(run(&tight, fitting(usize::MAX)).0.token_ids.len(), 2 * 64 - 30);
}

#[test]
fn text_that_could_have_begun_a_stop_string_is_let_out_at_the_end() {
    let engine = demo();
    let request = generation(text("In the beginning"), 12);
    let (plain, _) = run(&engine, request.clone());
    for held in 1..=plain.text.chars().rev().take(4).count() {
        let beginning: String = plain.text.chars().skip(plain.text.chars().count() - held).collect();
        let stop = vec![format!("{beginning}\u{1}")];
        let (outcome, pieces) = run(&engine, GenerateRequest { stop, ..request.clone() });
        assert_eq!(outcome.text, plain.text);
        assert_eq!(pieces.concat(), plain.text, "{held} characters held back");
    }
}
