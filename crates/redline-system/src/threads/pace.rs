//! Threads that give way to the teams: long work in the background that can wait, while answers cannot.
//!
//! A low priority would not do. The system takes the core from a thread anywhere, even while it holds a lock of the allocator, and other
//! threads that need this lock wait until that one has had its turn: on a busy machine, for a fraction of a second. So a thread that gives
//! way keeps its priority, and sleeps by itself where the allocator holds no lock: before it asks for memory or returns it. It does so only
//! while the teams at work have a member for every core. It must not ask for memory while it holds a lock that others need.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Machine;

/// Time that a thread works before it sleeps.
const BURST: Duration = Duration::from_micros(250);
/// Time that it sleeps.
const PAUSE: Duration = Duration::from_millis(4);
/// Calls of [`may_pause`], while teams leave no core, between two readings of the clock: a few microseconds.
const CALLS: u32 = 16;

/// Members of the teams that are at work, over all teams of the process.
static WORKING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How the thread gives way. It has no destructor, so the allocator may read it at any time.
    static PACE: Cell<Option<Pace>> = const { Cell::new(None) };
}

/// A thread that gives way.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Number of cores that the process may use.
    cores: usize,
    /// Calls of [`may_pause`] that count towards [`CALLS`].
    calls: u32,
    /// When it last slept.
    awake: Instant,
}

/// Lets the calling thread give way from now on, if the binary has installed [`crate::memory::CountingAllocator`].
pub fn give_way() {
    let cores = Machine::here().default_threads();
    PACE.set(Some(Pace { cores, calls: 0, awake: now() }));
}

/// Sleeps if the calling thread gives way and it is time to. Called where the thread holds no lock of the allocator.
pub(crate) fn may_pause() {
    let Some(pace) = PACE.get() else { return };
    // Nothing below asks for memory, so this is not called again meanwhile.
    PACE.set(Some(pace.pause_if_due(WORKING.load(Relaxed))));
}

#[expect(clippy::disallowed_methods, reason = "threads sleep by the clock, and compute nothing from it")]
fn now() -> Instant {
    Instant::now()
}

impl Pace {
    /// Sleeps if it is time to, while teams with so many members are at work.
    fn pause_if_due(mut self, working: usize) -> Self {
        if working < self.cores {
            return self;
        }
        self.calls += 1;
        if self.calls < CALLS {
            return self;
        }
        self.calls = 0;
        if now() - self.awake >= BURST {
            std::thread::sleep(PAUSE);
            self.awake = now();
        }
        self
    }
}

/// A team at work, with all its members, until it is dropped.
pub(super) struct Working(usize);

impl Working {
    pub(super) fn begin(members: usize) -> Self {
        WORKING.fetch_add(members, Relaxed);
        Self(members)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(self.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread on a machine with two cores that last slept at `awake`.
    fn at(awake: Instant) -> Pace {
        Pace { cores: 2, calls: CALLS - 1, awake }
    }

    #[test]
    fn a_thread_sleeps_after_its_time_while_teams_leave_it_no_core() {
        let (begun, future) = (now(), now() + Duration::from_secs(1000));
        let earlier = begun.checked_sub(BURST).unwrap();
        assert!(at(earlier).pause_if_due(2).awake - begun >= PAUSE);
        assert_eq!(at(earlier).pause_if_due(1).awake, earlier, "a core is left");
        assert_eq!(at(future).pause_if_due(2).awake, future, "it has just slept");
        let early = Pace { calls: 0, ..at(earlier) };
        assert_eq!(early.pause_if_due(2).awake, earlier, "the clock is read at few points");
    }

    #[test]
    fn a_team_is_at_work_inside_its_regions_and_only_there() {
        // Other tests have teams, too, but not all the time, and none with so many members.
        const MANY: usize = 1 << 11;
        for size in [1, 3] {
            let team = crate::Team::new(size).unwrap();
            for _ in 0..MANY {
                team.run(|_| assert!(WORKING.load(Relaxed) >= size));
            }
            assert!(WORKING.load(Relaxed) < MANY);
        }
        let working = Working::begin(MANY);
        assert!(WORKING.load(Relaxed) >= MANY);
        drop(working);
        assert!(WORKING.load(Relaxed) < MANY);
    }
}
