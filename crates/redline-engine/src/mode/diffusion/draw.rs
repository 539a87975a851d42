//! The counters of random numbers.

/// The purpose of a random number: the last part of a counter.
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
