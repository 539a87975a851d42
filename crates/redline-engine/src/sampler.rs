//! Choosing the next token.
//!
//! Order: temperature, top-k, top-p, min-p. Candidates are ordered by (probability, then token id); cumulative sums run in
//! that order. The random number of a position is a pure function of (seed, position): no stream is shared, so the
//! choice never depends on what else runs.

use redline_kernels::Simd;
use redline_kernels::op::exp::exp_in_place;

use crate::error::EngineError;
use crate::random::uniform;
use crate::request::Sampling;

/// Checks the parameters.
pub(crate) fn check(sampling: &Sampling) -> Result<(), EngineError> {
    let refuse = |name: &str, value: f32, range: &str| {
        Err(EngineError::request(format!("`{name}` is {value}"), format!("`{name}` must be {range}")))
    };
    let Sampling { temperature, top_p, min_p, .. } = *sampling;
    if !(temperature.is_finite() && temperature >= 0.0) {
        return refuse("temperature", temperature, "a finite number of at least 0");
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return refuse("top_p", top_p, "above 0 and at most 1");
    }
    if !(0.0..=1.0).contains(&min_p) {
        return refuse("min_p", min_p, "from 0 to 1");
    }
    Ok(())
}

/// The id of the largest logit, the lowest id among equals; `None` if any logit is NaN or the largest is infinite.
pub(crate) fn greedy(logits: &[f32]) -> Option<u32> {
    let (mut best, mut id, mut nan) = (f32::NEG_INFINITY, 0, false);
    for (c, chunk) in logits.chunks(CHUNK).enumerate() {
        let (max, with_nan) = largest(chunk);
        nan |= with_nan;
        if max > best
            && let Some(at) = chunk.iter().position(|&x| x == max)
        {
            (best, id) = (max, (c * CHUNK + at) as u32);
        }
    }
    (!nan && best.is_finite()).then_some(id)
}

/// Logits looked through at a time.
const CHUNK: usize = 256;

/// The largest value, and whether any is NaN; written so that the compiler uses vectors.
fn largest(values: &[f32]) -> (f32, bool) {
    const LANES: usize = 16;
    let (mut max, mut nan) = ([f32::NEG_INFINITY; LANES], [false; LANES]);
    let (rows, rest) = values.as_chunks::<LANES>();
    for row in rows {
        for i in 0..LANES {
            max[i] = if row[i] > max[i] { row[i] } else { max[i] };
            nan[i] |= row[i].is_nan();
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        max[i] = if x > max[i] { x } else { max[i] };
        nan[i] |= x.is_nan();
    }
    let first = |a: f32, b: f32| if b > a { b } else { a };
    (max.into_iter().fold(f32::NEG_INFINITY, first), nan.contains(&true))
}

/// Memory that a sampler keeps between tokens.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    weights: Vec<f32>,
    order: Vec<u32>,
}

impl Sampler {
    /// The next token at `position`; `None` if the logits are not numbers.
    pub(crate) fn choose(
        &mut self,
        simd: Simd,
        logits: &[f32],
        s: &Sampling,
        position: usize,
    ) -> Option<u32> {
        let best = greedy(logits)?;
        if s.temperature == 0.0 {
            return Some(best);
        }
        let top = logits[best as usize];
        self.weights.clear();
        self.weights.extend(logits.iter().map(|x| (x - top) / s.temperature));
        exp_in_place(simd, &mut self.weights);
        let weights = &self.weights;
        self.order.clear();
        self.order.extend((0..logits.len() as u32).filter(|&i| weights[i as usize] > 0.0));
        let by_weight =
            |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
        if s.top_k > 0 && s.top_k < self.order.len() {
            self.order.select_nth_unstable_by(s.top_k - 1, by_weight);
            self.order.truncate(s.top_k);
        }
        self.order.sort_unstable_by(by_weight);
        let weight = |i: &u32| f64::from(weights[*i as usize]);
        if s.top_p < 1.0 {
            let enough = f64::from(s.top_p) * self.order.iter().map(weight).sum::<f64>();
            let mut sum = 0.0;
            let kept = self.order.iter().take_while(|i| {
                let more = sum < enough;
                sum += weight(i);
                more
            });
            let kept = kept.count();
            self.order.truncate(kept.max(1));
        }
        if s.min_p > 0.0 {
            let least = f64::from(s.min_p) * weight(&self.order[0]);
            let kept = self.order.iter().take_while(|i| weight(i) >= least).count();
            self.order.truncate(kept.max(1));
        }
        let total: f64 = self.order.iter().map(weight).sum();
        let target = uniform(s.seed, position as u64) * total;
        let mut sum = 0.0;
        let hit = self.order.iter().find(|i| {
            sum += weight(i);
            sum > target
        });
        hit.or(self.order.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn greedy_takes_the_lowest_id_among_equals_and_refuses_nan() {
        assert_eq!(greedy(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(greedy(&[1.0, f32::NAN, 3.0]), None);
        assert_eq!(greedy(&[f32::NEG_INFINITY; 2]), None);
        assert_eq!(greedy(&[0.0, f32::INFINITY]), None);
        for n in [1, 15, 17, 255, 256, 257, 1000] {
            for at in [0, n / 2, n - 1] {
                let mut logits: Vec<f32> = (0..n).map(|i| -((i * 7 % 13) as f32)).collect();
                logits[at] = 5.0;
                logits[n - 1] = 5.0;
                assert_eq!(greedy(&logits), Some(at as u32), "{n} logits");
                logits[n / 3] = f32::NAN;
                assert_eq!(greedy(&logits), None);
            }
        }
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        let logits = [0.0, 1.0, 2.0, -1.0];
        let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for (count, x) in counts(sampling(), &logits, 20_000).iter().zip(logits) {
            let p = f64::from(x).exp() / sum;
            // Five standard deviations of a binomial share; the numbers are fixed by the seed.
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
        ] {
            assert!(check(&bad).unwrap_err().to_string().contains(name));
        }
    }
}
