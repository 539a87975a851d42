//! Notices that the engine is frozen: it has work and makes no progress.

use std::sync::Weak;
use std::time::Duration;

use redline_engine::{Pulse, PulseState};

use crate::app::App;
use crate::clock::Moment;

/// Looks at the engine per time limit, and the bounds of the wait between two looks.
const LOOKS: u32 = 16;
const LONGEST_WAIT: Duration = Duration::from_millis(250);
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// A pass may take this many times as long as expected.
const PATIENCE: f64 = 4.0;

/// How long the engine has not changed.
struct Stillness {
    beats: u64,
    /// When this number was first seen.
    since: Duration,
}

impl Stillness {
    /// Whether the engine is frozen at the time `now`, if its pulse is this. It is not while it waits for requests, nor before it stood
    /// still for longer than `limit` and than its pass may take.
    fn is_frozen(&mut self, pulse: Pulse, now: Duration, limit: Duration) -> bool {
        if pulse.state != PulseState::Working || pulse.beats != self.beats {
            (self.beats, self.since) = (pulse.beats, now);
            return false;
        }
        let pass = Duration::try_from_secs_f64(pulse.pass_s * PATIENCE).unwrap_or(Duration::MAX);
        now.saturating_sub(self.since) >= limit.max(pass)
    }
}

/// Looks at the engine of a model as long as it is loaded.
pub(crate) async fn watch(app: Weak<App>) {
    let Some(limit) = app.upgrade().map(|app| app.config.limits.frozen_time) else { return };
    let wait = (limit / LOOKS).clamp(SHORTEST_WAIT, LONGEST_WAIT);
    // Only the time in which this thread runs too counts: the whole process may be stopped for a while.
    let (mut now, mut last) = (Duration::ZERO, Moment::now());
    let mut stillness = Stillness { beats: 0, since: Duration::ZERO };
    loop {
        now += last.elapsed().min(wait * 2);
        last = Moment::now();
        match app.upgrade() {
            Some(app) => app.set_frozen(stillness.is_frozen(app.model.engine.pulse(), now, limit)),
            None => return,
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_engine_that_works_and_stands_still_is_frozen() {
        let second = Duration::from_secs;
        let pulse = |state, beats, pass_s| Pulse { state, beats, pass_s };
        let working = |beats| pulse(PulseState::Working, beats, 0.0);
        let mut stillness = Stillness { beats: 0, since: Duration::ZERO };
        let mut at = |seconds, pulse| stillness.is_frozen(pulse, second(seconds), second(4));
        // Idle for long, then with work: the time counts from when the work was first seen.
        assert!(!at(100, pulse(PulseState::Idle, 7, 0.0)));
        assert!(!at(101, working(8)) && !at(104, working(8)));
        assert!(at(105, working(8)) && at(106, working(8)));
        // It makes progress again, slowly.
        assert!(!at(107, working(9)) && !at(110, working(10)) && !at(113, working(11)));
        assert!(at(117, working(11)));
        // A pass that was expected to take long may.
        assert!(!at(118, pulse(PulseState::Working, 11, 2.0)));
        assert!(at(122, pulse(PulseState::Working, 11, 2.0)));
        assert!(!at(999, pulse(PulseState::Stopped, 11, 0.0)));
    }
}
