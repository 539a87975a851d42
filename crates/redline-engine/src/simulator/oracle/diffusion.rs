//! Replays a canvas pass by pass.
//!
//! Dream's `diffusion_generate` with its four algorithms, LLaDA's `generate` with its two, and Fast-dLLM's block caches and
//! thresholds, written with the loops of the originals. The passes in an answer are followed one by one: which rows each runs,
//! which masks it fills, and with what. If savings are allowed, steps that can fill nothing need not be run.

use std::ops::Range;

use super::super::machine::{StandIn, VOCABULARY};
use super::{Verdict, by_weight, drawn, largest, random, total};
use crate::answer::outcome::{DiffuseOutcome, DiffusionPass, FinishReason};
use crate::mode::diffusion::Rules;
use crate::request::{Algorithm, BlockCache, Sampling};

/// The purpose of a random number: the lowest bits of its counter. The bits above hold the position and the step.
const ORDER: u64 = 0;
const TOKEN: u64 = 1;
const CHOICE: u64 = 2;

fn number(seed: u64, step: usize, position: usize, purpose: u64) -> f64 {
    random(seed, (step as u64) << 34 | (position as u64) << 2 | purpose)
}

/// Difference of two keys below which rounding may decide which is larger.
const CLOSE: f64 = 1e-5;

fn close(a: f64, b: f64) -> bool {
    a != b && (a - b).abs() <= CLOSE
}

/// The prediction of a mask.
struct Prediction {
    position: usize,
    token: u32,
    confidence: f64,
    /// Whether rounding may decide the token or the confidence.
    open: bool,
}

/// Which masks a pass fills.
enum Fills {
    /// These masks.
    These(Vec<usize>),
    /// This number of masks, those with the largest keys.
    Largest(usize),
    /// The most probable mask, and all masks of at least this probability.
    AtLeast(f64),
}

/// Result of following an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulator) enum Followed {
    /// The answer has all passes.
    Whole,
    /// Passes are missing at the end.
    Part,
}

/// A canvas to fill, with everything that its answer depends on.
pub(in crate::simulator) struct CanvasRequest {
    /// The initial tokens.
    pub(in crate::simulator) canvas: Vec<u32>,
    pub(in crate::simulator) prompt_tokens: usize,
    pub(in crate::simulator) mask: u32,
    pub(in crate::simulator) end_ids: Vec<u32>,
    pub(in crate::simulator) rules: Rules,
    pub(in crate::simulator) algorithm: Algorithm,
    pub(in crate::simulator) sampling: Sampling,
    pub(in crate::simulator) cfg_scale: f32,
    pub(in crate::simulator) model: StandIn,
}

/// The state of a canvas while an answer is followed.
struct Replay<'a> {
    request: &'a CanvasRequest,
    canvas: Vec<u32>,
    /// The tokens that the keys and values of each position were computed from.
    stored: Vec<u32>,
    passes: std::slice::Iter<'a, DiffusionPass>,
    /// The first position that is not final, or the end of the text.
    frontier: usize,
    end: Option<usize>,
}

/// Follows an answer. The error says where it is wrong.
pub(in crate::simulator) fn follow(
    request: &CanvasRequest,
    answer: &DiffuseOutcome,
) -> Result<Followed, String> {
    let canvas = request.canvas.clone();
    let mut replay = Replay {
        request,
        stored: canvas.clone(),
        frontier: canvas.iter().position(|id| *id == request.mask).unwrap_or(canvas.len()),
        canvas,
        passes: answer.passes.iter(),
        end: None,
    };
    let followed = replay.run()?;
    if replay.passes.len() > 0 {
        return Err(format!("{} passes too many", replay.passes.len()));
    }
    let last = replay.end.map_or(replay.canvas.len(), |end| end + 1).max(request.prompt_tokens);
    let reason = match (followed, replay.end) {
        (Followed::Part, _) => FinishReason::Cancelled,
        (Followed::Whole, Some(_)) => FinishReason::Stop,
        (Followed::Whole, None) => FinishReason::Length,
    };
    let expected = (&replay.canvas, &replay.canvas[request.prompt_tokens..last], reason);
    let got = (&answer.canvas, &answer.token_ids[..], answer.finish_reason);
    if got != expected {
        return Err(format!("{got:?} instead of {expected:?}"));
    }
    Ok(followed)
}

