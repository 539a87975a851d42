//! Models whose layers all have a sliding window: a sequence that generates gives back the pages that no later token sees.

use std::path::{Path, PathBuf};

use redline_engine::{Buckets, Cancel, Engine, GenerateRequest, Options};
use redline_kernels::op::kv::KvFormat;

use crate::models::{WINDOWED, budget, generation, ids, options, refusal, tiny_of};

/// Number of new tokens: many more than a window and a pass.
const NEW: usize = 700;

fn prompt(length: usize, seed: i64) -> Vec<i64> {
    (0..length as i64).map(|i| (i * 17 + seed * (i / 3 + 1)) % 300).collect()
}

fn asked(prompt: &[i64], new: usize) -> GenerateRequest {
    GenerateRequest { logprobs: Some(1), ignore_eos: true, ..generation(ids(prompt), new) }
}

/// An engine with passes of up to 64 tokens, with room for `pages` pages. Pages that nobody owns are NaN.
fn engine(dir: &Path, kv_format: KvFormat, pages: Option<u64>) -> Engine {
    let mut plain = Options { threads: 1, kv_format: Some(kv_format), poison: true, ..options(dir) };
    plain.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, 64);
    let memory = pages.map(|pages| budget(Engine::load(plain.clone()).unwrap().info(), pages, 0));
    Engine::load(Options { memory, ..plain }).unwrap()
}

fn model(dir: &Path, config: &str) -> PathBuf {
    tiny_of(config, dir, |_, _| ())
}

type Answer = (Vec<u32>, Vec<u32>);

/// Ids and the bits of their log-probabilities, of requests at the same time.
fn answers(engine: &Engine, requests: &[GenerateRequest]) -> Vec<Answer> {
    let cancel = Cancel::new();
    let tickets: Vec<_> =
        requests.iter().map(|request| engine.submit_generate(request.clone(), &cancel).unwrap()).collect();
    let of = |ticket: redline_engine::GenerateTicket| {
        let outcome = ticket.wait().unwrap();
        let bits = outcome.logprobs.iter().flatten().map(|at| at.chosen.logprob.to_bits()).collect();
        (outcome.token_ids, bits)
    };
    tickets.into_iter().map(of).collect()
}

#[test]
fn a_long_generation_takes_the_room_of_a_window() {
    let dir = tempfile::tempdir().unwrap();
    let dir = model(dir.path(), WINDOWED);
    // Prompts of less and of more than a window, and one that others share.
    let requests: Vec<GenerateRequest> =
        [(9, 1), (200, 2), (200, 3), (70, 2)].map(|(length, seed)| asked(&prompt(length, seed), NEW)).into();
    for &kv_format in KvFormat::ALL {
        let ample = engine(&dir, kv_format, None);
        let alone: Vec<_> =
            requests.iter().flat_map(|request| answers(&ample, std::slice::from_ref(request))).collect();
        assert!(alone.iter().all(|(ids, _)| ids.len() == NEW));
        // 12 to 15 pages are generated. A window and a pass take four, and one more is for a page that is copied.
        for pages in [5, 7, 12] {
            let tight = engine(&dir, kv_format, Some(pages));
            assert!(answers(&tight, &requests) == alone, "{kv_format:?} in {pages} pages");
            assert!(tight.in_use().unwrap().pages <= pages as usize);
        }
    }
}

#[test]
fn several_continuations_and_batches_take_the_room_of_windows() {
    let dir = tempfile::tempdir().unwrap();
    let dir = model(dir.path(), WINDOWED);
    let ample = engine(&dir, KvFormat::Bf16, None);
    let sampling = redline_engine::Sampling { temperature: 1.0, ..Default::default() };
    let request = GenerateRequest { n: 3, sampling, ..asked(&prompt(70, 1), NEW) };
    let all = |engine: &Engine| {
        let mut outcome = engine.generate(request.clone(), &Cancel::new(), &mut |_| ()).unwrap();
        outcome.take_continuations().into_iter().map(|one| one.token_ids).collect::<Vec<_>>()
    };
    let expected = all(&ample);
    // The prompt takes two pages, a window and a pass four.
    let tight = engine(&dir, KvFormat::Bf16, Some(7));
    assert!(all(&tight) == expected);
    let less = engine(&dir, KvFormat::Bf16, Some(6));
    let message = refusal(less.generate(request.clone(), &Cancel::new(), &mut |_| ()));
    assert!(message.contains("384 tokens need room for 448"), "{message}");
}

#[test]
fn kept_sequences_are_matched_only_where_their_pages_are_left() {
    let dir = tempfile::tempdir().unwrap();
    let dir = model(dir.path(), WINDOWED);
    let (fresh, used) = (engine(&dir, KvFormat::F32, None), engine(&dir, KvFormat::F32, None));
    let first = prompt(150, 1);
    let (generated, _) = answers(&used, &[asked(&first, 300)]).remove(0);
    let whole: Vec<i64> = first.iter().copied().chain(generated.iter().map(|id| i64::from(*id))).collect();
    // Of its 449 tokens, the first 320 are gone. (number of tokens that the next prompt begins with; of new tokens; of tokens taken
    // from the cache)
    for (length, new, cached) in [(150, 1, 0), (418, 30, 150), (419, 30, 419), (449, 30, 449)] {
        let next = [&whole[..length], &prompt(20, 7)].concat();
        let run = |engine: &Engine| engine.generate(asked(&next, new), &Cancel::new(), &mut |_| ()).unwrap();
        let (got, want) = (run(&used), run(&fresh));
        assert_eq!((got.token_ids, got.logprobs), (want.token_ids, want.logprobs), "{length}");
        assert_eq!(got.usage.cached_tokens, cached, "{length}");
    }
}

/// A prompt of several passes keeps all its pages, because other prompts may begin with some of its tokens.
#[test]
fn a_prompt_that_was_not_continued_is_matched_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let used = engine(&model(dir.path(), WINDOWED), KvFormat::F32, None);
    let long = prompt(400, 5);
    answers(&used, &[asked(&long, 1)]);
    for length in [20, 120, 399] {
        let next = [&long[..length], &prompt(20, 7)].concat();
        let outcome = used.generate(asked(&next, 1), &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!(outcome.usage.cached_tokens, length);
    }
}

#[test]
fn pages_are_kept_if_some_layer_sees_all_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let mixed = WINDOWED.replace(r#""max_window_layers":0"#, r#""max_window_layers":1"#);
    let tight = engine(&model(dir.path(), &mixed), KvFormat::Bf16, Some(8));
    let message = refusal(tight.generate(asked(&prompt(9, 1), NEW), &Cancel::new(), &mut |_| ()));
    assert!(message.contains("709 tokens need room for 832"), "{message}");
    assert_eq!(answers(&tight, &[asked(&prompt(9, 1), 400)])[0].0.len(), 400);
}
