//! Concurrent requests: each gets the same answer as alone, and limits on time and places hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use redline_engine::{
    Cancel, Engine, EngineError, FinishReason, GenerateOutcome, GenerateRequest, Label, LongLabels, Options,
    Penalties, PerplexityRequest, PrefixCacheSize, Sampling, ScoreOutcome, ScoreRequest,
};
use redline_kernels::Format;

use crate::models::{
    bits, demo_dir, generation, golden_dir, ids, long, options, pledge, refusal, request, scores, text,
};

/// A request of either kind.
#[derive(Clone, Debug)]
enum AnyRequest {
    Score(ScoreRequest),
    Generate(GenerateRequest),
}

/// The parts of an answer that must not depend on concurrent requests.
#[derive(Debug, PartialEq)]
enum Answered {
    Scores(Vec<Vec<u32>>, Vec<Vec<u32>>),
    Tokens(Vec<u32>, Vec<u32>),
}

fn score_bits(outcome: &ScoreOutcome) -> Answered {
    let logprobs: Vec<Vec<f32>> =
        outcome.items.iter().map(|i| i.as_ref().unwrap().logprobs.clone()).collect();
    Answered::Scores(bits(&scores(outcome)), bits(&logprobs))
}

fn token_bits(mut outcome: GenerateOutcome) -> Answered {
    let (mut ids, mut bits) = (Vec::new(), Vec::new());
    for continuation in outcome.take_continuations() {
        ids.extend(continuation.token_ids);
        let logprobs = continuation.logprobs.unwrap_or_default();
        let all = logprobs.iter().flat_map(|p| p.top.iter().chain([&p.chosen]));
        bits.extend(all.map(|t| t.logprob.to_bits()));
    }
    Answered::Tokens(ids, bits)
}

fn alone(engine: &Engine, asked: &AnyRequest) -> Answered {
    match asked.clone() {
        AnyRequest::Score(request) => score_bits(&engine.score(request).unwrap()),
        AnyRequest::Generate(request) => {
            token_bits(engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap())
        }
    }
}

/// Submits all requests before waiting for the first answer.
fn together(engine: &Engine, asked: &[AnyRequest]) -> Vec<Answered> {
    let cancel = Cancel::new();
    let tickets: Vec<_> = asked
        .iter()
        .map(|asked| match asked.clone() {
            AnyRequest::Score(request) => (Some(engine.submit_score(request, &cancel).unwrap()), None),
            AnyRequest::Generate(request) => (None, Some(engine.submit_generate(request, &cancel).unwrap())),
        })
        .collect();
    tickets
        .into_iter()
        .map(|ticket| match ticket {
            (Some(score), _) => score_bits(&score.wait().unwrap()),
            (_, Some(generate)) => token_bits(generate.wait().unwrap()),
            _ => unreachable!(),
        })
        .collect()
}

/// Sixty-four requests over ids below `vocab`: scores and generations, short and long, some with common prefixes.
fn mixed(vocab: i64, longest: i64) -> Vec<AnyRequest> {
    let prompt = |i: i64| -> Vec<i64> {
        let length = 1 + (i * 37) % longest;
        (0..length).map(|j| (j * 7 + (i % 3) * (1 + j / 40)) % vocab).collect()
    };
    (0..64)
        .map(|i| {
            if i % 2 == 0 {
                let sampling =
                    Sampling { temperature: (i % 3) as f32 * 0.5, seed: i as u64, ..Sampling::default() };
                let new = 1 + (i as usize * 5) % 17;
                let plain = generation(ids(&prompt(i)), new);
                // Greedy continuations would be all the same.
                let n = if i % 3 == 0 { 1 } else { 1 + i as usize % 4 };
                let best_of = (n > 1 && i % 5 == 0).then_some(n + 1);
                let penalties = if i % 8 == 0 {
                    Penalties { repetition: 1.2, frequency: 0.3, presence: 0.1, min_tokens: 0 }
                } else {
                    Penalties::default()
                };
                AnyRequest::Generate(GenerateRequest {
                    sampling,
                    penalties,
                    n,
                    best_of,
                    logprobs: (i % 4 == 0).then_some(2),
                    ..plain
                })
            } else {
                let items = (0..=i % 5).map(|n| ids(&[n, (i + n) % vocab])).collect();
                let labels = if i % 4 == 1 { vec![vec![3], vec![5, 6, 7]] } else { vec![vec![9], vec![4]] };
                let labels = labels.into_iter().map(Label::Ids).collect();
                let plain = request(ids(&prompt(i)), items, labels);
                AnyRequest::Score(ScoreRequest { softmax: i % 3 == 0, long_labels: LongLabels::Sum, ..plain })
            }
        })
        .collect()
}

