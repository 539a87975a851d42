//! The only file of this crate that reads the time.
#![expect(clippy::disallowed_methods, reason = "the clock of the server")]

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

/// The date in UTC, such as `2026-07-26`.
pub(crate) fn today() -> String {
    date(unix_seconds() / 86_400)
}

/// A moment in seconds since 1970 as RFC 3339 writes it, such as `2026-07-26T09:05:00Z`.
pub(crate) fn timestamp(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    format!("{}T{:02}:{:02}:{:02}Z", date(day), second / 3_600, second / 60 % 60, second % 60)
}

/// The date of a day, counted from 1970. The calendar repeats every 400 years, which begin on 1 March of the year 0.
fn date(day: u64) -> String {
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on, which repeat every five months of 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

/// Seconds since 1970; 0 if the clock is set before that.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{date, timestamp};

    #[test]
    fn days_have_their_dates() {
        for (day, expect) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_514, "2026-03-02"),
            (20_818, "2026-12-31"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(day), expect);
        }
        assert_eq!(timestamp(11_016 * 86_400 + 3_599), "2000-02-29T00:59:59Z");
        assert_eq!(timestamp(86_399), "1970-01-01T23:59:59Z");
    }
}
