//! The scatter of repeated work.
//!
//! The score of a kind is 100 times the sum of: a quarter of the share of readings more than 2 % slower than the best, half
//! the share of readings more than 10 % slower, and a quarter of the spread over 20 % (at most 1). The spread is the distance
//! between the tenth and the ninetieth percentile over the median, so single interruptions do not change it.

use serde::Serialize;

use crate::stats;

/// The spread at which its part of the score is full.
const WIDE: f64 = 0.2;
/// Minimum number of readings at each of two speeds, and their minimum share.
const MIN: usize = 5;
const MIN_SHARE: f64 = 0.05;
/// Two speeds differ by at least this much, and by this many times the scatter at one speed.
const APART: f64 = 0.03;
const CLEAR: f64 = 4.0;

/// Statistics of the readings of one kind of work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Jitter {
    /// `compute`, `memory` or `sleep`.
    pub kind: String,
    /// The score, from 0 (no scatter) to 100.
    pub score: f64,
    /// Number of readings.
    pub n: usize,
    /// The shortest reading.
    pub best_s: f64,
    /// The median reading.
    pub median_s: f64,
    /// The share of readings more than 2 % slower than the best.
    pub slower_2: f64,
    /// The share of readings more than 10 % slower than the best.
    pub slower_10: f64,
    /// The distance between the tenth and the ninetieth percentile, over the median.
    pub spread: f64,
    /// The median of the last fifth over the median of the first, minus 1; positive means slower.
    pub drift: f64,
    /// The two speeds, if there are two.
    pub speeds: Option<Speeds>,
}

/// Two distinct speeds of the same work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    /// The median of the faster readings.
    pub fast_s: f64,
    /// The median of the slower readings.
    pub slow_s: f64,
    /// The share of the slower readings.
    pub slow_share: f64,
}

impl Jitter {
    /// Evaluates readings in the order they were taken; `None` without a positive reading.
    pub fn of(kind: &str, readings: &[f64]) -> Option<Self> {
        let readings: Vec<f64> = readings.iter().copied().filter(|v| v.is_finite() && *v > 0.0).collect();
        let sorted = stats::sorted(&readings);
        let (best, median) = (*sorted.first()?, at(&sorted, 0.5)?);
        let n = sorted.len();
        let slower = |by: f64| sorted.iter().filter(|v| **v > best * (1.0 + by)).count() as f64 / n as f64;
        let (slower_2, slower_10) = (slower(0.02), slower(0.1));
        let spread = (at(&sorted, 0.9)? - at(&sorted, 0.1)?) / median;
        let fifth = (n / 5).max(1);
        let middle = |part: &[f64]| at(&stats::sorted(part), 0.5);
        let drift = middle(&readings[n - fifth..])? / middle(&readings[..fifth])? - 1.0;
        Some(Self {
            kind: kind.to_owned(),
            score: 100.0 * (0.25 * slower_2 + 0.5 * slower_10 + 0.25 * (spread / WIDE).min(1.0)),
            n,
            best_s: best,
            median_s: median,
            slower_2,
            slower_10,
            spread,
            drift,
            speeds: speeds(&sorted),
        })
    }
}

/// The quantile of sorted values.
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1))).copied()
}