#[test]
fn sixty_four_mixed_requests_are_answered_as_alone_in_any_order() {
    for &format in Format::ALL {
        let engine = |threads, keeps: bool| {
            let (format, prefix_cache) = (Some(format), keeps.then_some(PrefixCacheSize::Automatic));
            Engine::load(Options { threads, prefix_cache, format, ..options(&demo_dir()) }).unwrap()
        };
        let all = mixed(900, 150);
        let single = engine(1, false);
        let expected: Vec<Answered> = all.iter().map(|asked| alone(&single, asked)).collect();
        for (threads, prefix_cache, turn) in [(1, false, 0), (2, true, 17), (2, false, 40)] {
            let engine = engine(threads, prefix_cache);
            let mut order = all.clone();
            order.rotate_left(turn);
            // Cold, then warm.
            for _ in 0..2 {
                let mut got = together(&engine, &order);
                got.rotate_right(turn);
                assert_eq!(got, expected, "{format}, {threads} threads, {prefix_cache}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn under_any_budget_requests_together_are_answered_as_alone(
        pages in 4u64..12,
        chosen in prop::collection::vec(0usize..64, 1..20),
        stall in prop::option::of(0.0f64..1e-3),
    ) {
        let all = mixed(50, 100);
        let free = Engine::load(Options { prefix_cache: None, ..options(&golden_dir()) }).unwrap();
        let info = free.info();
        let memory = Some(info.weight_bytes + info.activation_bytes + pages * 64 * info.kv_bytes_per_token);
        let engine = Engine::load(Options { memory, stall_s: stall, ..options(&golden_dir()) }).unwrap();
        let asked: Vec<AnyRequest> = chosen.into_iter().map(|i| all[i].clone()).collect();
        let expected: Vec<Answered> = asked.iter().map(|asked| alone(&free, asked)).collect();
        prop_assert_eq!(together(&engine, &asked), expected);
    }
}

#[test]
fn prompts_that_arrive_while_others_generate_come_in_pieces_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let free = long(dir.path());
    // A clock that advances, so that passes have a cost and a budget.
    let time = AtomicU64::new(0);
    let clock = Arc::new(move || time.fetch_add(1_000_000, Ordering::Relaxed));
    let at = |stall_s| Options { clock: clock.clone(), stall_s, ..options(&dir.path().join("long")) };
    let prompt = |n: i64, seed: i64| (0..n).map(|i| (i * 7 + seed) % 299).collect::<Vec<_>>();
    let mut asked: Vec<AnyRequest> =
        (0..8).map(|i| AnyRequest::Generate(generation(ids(&prompt(5 + i, i)), 60))).collect();
    asked.extend((0..3).map(|i| AnyRequest::Generate(generation(ids(&prompt(1900, 100 + i)), 4))));
    let expected: Vec<Answered> = asked.iter().map(|asked| alone(&free, asked)).collect();
    for stall_s in [None, Some(0.0), Some(10.0)] {
        let engine = Engine::load(at(stall_s)).unwrap();
        assert_eq!(together(&engine, &asked), expected, "{stall_s:?}");
    }
}

#[test]
fn there_are_so_many_places_and_no_more() {
    assert!(refusal(Engine::load(Options { queue: 0, ..options(&demo_dir()) })).contains("0 places"));
    // While the gate is locked, the engine's thread blocks on its clock.
    let gate = Arc::new(Mutex::new(()));
    let (locked, at_gate) = (gate.lock().unwrap(), gate.clone());
    let clock = Arc::new(move || {
        let is_engine = std::thread::current().name() == Some("redline-0");
        drop(is_engine.then(|| at_gate.lock().unwrap()));
        0
    });
    let engine = Engine::load(Options { queue: 2, clock, ..options(&demo_dir()) }).unwrap();
    let cancel = Cancel::new();
    let ask = |new| engine.submit_generate(generation(text("In the beginning"), new), &cancel);
    let (first, second) = (ask(400).unwrap(), ask(400).unwrap());
    let Err(error) = ask(1) else { panic!("a third place") };
    assert!(matches!(error, EngineError::QueueFull { requests: 2 }), "{error}");
    assert!(error.hint().is_some() && refusal(engine.score(pledge())).contains("2 requests"));
    assert!(!first.is_ready());
    first.cancel();
    drop(second);
    drop(locked);
    // A request's place is free before its answer is delivered.
    let outcome = first.wait().unwrap();
    assert_eq!((outcome.finish_reason, outcome.token_ids.len()), (FinishReason::Cancelled, 0));
    engine.score(pledge()).unwrap();
    // Dropping a ticket frees its place too, and does not set the caller's flag.
    while ask(1).and_then(|one| Ok((one, ask(1)?))).is_err() {}
    assert!(!cancel.is_cancelled());
}

#[test]
fn many_items_with_labels_of_several_tokens() {
    // More prompts wait for their labels than sequences may be open.
    let engine = Engine::load(options(&golden_dir())).unwrap();
    let items: Vec<_> = (0..600).map(|i| ids(&[i % 50, i / 50])).collect();
    let labels = vec![Label::Ids(vec![1, 2]), Label::Ids(vec![3])];
    let plain = request(ids(&[7, 8, 9]), items.clone(), labels);
    let asked = ScoreRequest { long_labels: LongLabels::Sum, ..plain };
    let got = engine.score(asked.clone()).unwrap();
    for i in [0, 255, 256, 599] {
        let alone = ScoreRequest { items: vec![items[i].clone()], ..asked.clone() };
        assert_eq!(bits(&scores(&got)[i..=i]), bits(&scores(&engine.score(alone).unwrap())));
    }
    assert_eq!(got.items.len(), 600);
}

#[test]
fn a_text_that_is_measured_and_requests_that_need_its_room_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let free = long(dir.path());
    let info = free.info();
    // A window of two passes holds 16 of the 20 pages between the passes; each generation needs 6.
    let memory = Some(info.weight_bytes + info.activation_bytes + 20 * 64 * info.kv_bytes_per_token);
    let options = Options { memory, prefix_cache: None, ..options(&dir.path().join("long")) };
    let engine = Engine::load(options).unwrap();
    let tokens: Vec<i64> = (0..5000).map(|i| (i * 13 + i / 7) % 300).collect();
    let text = PerplexityRequest { text: ids(&tokens), window: Some(1024), adapters: Vec::new() };
    let asked = generation(ids(&tokens[..340]), 12);
    let expected = free.generate(asked.clone(), &Cancel::new(), &mut |_| ()).unwrap().token_ids;
    let nll = free.perplexity(text.clone(), &Cancel::new()).unwrap().nll;
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| engine.perplexity(text, &Cancel::new()).unwrap().nll);
        for _ in 0..30 {
            let got = engine.generate(asked.clone(), &Cancel::new(), &mut |_| ()).unwrap();
            assert_eq!(got.token_ids, expected);
        }
        assert_eq!(measured.join().unwrap(), nll);
    });
}

