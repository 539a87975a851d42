//! The course of a request: which rows are run in the next pass, which masks are looked at, and which of them are filled.
//!
//! Sources: Dream and DiffuCoder (`diffusion_generate`), LLaDA (`generate`), Fast-dLLM (block caches, thresholds). Pure: a canvas
//! in, a pass out, guesses in, positions out. A pass that could fill nothing is left out, and so are the rows of masks that it
//! could not fill: random numbers are a function of (seed, step, position), so that nothing else changes.

use std::ops::Range;

use super::counts::{Timesteps, even};
use super::guess::Guess;
use crate::random::uniform;
use crate::request::{Algorithm, BlockCache};

/// How a request is run; checked.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) algorithm: Algorithm,
    pub(crate) steps: usize,
    pub(crate) eps: f32,
    pub(crate) alg_temp: f32,
    pub(crate) seed: u64,
    /// What is filled together, from left to right; they cover every mask.
    pub(crate) blocks: Vec<Range<usize>>,
    pub(crate) threshold: Option<f64>,
    pub(crate) cache: BlockCache,
    pub(crate) refresh: Option<usize>,
    /// Whether row j is about token j + 1.
    pub(crate) shifted: bool,
    /// Whether passes and rows that cannot change anything are left out.
    pub(crate) savings: bool,
}

/// A pass over a canvas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pass {
    /// The rows that are run.
    pub(crate) rows: Range<usize>,
    /// The masks whose tokens are guessed, ascending.
    pub(crate) masks: Vec<usize>,
    /// For random numbers: which step it is.
    pub(crate) step: usize,
    rule: Rule,
}

/// Which of the masks that are looked at are filled.
#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// The surest ones, so many.
    Most(usize),
    /// The surest one, and all that are at least so sure.
    Sure(f64),
    /// These, whatever their tokens.
    These(Vec<usize>),
}

/// What random numbers are for: the last part of a counter.
pub(crate) enum Draw {
    /// Whether, or in which order, a mask is filled.
    Order = 0,
    /// Which token it becomes.
    Token = 1,
    /// The choice among masks by their confidence.
    Choice = 2,
}

/// The counter of a random number.
pub(crate) fn counter(step: usize, position: usize, draw: Draw) -> u64 {
    (step as u64) << 34 | (position as u64) << 2 | draw as u64
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Course {
    rules: Rules,
    block: usize,
    /// Steps of this block so far.
    step: usize,
    /// Passes of this block so far.
    passes_of_block: usize,
    /// Passes so far, those included that were left out.
    passes: usize,
    /// Masks of this block before its first step.
    masks: usize,
}

impl Course {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, block: 0, step: 0, passes_of_block: 0, passes: 0, masks: 0 }
    }

    /// The next pass over a canvas of so many tokens; `None` where there is nothing left to do.
    pub(crate) fn next(&mut self, length: usize, is_mask: &dyn Fn(usize) -> bool) -> Option<Pass> {
        loop {
            let block = self.rules.blocks.get(self.block)?.clone();
            // Masks before it are those that the model filled with masks.
            let masks: Vec<usize> = (0..block.end).filter(|&p| is_mask(p)).collect();
            let own = masks.iter().filter(|&&p| p >= block.start).count();
            if self.step == 0 && self.passes_of_block == 0 {
                self.masks = own;
            }
            let idle = if self.ends_when_full() { own == 0 } else { self.rules.savings && masks.is_empty() };
            if idle || self.is_over() {
                // With a cache the reference runs two passes of every block, whatever the first one left.
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

    /// Steps of a block.
    fn steps(&self) -> usize {
        self.rules.steps / self.rules.blocks.len()
    }

    /// Whether a block is left as soon as it has no mask.
    fn ends_when_full(&self) -> bool {
        self.rules.threshold.is_some() || self.caches()
    }

    /// Whether some passes are over a part of the canvas.
    fn caches(&self) -> bool {
        self.rules.cache != BlockCache::None && self.rules.refresh != Some(1)
    }

    /// Whether the pass that opens a block of Dream's fills the first mask and no other: its row is not in the passes that follow.
    fn opens(&self) -> bool {
        self.caches() && self.rules.shifted
    }

    /// Whether the block has had all its steps.
    fn is_over(&self) -> bool {
        match self.rules.threshold {
            // Each fills one at least; a model that fills masks with masks would go on forever.
            Some(_) => self.passes_of_block > self.masks,
            // The pass that opens a block is its first step, and there is always one behind it.
            None => self.step >= if self.opens() { self.steps().max(2) } else { self.steps() },
        }
    }

    /// The next step of a block, if it can fill anything.
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
            Some(least) => Rule::Sure(least),
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

    /// What a step of a schedule fills.
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
                Rule::These(surest(keys, even(self.masks, steps, self.step)))
            }
            Algorithm::LowConfidence => Rule::Most(even(self.masks, steps, self.step)),
            _ => Rule::Most(times.count(self.step, own)),
        }
    }

    /// The masks that a pass fills, ascending: guesses are those of its masks, in their order.
    pub(crate) fn filled(&self, pass: &Pass, guesses: &[Guess]) -> Vec<usize> {
        let keyed = pass.masks.iter().zip(guesses).map(|(&p, guess)| {
            let confidence = guess.confidence;
            if self.rules.alg_temp == 0.0 {
                return (p, confidence);
            }
            // The largest of these keys are a draw without replacement (Gumbel).
            let u = uniform(self.rules.seed, counter(pass.step, p, Draw::Choice)).max(f64::EPSILON / 4.0);
            (p, confidence / f64::from(self.rules.alg_temp) - libm::log(-libm::log(u)))
        });
        match &pass.rule {
            Rule::These(some) => some.clone(),
            Rule::Most(count) => surest(keyed.collect(), *count),
            Rule::Sure(least) => {
                let mut filled = surest(keyed.clone().collect(), 1);
                filled.extend(keyed.filter(|(_, confidence)| confidence >= least).map(|(p, _)| p));
                filled.sort_unstable();
                filled.dedup();
                filled
            }
        }
    }
}

