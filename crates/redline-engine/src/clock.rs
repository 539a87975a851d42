//! The default clock. The engine reads the time only through the clock of its options.
#![expect(clippy::disallowed_methods, reason = "the default clock")]

use std::sync::Arc;
use std::time::Instant;

use redline_kernels::ClockFn;

/// A monotonic clock: nanoseconds since this call.
pub fn monotonic_clock() -> ClockFn {
    let start = Instant::now();
    Arc::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
