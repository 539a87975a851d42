//! Calls that are too quick to be timed one by one, and checks of their outputs.

use super::{LaneError, Result};
use redline_system::Clock;

const MAX_CALLS: usize = 1 << 16;

/// Seconds of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallTime {
    /// Elapsed time.
    pub(crate) seconds: f64,
    /// Processor time of all threads, including those that wait in a loop; `None` if the clock cannot tell.
    pub(crate) cpu_seconds: Option<f64>,
}

impl CallTime {
    /// The time of a call among so many consecutive ones.
    pub(crate) fn of(clock: &Clock, calls: usize, mut call: impl FnMut()) -> Self {
        let ((), elapsed) = clock.time_both(|| (0..calls).for_each(|_| call()));
        let per_call = |ns: u64| ns as f64 * 1e-9 / calls as f64;
        Self { seconds: per_call(elapsed.ns.max(1)), cpu_seconds: elapsed.processor_ns.map(per_call) }
    }
}

/// The number of consecutive calls that take so long: a power of two.
pub(crate) fn calls_within(clock: &Clock, least_ns: u64, mut call: impl FnMut()) -> usize {
    let mut calls = 1;
    while calls < MAX_CALLS && clock.time(|| (0..calls).for_each(|_| call())).1 < least_ns {
        calls *= 2;
    }
    calls
}

/// Returns an error for outputs, from row `first` on, that differ in any bit from `other`, which were computed in another way.
pub(crate) fn same_bits(
    own: &[f32],
    other: &[f32],
    (first, width): (usize, usize),
    how: &str,
    place: &str,
) -> Result<()> {
    let differs = own.iter().zip(other).position(|(own, other)| own.to_bits() != other.to_bits());
    let Some(at) = differs else { return Ok(()) };
    let (row, output) = (first + at / width, at % width);
    let fact = format!("output {output} of row {row} is {}, but {} {how}", own[at], other[at]);
    Err(LaneError::Incorrect(format!("{fact}\n  in {place}")))
}

/// At most `count` evenly spread numbers below `end`, including the first and the last.
pub(crate) fn spread(count: usize, end: usize) -> Vec<usize> {
    let count = count.min(end);
    (0..count).map(|i| if count == 1 { end - 1 } else { i * (end - 1) / (count - 1) }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock whose consecutive readings are 0, 1, 2, 3, ... ms apart, so that timed calls take 1, 3, 5, ... ms.
    pub(crate) fn slowing_clock() -> Clock {
        let (step, now) = (AtomicU64::new(0), AtomicU64::new(0));
        Clock::scripted(move || {
            let step = step.fetch_add(1_000_000, Ordering::Relaxed);
            now.fetch_add(step, Ordering::Relaxed) + step
        })
    }

    #[test]
    fn a_sample_is_time_over_calls() {
        let (clock, mut called) = (slowing_clock(), 0);
        let calls = calls_within(&clock, 10_000_000, || called += 1);
        assert_eq!((calls, called), (32, 63), "1, 2, 4, 8, 16 calls took less than 10 ms");
        let time = CallTime::of(&clock, 7, || called += 1);
        assert_eq!(time, CallTime { seconds: 13e6 * 1e-9 / 7.0, cpu_seconds: None });
        assert_eq!(called, 70);
    }

    #[test]
    fn samples_reach_both_ends() {
        assert_eq!(spread(4, 10), [0, 3, 6, 9]);
        assert_eq!((spread(4, 1), spread(1, 9), spread(4, 2)), (vec![0], vec![8], vec![0, 1]));
    }
}
