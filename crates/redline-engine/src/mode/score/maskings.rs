//! Which tokens of a label are masked, how often, and with what weight.
//!
//! A model that fills masks bounds the log-likelihood of a label of L tokens by the mean, over k from 1 to L and over all
//! choices of k of its tokens, of `L / k` times the sum of the log-probabilities of those k tokens, each given the prompt and
//! the unmasked tokens (LLaDA, arXiv 2502.09992, eq. 6 and `get_log_likelihood.py`). If there are no more choices than samples,
//! all are run with their weights in that mean, and the value is exact. Otherwise choices are sampled, with k spread evenly
//! (the published code rounds halves to even, which draws some k more often than others).

use std::collections::BTreeMap;

use crate::mode::random::uniform;

/// A label with some tokens masked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Masking {
    /// `None`: a mask.
    pub(crate) tokens: Vec<Option<u32>>,
    /// Indices of the labels that look the same with these masks, and the weight of each masked token for them.
    pub(crate) labels: Vec<(usize, f64)>,
}

/// All maskings that are run for some labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Maskings {
    pub(crate) all: Vec<Masking>,
    /// For each label, indices in `all` and in [`Masking::labels`], in an order that other labels do not change.
    pub(crate) labels: Vec<Vec<(usize, usize)>>,
    /// Number of labels whose maskings are sampled.
    pub(crate) sampled: usize,
}

impl Maskings {
    /// Maximum number of maskings for a label of `length` tokens.
    pub(crate) fn most(length: usize, samples: usize) -> usize {
        usize::try_from(ways(length)).map_or(samples, |ways| ways.min(samples))
    }

    /// Creates the maskings of distinct labels, at most `samples` for each. Labels of equal length are masked alike, so that
    /// differences between them do not come from the sampling.
    pub(crate) fn of(labels: &[Vec<u32>], samples: usize, seed: u64) -> Self {
        let mut found = Self::default();
        let mut places: BTreeMap<Vec<Option<u32>>, usize> = BTreeMap::new();
        let mut of_length: BTreeMap<usize, (Vec<(u64, f64)>, bool)> = BTreeMap::new();
        for (label, tokens) in labels.iter().enumerate() {
            let length = tokens.len();
            let (covers, exact) = of_length.entry(length).or_insert_with(|| covers(length, samples, seed));
            found.sampled += usize::from(!*exact);
            let mut parts = Vec::with_capacity(covers.len());
            for &mut (cover, weight) in covers {
                let look = |(at, &token): (usize, &u32)| (cover >> at & 1 == 0).then_some(token);
                let look: Vec<Option<u32>> = tokens.iter().enumerate().map(look).collect();
                let place = *places.entry(look.clone()).or_insert_with(|| {
                    found.all.push(Masking { tokens: look, labels: Vec::new() });
                    found.all.len() - 1
                });
                parts.push((place, found.all[place].labels.len()));
                found.all[place].labels.push((label, weight));
            }
            found.labels.push(parts);
        }
        found
    }
}

/// Number of ways to mask at least one of `length` tokens.
fn ways(length: usize) -> u64 {
    1u64.checked_shl(length as u32).map_or(u64::MAX, |sets| sets - 1)
}

/// Sets of masked tokens as bits, with the weight of each masked token; and whether these are all sets.
fn covers(length: usize, samples: usize, seed: u64) -> (Vec<(u64, f64)>, bool) {
    let all = ways(length);
    if all <= samples as u64 {
        let weight = |cover: u64| 1.0 / (f64::from(cover.count_ones()) * choices(length, cover.count_ones()));
        return ((1..=all).map(|cover| (cover, weight(cover))).collect(), true);
    }
    let mut weights: BTreeMap<u64, f64> = BTreeMap::new();
    let first = libm::floor(uniform(seed, counter(samples, 0)) * length as f64) as usize;
    for sample in 0..samples {
        // Cycles through 1..=length from a random start, so that the counts of any two values differ by at most one.
        let covered = (first + sample * length / samples) % length + 1;
        let mut order: Vec<usize> = (0..length).collect();
        order.sort_by(|&a, &b| {
            uniform(seed, counter(sample, a)).total_cmp(&uniform(seed, counter(sample, b)))
        });
        let cover = order[..covered].iter().fold(0u64, |cover, &at| cover | 1 << at);
        *weights.entry(cover).or_default() += length as f64 / (covered * samples) as f64;
    }
    (weights.into_iter().collect(), false)
}

