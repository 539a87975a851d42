//! The prefix cache changes how much is computed, and nothing else; the memory budget holds.

use proptest::prelude::*;
use redline_engine::{
    Cancel, Engine, EngineUse, GenerateOutcome, GenerateRequest, Label, LongLabels, Options,
    PrefixCacheCounts, PrefixCacheSize, ScoreRequest,
};
use redline_kernels::Format;
use redline_kernels::op::kv::PAGE_TOKENS;

use crate::models::{
    bits, demo_dir, generation, golden_dir, ids, long, options, pledge, refusal, request, scores, text,
};

fn demo(keeps: bool, format: Format) -> Engine {
    let (format, prefix_cache) = (Some(format), keeps.then_some(PrefixCacheSize::Automatic));
    Engine::load(Options { prefix_cache, format, ..options(&demo_dir()) }).unwrap()
}

fn generate(engine: &Engine, request: GenerateRequest) -> GenerateOutcome {
    engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap()
}

/// A query of words; its first half has the same tokens as a shorter query.
fn query(words: usize) -> String {
    "And it came to pass in those days that the king said unto the people of the land "
        .split_inclusive(' ')
        .cycle()
        .take(words)
        .collect()
}

fn asking(words: usize) -> ScoreRequest {
    ScoreRequest { query: text(&query(words)), ..pledge() }
}

#[test]
fn warm_and_cold_scores_are_the_same_bits() {
    for &format in Format::ALL {
        let (cold, warm) = (demo(false, format), demo(true, format));
        // The same query again; a longer one; one cut inside a page; another query with the same beginning.
        let mut cached = 0;
        for words in [40, 40, 150, 150, 97, 20] {
            let (expected, got) = (cold.score(asking(words)).unwrap(), warm.score(asking(words)).unwrap());
            assert_eq!(bits(&scores(&got)), bits(&scores(&expected)), "{format}, {words} words");
            assert_eq!(expected.cost.prefix_cache, None);
            assert_eq!(expected.cost.usage.cached_tokens, 0);
            let from = got.cost.prefix_cache.unwrap();
            assert_eq!((from.hits + from.misses, from.cached_tokens), (3, got.cost.usage.cached_tokens));
            // The shared prefix was computed once, or came from an earlier request once, for all three items.
            assert_eq!(
                got.cost.computed_tokens,
                expected.cost.computed_tokens - from.cached_tokens / 3,
                "{words} words"
            );
            cached += from.cached_tokens;
        }
        assert!(cached > 3 * (40 + 150), "{cached}");
    }
}

#[test]
fn the_first_request_misses_and_the_second_hits() {
    let engine = demo(true, Format::Bf16);
    let first = engine.score(asking(60)).unwrap();
    assert_eq!(first.cost.prefix_cache, Some(PrefixCacheCounts { hits: 0, misses: 3, cached_tokens: 0 }));
    assert_eq!(first.cost.usage.cached_tokens, 0);
    let second = engine.score(asking(60)).unwrap();
    let cached = 3 * second.cost.shared_prefix_tokens;
    assert_eq!(
        second.cost.prefix_cache,
        Some(PrefixCacheCounts { hits: 3, misses: 0, cached_tokens: cached })
    );
    assert_eq!(bits(&scores(&first)), bits(&scores(&second)));
    // Another salt shares nothing.
    let salted = ScoreRequest { cache_salt: "tenant".into(), ..asking(60) };
    assert_eq!(engine.score(salted.clone()).unwrap().cost.usage.cached_tokens, 0);
    assert_eq!(engine.score(salted).unwrap().cost.usage.cached_tokens, cached);
}

#[test]
fn a_prompt_scored_again_computes_its_last_token_only() {
    let engine = demo(true, Format::F32);
    let alone = ScoreRequest { items: vec![text("")], ..asking(80) };
    let first = engine.score(alone.clone()).unwrap();
    let second = engine.score(alone).unwrap();
    assert_eq!(second.cost.computed_tokens, 1);
    assert_eq!(second.cost.usage.cached_tokens, first.cost.usage.prompt_tokens - 1);
    assert_eq!(bits(&scores(&first)), bits(&scores(&second)));
}

