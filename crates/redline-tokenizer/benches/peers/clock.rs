//! The only file of the benchmark that reads the clock.
#![expect(clippy::disallowed_methods, reason = "the clock of the benchmark")]

use std::time::Instant;

/// The seconds that a call takes. Its result is kept from being optimised away.
pub(crate) fn seconds<T>(call: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    std::hint::black_box(call());
    start.elapsed().as_secs_f64()
}
