//! An engine's memory stays below the announced amount, and requests leave nothing behind.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use redline_engine::{
    Cancel, DiffuseRequest, Engine, EngineUse, GenerateRequest, Objective, Options, PerplexityRequest,
    PrefixCacheSize,
};
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_system::memory::{current_bytes, peak_bytes, reset_peak};

use crate::alone::in_own_process;
use crate::mixture::{AnyRequest, Dice};
use crate::models::{budget, demo_dir, generation, golden_dir, ids, options, refusal, text};

fn golden(checkpoint: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(checkpoint)
}

/// Memory that the budget does not count: requests, answers, page tables, and rotations of positions.
const BESIDE: u64 = 768 << 10;

#[test]
fn the_peak_stays_below_what_is_announced() {
    if !in_own_process("memory::the_peak_stays_below_what_is_announced") {
        return;
    }
    for (checkpoint, pages) in [("llama-b", 3), ("llama-b", 8), ("qwen3-a", 20), ("dream-a", 40)] {
        let plain = Options { threads: 1, ..options(&golden(checkpoint)) };
        let info = Engine::load(plain.clone()).unwrap().info().clone();
        let page = PAGE_TOKENS as u64 * info.kv_bytes_per_token;
        let memory = budget(&info, pages, 60);
        let before = current_bytes();
        let engine = Engine::load(Options { memory: Some(memory), ..plain }).unwrap();
        let kv = engine.info().kv_budget_bytes.unwrap();
        let parts = if info.objective == Objective::NEXT { 1 } else { 2 };
        let announced = info.weight_bytes + info.activation_bytes + parts * kv;
        assert!(announced <= memory && memory < announced + parts * page);
        reset_peak();
        let mut dice = Dice(pages);
        // The workload has to be large enough to need all pages. How many requests overlap depends on the speed of the machine, so it goes
        // on until they do.
        let least = before + info.weight_bytes + info.activation_bytes + kv - page;
        let mut rounds = 0;
        while rounds < 20 || peak_bytes().unwrap() <= least {
            rounds += 1;
            assert!(
                rounds < 1000,
                "{checkpoint}, {pages} pages: {} bytes of {announced}",
                peak_bytes().unwrap() - before
            );
            let asked: Vec<AnyRequest> = (0..32).map(|_| AnyRequest::draw(&engine, &mut dice)).collect();
            // Requests that cannot fit even alone are refused.
            let tickets: Vec<_> = asked.iter().filter_map(|asked| asked.submit(&engine).ok()).collect();
            assert!(tickets.len() > 4);
            for ticket in tickets {
                ticket.wait().unwrap();
            }
        }
        let taken = peak_bytes().unwrap() - before;
        assert!(
            taken <= announced + BESIDE,
            "{checkpoint}, {pages} pages: {taken} bytes, announced {announced}"
        );
    }
}

#[test]
fn a_budget_below_the_least_is_refused_with_the_figure_that_is_needed() {
    for kept in [None, Some(200)] {
        let plain = Options { max_context: kept, ..options(&golden_dir()) };
        let info = Engine::load(plain.clone()).unwrap().info().clone();
        let page = PAGE_TOKENS as u64 * info.kv_bytes_per_token;
        let pages = kept.unwrap_or(1).div_ceil(PAGE_TOKENS) as u64 + 1;
        let least = info.weight_bytes + info.activation_bytes + pages * page;
        let load = |memory| Engine::load(Options { memory: Some(memory), ..plain.clone() });
        assert_eq!(load(least).unwrap().info().kv_budget_bytes, Some(pages * page));
        for less in [least - 1, least - least / 100] {
            let message = refusal(load(less));
            let needed = message.split_once("give `memory` = ").unwrap().1.split_once("MiB").unwrap().0;
            let needed: u64 = needed.parse().unwrap();
            assert_eq!(needed, least.div_ceil(1 << 20), "{message}");
            load(needed << 20).unwrap();
        }
    }
}

/// A model that fills masks needs the same number of bytes for canvases as for keys and values.
#[test]
fn a_budget_that_holds_no_canvas_is_refused_with_the_figure_that_is_needed() {
    for kept in [None, Some(200)] {
        let plain = Options { max_context: kept, ..options(&golden("dream-a")) };
        let info = Engine::load(plain.clone()).unwrap().info().clone();
        let page = PAGE_TOKENS as u64 * info.kv_bytes_per_token;
        let tokens = kept.unwrap_or(1);
        let canvas = info.activation_bytes + 2 * tokens as u64 * info.activation_bytes_per_row;
        let pages = canvas.div_ceil(page);
        assert!(pages > tokens.div_ceil(PAGE_TOKENS) as u64 + 1, "keys and values alone would need fewer");
        let least = info.weight_bytes + info.activation_bytes + 2 * pages * page;
        let load = |memory| Engine::load(Options { memory: Some(memory), ..plain.clone() });
        assert_eq!(load(least).unwrap().info().kv_budget_bytes, Some(pages * page));
        let message = refusal(load(least - 1));
        assert!(message.contains("MiB for keys, values and canvases of "), "{message}");
        let needed = format!("give `memory` = {}MiB or more", least.div_ceil(1 << 20));
        assert!(message.contains(&needed), "no `{needed}` in: {message}");
    }
}

