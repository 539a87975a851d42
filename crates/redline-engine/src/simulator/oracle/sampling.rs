//! The tokens of a generation.
//!
//! Logits are changed first: by bias, repetition penalty, frequency penalty and presence penalty, each rounded to f32. Then come
//! temperature, top-k, top-p, min-p and typical-p; then the first candidate whose cumulative probability exceeds the random number
//! of (seed, position). Candidates are ordered by probability, equals by id.

use super::super::machine::{StandIn, VOCABULARY};
use super::super::rule::{Rule, Ruled};
use super::likelihood::logprob;
use super::{Verdict, by_weight, close, drawn, largest, random, splitmix, total};
use crate::request::{Penalties, Sampling};

/// Difference of two logarithms below which rounding may decide which is larger.
const CLOSE_LOGARITHMS: f64 = 1e-5;

/// A generation, as it was requested.
#[derive(Clone)]
pub(in crate::simulator) struct Continued {
    pub(in crate::simulator) prompt: Vec<u32>,
    /// Maximum number of new tokens.
    pub(in crate::simulator) most: usize,
    pub(in crate::simulator) end_ids: Vec<u32>,
    pub(in crate::simulator) sampling: Sampling,
    pub(in crate::simulator) penalties: Penalties,
    pub(in crate::simulator) logit_bias: Vec<(u32, f32)>,
    pub(in crate::simulator) model: StandIn,
    /// Says which tokens may follow, if there is one.
    pub(in crate::simulator) rule: Option<Rule>,
}

impl Continued {
    /// The changed logits of a row after `new` tokens.
    fn changed(&self, mut row: [f32; VOCABULARY], new: &[u32]) -> [f32; VOCABULARY] {
        let Penalties { repetition, frequency, presence, min_tokens } = self.penalties;
        for (id, x) in (0..).zip(&mut row) {
            for (_, bias) in self.logit_bias.iter().filter(|(biased, _)| *biased == id) {
                *x += bias;
            }
            let times = new.iter().filter(|token| **token == id).count();
            if times > 0 || self.prompt.contains(&id) {
                *x = if *x > 0.0 { *x / repetition } else { *x * repetition };
            }
            *x -= frequency * times as f32;
            *x -= if times > 0 { presence } else { 0.0 };
            if new.len() < min_tokens && self.end_ids.contains(&id) {
                *x = f32::NEG_INFINITY;
            }
        }
        row
    }

    /// The token after `new` tokens of the continuation with this seed.
    pub(in crate::simulator) fn choice(&self, new: &[u32], seed: u64) -> Verdict<u32> {
        let all = [&self.prompt, new].concat();
        let mut row = self.changed(self.model.after(&all), new);
        match self.rule.map(|rule| rule.after(new.len(), new.last().copied())) {
            Some(Ruled::Only(id)) => return Verdict::Exactly(id),
            Some(Ruled::These(ids)) => {
                for (_, x) in (0..).zip(&mut row).filter(|(id, _)| ids & 1 << id == 0) {
                    *x = f32::NEG_INFINITY;
                }
            }
            Some(Ruled::All) | None => {}
        }
        let sampling = Sampling { seed, ..self.sampling };
        choice(&row, &sampling, self.prompt.len() + new.len())
    }

    /// The seed of a continuation: the first is the request's, and the others are the next numbers of SplitMix64.
    pub(in crate::simulator) fn seed(&self, number: usize) -> u64 {
        if number == 0 { self.sampling.seed } else { splitmix(self.sampling.seed, number) }
    }

    /// Whether a continuation of these tokens has ended.
    fn ended(&self, new: &[u32]) -> bool {
        new.len() == self.most || new.last().is_some_and(|id| self.end_ids.contains(id))
    }

    /// Whether these tokens are correct as far as they go; and whether the continuation ends there.
    pub(in crate::simulator) fn continues(&self, new: &[u32], seed: u64) -> Result<bool, String> {
        for (n, id) in new.iter().enumerate() {
            if self.ended(&new[..n]) {
                return Err(format!("{new:?} goes on after the end, at {n}"));
            }
            let expected = self.choice(&new[..n], seed);
            if !expected.admits(id) {
                return Err(format!("token {n} of {new:?} is not {expected:?}"));
            }
        }
        Ok(self.ended(new))
    }

