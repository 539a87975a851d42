//! The schedule of a request: which rows the next pass runs, which masks it predicts, and which of them it fills.
//!
//! Sources: Dream and DiffuCoder (`diffusion_generate`), LLaDA (`generate`), Fast-dLLM (block caches, thresholds). Pure
//! functions: from a canvas to a pass, and from predictions to positions. Passes that could fill nothing are left out, and so
//! are the rows of masks that a pass could not fill. This changes nothing else, because random numbers are a function of (seed,
//! step, position).

use std::ops::Range;

use super::counts::{Timesteps, even};
use super::draw::{Draw, counter};
use super::prediction::Prediction;
use crate::mode::random::uniform;
use crate::request::{Algorithm, BlockCache};

/// The checked options of a request.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) algorithm: Algorithm,
    pub(crate) steps: usize,
    pub(crate) eps: f32,
    pub(crate) alg_temp: f32,
    pub(crate) seed: u64,
    /// Ranges that are filled one after another, from left to right; together they cover every mask.
    pub(crate) blocks: Vec<Range<usize>>,
    pub(crate) threshold: Option<f64>,
    pub(crate) cache: BlockCache,
    pub(crate) refresh: Option<usize>,
    /// Whether row j predicts token j + 1.
    pub(crate) shifted: bool,
    /// Whether passes and rows that cannot change anything are left out.
    pub(crate) savings: bool,
}

/// A pass over a canvas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pass {
    /// The rows that are run.
    pub(crate) rows: Range<usize>,
    /// The masks whose tokens are predicted, ascending.
    pub(crate) masks: Vec<usize>,
    /// The step, for random numbers.
    pub(crate) step: usize,
    rule: Rule,
}

/// Which of the predicted masks are filled.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// This number of masks, the most confident first.
    Most(usize),
    /// The most confident mask, and all masks of at least this confidence.
    AtLeast(f64),
    /// These masks, whatever their confidence.
    These(Vec<usize>),
}

/// The schedule of one request.
#[derive(Debug)]
pub(crate) struct Schedule {
    rules: Rules,
    block: usize,
    /// Steps of this block so far.
    step: usize,
    /// Passes of this block so far.
    passes_of_block: usize,
    /// Passes so far, including those that were left out.
    passes: usize,
    /// Masks of this block before its first step.
    masks: usize,
}

