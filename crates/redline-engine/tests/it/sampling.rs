//! Penalties, bias and filters compared with the reference, and several continuations of one prompt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use redline_engine::{
    Cancel, Continuation, Engine, FinishReason, GenerateOutcome, GenerateRequest, Options, Penalties,
    PositionLogprobs, PrefixCacheSize, ProfileEvent, Sampling,
};
use redline_kernels::Format;
use serde::Deserialize;

use crate::models::{budget, demo, generation, golden, golden_dir, ids, options, text};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

fn run(engine: &Engine, request: GenerateRequest) -> GenerateOutcome {
    engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap()
}

/// Ids and log-probabilities of a continuation.
type Answer = (Vec<u32>, Option<Vec<PositionLogprobs>>);

fn answers(mut outcome: GenerateOutcome) -> Vec<Answer> {
    let all = outcome.take_continuations();
    all.into_iter().map(|one: Continuation| (one.token_ids, one.logprobs)).collect()
}

/// A sampled request.
fn sampled(seed: u64, new: usize) -> GenerateRequest {
    let sampling = Sampling { temperature: 1.0, top_p: 0.95, seed, ..Sampling::default() };
    GenerateRequest { sampling, logprobs: Some(2), ..generation(text("In the beginning"), new) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    checkpoint: String,
    prompt: Vec<i64>,
    new: usize,
    seed: u64,
    n: usize,
    best_of: usize,
    parameters: Parameters,
    choices: Vec<Choice>,
    tokens: usize,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    temperature: f32,
    top_k: usize,
    top_p: Option<f32>,
    min_p: f32,
    typical_p: Option<f32>,
    repetition_penalty: Option<f32>,
    frequency_penalty: f32,
    presence_penalty: f32,
    logit_bias: BTreeMap<i64, f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    seed: u64,
    ids: Vec<u32>,
    mean_logprob: f64,
}

fn request(case: &Case) -> GenerateRequest {
    let given = &case.parameters;
    GenerateRequest {
        sampling: Sampling {
            temperature: given.temperature,
            top_k: given.top_k,
            top_p: given.top_p.unwrap_or(1.0),
            min_p: given.min_p,
            typical_p: given.typical_p.unwrap_or(1.0),
            seed: case.seed,
        },
        penalties: Penalties {
            repetition: given.repetition_penalty.unwrap_or(1.0),
            frequency: given.frequency_penalty,
            presence: given.presence_penalty,
            min_tokens: 0,
        },
        logit_bias: given.logit_bias.iter().map(|(&id, &bias)| (id, bias)).collect(),
        n: case.n,
        best_of: Some(case.best_of),
        logprobs: Some(0),
        ..generation(ids(&case.prompt), case.new)
    }
}

#[test]
fn continuations_are_those_of_the_reference() {
    let cases = std::fs::read_to_string(folder().join("sampling.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    assert_eq!(cases.len(), 19);
    let mut engines: BTreeMap<&str, Engine> = BTreeMap::new();
    for (number, case) in cases.iter().enumerate() {
        let load = || {
            let format = Some(Format::F32);
            Engine::load(Options { format, ..options(&folder().join(&case.checkpoint)) }).unwrap()
        };
        let engine = engines.entry(&case.checkpoint).or_insert_with(load);
        let mut outcome = run(engine, request(case));
        assert_eq!(outcome.usage.completion_tokens, case.tokens, "case {number}");
        let got = outcome.take_continuations();
        assert_eq!(got.len(), case.n, "case {number}");
        for (got, expected) in got.iter().zip(&case.choices) {
            assert_eq!((got.seed, &got.token_ids), (expected.seed, &expected.ids), "case {number}");
            let logprobs = got.logprobs.iter().flatten().map(|position| f64::from(position.chosen.logprob));
            let mean = logprobs.sum::<f64>() / got.token_ids.len() as f64;
            assert!((mean - expected.mean_logprob).abs() < 1e-4, "case {number}: {mean}");
            let ranked = (case.best_of > case.n).then_some(mean);
            assert_eq!(got.mean_logprob, ranked, "case {number}");
        }
    }
}

#[test]
fn penalties_and_bias_of_no_effect_change_nothing() {
    let engine = demo();
    for plain in [sampled(3, 20), GenerateRequest { sampling: Sampling::default(), ..sampled(3, 20) }] {
        let expected = answers(run(&engine, plain.clone()));
        let bias = GenerateRequest { logit_bias: vec![(5, 0.0), (9, -0.0)], ..plain.clone() };
        assert_eq!(answers(run(&engine, bias)), expected);
        let ranked = GenerateRequest { best_of: Some(1), ..plain };
        assert_eq!(answers(run(&engine, ranked)), expected);
    }
}

#[test]
fn a_bias_forces_and_forbids_tokens_and_log_probabilities_stay_those_of_the_model() {
    let engine = golden();
    let vocab = engine.info().vocab;
    let plain = GenerateRequest { logprobs: Some(vocab), ..generation(ids(&[5, 9, 30, 77]), 1) };
    let of = |logit_bias: Vec<(i64, f32)>| run(&engine, GenerateRequest { logit_bias, ..plain.clone() });
    let free = of(Vec::new());
    let own = &free.logprobs.as_ref().unwrap()[0];
    // Forbidding the most probable token leaves the second.
    let second = of(vec![(i64::from(own.top[0].id), -100.0)]);
    assert_eq!(second.token_ids, [own.top[1].id]);
    for token in [&own.top[1], &own.top[vocab / 2], &own.top[vocab - 1]] {
        let forced = of(vec![(i64::from(token.id), 100.0)]);
        assert_eq!(forced.token_ids, [token.id]);
        let position = &forced.logprobs.as_ref().unwrap()[0];
        assert_eq!((&position.chosen, &position.top), (token, &own.top));
    }
}

#[test]
fn each_continuation_is_that_of_a_request_with_its_seed() {
    let plain = GenerateRequest {
        stop: vec!["the".to_owned()],
        penalties: Penalties { repetition: 1.1, frequency: 0.2, presence: 0.1, min_tokens: 0 },
        ..sampled(7, 24)
    };
    let single = demo();
    let mut expected = Vec::new();
    for prefix_cache in [None, Some(PrefixCacheSize::Automatic)] {
        for (threads, kv_cache) in [(1, true), (2, true), (2, false)] {
            let dir = crate::models::demo_dir();
            let engine = Engine::load(Options { threads, prefix_cache, ..options(&dir) }).unwrap();
            let mut outcome = run(&engine, GenerateRequest { n: 3, kv_cache, ..plain.clone() });
            let usage = outcome.usage;
            let all = outcome.take_continuations();
            let generated: usize = all.iter().map(|one| one.token_ids.len()).sum();
            assert_eq!((all.len(), usage.completion_tokens), (3, generated));
            assert_eq!(all[0].seed, 7);
            if expected.is_empty() {
                for one in &all {
                    let sampling = Sampling { seed: one.seed, ..plain.sampling };
                    let alone = run(&single, GenerateRequest { sampling, ..plain.clone() });
                    assert_eq!(alone.usage.prompt_tokens, usage.prompt_tokens);
                    expected.push((alone.text, alone.token_ids, alone.logprobs, alone.finish_reason));
                }
                assert!(expected[0].1 != expected[1].1 && expected[1].1 != expected[2].1);
            }
            assert!(all.iter().all(|one| one.token_s.len() == one.token_ids.len()));
            let got = all.into_iter().map(|one| (one.text, one.token_ids, one.logprobs, one.finish_reason));
            assert_eq!(got.collect::<Vec<_>>(), expected, "{threads} {prefix_cache:?} {kv_cache}");
        }
    }
}

#[test]
fn the_most_probable_continuations_come_first() {
    let engine = demo();
    let all = GenerateRequest { n: 6, ..sampled(2, 10) };
    let mut outcome = run(&engine, all.clone());
    let mut ranked: Vec<(f64, Vec<u32>)> = Vec::new();
    for one in outcome.take_continuations() {
        assert_eq!(one.mean_logprob, None, "nothing is ranked");
        let sum: f64 = one.logprobs.iter().flatten().map(|p| f64::from(p.chosen.logprob)).sum();
        ranked.push((sum / one.token_ids.len() as f64, one.token_ids));
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (n, logprobs) in [(1, None), (2, Some(3)), (5, None)] {
        let request = GenerateRequest { n, best_of: Some(6), logprobs, ..all.clone() };
        let mut outcome = run(&engine, request);
        assert_eq!(outcome.usage.completion_tokens, 60);
        let best = outcome.take_continuations();
        assert!(best.iter().all(|one| one.logprobs.is_some() == logprobs.is_some()));
        let best: Vec<(f64, Vec<u32>)> =
            best.into_iter().map(|one| (one.mean_logprob.unwrap(), one.token_ids)).collect();
        assert_eq!(best, ranked[..n]);
    }
    // One token to choose from: all are equal, and the first seeds are returned.
    let sampling = Sampling { temperature: 1.0, top_k: 1, seed: 9, ..Sampling::default() };
    let mut equal = run(&engine, GenerateRequest { sampling, n: 2, best_of: Some(4), ..all });
    let seeds: Vec<u64> = equal.take_continuations().iter().map(|one| one.seed).collect();
    let sampling = Sampling { temperature: 1.0, seed: 9, ..Sampling::default() };
    let mut plain = run(&engine, GenerateRequest { sampling, n: 2, ..sampled(9, 1) });
    assert_eq!(seeds, plain.take_continuations().iter().map(|one| one.seed).collect::<Vec<_>>());
}

#[test]
fn the_prompt_of_several_continuations_runs_once() {
    let computed = Arc::new(Mutex::new(Vec::new()));
    let seen = computed.clone();
    let profile: redline_engine::ProfileLog = Arc::new(move |event: &ProfileEvent<'_>| {
        if let ProfileEvent::Ended { computed_tokens, .. } = event {
            seen.lock().unwrap().push(*computed_tokens);
        }
    });
    let (profile, prefix_cache) = (Some(profile), None);
    let engine = Engine::load(Options { profile, prefix_cache, ..options(&golden_dir()) }).unwrap();
    let prompt: Vec<i64> = (0..100).map(|i| i * 7 % 131).collect();
    let request = GenerateRequest { n: 3, logprobs: None, ..sampled(1, 5) };
    run(&engine, GenerateRequest { prompt: ids(&prompt), ..request.clone() });
    // The first tokens end the continuations, so no sequence beyond the prompt is run.
    run(&engine, GenerateRequest { prompt: ids(&prompt), max_new_tokens: 1, ..request });
    assert_eq!(*computed.lock().unwrap(), [100 + 3 * 4, 100]);
}

#[test]
fn continuations_are_the_same_in_the_least_memory() {
    let free = golden();
    let prompt: Vec<i64> = (0..150).map(|i| i * 7 % 131).collect();
    let request = GenerateRequest { prompt: ids(&prompt), n: 4, best_of: Some(5), ..sampled(4, 40) };
    let expected = answers(run(&free, request.clone()));
    assert_eq!(expected.len(), 4);
    // 190 tokens need three pages, and one more where a continuation leaves the prompt.
    for pages in [4, 5, 7, 12] {
        let memory = Some(budget(free.info(), pages, 0));
        let engine = Engine::load(Options { memory, ..options(&golden_dir()) }).unwrap();
        assert_eq!(answers(run(&engine, request.clone())), expected, "{pages} pages");
        assert_eq!(engine.in_use().unwrap().requests, 0);
    }
    let memory = Some(budget(free.info(), 3, 0));
    let engine = Engine::load(Options { memory, ..options(&golden_dir()) }).unwrap();
    assert!(engine.generate(request, &Cancel::new(), &mut |_| ()).is_err());
}

#[test]
fn cancelled_continuations_keep_what_they_have_and_report_no_text() {
    let engine = demo();
    let cancel = Cancel::new();
    cancel.cancel();
    for best_of in [3, 5] {
        let request = GenerateRequest { n: 3, best_of: Some(best_of), ..sampled(1, 20) };
        let mut outcome = engine.generate(request, &cancel, &mut |_| panic!("text")).unwrap();
        assert!(outcome.cancelled);
        let all = outcome.take_continuations();
        assert_eq!(all.len(), 3);
        for one in all {
            assert_eq!((one.token_ids.len(), one.finish_reason), (0, FinishReason::Cancelled));
            assert_eq!(one.mean_logprob, None);
        }
    }
    let whole = GenerateRequest { n: 2, ..sampled(1, 20) };
    let outcome = engine.generate(whole, &Cancel::new(), &mut |text| panic!("{text}")).unwrap();
    assert!(!outcome.cancelled && !outcome.text.is_empty());
}
