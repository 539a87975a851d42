//! Nothing depends on stale memory: released pages and the activations of earlier passes are NaN.

use std::path::Path;

use redline_engine::{Buckets, Engine, Options, PlanOptions};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use crate::mixture::{AnyRequest, Dice, Ticket};
use crate::models::{budget, options};

/// Number of requests to poisoned engines, over all formats; nightly runs set a larger number, which takes minutes.
fn requests() -> usize {
    let given = option_env!("REDLINE_POISONED_REQUESTS");
    given.map_or(10_000, |text| text.parse().expect("REDLINE_POISONED_REQUESTS is a number"))
}

fn check(checkpoint: &str, format: Format, kv_format: KvFormat, requests: usize) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(checkpoint);
    let buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, 96);
    let plans = PlanOptions { buckets, ..PlanOptions::default() };
    // One thread, because on a busy machine a team of two mostly waits.
    let plain =
        Options { threads: 1, format: Some(format), kv_format: Some(kv_format), plans, ..options(&dir) };
    let clean = Engine::load(Options { prefix_cache: None, ..plain.clone() }).unwrap();
    let mut dice = Dice(requests as u64);
    // A small pool, so that reference answers are cheap, in a different mixture every time.
    let pool: Vec<AnyRequest> = (0..60).map(|_| AnyRequest::draw(&clean, &mut dice)).collect();
    let expected: Vec<_> =
        pool.iter().map(|asked| asked.submit(&clean).and_then(Ticket::wait).unwrap()).collect();
    let memory = Some(budget(clean.info(), 20, 140));
    let poisoned = Engine::load(Options { memory, poison: true, ..plain }).unwrap();
    for _ in 0..requests.div_ceil(20) {
        let chosen: Vec<usize> = (0..20).map(|_| dice.below(60) as usize).collect();
        let tickets: Vec<_> = chosen.iter().map(|&i| pool[i].submit(&poisoned).unwrap()).collect();
        for (i, ticket) in chosen.into_iter().zip(tickets) {
            let got = ticket.wait().unwrap();
            assert_eq!(got, expected[i], "{checkpoint}, {format}, {kv_format:?}: {:?}", pool[i]);
        }
    }
}

#[test]
fn nothing_that_was_freed_is_read() {
    let ways = Format::ALL.len() * KvFormat::ALL.len() * 3;
    for checkpoint in ["llama-b", "mistral-a", "dream-a"] {
        for &format in Format::ALL {
            for &kv_format in KvFormat::ALL {
                // The heads of the first have 20 dimensions, which not every format holds.
                let checkpoint =
                    if kv_format.holds(20) { checkpoint } else { &checkpoint.replace("llama-b", "llama-a") };
                check(checkpoint, format, kv_format, requests() / ways);
            }
        }
    }
}