#[test]
fn a_single_prompt_shorter_than_a_page_is_kept_and_short_items_are_not() {
    let engine = Engine::load(options(&golden_dir())).unwrap();
    let prompt: Vec<i64> = (0..40).collect();
    let label = || vec![Label::Ids(vec![1])];
    let alone = || request(ids(&prompt), vec![ids(&[7])], label());
    let computed = |asked| engine.score(asked).unwrap().cost.computed_tokens;
    assert_eq!([computed(alone()), computed(alone())], [41, 1]);
    // With several items, their shared prefix is kept, and the page of each item is released.
    let several = || request(ids(&[&prompt[..], &[8]].concat()), vec![ids(&[9, 3]), ids(&[2, 4])], label());
    assert_eq!([computed(several()), computed(several())], [1 + 4, 4]);
}

#[test]
fn sixteen_tokens_are_worth_a_page_and_fifteen_are_not() {
    let engine = Engine::load(options(&golden_dir())).unwrap();
    for (tokens, kept) in [(15, 0), (16, 1)] {
        let prompt: Vec<i64> = (0..tokens).collect();
        engine.score(request(ids(&[]), vec![ids(&prompt)], vec![Label::Ids(vec![1])])).unwrap();
        let held = EngineUse { sequences: kept, kept, pages: kept, ..EngineUse::default() };
        assert_eq!(engine.in_use().unwrap(), held, "{tokens} tokens");
    }
}

#[test]
fn what_a_request_stored_itself_is_not_counted_as_cached() {
    let engine = Engine::load(options(&golden_dir())).unwrap();
    let long: Vec<i64> = (0..100).collect();
    // The second item begins with the first one and takes over its tokens; the third shares only the query.
    let items = [vec![1], [&long[..], &[1]].concat(), [&long[..], &[2, 3]].concat(), vec![90]];
    for labels in [vec![vec![4]], vec![vec![4], vec![5, 6]]] {
        let asked = |query: i64| {
            let items = items.iter().map(|item| ids(item)).collect();
            let plain = request(ids(&[query]), items, labels.iter().cloned().map(Label::Ids).collect());
            ScoreRequest { long_labels: LongLabels::Sum, cache_salt: labels.len().to_string(), ..plain }
        };
        let first = engine.score(asked(40)).unwrap().cost;
        let run: usize = items.iter().map(Vec::len).sum::<usize>() + 1 + items.len() * (labels.len() - 1);
        assert_eq!(first.computed_tokens, run - 100, "it shares with itself");
        assert_eq!(first.usage.cached_tokens, 0);
        assert_eq!(first.prefix_cache, Some(PrefixCacheCounts { hits: 0, misses: 4, cached_tokens: 0 }));
    }
}

#[test]
fn generation_continues_what_was_kept() {
    let (cold, warm) = (demo(false, Format::Bf16), demo(true, Format::Bf16));
    let asked = GenerateRequest { logprobs: Some(3), ..generation(text(&query(50)), 30) };
    let expected = generate(&cold, asked.clone());
    let first = generate(&warm, asked.clone());
    let again = generate(&warm, asked.clone());
    assert_eq!(first.prefix_cache.unwrap().misses, 1);
    assert_eq!(again.usage.cached_tokens, again.usage.prompt_tokens - 1);
    assert_eq!((expected.prefix_cache, expected.usage.cached_tokens), (None, 0));
    for got in [&first, &again] {
        assert_eq!((&got.token_ids, &got.logprobs), (&expected.token_ids, &expected.logprobs));
    }
    // A conversation: the next prompt begins with the prompt and its answer. The last new token was never stored.
    let turn: Vec<i64> = first.prompt_token_ids.iter().chain(&first.token_ids).map(|&id| id.into()).collect();
    let next = generation(ids(&[turn.clone(), vec![5, 6]].concat()), 10);
    let (expected, got) = (generate(&cold, next.clone()), generate(&warm, next.clone()));
    assert_eq!((got.token_ids, got.usage.cached_tokens), (expected.token_ids, turn.len() - 1));
    // Without the KV cache, nothing is reused.
    let without = generate(&warm, GenerateRequest { kv_cache: false, ..next });
    assert_eq!((without.prefix_cache, without.usage.cached_tokens), (None, 0));
}

