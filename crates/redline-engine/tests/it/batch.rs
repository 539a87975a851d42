//! Batches of prompts: each prompt gets the same ids as alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{BatchOutcome, BatchRequest, Cancel, Engine, EngineError, GenerateRequest, Options};
use redline_kernels::Format;

use crate::models::{
    budget, demo, demo_dir, generation, golden, golden_dir, ids, long, options, refusal, text,
};

/// Prompts whose lengths start at `from` and increase by `step`, with different first tokens.
fn prompts(count: usize, from: usize, step: usize, vocab: usize) -> Vec<Vec<i64>> {
    let id = |i: usize, j: usize| ((i * 31 + j * 17 + 5) % vocab) as i64;
    (0..count).map(|i| (0..from + i * step).map(|j| id(i, j)).collect()).collect()
}

fn together(engine: &Engine, prompts: &[Vec<i64>], new: usize, ignore_eos: bool) -> BatchOutcome {
    let prompts = prompts.iter().map(|prompt| ids(prompt)).collect();
    let request = BatchRequest { prompts, max_new_tokens: new, ignore_eos, adapters: Vec::new() };
    engine.generate_batch(&request, &Cancel::new()).unwrap()
}

fn alone(engine: &Engine, prompt: &[i64], new: usize, ignore_eos: bool) -> Vec<u32> {
    let request = GenerateRequest { ignore_eos, ..generation(ids(prompt), new) };
    engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap().token_ids
}

#[test]
fn every_sequence_gets_what_it_gets_alone() {
    for &format in Format::ALL {
        for threads in [1, 2] {
            let options = Options { threads, format: Some(format), ..options(&demo_dir()) };
            let engine = Engine::load(options).unwrap();
            let prompts = prompts(9, 1, 11, engine.info().vocab);
            let outcome = together(&engine, &prompts, 12, true);
            for (i, (prompt, new)) in prompts.iter().zip(&outcome.token_ids).enumerate() {
                assert_eq!(*new, alone(&engine, prompt, 12, true), "{format}, sequence {i}");
            }
            assert_eq!((outcome.usage.prompt_tokens, outcome.usage.completion_tokens), (9 + 11 * 36, 108));
        }
    }
}

#[test]
fn prompts_that_fill_several_passes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = long(dir.path());
    // 513 leaves exactly one pass of 512 before its last token.
    let mut prompts = prompts(4, 300, 170, engine.info().vocab);
    prompts.push(vec![3; 513]);
    prompts.push(vec![7]);
    let outcome = together(&engine, &prompts, 3, true);
    for (prompt, new) in prompts.iter().zip(&outcome.token_ids) {
        assert_eq!(*new, alone(&engine, prompt, 3, true), "{} tokens", prompt.len());
    }
}

#[test]
fn a_sequence_that_ends_leaves_the_others_alone() {
    let free = golden();
    let prompts = prompts(20, 2, 0, free.info().vocab);
    let unending = together(&free, &prompts, 20, true).token_ids;
    // A token that only some sequences choose is declared to be an end token.
    let chose = |id: u32| unending.iter().filter(|ids| ids.contains(&id)).count();
    let end = unending.concat().into_iter().find(|&id| (2..19).contains(&chose(id))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_dir().join(name), dir.path().join(name)).unwrap();
    }
    let generation = format!("{{\"eos_token_id\": {end}}}");
    std::fs::write(dir.path().join("generation_config.json"), generation).unwrap();
    let engine = Engine::load(options(dir.path())).unwrap();
    let outcome = together(&engine, &prompts, 20, false);
    for ((prompt, new), unending) in prompts.iter().zip(&outcome.token_ids).zip(&unending) {
        assert_eq!(*new, alone(&engine, prompt, 20, false));
        let until = unending.iter().position(|&id| id == end).map_or(20, |at| at + 1);
        assert_eq!(*new, unending[..until]);
    }
}