/// The counter of a random number.
fn counter(sample: usize, token: usize) -> u64 {
    (sample as u64) << 32 | token as u64
}

/// The binomial coefficient: ways to choose k of n.
fn choices(n: usize, k: u32) -> f64 {
    (0..k).fold(1.0, |product, i| product * (n as f64 - f64::from(i)) / f64::from(i + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The total weight of each token of a label of `length` tokens, over all of its maskings.
    fn weights(length: usize, samples: usize, seed: u64) -> Vec<f64> {
        let (covers, _) = covers(length, samples, seed);
        (0..length)
            .map(|at| covers.iter().filter(|(cover, _)| cover >> at & 1 == 1).map(|(_, weight)| weight).sum())
            .collect()
    }

    #[test]
    fn few_choices_are_all_run_and_each_token_counts_once() {
        assert_eq!(covers(1, 1, 7), (vec![(1, 1.0)], true));
        assert_eq!(covers(2, 3, 7), (vec![(1, 0.5), (2, 0.5), (3, 0.5)], true));
        assert!(!covers(2, 2, 7).1);
        for length in 1..=7 {
            let (all, exact) = covers(length, 127, 0);
            assert!(exact && all.len() == (1 << length) - 1);
            assert!(weights(length, 127, 0).iter().all(|weight| (weight - 1.0).abs() < 1e-12));
        }
    }

    #[test]
    fn samples_cover_every_number_of_tokens_equally_often() {
        for (length, samples) in [(8, 128), (64, 128), (5, 10), (64, 64)] {
            let (drawn, exact) = covers(length, samples, 3);
            assert!(!exact && drawn.len() <= samples);
            let total: f64 = weights(length, samples, 3).iter().sum();
            assert!((total - length as f64).abs() < 1e-9, "{length} tokens count {total}");
            // A masking of k tokens weighs length / (k samples) each time it is drawn.
            let mut of = vec![0.0; length + 1];
            for (cover, weight) in &drawn {
                let covered = cover.count_ones() as usize;
                of[covered] += weight * (covered * samples) as f64 / length as f64;
            }
            let (least, most) = ((samples / length) as f64 - 0.5, samples.div_ceil(length) as f64 + 0.5);
            assert!(of[1..].iter().all(|&n| n > least && n < most), "{of:?}");
        }
        assert_ne!(covers(8, 16, 0), covers(8, 16, 1));
        assert_eq!(covers(8, 16, 1), covers(8, 16, 1));
        // With many samples, all tokens are masked about equally often.
        assert!(weights(9, 400, 5).iter().all(|weight| (weight - 1.0).abs() < 0.25));
    }

    #[test]
    fn labels_that_look_alike_are_run_once() {
        let found = Maskings::of(&[vec![1], vec![2]], 128, 0);
        assert_eq!(found.all, [Masking { tokens: vec![None], labels: vec![(0, 1.0), (1, 1.0)] }]);
        let found = Maskings::of(&[vec![1, 2], vec![1, 3]], 128, 0);
        let looks: Vec<_> =
            found.all.iter().map(|masking| (masking.tokens.clone(), masking.labels.len())).collect();
        let expected = [
            (vec![None, Some(2)], 1),
            (vec![Some(1), None], 2),
            (vec![None, None], 2),
            (vec![None, Some(3)], 1),
        ];
        assert_eq!((looks, found.sampled), (expected.to_vec(), 0));
        assert_eq!(Maskings::of(&[vec![1; 9], vec![2]], 4, 0).sampled, 1);
    }

    #[test]
    fn a_label_has_no_more_maskings_than_ways_to_mask_it() {
        let most = |length| Maskings::most(length, 128);
        assert_eq!([1, 2, 7, 8, 63, 64].map(most), [1, 3, 127, 128, 128, 128]);
        assert_eq!(Maskings::most(64, 1), 1);
    }
}
