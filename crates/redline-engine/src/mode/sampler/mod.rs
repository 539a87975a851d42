//! Choosing the next token.
//!
//! Order: [`LogitsProcessor`] (bias, penalties, [`Allowed`]), then temperature, top-k, top-p, min-p, typical-p. Candidates are ordered by
//! (probability, then token id); cumulative sums run in that order. The random number of a position is a pure function of
//! (seed, position): no stream is shared, so the choice never depends on what else runs.

mod processor;
mod ranking;

use redline_kernels::Simd;
pub(crate) use redline_kernels::op::argmax::argmax as greedy;
use redline_kernels::op::exp::exp_in_place;
use redline_models::random::{STEP, mix};

pub use self::processor::Allowed;
pub(crate) use self::processor::{LogitsProcessor, check_penalties};
use self::ranking::Ranking;
use crate::error::EngineError;
use crate::mode::random::uniform;
use crate::request::Sampling;

/// The error about a parameter that is out of range.
fn refuse(name: &str, value: f32, range: &str) -> Result<(), EngineError> {
    Err(EngineError::request(format!("`{name}` is {value}"), format!("`{name}` must be {range}")))
}

/// Checks the parameters.
pub(crate) fn check(sampling: &Sampling) -> Result<(), EngineError> {
    let Sampling { temperature, top_p, min_p, typical_p, .. } = *sampling;
    if !(temperature.is_finite() && temperature >= 0.0) {
        return refuse("temperature", temperature, "a finite number of at least 0");
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return refuse("top_p", top_p, "above 0 and at most 1");
    }
    if !(0.0..=1.0).contains(&min_p) {
        return refuse("min_p", min_p, "from 0 to 1");
    }
    if !(typical_p > 0.0 && typical_p <= 1.0) {
        return refuse("typical_p", typical_p, "above 0 and at most 1");
    }
    Ok(())
}

/// The seed of a continuation of a request: the output of that number of SplitMix64 (Steele et al. 2014) from the request's seed,
/// which is itself the seed of continuation 0.
pub(crate) fn seed_of(seed: u64, continuation: usize) -> u64 {
    if continuation == 0 { seed } else { mix(seed.wrapping_add(STEP.wrapping_mul(continuation as u64))) }
}

/// Memory that a sampler keeps between tokens.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// The logits of a row after bias and penalties.
    processed: Vec<f32>,
    weights: Vec<f32>,
    ranking: Ranking,
}

