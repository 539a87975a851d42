//! Predicts the token of a mask, most probable or sampled, and a confidence from the mask's logits.
//!
//! Order: temperature, top-p, top-k; then the token and its confidence in the filtered distribution (Dream; LLaDA's confidence
//! is the probability before these steps). Candidates are ordered by (probability, then token id).

use std::sync::OnceLock;

use redline_kernels::op::exp::exp_in_place;
use redline_kernels::op::summary::{LogitSummary, summaries, summary};
use redline_kernels::{Exec, Rows, Simd};

use super::draw::{Draw, counter};
use crate::mode::random::uniform;
use crate::plan::OUTPUT_ROWS;
use crate::request::{Algorithm, Sampling};

/// The predicted token of a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) token: u32,
    /// Larger is more confident; its meaning depends on the algorithm.
    pub(crate) confidence: f64,
}

/// How tokens are predicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predictor {
    pub(crate) algorithm: Algorithm,
    pub(crate) sampling: Sampling,
    pub(crate) simd: Simd,
}

/// Number of candidates sorted first, if not all are needed in order.
const FIRST: usize = 64;

impl Predictor {
    /// Whether only the largest logit matters.
    fn is_greedy(&self) -> bool {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        temperature == 0.0 && top_k == 0 && top_p >= 1.0
    }

    /// Predictions of the masks at `positions`, one for each row; `None` if logits are not numbers.
    pub(crate) fn all(
        &self,
        exec: Exec<'_>,
        rows: Rows<'_>,
        step: usize,
        positions: &[usize],
    ) -> Vec<Option<Prediction>> {
        if self.is_greedy() {
            let mut found = [LogitSummary::default(); OUTPUT_ROWS];
            summaries(exec, rows, &mut found);
            return found[..rows.rows()].iter().map(|summary| self.greedy(summary)).collect();
        }
        let found: Vec<OnceLock<Option<Prediction>>> = vec![OnceLock::new(); rows.rows()];
        exec.team.split(rows.rows(), 1, 2, |some| {
            for r in some {
                found[r].get_or_init(|| self.alone(rows.row(r), step, positions[r]));
            }
        });
        found.into_iter().map(|prediction| prediction.into_inner().flatten()).collect()
    }

    /// The prediction of one mask.
    pub(crate) fn alone(&self, logits: &[f32], step: usize, position: usize) -> Option<Prediction> {
        if self.is_greedy() {
            return self.greedy(&summary(self.simd, logits));
        }
        self.one(logits, uniform(self.sampling.seed, counter(step, position, Draw::Token)))
    }

    fn greedy(&self, summary: &LogitSummary) -> Option<Prediction> {
        let confidence = match self.algorithm {
            Algorithm::TopkMargin => summary.margin(),
            Algorithm::Entropy => summary.negative_entropy(),
            _ => summary.probability(),
        };
        summary.is_finite().then_some(Prediction { token: summary.top, confidence })
    }

    /// Predicts with sampling or filters, given the random number.
    fn one(&self, logits: &[f32], u: f64) -> Option<Prediction> {
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        let top = crate::mode::sampler::greedy(logits)?;
        let max = logits[top as usize];
        let scale = if temperature > 0.0 { temperature } else { 1.0 };
        let mut weights: Vec<f32> = logits.iter().map(|x| (x - max) / scale).collect();
        exp_in_place(self.simd, &mut weights);
        let candidates = Candidates::of(&weights).filtered(top_p, top_k);
        let total = candidates.total();
        let token = if temperature > 0.0 { candidates.at(u * total) } else { top };
        let share = |id: u32| f64::from(weights[id as usize]) / total;
        let confidence = match self.algorithm {
            Algorithm::TopkMargin => {
                let second = candidates.order.get(1).map_or(0.0, |&id| share(id));
                share(candidates.order[0]) - second
            }
            Algorithm::Entropy => {
                candidates.order.iter().map(|&id| share(id)).map(|p| p * libm::log(p)).sum()
            }
            Algorithm::LowConfidence => {
                // From the unfiltered distribution of the model.
                let sum: f64 = logits.iter().map(|x| libm::exp(f64::from(x - max))).sum();
                libm::exp(f64::from(logits[token as usize] - max)) / sum
            }
            Algorithm::MaskgitPlus | Algorithm::Origin | Algorithm::Random => share(token),
        };
        Some(Prediction { token, confidence })
    }
}

/// The ids that may be chosen, by (weight, then id), and their weights.
struct Candidates<'a> {
    weights: &'a [f32],
    order: Vec<u32>,
}

impl<'a> Candidates<'a> {
    /// All ids of non-zero weight, not sorted yet.
    fn of(weights: &'a [f32]) -> Self {
        let order = (0..weights.len() as u32).filter(|&id| weights[id as usize] > 0.0).collect();
        Self { weights, order }
    }

    fn weight(&self, id: u32) -> f64 {
        f64::from(self.weights[id as usize])
    }

    fn total(&self) -> f64 {
        self.order.iter().map(|&id| self.weight(id)).sum()
    }

    /// The most probable ids whose sum reaches `top_p`, and of these the ones that are not less probable than the `top_k`-th;
    /// sorted.
    fn filtered(mut self, top_p: f32, top_k: usize) -> Self {
        if top_p < 1.0 {
            let enough = f64::from(top_p) * self.total();
            let mut sorted = FIRST;
            let kept = loop {
                self.sort_first(sorted);
                let mut sum = 0.0;
                let kept = self.order.iter().take(sorted).take_while(|&&id| {
                    let more = sum <= enough;
                    sum += self.weight(id);
                    more
                });
                let kept = kept.count();
                if kept < sorted || sorted >= self.order.len() {
                    break kept;
                }
                sorted *= 8;
            };
            self.order.truncate(kept);
        }
        if top_k > 0 && top_k < self.order.len() {
            self.sort_first(top_k);
            let least = self.weight(self.order[top_k - 1]);
            let weights = self.weights;
            let mut place = 0;
            // Candidates as probable as the last one stay.
            self.order.retain(|&id| {
                place += 1;
                place <= top_k || f64::from(weights[id as usize]) >= least
            });
        }
        self.sort_first(self.order.len());
        self
    }