impl Replay<'_> {
    fn run(&mut self) -> Result<Followed, String> {
        let rules = &self.request.rules;
        let by_pass = rules.threshold.is_some() || self.caches();
        let steps = rules.steps / rules.blocks.len();
        // Passes so far, including those that were left out.
        let mut number = 0;
        for (b, block) in rules.blocks.iter().enumerate() {
            // Steps of this block, and passes that were run for it.
            let (mut i, mut run) = (0, 0);
            let mut at_first = 0;
            loop {
                let masks: Vec<usize> = (0..block.end).filter(|&p| self.is_mask(p)).collect();
                let own = masks.iter().filter(|p| block.contains(p)).count();
                if i == 0 {
                    at_first = own;
                }
                let full = if by_pass { own == 0 } else { rules.savings && masks.is_empty() };
                let over = match rules.threshold {
                    Some(_) => run > at_first,
                    // With a cache, the first pass of one of Dream's blocks is a step, and at least one step follows it.
                    None => i >= if self.opens() { steps.max(2) } else { steps },
                };
                if full || over {
                    break;
                }
                let step = if by_pass { number } else { b * steps + i };
                let rows = self.rows(block, run);
                let seen: Vec<usize> = masks.into_iter().filter(|p| *p >= rows.start).collect();
                let fills = if run == 0 && self.opens() {
                    Some(Fills::These(seen.iter().copied().filter(|p| *p == block.start).collect()))
                } else {
                    self.fills(&seen, own, at_first, i, step)
                };
                (i, number) = (i + 1, number + 1);
                let Some(fills) = fills else { continue };
                let Some(pass) = self.passes.next() else { return Ok(Followed::Part) };
                if (pass.step, &pass.rows) != (step, &rows) {
                    let got = (pass.step, &pass.rows);
                    return Err(format!("(step, rows) are {got:?} instead of {:?}", (step, rows)));
                }
                run += 1;
                self.pass(pass, &seen, &fills)?;
                if rules.savings && self.end.is_some() {
                    return Ok(Followed::Whole);
                }
            }
            // With a cache, a block takes at least two passes, even if the first one fills it.
            number += usize::from(self.caches() && i == 1);
        }
        Ok(Followed::Whole)
    }

    fn is_mask(&self, position: usize) -> bool {
        self.canvas[position] == self.request.mask
    }

    /// Whether some passes run a part of the rows.
    fn caches(&self) -> bool {
        self.request.rules.cache != BlockCache::None && self.request.rules.refresh != Some(1)
    }

    /// Whether the first pass of a block fills only the first position (Dream with a cache).
    fn opens(&self) -> bool {
        self.caches() && self.request.rules.shifted
    }

    /// The rows of a pass of a block that had `before` passes already.
    fn rows(&self, block: &Range<usize>, before: usize) -> Range<usize> {
        let rules = &self.request.rules;
        let again = rules.refresh.is_some_and(|every| before % every == 0);
        match rules.cache {
            BlockCache::Prefix if before > 0 && !again => block.start..self.canvas.len(),
            BlockCache::Dual if before > 0 && !again => block.clone(),
            _ => 0..self.canvas.len(),
        }
    }

    /// The masks that a step fills; `None` if it can fill none and is left out.
    fn fills(&self, seen: &[usize], own: usize, at_first: usize, i: usize, step: usize) -> Option<Fills> {
        let rules = &self.request.rules;
        if let Some(threshold) = rules.threshold {
            return Some(Fills::AtLeast(threshold));
        }
        let steps = rules.steps / rules.blocks.len();
        // LLaDA: the same number in each step, with the remainder in the first steps.
        let even = at_first / steps + usize::from(i < at_first % steps);
        let order = |p: usize| self::number(rules.seed, step, p, ORDER);
        let fills = match self.request.algorithm {
            Algorithm::LowConfidence => Fills::Largest(even),
            Algorithm::Random => {
                let mut all = seen.to_vec();
                all.sort_by(|&a, &b| order(b).total_cmp(&order(a)).then(a.cmp(&b)));
                all.truncate(even);
                all.sort_unstable();
                Fills::These(all)
            }
            Algorithm::Origin => {
                let share = f64::from(share(rules.eps, steps, i));
                Fills::These(seen.iter().copied().filter(|&p| order(p) < share).collect())
            }
            _ => Fills::Largest((own as f32 * share(rules.eps, steps, i)) as usize),
        };
        let none = matches!(&fills, Fills::Largest(0)) || matches!(&fills, Fills::These(p) if p.is_empty());
        (!none || !rules.savings).then_some(fills)
    }

    /// Follows one pass.
    fn pass(&mut self, pass: &DiffusionPass, seen: &[usize], fills: &Fills) -> Result<(), String> {
        self.stored[pass.rows.clone()].copy_from_slice(&self.canvas[pass.rows.clone()]);
        let predicted = match fills {
            Fills::These(positions) => positions,
            _ => seen,
        };
        let predictions: Vec<Prediction> =
            predicted.iter().map(|&p| self.predict(p, pass.rows.start, pass.step)).collect();
        let positions: Vec<usize> = pass.filled.iter().map(|filled| filled.position).collect();
        if let Verdict::Exactly(expected) = self.filled(&predictions, fills, pass.step)
            && positions != expected
        {
            return Err(format!("step {} fills {positions:?} instead of {expected:?}", pass.step));
        }
        for filled in &pass.filled {
            let prediction = predictions.iter().find(|prediction| prediction.position == filled.position);
            let prediction =
                prediction.ok_or_else(|| format!("step {} fills {}", pass.step, filled.position))?;
            let same =
                filled.token == prediction.token && close_or_equal(filled.confidence, prediction.confidence);
            if !prediction.open && !same {
                let expected = (prediction.token, prediction.confidence);
                return Err(format!("step {}: {filled:?} instead of {expected:?}", pass.step));
            }
            self.canvas[filled.position] = filled.token;
        }
        while self.end.is_none() && self.frontier < self.canvas.len() && !self.is_mask(self.frontier) {
            let id = self.canvas[self.frontier];
            if self.request.canvas[self.frontier] == self.request.mask && self.request.end_ids.contains(&id) {
                self.end = Some(self.frontier);
            } else {
                self.frontier += 1;
            }
        }
        Ok(())
    }

    /// The positions that a pass fills, ascending. A mask whose prediction is the mask token stays.
    fn filled(&self, predictions: &[Prediction], fills: &Fills, step: usize) -> Verdict<Vec<usize>> {
        let rules = &self.request.rules;
        let mut keys: Vec<(usize, f64)> = Vec::new();
        for prediction in predictions {
            let mut key = prediction.confidence;
            if rules.alg_temp > 0.0 {
                // A sample without replacement from softmax(confidence / temperature): the largest of these keys.
                let u = number(rules.seed, step, prediction.position, CHOICE).max(1.0 / (1u64 << 54) as f64);
                key = key / f64::from(rules.alg_temp) - libm::log(-libm::log(u));
            }
            keys.push((prediction.position, key));
        }
        keys.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let between = |n: usize| n > 0 && n < keys.len() && close(keys[n - 1].1, keys[n].1);
        let (mut chosen, open) = match fills {
            Fills::These(positions) => (positions.clone(), false),
            Fills::Largest(n) => (keys.iter().take(*n).map(|key| key.0).collect(), between(*n)),
            Fills::AtLeast(least) => {
                let sure = keys.iter().enumerate().filter(|(n, key)| *n == 0 || key.1 >= *least);
                let open = between(1) || keys.iter().any(|key| close(key.1, *least));
                (sure.map(|(_, key)| key.0).collect(), open)
            }
        };
        if open || predictions.iter().any(|prediction| prediction.open) {
            return Verdict::Open;
        }
        let stays = |p: &usize| predictions.iter().any(|g| g.position == *p && g.token == self.request.mask);
        chosen.retain(|p| !stays(p));
        chosen.sort_unstable();
        Verdict::Exactly(chosen)
    }

    /// The logits of the row that predicts a position, in a pass that begins at row `first`.
    fn row(&self, position: usize, first: usize) -> Vec<f32> {
        let row = match (self.request.rules.shifted, position) {
            (true, p) if p > first => p - 1,
            (true, _) => first,
            (false, p) => p,
        };
        let of = |tokens: &[u32]| self.request.model.on_canvas(tokens.iter().copied(), row);
        let conditioned: [f32; VOCABULARY] = of(&self.stored);
        if self.request.cfg_scale == 0.0 {
            return conditioned.to_vec();
        }
        // Guidance: away from the prediction without the prompt.
        let mut hidden = self.stored.clone();
        for (p, id) in hidden.iter_mut().enumerate() {
            if self.request.canvas[p] != self.request.mask {
                *id = self.request.mask;
            }
        }
        let unconditioned = of(&hidden);
        let scale = self.request.cfg_scale + 1.0;
        conditioned.iter().zip(&unconditioned).map(|(c, u)| u + scale * (c - u)).collect()
    }

    /// Temperature, top-p, top-k; then the token and its confidence.
    fn predict(&self, position: usize, first: usize, step: usize) -> Prediction {
        let row = self.row(position, first);
        let sampling = &self.request.sampling;
        let draws = sampling.temperature > 0.0;
        let temperature = if draws { f64::from(sampling.temperature) } else { 1.0 };
        let (mut kept, mut open) = by_weight(&row, temperature);
        if sampling.top_p < 1.0 {
            // A token is left out if the sum of those before it exceeds this.
            let enough = f64::from(sampling.top_p) * total(&kept);
            let count = (0..kept.len()).filter(|&n| total(&kept[..n]) <= enough).count();
            open |= (0..kept.len()).any(|n| super::close(total(&kept[..n]), enough));
            kept.truncate(count.max(1));
        }
        if sampling.top_k > 0 && sampling.top_k < kept.len() {
            let least = kept[sampling.top_k - 1].1;
            kept.retain(|(_, weight)| *weight >= least);
        }
        let mut token = largest(&row);
        if draws {
            let (id, close) = drawn(&kept, number(sampling.seed, step, position, TOKEN));
            (token, open) = (id, open || close);
        }
        let sum = total(&kept);
        let share = |n: usize| kept.get(n).map_or(0.0, |(_, weight)| weight / sum);
        let confidence = match self.request.algorithm {
            Algorithm::TopkMargin => share(0) - share(1),
            Algorithm::Entropy => (0..kept.len()).map(|n| share(n) * libm::log(share(n))).sum(),
            Algorithm::LowConfidence => {
                // From the unfiltered distribution of the model.
                let (all, _) = by_weight(&row, 1.0);
                all.iter().filter(|(id, _)| *id == token).map(|(_, weight)| weight).sum::<f64>() / total(&all)
            }
            _ => kept.iter().filter(|(id, _)| *id == token).map(|(_, weight)| weight).sum::<f64>() / sum,
        };
        Prediction { position, token, confidence, open }
    }
}