impl Schedule {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, block: 0, step: 0, passes_of_block: 0, passes: 0, masks: 0 }
    }

    /// The next pass over a canvas of `length` tokens; `None` if nothing is left to do.
    pub(crate) fn next(&mut self, length: usize, is_mask: &dyn Fn(usize) -> bool) -> Option<Pass> {
        loop {
            let block = self.rules.blocks.get(self.block)?.clone();
            // Masks before the block are positions where the model predicted the mask token.
            let masks: Vec<usize> = (0..block.end).filter(|&p| is_mask(p)).collect();
            let own = masks.iter().filter(|&&p| p >= block.start).count();
            if self.step == 0 && self.passes_of_block == 0 {
                self.masks = own;
            }
            let idle = if self.ends_when_full() { own == 0 } else { self.rules.savings && masks.is_empty() };
            if idle || self.is_over() {
                // With a cache, the reference runs two passes for every block, even if the first one fills it.
                self.passes += usize::from(self.caches() && self.step == 1);
                (self.block, self.step, self.passes_of_block) = (self.block + 1, 0, 0);
                continue;
            }
            let pass = self.pass(block, &masks, own, length);
            self.step += 1;
            self.passes += 1;
            let Some(pass) = pass else { continue };
            self.passes_of_block += 1;
            return Some(pass);
        }
    }

    /// Number of steps of a block.
    fn steps(&self) -> usize {
        self.rules.steps / self.rules.blocks.len()
    }

    /// Whether a block ends as soon as it has no mask.
    fn ends_when_full(&self) -> bool {
        self.rules.threshold.is_some() || self.caches()
    }

    /// Whether some passes run a part of the canvas only.
    fn caches(&self) -> bool {
        self.rules.cache != BlockCache::None && self.rules.refresh != Some(1)
    }

    /// Whether the first pass of a block fills only the block's first mask (Dream): later passes do not include its row.
    fn opens(&self) -> bool {
        self.caches() && self.rules.shifted
    }

    /// Whether the block has had all its steps.
    fn is_over(&self) -> bool {
        match self.rules.threshold {
            // Each pass fills at least one mask; without this limit, a model that predicts mask tokens would run forever.
            Some(_) => self.passes_of_block > self.masks,
            // The first pass of a block is its first step, and at least one step follows it.
            None => self.step >= if self.opens() { self.steps().max(2) } else { self.steps() },
        }
    }

    /// The pass for the next step of a block, if it can fill anything.
    fn pass(&self, block: Range<usize>, masks: &[usize], own: usize, length: usize) -> Option<Pass> {
        let Rules { threshold, savings, .. } = self.rules;
        let opening = self.passes_of_block == 0;
        let whole = opening
            || !self.caches()
            || self.rules.refresh.is_some_and(|n| self.passes_of_block.is_multiple_of(n));
        let rows = match self.rules.cache {
            _ if whole => 0..length,
            BlockCache::Dual => block.clone(),
            _ => block.start..length,
        };
        let by_pass = threshold.is_some() || self.caches();
        let step = if by_pass { self.passes } else { self.block * self.steps() + self.step };
        let masks: Vec<usize> = masks.iter().copied().filter(|&p| p >= rows.start).collect();
        if opening && self.opens() {
            let masks: Vec<usize> = masks.into_iter().filter(|&p| p == block.start).collect();
            return Some(Pass { rows, masks: masks.clone(), step, rule: Rule::These(masks) });
        }
        let rule = match threshold {
            Some(least) => Rule::AtLeast(least),
            None => self.counted(step, own, &masks),
        };
        let rule = match rule {
            Rule::Most(0) if savings => return None,
            Rule::These(some) if some.is_empty() && savings => return None,
            rule => rule,
        };
        let masks = match &rule {
            Rule::These(some) if savings => some.clone(),
            _ => masks,
        };
        Some(Pass { rows, masks, step, rule })
    }

    /// The masks that a step of a schedule fills.
    fn counted(&self, step: usize, own: usize, masks: &[usize]) -> Rule {
        let Rules { algorithm, eps, seed, .. } = self.rules;
        let steps = self.steps();
        let times = Timesteps { eps, steps };
        let draw = |p: usize| uniform(seed, counter(step, p, Draw::Order));
        match algorithm {
            Algorithm::Origin => {
                let probability = f64::from(times.probability(self.step));
                Rule::These(masks.iter().copied().filter(|&p| draw(p) < probability).collect())
            }
            Algorithm::Random => {
                let keys: Vec<(usize, f64)> = masks.iter().map(|&p| (p, draw(p))).collect();
                Rule::These(most_confident(keys, even(self.masks, steps, self.step)))
            }
            Algorithm::LowConfidence => Rule::Most(even(self.masks, steps, self.step)),
            _ => Rule::Most(times.count(self.step, own)),
        }
    }

    /// The masks that a pass fills, ascending, given the predictions of its masks in order.
    pub(crate) fn filled(&self, pass: &Pass, predictions: &[Prediction]) -> Vec<usize> {
        let keyed = pass.masks.iter().zip(predictions).map(|(&p, prediction)| {
            let confidence = prediction.confidence;
            if self.rules.alg_temp == 0.0 {
                return (p, confidence);
            }
            // The masks with the largest keys are a sample without replacement (Gumbel).
            let u = uniform(self.rules.seed, counter(pass.step, p, Draw::Choice)).max(f64::EPSILON / 4.0);
            (p, confidence / f64::from(self.rules.alg_temp) - libm::log(-libm::log(u)))
        });
        match &pass.rule {
            Rule::These(some) => some.clone(),
            Rule::Most(count) => most_confident(keyed.collect(), *count),
            Rule::AtLeast(least) => {
                let mut filled = most_confident(keyed.clone().collect(), 1);
                filled.extend(keyed.filter(|(_, confidence)| confidence >= least).map(|(p, _)| p));
                filled.sort_unstable();
                filled.dedup();
                filled
            }
        }
    }
}

