//! The only file of this crate that reads the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Instant);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// The time since then.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Seconds since 1970; 0 if the clock is set before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