/// Dream: `ts = torch.linspace(1, eps, steps + 1)`; a step from time t to s fills a mask with probability `1 - s / t`, the last
/// step with probability 1. In f32, like the published counts; `linspace` counts from the nearer end.
fn share(eps: f32, steps: usize, i: usize) -> f32 {
    if i + 1 >= steps {
        return 1.0;
    }
    let step = (eps - 1.0) / steps as f32;
    let time = |i: usize| {
        if 2 * i < steps + 1 { step.mul_add(i as f32, 1.0) } else { (-step).mul_add((steps - i) as f32, eps) }
    };
    1.0 - time(i + 1) / time(i)
}

fn close_or_equal(a: f64, b: f64) -> bool {
    a == b || close(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of the reference implementation for (masks, steps).
    #[test]
    fn shares_give_the_counts_of_the_reference() {
        let counts = |masks: usize, steps: usize| -> Vec<usize> {
            let mut left = masks;
            let step = |i| {
                let count = (left as f32 * share(1e-3, steps, i)) as usize;
                left -= count;
                count
            };
            (0..steps).map(step).collect()
        };
        assert_eq!(counts(8, 4), [1, 2, 2, 3]);
        assert_eq!(counts(16, 8), [1, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(counts(32, 8), [3, 4, 4, 4, 4, 4, 4, 5]);
    }
}