/// An engine whose budget holds `tokens` tokens of keys and values.
fn tight(tokens: u64) -> Engine {
    let free = Engine::load(options(&golden_dir())).unwrap();
    let info = free.info();
    let memory = info.weight_bytes + info.activation_bytes + tokens * info.kv_bytes_per_token;
    let engine = Engine::load(Options { memory: Some(memory), ..options(&golden_dir()) }).unwrap();
    assert_eq!(engine.info().kv_budget_bytes, Some(tokens * info.kv_bytes_per_token));
    engine
}

#[test]
fn a_budget_that_holds_nothing_is_refused_with_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let info = long(dir.path()).info().clone();
    let at = |memory, max_context| {
        let options = Options { memory: Some(memory), max_context, ..options(&dir.path().join("long")) };
        Engine::load(options)
    };
    let message = refusal(at(1 << 20, None));
    assert!(message.contains("a memory budget of 1 MiB") && message.contains("`memory` = "), "{message}");
    let base = info.weight_bytes + info.activation_bytes;
    assert!(at(base + 3 * 64 * info.kv_bytes_per_token, None).is_ok());
    let message = refusal(at(base + 3 * 64 * info.kv_bytes_per_token, Some(1000)));
    assert!(message.contains("1000 tokens") && message.contains("`max_context`"), "{message}");
    // The budget that the hint suggests is enough.
    let named: u64 =
        message.split("`memory` = ").nth(1).unwrap().split("MiB").next().unwrap().parse().unwrap();
    assert!(at(named << 20, Some(1000)).is_ok());
}