#[test]
fn a_request_is_given_up_when_its_time_is_over() {
    // Each reading of this clock takes a tenth of a second.
    let time = AtomicU64::new(0);
    let clock = Arc::new(move || time.fetch_add(100_000_000, Ordering::Relaxed));
    let engine = Engine::load(Options { clock, ..options(&demo_dir()) }).unwrap();
    let timed = GenerateRequest { timeout_s: Some(3.0), ..generation(text("In the beginning"), 400) };
    let error = engine.generate(timed, &Cancel::new(), &mut |_| ()).unwrap_err();
    let EngineError::Late { seconds, tokens: Some(tokens) } = error else { panic!("{error}") };
    assert!(seconds > 3.0 && (1..400).contains(&tokens), "{error}");
    assert!(error.to_string().contains("not finished within its time") && error.hint().is_some());
    let message = refusal(engine.score(ScoreRequest { timeout_s: Some(1e-9), ..pledge() }));
    assert!(message.contains("not finished"), "{message}");
    let message = refusal(engine.score(ScoreRequest { timeout_s: Some(0.0), ..pledge() }));
    assert!(message.contains("0 seconds"), "{message}");
    engine.score(ScoreRequest { timeout_s: Some(1e9), ..pledge() }).unwrap();
}

#[test]
fn a_cancelled_score_answers_nothing() {
    let engine = Engine::load(options(&demo_dir())).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let ticket = engine.submit_score(pledge(), &cancel).unwrap();
    assert!(refusal(ticket.wait()).contains("cancelled"));
}

#[test]
fn every_item_may_have_labels_of_its_own() {
    let engine = Engine::load(options(&demo_dir())).unwrap();
    let lists = [vec![" the", " a"], vec![" his"], vec![" the", " a"]];
    let labels = |list: &Vec<&str>| list.iter().map(|l| Label::Text((*l).into())).collect::<Vec<_>>();
    for softmax in [false, true] {
        let item_labels = Some(lists.iter().map(labels).collect());
        let asked = ScoreRequest { labels: Vec::new(), item_labels, softmax, ..pledge() };
        let got = engine.score(asked.clone()).unwrap();
        for (i, (item, list)) in asked.items.iter().zip(&lists).enumerate() {
            let alone = ScoreRequest { items: vec![item.clone()], labels: labels(list), softmax, ..pledge() };
            let expected = engine.score(alone).unwrap();
            assert_eq!(bits(&scores(&got)[i..=i]), bits(&scores(&expected)));
            let tokens = got.item_label_token_ids.as_ref().unwrap();
            assert_eq!(tokens[i], expected.label_token_ids);
        }
        assert!(got.label_token_ids.is_empty());
    }
    let short = ScoreRequest { labels: Vec::new(), item_labels: Some(vec![labels(&lists[0])]), ..pledge() };
    assert!(refusal(engine.score(short)).contains("1 lists of labels for 3 items"));
    let both = ScoreRequest { item_labels: Some(lists.iter().map(labels).collect()), ..pledge() };
    assert!(refusal(engine.score(both)).contains("one or the other"));
    let none =
        ScoreRequest { items: Vec::new(), labels: Vec::new(), item_labels: Some(Vec::new()), ..pledge() };
    assert!(engine.score(none).unwrap().items.is_empty());
    let item_labels = Some(vec![labels(&lists[0]), Vec::new(), labels(&lists[2])]);
    let empty = ScoreRequest { labels: Vec::new(), item_labels, ..pledge() };
    assert!(refusal(engine.score(empty)).contains("item 1: there are 0 labels"));
}