#[test]
fn canvases_are_refused_from_the_first_token_that_the_budget_does_not_hold() {
    let plain = options(&golden("dream-a"));
    let memory = budget(Engine::load(plain.clone()).unwrap().info(), 2, 60);
    let engine = Engine::load(Options { memory: Some(memory), ..plain }).unwrap();
    let info = engine.info();
    let room = info.kv_budget_bytes.unwrap();
    let bytes = |tokens: u64| info.activation_bytes + 2 * tokens * info.activation_bytes_per_row;
    let most = (room - info.activation_bytes) / (2 * info.activation_bytes_per_row);
    assert!((1..=60).contains(&most) && bytes(most) <= room && bytes(most + 1) > room);
    let fill = |tokens: u64| {
        let request = DiffuseRequest::new(ids(&[5]), tokens as usize - 1);
        engine.diffuse(DiffuseRequest { steps: Some(1), ..request }, &Cancel::new(), &mut |_| ())
    };
    assert_eq!(fill(most).unwrap().canvas.len() as u64, most);
    let message = refusal(fill(most + 1));
    let fact = format!(
        "the canvas: {} tokens, run in one pass, take {} bytes of activations, more than the {room} that",
        most + 1,
        bytes(most + 1)
    );
    assert!(message.starts_with(&fact), "{message}");
}

#[test]
fn guidance_counts_the_logits_that_it_keeps() {
    let plain = options(&golden("dream-a"));
    let memory = budget(Engine::load(plain.clone()).unwrap().info(), 2, 60);
    let engine = Engine::load(Options { memory: Some(memory), ..plain }).unwrap();
    let info = engine.info();
    let (room, mask) = (info.kv_budget_bytes.unwrap(), i64::from(info.mask_id.unwrap()));
    let logits = |masks: u64| masks * 4 * info.vocab as u64;
    let bytes =
        |tokens: u64| info.activation_bytes + 2 * tokens * info.activation_bytes_per_row + logits(tokens - 1);
    let most = (1..=60).take_while(|&tokens| bytes(tokens) <= room).last().unwrap();
    assert!(most > 4 && most < 60, "{most}");
    let fill = |tokens: u64, cfg_scale, savings| {
        // The first mask of the prompt counts too.
        let request = DiffuseRequest::new(ids(&[5, mask]), tokens as usize - 2);
        let request = DiffuseRequest { cfg_scale, savings, steps: Some(1), ..request };
        engine.diffuse(request, &Cancel::new(), &mut |_| ())
    };
    for savings in [true, false] {
        assert_eq!(fill(most, 0.5, savings).unwrap().canvas.len() as u64, most);
        let message = refusal(fill(most + 1, 0.5, savings));
        let fact = format!(" and {} of logits for guidance, more than the {room} that", logits(most));
        assert!(message.contains(&fact), "no `{fact}` in {message}");
        fill(most + 1, 0.0, savings).unwrap();
    }
}

/// Both windows of the comparison are in one engine, whose memory holds only one of them.
#[test]
fn a_model_is_compared_with_itself_in_the_memory_of_one_window() {
    let memory = budget(Engine::load(options(&golden_dir())).unwrap().info(), 2, 0);
    let engine = Engine::load(Options { memory: Some(memory), ..options(&golden_dir()) }).unwrap();
    let tokens: Vec<i64> = (0..100).map(|i| (i * 7) % 131).collect();
    let request = PerplexityRequest { text: ids(&tokens), window: Some(100), adapters: Vec::new() };
    let (send, answer) = channel();
    std::thread::spawn(move || drop(send.send(engine.compare(&engine, request, &Cancel::new()))));
    // Without an answer, the two windows wait for each other.
    let outcome = answer.recv_timeout(Duration::from_mins(1)).expect("an answer").unwrap();
    assert_eq!((outcome.model.tokens, outcome.divergence.kl_max), (99, 0.0));
}

#[test]
fn a_window_that_never_fits_is_refused_and_leaves_nothing_behind() {
    let memory = budget(Engine::load(options(&golden_dir())).unwrap().info(), 2, 0);
    let engine = Engine::load(Options { memory: Some(memory), ..options(&golden_dir()) }).unwrap();
    let tokens: Vec<i64> = (0..250).map(|i| (i * 7) % 131).collect();
    let measure = |window| {
        let request = PerplexityRequest { text: ids(&tokens), window: Some(window), adapters: Vec::new() };
        engine.perplexity(request, &Cancel::new())
    };
    // The last token of a window is not run.
    assert_eq!(measure(129).unwrap().windows, 2);
    let message = refusal(measure(130));
    assert!(message.contains("room for 128 tokens of keys and values"), "{message}");
    assert_eq!(engine.in_use().unwrap(), EngineUse::default());
    assert_eq!(measure(129).unwrap().windows, 2);
}

