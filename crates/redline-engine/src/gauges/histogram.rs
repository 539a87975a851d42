//! Histograms that any thread may add to and read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values by size. Adding a value takes two atomic additions and no lock.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Values up to each bound and above the one before it; at the end, those above all bounds.
    counts: Box<[AtomicU64]>,
    /// The bits of the sum of all values.
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, in ascending order.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0f64.to_bits()) }
    }

    /// Adds a value.
    pub fn add(&self, value: f64) {
        self.add_times(value, 1);
    }

    /// Adds a value this number of times.
    pub fn add_times(&self, value: f64, times: u64) {
        if times == 0 || !value.is_finite() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        let more = |bits| Some((f64::from_bits(bits) + value * times as f64).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// The values so far. Values that are added meanwhile may be missing from the sum or from the counts.
    pub fn read(&self) -> HistogramCounts {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        HistogramCounts { bounds: self.bounds, counts, sum }
    }
}

/// What a [`Histogram`] held when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramCounts {
    /// The upper bounds, ascending.
    pub bounds: &'static [f64],
    /// Number of values up to each bound and above the one before it; at the end, those above all bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

impl HistogramCounts {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_at_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.5] {
            histogram.add(value);
        }
        histogram.add_times(2.0, 3);
        histogram.add(f64::NAN);
        let read = histogram.read();
        assert_eq!((&read.counts[..], read.sum, read.count()), (&[2, 4, 1][..], 11.5, 7));
    }
}
