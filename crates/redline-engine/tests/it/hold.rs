//! Requests that begin together: each gets the same ids as alone.

use std::sync::{Arc, Mutex};

use redline_engine::{Cancel, Engine, GenerateOutcome, GenerateRequest, Options, ProfileEvent, Ticket};
use redline_kernels::Format;

use crate::models::{demo_dir, generation, golden, golden_dir, ids, long, options};

/// Prompts whose lengths start at `from` and increase by `step`, with different first tokens.
fn prompts(count: usize, from: usize, step: usize, vocab: usize) -> Vec<Vec<i64>> {
    let id = |i: usize, j: usize| ((i * 31 + j * 17 + 5) % vocab) as i64;
    (0..count).map(|i| (0..from + i * step).map(|j| id(i, j)).collect()).collect()
}

fn request(prompt: &[i64], new: usize, ignore_eos: bool) -> GenerateRequest {
    GenerateRequest { ignore_eos, ..generation(ids(prompt), new) }
}

fn together(engine: &Engine, prompts: &[Vec<i64>], new: usize, ignore_eos: bool) -> Vec<GenerateOutcome> {
    let hold = engine.hold().unwrap();
    let submit =
        |prompt: &Vec<i64>| engine.submit_generate(request(prompt, new, ignore_eos), &Cancel::new()).unwrap();
    let tickets: Vec<_> = prompts.iter().map(submit).collect();
    drop(hold);
    tickets.into_iter().map(|ticket| Ticket::wait(ticket).unwrap()).collect()
}

fn alone(engine: &Engine, prompt: &[i64], new: usize, ignore_eos: bool) -> Vec<u32> {
    engine.generate(request(prompt, new, ignore_eos), &Cancel::new(), &mut |_| ()).unwrap().token_ids
}

#[test]
fn every_request_gets_what_it_gets_alone() {
    for &format in Format::ALL {
        for threads in [1, 2] {
            let options = Options { threads, format: Some(format), ..options(&demo_dir()) };
            let engine = Engine::load(options).unwrap();
            let prompts = prompts(9, 1, 11, engine.info().vocab);
            let outcomes = together(&engine, &prompts, 12, true);
            for (i, (prompt, outcome)) in prompts.iter().zip(&outcomes).enumerate() {
                assert_eq!(outcome.token_ids, alone(&engine, prompt, 12, true), "{format}, request {i}");
            }
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
    let outcomes = together(&engine, &prompts, 3, true);
    for (prompt, outcome) in prompts.iter().zip(&outcomes) {
        assert_eq!(outcome.token_ids, alone(&engine, prompt, 3, true), "{} tokens", prompt.len());
    }
}

#[test]
fn a_request_that_ends_leaves_the_others_alone() {
    let free = golden();
    let prompts = prompts(20, 2, 0, free.info().vocab);
    let unending: Vec<_> =
        together(&free, &prompts, 20, true).into_iter().map(|outcome| outcome.token_ids).collect();
    // A token that only some choose is declared to be an end token.
    let chose = |id: u32| unending.iter().filter(|ids| ids.contains(&id)).count();
    let end = unending.concat().into_iter().find(|&id| (2..19).contains(&chose(id))).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_dir().join(name), dir.path().join(name)).unwrap();
    }
    let generation = format!("{{\"eos_token_id\": {end}}}");
    std::fs::write(dir.path().join("generation_config.json"), generation).unwrap();
    let engine = Engine::load(options(dir.path())).unwrap();
    for (outcome, unending) in together(&engine, &prompts, 20, false).iter().zip(&unending) {
        let until = unending.iter().position(|&id| id == end).map_or(20, |at| at + 1);
        assert_eq!(outcome.token_ids, unending[..until]);
    }
}

#[test]
fn requests_that_were_held_run_in_the_same_passes() {
    let passes = Arc::new(Mutex::new(Vec::new()));
    let seen = passes.clone();
    let log = move |event: &ProfileEvent<'_>| {
        if let ProfileEvent::Pass(pass) = event {
            seen.lock().unwrap().push((pass.tokens, pass.sequences));
        }
    };
    let engine = Engine::load(Options { profile: Some(Arc::new(log)), ..options(&golden_dir()) }).unwrap();
    let prompts = prompts(20, 2, 0, engine.info().vocab);
    together(&engine, &prompts, 3, true);
    assert_eq!(passes.lock().unwrap()[..], [(40, 20), (20, 20), (20, 20)]);
}