/// Splits sorted readings where the two groups scatter least around their means. They count as two speeds if both are
/// frequent, far apart and separated by a gap.
fn speeds(sorted: &[f64]) -> Option<Speeds> {
    let n = sorted.len();
    let least = MIN.max((n as f64 * MIN_SHARE).ceil() as usize);
    let all: f64 = sorted.iter().sum();
    let (mut below, mut best, mut split) = (0.0, f64::NEG_INFINITY, 0);
    for (i, value) in sorted.iter().enumerate() {
        let rest = n - i;
        if i >= least && rest >= least {
            let (low, high) = (below / i as f64, (all - below) / rest as f64);
            // The variance between two groups, up to a constant factor.
            let between = i as f64 * rest as f64 * (high - low) * (high - low);
            if between > best {
                (best, split) = (between, i);
            }
        }
        below += value;
    }
    if split == 0 {
        return None;
    }
    let (fast, slow) = sorted.split_at(split);
    let (fast_s, slow_s) = (at(fast, 0.5)?, at(slow, 0.5)?);
    let scatter = |part: &[f64], middle: f64| {
        let distances: Vec<f64> = part.iter().map(|v| (v - middle).abs()).collect();
        // The 80th percentile: neither group may contain many readings that belong to the other.
        at(&stats::sorted(&distances), 0.8)
    };
    let wide = scatter(fast, fast_s)?.max(scatter(slow, slow_s)?);
    let apart = slow_s - fast_s;
    let third = apart / 3.0;
    let middle = sorted.iter().filter(|v| **v > fast_s + third && **v < slow_s - third).count();
    let two =
        slow_s > fast_s * (1.0 + APART) && apart > CLEAR * wide && (middle as f64) < MIN_SHARE * n as f64;
    two.then_some(Speeds { fast_s, slow_s, slow_share: slow.len() as f64 / n as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_readings_score_nothing() {
        let j = Jitter::of("compute", &[2e-3; 50]).unwrap();
        assert_eq!((j.score, j.slower_2, j.spread, j.drift, j.speeds), (0.0, 0.0, 0.0, 0.0, None));
        assert_eq!(Jitter::of("compute", &[]), None);
        assert_eq!(Jitter::of("compute", &[0.0, f64::NAN, -1.0]), None);
        assert_eq!(Jitter::of("compute", &[1.0]).unwrap().n, 1);
    }

    #[test]
    fn the_score_is_the_sum_of_its_parts() {
        // A tenth is 5 % slower, a tenth 50 % slower, all others are equal; the spread ends at the slow ones.
        let mut readings = vec![1.0; 80];
        readings.extend([1.05; 10]);
        readings.extend([1.5; 10]);
        let j = Jitter::of("memory", &readings).unwrap();
        assert_eq!((j.slower_2, j.slower_10, j.spread), (0.2, 0.1, 0.5));
        assert!((j.score - 100.0 * (0.25 * 0.2 + 0.5 * 0.1 + 0.25)).abs() < 1e-9, "{j:?}");
        assert!((j.drift - 0.5).abs() < 1e-9, "{j:?}");
        let worst = Jitter::of("memory", &[vec![1.0], vec![9.0; 99]].concat()).unwrap();
        assert!(worst.score > 74.0 && worst.score <= 100.0, "{worst:?}");
    }

    #[test]
    fn two_speeds_are_told_with_their_shares() {
        let near = |centre: f64, n: usize| (0..n).map(move |i| centre * (1.0 + 1e-4 * (i % 7) as f64));
        let readings: Vec<f64> = near(1.0, 70).chain(near(1.25, 30)).collect();
        let speeds = Jitter::of("compute", &readings).unwrap().speeds.unwrap();
        assert_eq!(speeds.slow_share, 0.3);
        assert!((speeds.slow_s / speeds.fast_s - 1.25).abs() < 1e-3, "{speeds:?}");
        // One wide distribution, a few outliers, and a small step do not count as two speeds.
        let hill: Vec<f64> = (0..100).map(|i| 1.0 + 0.003 * f64::from(i)).collect();
        let stragglers: Vec<f64> = near(1.0, 97).chain(near(2.0, 3)).collect();
        let step: Vec<f64> = near(1.0, 50).chain(near(1.01, 50)).collect();
        for one in [hill, stragglers, step] {
            assert_eq!(Jitter::of("compute", &one).unwrap().speeds, None);
        }
    }

    #[test]
    fn drift_is_positive_where_work_gets_slower_and_negative_where_it_gets_faster() {
        let slower: Vec<f64> = (0..100).map(|i| 1.0 + 0.001 * f64::from(i)).collect();
        let faster: Vec<f64> = slower.iter().rev().copied().collect();
        for (readings, expected) in [(slower, 0.08 / 1.01), (faster, -0.08 / 1.09)] {
            let drift = Jitter::of("compute", &readings).unwrap().drift;
            assert!((drift - expected).abs() < 1e-3, "{drift}");
        }
    }
}