    /// Sorts the first `count` candidates.
    fn sort_first(&mut self, count: usize) {
        let weights = self.weights;
        let by_weight =
            |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
        let count = count.min(self.order.len());
        if count > 0 && count < self.order.len() {
            self.order.select_nth_unstable_by(count - 1, by_weight);
        }
        self.order[..count].sort_unstable_by(by_weight);
    }

    /// The first candidate whose cumulative weight exceeds `target`.
    fn at(&self, target: f64) -> u32 {
        let mut sum = 0.0;
        let hit = self.order.iter().find(|&&id| {
            sum += self.weight(id);
            sum > target
        });
        hit.or(self.order.last()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(weights: &[f32], top_p: f32, top_k: usize) -> Vec<u32> {
        Candidates::of(weights).filtered(top_p, top_k).order
    }

    fn predict(logits: &[f32], algorithm: Algorithm, sampling: Sampling, u: f64) -> Prediction {
        Predictor { algorithm, sampling, simd: Simd::best() }.one(logits, u).unwrap()
    }

    /// The candidate after the one that reaches top-p exactly is kept, as in the reference, which compares the sum before it.
    #[test]
    fn a_candidate_is_kept_where_the_sum_before_it_equals_top_p() {
        assert_eq!(kept(&[1.0; 8], 0.5, 0), [0, 1, 2, 3, 4]);
        assert_eq!(kept(&[1.0; 8], 0.5f32.next_down(), 0), [0, 1, 2, 3]);
        assert_eq!(kept(&[0.25, 1.0, 0.75, 0.0, 1.0], 1.0, 0), [1, 4, 2, 0]);
        assert_eq!(kept(&[0.5, 1.0, 0.5], 1e-30, 0), [1]);
        // More candidates than are sorted first.
        assert_eq!(kept(&[1.0; 1000], 0.5, 0), (0..501).collect::<Vec<u32>>());
        assert_eq!(kept(&[1.0; 128], 0.5, 0), (0..65).collect::<Vec<u32>>());
    }

    #[test]
    fn equals_of_the_last_of_top_k_are_kept() {
        assert_eq!(kept(&[0.5, 1.0, 0.5, 0.25, 0.5], 1.0, 2), [1, 0, 2, 4]);
        assert_eq!(kept(&[0.5, 1.0, 0.5, 0.25, 0.5], 1.0, 1), [1]);
        assert_eq!(kept(&[0.5, 1.0, 0.5, 0.25, 0.5], 1.0, 4), [1, 0, 2, 4]);
        assert_eq!(kept(&[0.5, 1.0, 0.5, 0.25, 0.5], 1.0, 5), [1, 0, 2, 4, 3]);
        // Top-p comes first.
        assert_eq!(kept(&[1.0; 8], 0.25, 2), [0, 1, 2]);
    }

    #[test]
    fn a_token_is_the_first_whose_sum_exceeds_the_target() {
        let weights = [1.0; 4];
        let candidates = Candidates::of(&weights).filtered(1.0, 0);
        assert_eq!([0.0, 0.5, 1.0, 2.5, 3.0, 4.0].map(|target| candidates.at(target)), [0, 0, 1, 2, 3, 3]);
    }

    /// Logits 0, ln 2 and ln 4 at temperature 1/2 are weights of 1/16, 1/4 and 1: shares of 1/21, 4/21 and 16/21.
    #[test]
    fn confidences_by_hand() {
        let logits = [0.0, 2f32.ln(), 4f32.ln()];
        let warm = Sampling { temperature: 0.5, ..Sampling::default() };
        let check = |algorithm, sampling, u, token, confidence: f64| {
            let found = predict(&logits, algorithm, sampling, u);
            assert_eq!(found.token, token);
            assert!((found.confidence - confidence).abs() < 1e-6, "{algorithm:?}: {found:?}, {confidence}");
        };
        let shares = [1.0 / 21.0, 4.0 / 21.0, 16.0 / 21.0];
        let entropy = shares.iter().map(|p: &f64| p * p.ln()).sum();
        check(Algorithm::MaskgitPlus, warm, 0.5, 2, shares[2]);
        check(Algorithm::MaskgitPlus, warm, 0.8, 1, shares[1]);
        check(Algorithm::MaskgitPlus, warm, 0.99, 0, shares[0]);
        check(Algorithm::TopkMargin, warm, 0.99, 0, shares[2] - shares[1]);
        check(Algorithm::Entropy, warm, 0.8, 1, entropy);
        // Before temperature and filters: 1/7, 2/7, 4/7.
        check(Algorithm::LowConfidence, warm, 0.8, 1, 2.0 / 7.0);
        let filtered = Sampling { top_k: 2, ..Sampling::default() };
        check(Algorithm::LowConfidence, filtered, 0.0, 2, 4.0 / 7.0);
        check(Algorithm::MaskgitPlus, filtered, 0.9, 2, 4.0 / 6.0);
        check(Algorithm::TopkMargin, Sampling { top_k: 1, ..filtered }, 0.0, 2, 1.0);
        assert_eq!(
            Predictor { algorithm: Algorithm::Entropy, sampling: warm, simd: Simd::best() }
                .one(&[f32::NAN], 0.1),
            None
        );
    }
}