/// The positions of the `count` largest keys, of equals the lowest positions; ascending.
fn surest(mut keys: Vec<(usize, f64)>, count: usize) -> Vec<usize> {
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

    fn guesses(confidences: &[f64]) -> Vec<Guess> {
        confidences.iter().map(|&confidence| Guess { token: 7, confidence }).collect()
    }

    /// Runs a canvas in which each pass fills the first of its masks only; the rows of every pass.
    fn rows(rules: Rules, first_mask: usize, length: usize) -> Vec<Range<usize>> {
        let mut masked: Vec<bool> = (0..length).map(|p| p >= first_mask).collect();
        let mut course = Course::new(rules);
        let mut rows = Vec::new();
        while let Some(pass) = course.next(length, &|p| masked[p]) {
            masked[pass.masks[0]] = false;
            rows.push(pass.rows);
            assert!(rows.len() <= 2 * length, "it does not end");
        }
        assert!(!masked.contains(&true), "{masked:?}");
        rows
    }

    #[test]
    fn a_mask_that_equals_the_threshold_is_filled() {
        let mut course = Course::new(rules(std::iter::once(2..7).collect()));
        let pass = course.next(7, &|p| p >= 2).unwrap();
        let filled = |confidences: &[f64]| course.filled(&pass, &guesses(confidences));
        assert_eq!(filled(&[0.5, 0.5f64.next_down(), 0.9, 0.5f64.next_up(), 0.1]), [2, 4, 5]);
        assert_eq!(filled(&[0.1, 0.3, 0.3, 0.2, 0.0]), [3], "the surest, of equals the first");
    }

    #[test]
    fn every_nth_pass_of_a_block_is_over_all() {
        let with = |cache, refresh| rows(Rules { cache, refresh, ..rules(vec![2..8, 8..12]) }, 2, 12);
        // W: all rows; the block's number else.
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
        assert_eq!(surest(keys(), 2), [4, 5]);
        assert_eq!(surest(keys(), 4), [4, 5, 6, 9]);
        assert_eq!(surest(keys(), 9), [1, 4, 5, 6, 9]);
        assert!(surest(keys(), 0).is_empty());
    }

    /// Step, position and use of a random number each have bits of their own.
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
}