/// The positions of the `count` largest keys, ascending; among equal keys, the lowest positions.
fn most_confident(mut keys: Vec<(usize, f64)>, count: usize) -> Vec<usize> {
    keys.sort_by(|(p, a), (q, b)| b.total_cmp(a).then(p.cmp(q)));
    let mut positions: Vec<usize> = keys.into_iter().take(count).map(|(p, _)| p).collect();
    positions.sort_unstable();
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(blocks: Vec<Range<usize>>) -> Rules {
        Rules {
            algorithm: Algorithm::MaskgitPlus,
            steps: 12,
            eps: 1e-3,
            alg_temp: 0.0,
            seed: 0,
            blocks,
            threshold: Some(0.5),
            cache: BlockCache::None,
            refresh: None,
            shifted: false,
            savings: true,
        }
    }

    fn predictions(confidences: &[f64]) -> Vec<Prediction> {
        confidences.iter().map(|&confidence| Prediction { token: 7, confidence }).collect()
    }

    /// Runs a canvas in which each pass fills only its first mask. Returns the rows of every pass.
    fn rows(rules: Rules, first_mask: usize, length: usize) -> Vec<Range<usize>> {
        let mut masked: Vec<bool> = (0..length).map(|p| p >= first_mask).collect();
        let mut schedule = Schedule::new(rules);
        let mut rows = Vec::new();
        while let Some(pass) = schedule.next(length, &|p| masked[p]) {
            masked[pass.masks[0]] = false;
            rows.push(pass.rows);
            assert!(rows.len() <= 2 * length, "it does not end");
        }
        assert!(!masked.contains(&true), "{masked:?}");
        rows
    }

    #[test]
    fn a_mask_that_equals_the_threshold_is_filled() {
        let mut schedule = Schedule::new(rules(std::iter::once(2..7).collect()));
        let pass = schedule.next(7, &|p| p >= 2).unwrap();
        let filled = |confidences: &[f64]| schedule.filled(&pass, &predictions(confidences));
        assert_eq!(filled(&[0.5, 0.5f64.next_down(), 0.9, 0.5f64.next_up(), 0.1]), [2, 4, 5]);
        assert_eq!(filled(&[0.1, 0.3, 0.3, 0.2, 0.0]), [3], "the most confident, of equals the first");
    }

    #[test]
    fn every_nth_pass_of_a_block_is_over_all() {
        let with = |cache, refresh| rows(Rules { cache, refresh, ..rules(vec![2..8, 8..12]) }, 2, 12);
        // W: the whole canvas; otherwise the number of the block.
        let drawn = |rows: Vec<Range<usize>>, parts: [Range<usize>; 2]| -> String {
            let letter = |rows| {
                let part = parts.iter().position(|part| *part == rows);
                if rows == (0..12) { 'W' } else { part.map_or('?', |part| ['1', '2'][part]) }
            };
            rows.into_iter().map(letter).collect()
        };
        let dual = |refresh| drawn(with(BlockCache::Dual, refresh), [2..8, 8..12]);
        assert_eq!(dual(None), "W11111W222");
        assert_eq!(dual(Some(1)), "WWWWWWWWWW");
        assert_eq!(dual(Some(2)), "W1W1W1W2W2");
        assert_eq!(dual(Some(3)), "W11W11W22W");
        assert_eq!(dual(Some(4)), "W111W1W222");
        assert_eq!(dual(Some(6)), "W11111W222");
        let prefix = |refresh| drawn(with(BlockCache::Prefix, refresh), [2..12, 8..12]);
        assert_eq!(prefix(Some(3)), "W11W11W22W");
        assert_eq!(drawn(with(BlockCache::None, None), [2..8, 8..12]), "WWWWWWWWWW");
    }

    #[test]
    fn the_surest_are_taken_and_of_equals_the_first() {
        let keys = || vec![(9, 0.5), (4, 0.7), (6, 0.7), (5, 0.7), (1, 0.1)];
        assert_eq!(most_confident(keys(), 2), [4, 5]);
        assert_eq!(most_confident(keys(), 4), [4, 5, 6, 9]);
        assert_eq!(most_confident(keys(), 9), [1, 4, 5, 6, 9]);
        assert!(most_confident(keys(), 0).is_empty());
    }

    /// Step, position and purpose of a random number have separate bits.
    #[test]
    fn counters_are_distinct() {
        let mut all: Vec<u64> = Vec::new();
        for step in [0, 1, 2, 8191] {
            for position in [0, 1, 2, 8191, u32::MAX as usize] {
                let draws = [Draw::Order, Draw::Token, Draw::Choice];
                all.extend(draws.map(|draw| counter(step, position, draw)));
            }
        }
        assert_eq!(counter(1, 0, Draw::Order), 1 << 34);
        assert_eq!(counter(0, 1, Draw::Choice), 6);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    /// A model may predict mask tokens only.
    #[test]
    fn a_block_whose_masks_stay_ends_after_one_pass_more_than_it_has_masks() {
        let mut schedule = Schedule::new(rules(vec![2..5, 5..7]));
        let passes: Vec<Vec<usize>> =
            std::iter::from_fn(|| schedule.next(7, &|p| p >= 2)).map(|pass| pass.masks).take(100).collect();
        let of_blocks = [vec![vec![2, 3, 4]; 4], vec![vec![2, 3, 4, 5, 6]; 3]];
        assert_eq!(passes, of_blocks.concat());
    }
}