#[test]
fn the_cache_is_free_again() {
    let engine = demo();
    let prompts = prompts(64, 3, 0, engine.info().vocab);
    let first = together(&engine, &prompts, 2, true);
    assert_eq!(together(&engine, &prompts, 2, true).token_ids, first.token_ids);
    let texts = BatchRequest {
        prompts: vec![text("In the beginning")],
        max_new_tokens: 4,
        ignore_eos: true,
        adapters: Vec::new(),
    };
    let outcome = engine.generate_batch(&texts, &Cancel::new()).unwrap();
    assert_eq!(outcome.token_ids[0].len(), 4);
}

/// Every sequence has pages of its own, so two that end in the middle of a page need more than their tokens.
#[test]
fn prompts_that_do_not_fit_together_are_refused_with_their_pages() {
    let memory = Some(budget(golden().info(), 4, 0));
    let engine = Engine::load(Options { memory, ..options(&golden_dir()) }).unwrap();
    let ask = |lengths: [usize; 2]| {
        let prompts = lengths.map(|tokens| ids(&vec![7; tokens])).to_vec();
        let request = BatchRequest { prompts, max_new_tokens: 4, ignore_eos: true, adapters: Vec::new() };
        engine.generate_batch(&request, &Cancel::new())
    };
    assert_eq!(ask([124, 124]).unwrap().token_ids.concat().len(), 8);
    let message = refusal(ask([125, 61]));
    let fact = "the prompts and their continuations: 194 tokens need room for 320, in pages of 64, and the memory \
                budget leaves room for 256";
    assert!(message.starts_with(fact), "{message}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let engine = golden();
    let context = engine.info().context;
    let ask = |prompts: Vec<Vec<i64>>, max_new_tokens| {
        let prompts = prompts.iter().map(|prompt| ids(prompt)).collect();
        engine.generate_batch(
            &BatchRequest { prompts, max_new_tokens, ignore_eos: true, adapters: Vec::new() },
            &Cancel::new(),
        )
    };
    let refused = |result: Result<BatchOutcome, EngineError>| refusal(result);
    assert!(refused(ask(vec![], 1)).contains("a batch of 0 prompts"));
    assert!(refused(ask(vec![vec![1]; 65], 1)).contains("from 1 to 64"));
    assert!(refused(ask(vec![vec![1]], 0)).contains("0 new tokens"));
    assert!(refused(ask(vec![vec![1], vec![]], 1)).contains("0 tokens"));
    assert!(refused(ask(vec![vec![1], vec![-1]], 1)).contains("-1"));
    assert!(refused(ask(vec![vec![1], vec![1; context]], 1)).contains("exceed the context"));
    let cancel = Cancel::new();
    cancel.cancel();
    let request = BatchRequest {
        prompts: vec![ids(&[1, 2])],
        max_new_tokens: 5,
        ignore_eos: true,
        adapters: Vec::new(),
    };
    let outcome = engine.generate_batch(&request, &cancel).unwrap();
    assert_eq!((outcome.token_ids, outcome.decode_tokens_per_s), (vec![vec![]], None));
}

#[test]
fn the_first_token_of_each_sequence_is_not_counted_as_decoded() {
    // One second passes between two clock readings.
    let readings = AtomicU64::new(0);
    let clock = Arc::new(move || readings.fetch_add(1, Ordering::Relaxed) * 1_000_000_000);
    let engine = Engine::load(Options { clock, ..options(&golden_dir()) }).unwrap();
    let prompts = prompts(3, 2, 1, engine.info().vocab);
    let outcome = together(&engine, &prompts, 4, true);
    assert_eq!(outcome.usage.completion_tokens, 12);
    assert!(outcome.prefill_s > 0.0 && outcome.decode_s > 0.0, "{outcome:?}");
    assert_eq!(outcome.decode_tokens_per_s, Some(9.0 / outcome.decode_s));
    assert_eq!(together(&engine, &prompts, 1, true).decode_tokens_per_s, None);
}