#[test]
fn what_never_fits_is_refused_at_once() {
    let engine = tight(2 * 64);
    let label = || vec![Label::Ids(vec![1])];
    let message = refusal(engine.score(request(ids(&[1; 70]), vec![ids(&[2])], label())));
    assert!(message.contains("71 tokens") && message.contains("`memory`"), "{message}");
    let message = refusal(engine.generate(generation(ids(&[1; 10]), 60), &Cancel::new(), &mut |_| ()));
    assert!(message.contains("70 tokens"), "{message}");
    // A request that fits still runs.
    assert!(engine.score(request(ids(&[1; 60]), vec![ids(&[2])], label())).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn under_any_budget_requests_score_and_continue_as_alone(
        pages in 4u64..9,
        requests in prop::collection::vec((0usize..3, 0usize..130, 1usize..6, any::<bool>()), 1..12),
    ) {
        let free = Engine::load(Options { prefix_cache: None, ..options(&golden_dir()) }).unwrap();
        let engine = tight(pages * 64);
        for (stem, length, items, scored) in requests {
            // Prompts with the same stem share a prefix.
            let length = length.min((pages as usize - 2) * 64 - 20);
            let prompt: Vec<i64> = (0..length).map(|i| ((i * 7 + stem * (i / 40 + 1)) % 50) as i64).collect();
            if scored {
                let items = (0..items).map(|i| ids(&[i as i64, 3, i as i64])).collect();
                let labels = [vec![4], vec![5, 6, 7], vec![5, 9]].map(Label::Ids).to_vec();
                let plain = request(ids(&prompt), items, labels);
                let asked = ScoreRequest { long_labels: LongLabels::Sum, ..plain };
                let (expected, got) = (free.score(asked.clone()).unwrap(), engine.score(asked).unwrap());
                prop_assert_eq!(bits(&scores(&got)), bits(&scores(&expected)));
            } else {
                let asked = generation(ids(&[prompt, vec![1]].concat()), items);
                prop_assert_eq!(
                    generate(&engine, asked.clone()).token_ids, generate(&free, asked).token_ids
                );
            }
        }
    }
}

#[test]
fn what_is_kept_twice_does_not_keep_a_request_from_running() {
    let dir = tempfile::tempdir().unwrap();
    let free = long(dir.path());
    let info = free.info();
    let memory = info.weight_bytes + info.activation_bytes + 9 * 64 * info.kv_bytes_per_token;
    let engine = Engine::load(Options { memory: Some(memory), ..options(&dir.path().join("long")) }).unwrap();
    let tokens = |n: usize, seed: i64| -> Vec<i64> { (0..n as i64).map(|i| (i * 7 + seed) % 299).collect() };
    let stem = tokens(192, 1);
    let after = |tail: Vec<i64>| ids(&[stem.clone(), tail].concat());
    // Two items share more than all three do: each is computed and kept separately.
    let first = vec![after(tokens(8, 50)), after(tokens(8, 60)), ids(&tokens(30, 90))];
    let second = vec![after([tokens(8, 60), tokens(200, 5)].concat()), after(tokens(3, 70))];
    for items in [first, second] {
        let asked = request(ids(&[]), items, vec![Label::Ids(vec![4])]);
        let (expected, got) = (free.score(asked.clone()).unwrap(), engine.score(asked).unwrap());
        assert_eq!(bits(&scores(&got)), bits(&scores(&expected)));
    }
}

#[test]
fn an_item_beyond_the_budget_may_fail_alone() {
    let engine = tight(3 * 64);
    let items = vec![ids(&[2]), ids(&[3; 180]), ids(&[4])];
    let asked = request(ids(&[1; 20]), items, vec![Label::Ids(vec![1])]);
    assert!(refusal(engine.score(asked.clone())).contains("item 1"));
    let some = engine.score(ScoreRequest { item_errors: true, ..asked }).unwrap();
    assert_eq!(some.items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let message = &some.items[1].as_ref().unwrap_err().message;
    assert!(message.contains("200 tokens"), "{message}");
}

#[test]
fn an_item_with_a_page_of_its_own_is_kept_and_one_with_less_is_not() {
    let engine = Engine::load(options(&golden_dir())).unwrap();
    let query: Vec<i64> = (0..20).collect();
    let own = |first: i64, tokens: usize| -> Vec<i64> { (first..).map(|id| id % 131).take(tokens).collect() };
    let items = [own(30, PAGE_TOKENS), own(50, PAGE_TOKENS - 1)];
    let computed = |items: &[Vec<i64>]| {
        let items = items.iter().map(|item| ids(item)).collect();
        let asked = request(ids(&query), items, vec![Label::Ids(vec![1])]);
        engine.score(asked).unwrap().cost.computed_tokens
    };
    assert_eq!(computed(&items), 20 + PAGE_TOKENS + PAGE_TOKENS - 1);
    // All but the last token of the one is found again, and of the other the query only.
    assert_eq!(computed(&items[..1]), 1);
    assert_eq!(computed(&items[1..]), PAGE_TOKENS - 1);
}

#[test]
fn an_item_that_failed_neither_hits_nor_misses() {
    let engine = Engine::load(options(&golden_dir())).unwrap();
    let query: Vec<i64> = (0..20).collect();
    let asked = || ScoreRequest {
        item_errors: true,
        ..request(ids(&query), vec![ids(&[2]), ids(&[3; 300]), ids(&[4])], vec![Label::Ids(vec![1])])
    };
    let used = |hits, misses, cached_tokens| Some(PrefixCacheCounts { hits, misses, cached_tokens });
    let (first, second) = (engine.score(asked()).unwrap(), engine.score(asked()).unwrap());
    assert!(first.items[1].is_err());
    assert_eq!((first.cost.prefix_cache, second.cost.prefix_cache), (used(0, 2, 0), used(2, 0, 40)));
}
