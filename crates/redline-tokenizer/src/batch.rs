//! Encodes many texts on several threads.

use crate::TokenizerError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// Texts are handed out in runs of about this many bytes: at least a tenth of a millisecond of work, the time it takes to start a
/// thread.
const RUN: usize = 1 << 14;

/// Runs `encode` on every text, on up to `threads` threads including the calling one. Results are in the order of the texts.
/// If several texts fail, the error of the first one is returned.
pub(crate) fn over_threads<T: Send>(
    texts: &[&str],
    threads: usize,
    encode: impl Fn(&str) -> Result<T, TokenizerError> + Sync,
) -> Result<Vec<T>, TokenizerError> {
    let runs = runs(texts);
    let helpers = threads.clamp(1, runs.len().max(1)) - 1;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(i) else { return done };
            let encoded: Result<Vec<T>, _> = run.iter().map(|text| encode(text)).collect();
            done.push((i, encoded));
        }
    };
    let mut done = std::thread::scope(|scope| {
        // If a thread cannot be started, the other threads do its work.
        let helpers: Vec<_> =
            (0..helpers).filter_map(|_| Builder::new().spawn_scoped(scope, work).ok()).collect();
        let mut done = work();
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(i, _)| *i);
    let mut all = Vec::with_capacity(texts.len());
    for (_, encoded) in done {
        all.extend(encoded?);
    }
    Ok(all)
}

/// Splits the list into runs of enough bytes.
fn runs<'a, 'b>(texts: &'a [&'b str]) -> Vec<&'a [&'b str]> {
    let (mut runs, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (i, text) in texts.iter().enumerate() {
        bytes += text.len();
        if bytes >= RUN || i + 1 == texts.len() {
            runs.push(&texts[start..=i]);
            (start, bytes) = (i + 1, 0);
        }
    }
    runs
}