/// One request in five is abandoned and one in twenty is refused; every prompt is different, and log-probabilities are
/// requested.
fn mixture(engine: &Engine, requests: usize, dice: &mut Dice) {
    for round in 0..requests / 20 {
        let mut tickets = Vec::new();
        for i in 0..20 {
            let words: Vec<String> =
                (0..4 + dice.below(12)).map(|_| format!(" {}", dice.below(1 << 40))).collect();
            let plain = generation(text(&words.concat()), 1 + dice.below(6) as usize);
            let stop = vec![" the".to_owned()];
            let asked =
                GenerateRequest { logprobs: Some(3), stop, cache_salt: format!("{}", round % 3), ..plain };
            if i == 7 {
                let bad = GenerateRequest { max_new_tokens: 1 << 20, ..asked };
                assert!(engine.submit_generate(bad, &Cancel::new()).is_err());
                continue;
            }
            let ticket = engine.submit_generate(asked, &Cancel::new()).unwrap();
            tickets.extend((i % 5 != 0).then_some(ticket));
        }
        for ticket in tickets {
            ticket.wait().unwrap();
        }
    }
    // A prompt that needs all pages but one, so that the same pages are kept every time.
    let prompt: Vec<i64> = (0..500).map(|i| (i * 7) % 300).collect();
    engine.generate(generation(ids(&prompt), 5), &Cancel::new(), &mut |_| ()).unwrap();
    while engine.in_use().unwrap().requests > 0 {}
}

#[test]
fn the_peak_of_a_request_is_not_that_of_earlier_work() {
    const EARLIER: usize = 256 << 20;
    if !in_own_process("memory::the_peak_of_a_request_is_not_that_of_earlier_work") {
        return;
    }
    let engine = Engine::load(Options { threads: 1, ..options(&demo_dir()) }).unwrap();
    drop(std::hint::black_box(vec![1_u8; EARLIER]));
    let outcome = engine.generate(generation(ids(&[1, 2, 3]), 2), &Cancel::new(), &mut |_| ()).unwrap();
    let peak = outcome.peak_memory_bytes.unwrap();
    assert!(peak < EARLIER as u64, "{peak} bytes");
}

#[test]
fn earlier_requests_take_no_more_memory_than_they_may() {
    if !in_own_process("memory::earlier_requests_take_no_more_memory_than_they_may") {
        return;
    }
    // Requests of two pages each, which begin differently; four pages may be kept.
    let page = |engine: &Engine| engine.info().kv_bytes_per_token * PAGE_TOKENS as u64;
    let run = |engine: &Engine, request: i64| {
        let prompt: Vec<i64> = (0..100).map(|token| (request * 7 + token) % 250).collect();
        let outcome = engine.generate(generation(ids(&prompt), 2), &Cancel::new(), &mut |_| ()).unwrap();
        outcome.usage.cached_tokens
    };
    let plain = Options { threads: 1, ..options(&demo_dir()) };
    let bytes = 4 * page(&Engine::load(plain.clone()).unwrap());
    let limited =
        Engine::load(Options { prefix_cache: Some(PrefixCacheSize::Bytes(bytes)), ..plain.clone() }).unwrap();
    let unlimited = Engine::load(plain).unwrap();
    let grown = [&limited, &unlimited].map(|engine| {
        run(engine, 0);
        run(engine, 1);
        let before = current_bytes();
        for request in 2..40 {
            assert_eq!(run(engine, request), 0);
        }
        assert!(run(engine, 39) > 64, "the last request is kept");
        (engine.in_use().unwrap().kept, current_bytes().saturating_sub(before) as u64 / page(engine))
    });
    // The page that the last request shares in part was copied, in place of the other kept sequence.
    assert!(grown[0].0 == 1 && grown[0].1 < 2, "{grown:?}");
    assert!(grown[1].0 == 40 && grown[1].1 > 70, "{grown:?}");
}

#[test]
fn requests_leave_nothing_behind() {
    if !in_own_process("memory::requests_leave_nothing_behind") {
        return;
    }
    for prefix_cache in [None, Some(PrefixCacheSize::Automatic)] {
        let plain = Options { threads: 1, ..options(&demo_dir()) };
        let info = Engine::load(plain.clone()).unwrap().info().clone();
        let memory = budget(&info, 9, 0);
        let engine = Engine::load(Options { memory: Some(memory), prefix_cache, ..plain }).unwrap();
        let mut dice = Dice(1);
        let after = [400, 400, 800].map(|requests| {
            mixture(&engine, requests, &mut dice);
            let held = engine.in_use().unwrap();
            assert_eq!(held.sequences, held.kept, "only the prefix cache holds sequences at rest");
            assert!(prefix_cache.is_some() || held == EngineUse::default(), "{held:?}");
            current_bytes()
        });
        // Ten bytes for each of the last 800 requests would be too many.
        let grown = after[2].saturating_sub(after[1]);
        assert!(grown < 8 << 10, "prefix cache {prefix_cache:?}: {after:?}");
    }
}
