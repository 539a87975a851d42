//! Requests in the least memory that admits them finish, with the same bits as with ample memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{
    Buckets, Cancel, Engine, EngineError, Label, LongLabels, Options, ScoreRequest, ScoreTicket,
};
use redline_kernels::Format;
use redline_kernels::op::kv::KvFormat;

use crate::models::{bits, ids, options, request, scores};

/// Maximum number of clock readings for both requests. A pass takes about five, and they need about forty passes.
const READINGS: f64 = 2000.0;
/// The largest budget, in bytes. All models need less.
const AMPLE: u64 = 3_000_000;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// An engine whose clock advances by one second per reading, so that a timeout bounds the number of passes.
fn engine(name: &str, memory: Option<u64>) -> Result<Engine, EngineError> {
    let seconds = AtomicU64::new(0);
    let mut options = Options {
        format: Some(Format::F32),
        kv_format: Some(KvFormat::Bf16),
        memory,
        clock: Arc::new(move || seconds.fetch_add(1, Ordering::Relaxed) * 1_000_000_000),
        ..options(&golden(name))
    };
    options.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, 200);
    Engine::load(options)
}

/// Two requests, over ids below `vocab`, whose prompts stay in memory until their labels of two tokens have been scored.
fn requests(vocab: usize) -> [ScoreRequest; 2] {
    let of = |query: i64, items: &[std::ops::RangeInclusive<i64>], labels: [Vec<i64>; 2]| ScoreRequest {
        long_labels: LongLabels::Sum,
        timeout_s: Some(READINGS),
        ..request(
            ids(&[query]),
            items
                .iter()
                .map(|item| ids(&item.clone().map(|id| id % vocab as i64).collect::<Vec<_>>()))
                .collect(),
            labels.map(Label::Ids).to_vec(),
        )
    };
    [
        of(1, &[2..=65, 70..=136], [vec![5], vec![6, 7]]),
        of(2, &[3..=4, 100..=163, 20..=83, 9..=38], [vec![5], vec![8, 9]]),
    ]
}

/// Both requests at once: the bits of the scores, or the text of the error.
fn together(engine: &Engine) -> [Result<Vec<Vec<u32>>, String>; 2] {
    let cancel = Cancel::new();
    let tickets = requests(engine.info().vocab).map(|request| engine.submit_score(request, &cancel));
    tickets.map(|ticket| match ticket.and_then(ScoreTicket::wait) {
        Ok(outcome) => Ok(bits(&scores(&outcome))),
        Err(error) => Err(error.to_string()),
    })
}

#[test]
fn prompts_that_are_held_for_their_labels_come_to_their_end_under_every_budget() {
    for name in ["qwen3-a", "llama-b", "lfm2-b", "gemma4-a"] {
        let ample = engine(name, None).unwrap();
        let info = ample.info().clone();
        let expected = together(&ample).map(Result::unwrap);
        let page = 64 * info.kv_bytes_per_token;
        let mut pages = 0;
        let (mut refused, mut answered) = (0, 0);
        while info.weight_bytes + info.activation_bytes + pages * page <= AMPLE {
            let memory = info.weight_bytes + info.activation_bytes + pages * page;
            match engine(name, Some(memory)) {
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        pages < 2 && error.contains("MiB for keys and values"),
                        "{name}, {pages} pages: {error}"
                    );
                }
                Ok(engine) => {
                    for (got, expected) in together(&engine).into_iter().zip(&expected) {
                        match got {
                            Ok(got) => {
                                assert_eq!(got, *expected, "{name}, {pages} pages");
                                answered += 1;
                            }
                            Err(error) => {
                                let room = format!("the memory budget leaves room for {}", pages * 64);
                                assert!(pages < 4 && error.contains(&room), "{name}, {pages} pages: {error}");
                                refused += 1;
                            }
                        }
                    }
                }
            }
            pages += 1;
        }
        assert_eq!(refused, 4, "{name}: two and three pages admit neither");
        assert!(pages >= 8 && answered == 2 * (pages - 4), "{name}: {answered} answers, {pages} pages");
    }
}