impl Sampler {
    /// The next token at `position`, from logits that pass through `processor`, of which only some are allowed; `None` if the logits
    /// are not numbers, or if no token is allowed.
    pub(crate) fn process_and_choose(
        &mut self,
        simd: Simd,
        (processor, allowed): (&LogitsProcessor, Allowed<'_>),
        logits: &[f32],
        s: &Sampling,
        position: usize,
    ) -> Option<u32> {
        if let Allowed::Only(id) = allowed {
            return greedy(logits).and(((id as usize) < logits.len()).then_some(id));
        }
        let mut processed = std::mem::take(&mut self.processed);
        let chosen = self.choose(simd, processor.process(logits, allowed, &mut processed), s, position);
        self.processed = processed;
        chosen
    }

    /// The next token at `position`; `None` if the logits are not numbers, or all negative infinity.
    pub(crate) fn choose(
        &mut self,
        simd: Simd,
        logits: &[f32],
        s: &Sampling,
        position: usize,
    ) -> Option<u32> {
        let best = greedy(logits).filter(|best| logits[*best as usize] > f32::NEG_INFINITY)?;
        if s.temperature == 0.0 {
            return Some(best);
        }
        let top = logits[best as usize];
        self.weights.clear();
        self.weights.extend(logits.iter().map(|x| (x - top) / s.temperature));
        exp_in_place(simd, &mut self.weights);
        self.ranking.fill(&self.weights);
        if s.top_k > 0 {
            self.ranking.keep_highest(s.top_k);
        }
        if s.top_p < 1.0 {
            self.ranking.keep_share(f64::from(s.top_p));
        }
        if s.min_p > 0.0 {
            self.ranking.keep_likely(f64::from(s.min_p));
        }
        if s.typical_p < 1.0 {
            self.ranking.keep_typical(f64::from(s.typical_p));
        }
        self.ranking.draw(uniform(s.seed, position as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::request::Penalties;

    fn sampling() -> Sampling {
        Sampling { temperature: 1.0, ..Sampling::default() }
    }

    fn counts(s: Sampling, logits: &[f32], n: usize) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        let mut sampler = Sampler::default();
        for position in 0..n {
            counts[sampler.choose(Simd::best(), logits, &s, position).unwrap() as usize] += 1;
        }
        counts
    }

    /// Reference implementation: sorts all candidates first.
    fn reference(logits: &[f32], s: &Sampling, position: usize) -> u32 {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut weights: Vec<f32> = logits.iter().map(|x| (x - max) / s.temperature).collect();
        exp_in_place(Simd::best(), &mut weights);
        let all = (0..).zip(weights.iter().map(|w| f64::from(*w)));
        let mut kept: Vec<(u32, f64)> = all.filter(|(_, weight)| *weight > 0.0).collect();
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if s.top_k > 0 {
            kept.truncate(s.top_k);
        }
        let total = |kept: &[(u32, f64)]| kept.iter().map(|(_, weight)| weight).sum::<f64>();
        let cumulative = |kept: &[(u32, f64)]| {
            let mut sum = 0.0;
            let add = |(_, weight): &(u32, f64)| {
                sum += weight;
                sum
            };
            kept.iter().map(add).collect::<Vec<f64>>()
        };
        if s.top_p < 1.0 {
            let enough = f64::from(s.top_p) * total(&kept);
            let below = cumulative(&kept).iter().take_while(|sum| **sum < enough).count();
            kept.truncate(below + 1);
        }
        let least = f64::from(s.min_p) * kept[0].1;
        kept.retain(|(_, weight)| *weight >= least);
        if s.typical_p < 1.0 {
            let mean = kept.iter().map(|(_, w)| w * libm::log(*w)).sum::<f64>() / total(&kept);
            let distance = |w: f64| (libm::log(w) - mean).abs();
            let mut typical = kept.clone();
            typical.sort_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
            let enough = f64::from(s.typical_p) * total(&kept);
            let below = cumulative(&typical).iter().take_while(|sum| **sum < enough).count();
            let most = distance(typical[below.min(typical.len() - 1)].1);
            kept.retain(|(_, weight)| distance(*weight) <= most);
        }
        let target = uniform(s.seed, position as u64) * total(&kept);
        let at = cumulative(&kept).iter().position(|sum| *sum > target);
        kept[at.unwrap_or(kept.len() - 1)].0
    }

    #[test]
    fn a_choice_is_that_of_sorting_all_candidates() {
        let mut sampler = Sampler::default();
        let mut differ = 0;
        for (n, size) in [1, 2, 63, 64, 65, 600, 5000].into_iter().enumerate() {
            for (round, spread) in [0.0, 0.5, 4.0, 30.0, 300.0].into_iter().enumerate() {
                let logit = |i| (uniform(round as u64, i) * spread) as f32;
                let mut logits: Vec<f32> = (0..size as u64).map(logit).collect();
                if round % 2 == 0 {
                    // Ties.
                    for x in &mut logits {
                        *x = x.round();
                    }
                }
                for (top_k, top_p, min_p, typical_p) in [
                    (0, 1.0, 0.0, 1.0),
                    (0, 0.9, 0.0, 1.0),
                    (0, 0.5, 0.01, 1.0),
                    (0, 1.0, 0.2, 1.0),
                    (40, 1.0, 0.0, 1.0),
                    (40, 0.8, 0.05, 1.0),
                    (1000, 0.999, 0.0, 1.0),
                    (0, 1.0, 0.0, 0.6),
                    (40, 0.95, 0.001, 0.9),
                ] {
                    for (seed, temperature) in [0.3, 1.0, 2.5].into_iter().enumerate() {
                        let s = Sampling { temperature, top_k, top_p, min_p, typical_p, seed: seed as u64 };
                        let choice = sampler.choose(Simd::best(), &logits, &s, n);
                        assert_eq!(choice, Some(reference(&logits, &s, n)), "{size} {spread} {s:?}");
                        differ += usize::from(choice != greedy(&logits));
                    }
                }
            }
        }
        assert!(differ > 200, "{differ}");
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let logits = [0.0, 1.0, 2.0, -1.0];
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for (count, x) in counts(sampling(), &logits, 20_000).iter().zip(logits) {
            let p = f64::from(x).exp() / sum;
            // Five standard deviations of a binomial share; the seed fixes the numbers.
            assert!((*count as f64 / 20_000.0 - p).abs() < 5.0 * (p * (1.0 - p) / 20_000.0).sqrt());
        }
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits = [0.0, 1.0, 2.0, -1.0, 1.9];
        let kept = |s: Sampling| {
            counts(s, &logits, 3000)
                .iter()
                .enumerate()
                .filter(|(_, c)| **c > 0)
                .map(|(i, _)| i)
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(Sampling { top_k: 1, ..sampling() }), [2]);
        assert_eq!(kept(Sampling { top_k: 3, ..sampling() }), [1, 2, 4]);
        assert_eq!(kept(Sampling { top_p: 0.01, ..sampling() }), [2]);
        // Shares in order: 0.413, 0.374, 0.152, 0.056, 0.021 of the sum: two reach 0.7.
        assert_eq!(kept(Sampling { top_p: 0.7, ..sampling() }), [2, 4]);
        assert_eq!(kept(Sampling { min_p: 0.5, ..sampling() }), [2, 4]);
        assert_eq!(kept(Sampling { min_p: 1.0, ..sampling() }), [2]);
        // The entropy is 1.257 nats. Distances of -ln p from it: 0.257 (id 4, 0.368), 0.357 (id 2, 0.407), 0.643 (id 1, 0.150).
        assert_eq!(kept(Sampling { typical_p: 0.3, ..sampling() }), [4]);
        assert_eq!(kept(Sampling { typical_p: 0.7, ..sampling() }), [2, 4]);
        assert_eq!(kept(Sampling { typical_p: 0.9, ..sampling() }), [1, 2, 4]);
    }

    #[test]
    fn seeds_of_continuations_are_the_outputs_of_splitmix() {
        // The first outputs of the reference implementation from the state 1234567.
        let outputs =
            [1_234_567, 6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([0, 1, 2, 3].map(|continuation| seed_of(1_234_567, continuation)), outputs);
    }

    /// Among equal probabilities, top-p keeps the fewest that reach it, those of the lowest ids. Min-p keeps all of them.
    #[test]
    fn boundaries_of_the_filters() {
        let kept = |s: Sampling| {
            let counts = counts(s, &[0.5; 8], 2000);
            (0..8).filter(|&id| counts[id] > 0).collect::<Vec<_>>()
        };
        assert_eq!(kept(Sampling { top_p: 0.5, ..sampling() }), [0, 1, 2, 3]);
        assert_eq!(kept(Sampling { top_p: 0.5f32.next_up(), ..sampling() }), [0, 1, 2, 3, 4]);
        assert_eq!(kept(Sampling { top_k: 3, ..sampling() }), [0, 1, 2]);
        assert_eq!(kept(Sampling { top_k: 4, top_p: 0.5, ..sampling() }), [0, 1]);
        assert_eq!(kept(Sampling { min_p: 1.0, ..sampling() }), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn tokens_that_are_not_allowed_are_never_chosen() {
        let logits: Vec<f32> = (0..70).map(|i| (i % 11) as f32).collect();
        let processor = LogitsProcessor::new(Penalties::default(), &[], &[]);
        let mut sampler = Sampler::default();
        let mut choose = |allowed, temperature, position| {
            let s = Sampling { temperature, ..sampling() };
            sampler.process_and_choose(Simd::best(), (&processor, allowed), &logits, &s, position)
        };
        // Ids 2, 33 (of logit 0) and 63.
        let words = [1 << 2, 1 << 1 | 1 << 31];
        assert_eq!(choose(Allowed::These(&words), 0.0, 0), Some(63));
        let chosen: BTreeSet<_> = (0..2000).map(|p| choose(Allowed::These(&words), 2.0, p)).collect();
        assert_eq!(chosen, BTreeSet::from([Some(2), Some(33), Some(63)]));
        for temperature in [0.0, 1.0] {
            assert_eq!(choose(Allowed::These(&[0, 0]), temperature, 0), None);
            assert_eq!(choose(Allowed::Only(33), temperature, 0), Some(33));
            assert_eq!(choose(Allowed::Only(70), temperature, 0), None);
        }
        assert_eq!(choose(Allowed::These(&[u32::MAX; 3]), 0.0, 0), choose(Allowed::All, 0.0, 0));
        // A row of no numbers has no token, forced or not.
        let none = [f32::NAN; 3];
        let only = (&processor, Allowed::Only(1));
        assert_eq!(sampler.process_and_choose(Simd::best(), only, &none, &sampling(), 0), None);
    }

    #[test]
    fn a_choice_depends_on_seed_and_position_only() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.3).collect();
        let mut one = Sampler::default();
        let mut other = Sampler::default();
        for position in (0..100).rev() {
            other.choose(Simd::best(), &logits, &sampling(), position);
        }
        for position in 0..100 {
            let a = one.choose(Simd::best(), &logits, &sampling(), position);
            assert_eq!(a, other.choose(Simd::best(), &logits, &sampling(), position));
        }
        let seeds: std::collections::HashSet<_> = (0..20)
            .map(|seed| one.choose(Simd::best(), &logits, &Sampling { seed, ..sampling() }, 0))
            .collect();
        assert!(seeds.len() > 5);
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        for (bad, name) in [
            (Sampling { temperature: f32::NAN, ..sampling() }, "temperature"),
            (Sampling { temperature: -1.0, ..sampling() }, "temperature"),
            (Sampling { top_p: 0.0, ..sampling() }, "top_p"),
            (Sampling { min_p: 1.5, ..sampling() }, "min_p"),
            (Sampling { typical_p: 0.0, ..sampling() }, "typical_p"),
            (Sampling { typical_p: 1.0f32.next_up(), ..sampling() }, "typical_p"),
        ] {
            assert!(check(&bad).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn parameters_that_are_no_numbers_are_refused_by_name() {
        for (bad, name) in [
            (Sampling { top_p: f32::NAN, ..sampling() }, "top_p"),
            (Sampling { min_p: f32::NAN, ..sampling() }, "min_p"),
            (Sampling { typical_p: f32::NAN, ..sampling() }, "typical_p"),
        ] {
            let message = check(&bad).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("NaN"), "{message}");
        }
    }

    #[test]
    fn the_ends_of_the_ranges_are_accepted() {
        for good in [
            Sampling { temperature: 0.0, ..sampling() },
            Sampling { temperature: f32::MAX, ..sampling() },
            Sampling { top_p: f32::MIN_POSITIVE, ..sampling() },
            Sampling { top_p: 1.0, ..sampling() },
            Sampling { min_p: 0.0, ..sampling() },
            Sampling { min_p: 1.0, ..sampling() },
        ] {
            assert!(check(&good).is_ok(), "{good:?}");
        }
        for bad in [
            Sampling { top_p: 1f32.next_up(), ..sampling() },
            Sampling { min_p: 1f32.next_up(), ..sampling() },
            Sampling { min_p: -f32::MIN_POSITIVE, ..sampling() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }
}