    /// The whole continuation with this seed; `None` if rounding decides a token.
    fn whole(&self, seed: u64) -> Option<Vec<u32>> {
        let mut new = Vec::new();
        while !self.ended(&new) {
            let Verdict::Exactly(id) = self.choice(&new, seed) else { return None };
            new.push(id);
        }
        Some(new)
    }

    /// Whether an answer with `n` of `best_of` continuations, each with its seed and tokens, is correct as far as it goes; and
    /// whether it is complete. `generated` is the reported number of new tokens.
    pub(in crate::simulator) fn admits(
        &self,
        answer: &[(u64, Vec<u32>)],
        (n, best_of): (usize, usize),
        generated: usize,
    ) -> Result<bool, String> {
        let seeds: Vec<u64> = (0..best_of).map(|number| self.seed(number)).collect();
        let mut whole = true;
        for (seed, new) in answer {
            whole &= self.continues(new, *seed)?;
        }
        let answered: Vec<u64> = answer.iter().map(|(seed, _)| *seed).collect();
        if answered.len() != n || (n == best_of && answered != seeds) {
            return Err(format!("continuations {answered:?} instead of {n} of {seeds:?}"));
        }
        let all: Option<Vec<Vec<u32>>> = seeds.iter().map(|&seed| self.whole(seed)).collect();
        let Some(all) = all.filter(|_| whole) else { return Ok(whole) };
        let expected: usize = all.iter().map(Vec::len).sum();
        if n == best_of && generated != expected || generated > expected {
            return Err(format!("{generated} tokens are reported, and {expected} are expected"));
        }
        // Ranked continuations may have been cut short by cancellation without any of those that are returned.
        if n == best_of || generated < expected {
            return Ok(generated == expected);
        }
        let mean = |new: &Vec<u32>| logprob(&self.prompt, new, self.model) / new.len() as f64;
        let mut order: Vec<(u64, f64)> = seeds.into_iter().zip(all.iter().map(mean)).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let open = order
            .windows(2)
            .any(|two| two[0].1 != two[1].1 && (two[0].1 - two[1].1).abs() < CLOSE_LOGARITHMS);
        let best: Vec<u64> = order[..n].iter().map(|(seed, _)| *seed).collect();
        if !open && answered != best {
            return Err(format!("the best continuations are {best:?}, not {answered:?}"));
        }
        Ok(true)
    }
}

/// The token at a position, from the changed logits of the row before it.
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
    if sampling.typical_p < 1.0 {
        open |= keep_typical(&mut kept, f64::from(sampling.typical_p));
    }
    let (token, close) = drawn(&kept, random(sampling.seed, position as u64));
    if open || close { Verdict::Open } else { Verdict::Exactly(token) }
}

/// Keeps the candidates whose information `-ln p` is nearest to the entropy, up to the probability `share`, and all that are as near
/// as the last of them. Returns whether rounding may decide.
fn keep_typical(kept: &mut Vec<(u32, f64)>, share: f64) -> bool {
    let sum = total(kept);
    let information = |weight: f64| -libm::log(weight / sum);
    let present = || kept.iter().filter(|(_, weight)| *weight > 0.0);
    let entropy: f64 = present().map(|(_, weight)| weight / sum * information(*weight)).sum();
    let mut near: Vec<(f64, f64)> =
        present().map(|(_, weight)| ((information(*weight) - entropy).abs(), weight / sum)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sums: Vec<f64> = (1..=near.len()).map(|n| near[..n].iter().map(|(_, p)| p).sum()).collect();
    let last = sums.iter().position(|sum| *sum >= share).unwrap_or(near.len() - 1);
    let most = near[last].0;
    let open = sums.iter().any(|sum| close(*sum, share))
        || near.windows(2).any(|two| two[0].0 != two[1].0 && (two[0].0 - two[1].0).abs() < CLOSE_LOGARITHMS);
    kept.retain(|(_, weight)| *weight > 0.0 && (information(*weight) - entropy).abs() <= most);
    open
}
