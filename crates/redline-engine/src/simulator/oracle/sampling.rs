//! The next token of a generation.
//!
//! Temperature, then top-k, then top-p, then min-p; then the first candidate whose cumulative probability exceeds the random
//! number of (seed, position). Candidates are ordered by probability, equals by id.

use super::super::machine::{digest, logits};
use super::{Verdict, by_weight, close, drawn, largest, random, total};
use crate::request::Sampling;

/// The token at a position, from the logits of the row before it.
fn choice(row: &[f32], sampling: &Sampling, position: usize) -> Verdict<u32> {
    if sampling.temperature == 0.0 {
        return Verdict::Exactly(largest(row));
    }
    let (mut kept, mut open) = by_weight(row, f64::from(sampling.temperature));
    if sampling.top_k > 0 {
        kept.truncate(sampling.top_k);
    }
    if sampling.top_p < 1.0 {
        // Keep the fewest candidates whose sum reaches this.
        let enough = f64::from(sampling.top_p) * total(&kept);
        let mut count = 0;
        while count == 0 || count < kept.len() && total(&kept[..count]) < enough {
            count += 1;
        }
        open |= (1..=kept.len()).any(|n| close(total(&kept[..n]), enough));
        kept.truncate(count);
    }
    if sampling.min_p > 0.0 {
        let least = f64::from(sampling.min_p) * kept[0].1;
        open |= kept.iter().any(|(_, weight)| close(*weight, least));
        kept.retain(|(_, weight)| *weight >= least);
    }
    let (token, close) = drawn(&kept, random(sampling.seed, position as u64));
    if open || close { Verdict::Open } else { Verdict::Exactly(token) }
}

/// Whether these tokens correctly continue a prompt, as far as they go; and whether the generation ends there.
pub(in crate::simulator) fn continues(
    prompt: &[u32],
    new: &[u32],
    most: usize,
    end_ids: &[u32],
    sampling: &Sampling,
) -> Result<bool, String> {
    let mut all = prompt.to_vec();
    let mut ended = false;
    for (n, id) in new.iter().enumerate() {
        if ended || n == most {
            return Err(format!("{new:?} goes on after the end, at {n}"));
        }
        let expected = choice(&logits(digest(all.iter().copied())), sampling, all.len());
        if !expected.admits(id) {
            return Err(format!("token {n} of {new:?} is not {expected:?}"));
        }
        all.push(*id);
        ended = end_ids.contains(id);
    }
    Ok(ended || new.len() == most)
}
