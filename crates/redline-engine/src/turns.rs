//! Turns of several engines on the cores that they share: one runs at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redline_kernels::ClockFn;

/// An engine that waits for its turn says so often that it still works.
const SIGN: Duration = Duration::from_millis(100);

/// Gives turns to engines, one at a time. The next turn is for the engine that had the least time. An engine that comes back gets no turns
/// for the time in which it had nothing to do.
#[derive(Clone, Default)]
pub struct Turns(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of seats that there have been.
    seats: u64,
    /// Whether an engine has its turn.
    is_taken: bool,
    /// Nanoseconds that every seat had, counted from the time of the others when it came back.
    had: BTreeMap<u64, u64>,
    /// The seats that wait.
    waiting: Vec<u64>,
    /// The time of the engine that had the last turn, when it began.
    now: u64,
}

impl State {
    /// The seat whose turn is next.
    fn next(&self) -> Option<u64> {
        let had = |seat: &u64| (self.had.get(seat).copied().unwrap_or(0), *seat);
        self.waiting.iter().copied().min_by_key(had)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    /// The seat of an engine.
    pub(crate) fn seat(&self, clock: ClockFn) -> Seat {
        let mut state = self.0.state();
        state.seats += 1;
        let seat = state.seats;
        let now = state.now;
        state.had.insert(seat, now);
        Seat { turns: self.clone(), seat, clock }
    }
}

/// The seat of an engine among those that take turns.
pub(crate) struct Seat {
    turns: Turns,
    seat: u64,
    clock: ClockFn,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.turns.0.state().had.remove(&self.seat);
    }
}

impl Seat {
    /// Waits for a turn, which lasts until it is dropped. `sign` counts while it waits.
    pub(crate) fn take(&self, sign: &AtomicU64) -> Turn<'_> {
        let shared = &self.turns.0;
        let mut state = shared.state();
        let now = state.now;
        let had = state.had.entry(self.seat).or_insert(now);
        *had = now.max(*had);
        state.waiting.push(self.seat);
        while state.is_taken || state.next() != Some(self.seat) {
            let waited = shared.ended.wait_timeout(state, SIGN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            sign.fetch_add(1, Ordering::Relaxed);
        }
        state.waiting.retain(|seat| *seat != self.seat);
        state.is_taken = true;
        state.now = state.had.get(&self.seat).copied().unwrap_or(now);
        drop(state);
        Turn { seat: self, start: (self.clock)() }
    }
}

/// A turn.
pub(crate) struct Turn<'a> {
    seat: &'a Seat,
    start: u64,
}

impl Turn<'_> {
    /// Whether another engine that waits had less time, so that this one, which has more to do, ends its turn.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut state = self.seat.turns.0.state();
        let had = self.count(&mut state);
        state.now = had;
        let less = |seat: &u64| state.had.get(seat).is_some_and(|other| *other < had);
        state.waiting.iter().any(less)
    }

    /// Counts its time so far, and returns what the seat had.
    fn count(&mut self, state: &mut State) -> u64 {
        let now = (self.seat.clock)();
        let had = state.had.entry(self.seat.seat).or_default();
        *had += now.saturating_sub(std::mem::replace(&mut self.start, now));
        *had
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let shared = &self.seat.turns.0;
        let mut state = shared.state();
        self.count(&mut state);
        state.is_taken = false;
        drop(state);
        shared.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Engines whose turns take these times run until `until`; returns how many turns each had, and how many ran at a time at most.
    fn run(times: &[u64], until: u64) -> (Vec<u64>, u64) {
        let now = Arc::new(AtomicU64::new(0));
        let clock: ClockFn = {
            let now = now.clone();
            Arc::new(move || now.load(Ordering::SeqCst))
        };
        let (turns, running, most) = (Turns::default(), AtomicU64::new(0), AtomicU64::new(0));
        let seats: Vec<Seat> = times.iter().map(|_| turns.seat(clock.clone())).collect();
        let counts: Vec<AtomicU64> = times.iter().map(|_| AtomicU64::new(0)).collect();
        // Nobody begins before all wait: the first turn is held until then.
        let first = seats[0].take(&AtomicU64::new(0));
        std::thread::scope(|scope| {
            for ((seat, &time), count) in seats.iter().zip(times).zip(&counts) {
                let (now, running, most) = (&now, &running, &most);
                scope.spawn(move || {
                    let mut turn = None;
                    while now.load(Ordering::SeqCst) < until {
                        let this = turn.get_or_insert_with(|| seat.take(&AtomicU64::new(0)));
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        now.fetch_add(time, Ordering::SeqCst);
                        count.fetch_add(1, Ordering::SeqCst);
                        running.fetch_sub(1, Ordering::SeqCst);
                        // The others come back to wait before this turn ends.
                        while now.load(Ordering::SeqCst) < until && turns_waiting(seat) + 1 < times.len() {
                            std::thread::yield_now();
                        }
                        if this.is_over() {
                            turn = None;
                        }
                    }
                });
            }
            while turns_waiting(&seats[0]) < times.len() {
                std::thread::yield_now();
            }
            drop(first);
        });
        (counts.iter().map(|count| count.load(Ordering::SeqCst)).collect(), most.load(Ordering::SeqCst))
    }

    fn turns_waiting(seat: &Seat) -> usize {
        seat.turns.0.state().waiting.len()
    }

    #[test]
    fn engines_get_equal_times_and_run_one_at_a_time() {
        let (counts, most) = run(&[1_000, 10_000, 5_000], 300_000);
        assert_eq!(most, 1);
        let times: Vec<u64> = counts.iter().zip([1_000, 10_000, 5_000]).map(|(n, time)| n * time).collect();
        assert!(times.iter().all(|time| (90_000..=115_000).contains(time)), "{times:?}");
    }

    #[test]
    fn one_engine_alone_has_every_turn() {
        assert_eq!(run(&[1_000], 50_000), (vec![50], 1));
    }

    #[test]
    fn who_comes_back_gets_no_turns_for_the_time_before() {
        let now = Arc::new(AtomicU64::new(0));
        let clock: ClockFn = {
            let now = now.clone();
            Arc::new(move || now.load(Ordering::SeqCst))
        };
        let (turns, sign) = (Turns::default(), AtomicU64::new(0));
        let (one, two) = (turns.seat(clock.clone()), turns.seat(clock));
        for _ in 0..10 {
            let turn = one.take(&sign);
            now.fetch_add(1_000, Ordering::SeqCst);
            drop(turn);
        }
        drop(two.take(&sign));
        // Two was away for nine turns of one, and is counted as if it had had them.
        assert_eq!(turns.0.state().had[&two.seat], 9_000);
        let mut turn = one.take(&sign);
        now.fetch_add(1_000, Ordering::SeqCst);
        // Nobody waits.
        assert!(!turn.is_over());
        assert_eq!(turns.0.state().had[&one.seat], 11_000);
    }
}
