//! Number of masks that each step fills.

use std::iter;

/// Dream's schedule: from time 1 to `eps` in equal steps; a step from time t to time s fills a mask with probability `1 - s/t`.
/// All in f32, as in the reference: `torch.linspace` counts from the nearer end, with fused multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timesteps {
    pub(crate) eps: f32,
    pub(crate) steps: usize,
}

impl Timesteps {
    /// Time before step `i`.
    fn time(self, i: usize) -> f32 {
        let step = (self.eps - 1.0) / self.steps as f32;
        if i < self.steps.div_ceil(2) {
            step.mul_add(i as f32, 1.0)
        } else {
            (-step).mul_add((self.steps - i) as f32, self.eps)
        }
    }

    /// The probability that a mask is filled in step `i`; in the last, 1.
    pub(crate) fn probability(self, i: usize) -> f32 {
        if i + 1 < self.steps { 1.0 - self.time(i + 1) / self.time(i) } else { 1.0 }
    }

    /// Number of `masks` filled in step `i`.
    pub(crate) fn count(self, i: usize, masks: usize) -> usize {
        (masks as f32 * self.probability(i)) as usize
    }
}

/// LLaDA's schedule: the same number in each step, and one more in the first steps if there is a remainder.
pub(crate) fn even(masks: usize, steps: usize, i: usize) -> usize {
    masks / steps + usize::from(i < masks % steps)
}

/// Largest divisor of `length` up to `most`.
pub(crate) fn divisor(length: usize, most: usize) -> usize {
    iter::successors(Some(most), |n| Some(n - 1))
        .find(|n| *n <= 1 || length.is_multiple_of(*n))
        .unwrap_or(1)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dream(masks: usize, steps: usize) -> Vec<usize> {
        let times = Timesteps { eps: 1e-3, steps };
        let mut left = masks;
        let step = |i| {
            let count = times.count(i, left);
            left -= count;
            count
        };
        (0..steps).map(step).collect()
    }

    /// Runs of equal counts.
    fn runs(counts: &[usize]) -> Vec<(usize, usize)> {
        counts.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
    }

    /// Expected counts were computed with PyTorch's arithmetic in f32.
    #[test]
    fn dreams_counts_are_those_of_the_reference() {
        assert_eq!(dream(8, 4), [1, 2, 2, 3]);
        assert_eq!(dream(16, 8), [1, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(dream(32, 8), [3, 4, 4, 4, 4, 4, 4, 5]);
        assert_eq!(runs(&dream(16, 16)), [(0, 1), (1, 14), (2, 1)]);
        assert_eq!(runs(&dream(256, 256)), [(0, 1), (1, 254), (2, 1)]);
        assert_eq!(runs(&dream(256, 128)), [(1, 1), (2, 126), (3, 1)]);
        assert_eq!(runs(&dream(512, 256)), [(1, 1), (2, 254), (3, 1)]);
        assert_eq!(runs(&dream(64, 48)), [(1, 33), (2, 14), (3, 1)]);
        assert_eq!(runs(&dream(100, 30)), [(3, 21), (4, 8), (5, 1)]);
        assert_eq!(runs(&dream(992, 124)), [(7, 1), (8, 13), (7, 1), (8, 108), (10, 1)]);
        // The same number in every step, one less in the first and one more in the last, except where rounding decides
        // otherwise.
        let mut others = Vec::new();
        for k in [1, 2, 3, 4, 8] {
            for steps in (2..=512).filter(|steps| k * steps < 980) {
                let mut expected = vec![k; steps];
                expected[0] -= 1;
                expected[steps - 1] += 1;
                if dream(k * steps, steps) != expected {
                    others.push((k, steps));
                }
            }
        }
        assert_eq!(others, [(2, 487), (2, 489)]);
        assert_eq!(dream(5, 1), [5]);
        for steps in [1, 2, 7, 300] {
            assert_eq!(dream(100, steps).iter().sum::<usize>(), 100, "{steps} steps");
        }
    }

    #[test]
    fn lladas_counts_give_the_remainder_to_the_first_steps() {
        let counts = |masks, steps| (0..steps).map(|i| even(masks, steps, i)).collect::<Vec<_>>();
        assert_eq!(counts(7, 3), [3, 2, 2]);
        assert_eq!(counts(8, 4), [2, 2, 2, 2]);
        assert_eq!(counts(2, 4), [1, 1, 0, 0]);
    }

    #[test]
    fn a_block_divides() {
        assert_eq!(
            [divisor(64, 32), divisor(48, 32), divisor(33, 32), divisor(7, 32), divisor(37, 32)],
            [32, 24, 11, 7, 1]
        );
    }
}
