//! Warm-up: a measurement begins only after all first-time work is done.
//!
//! A fixed number of warm-up runs would be a guess. The system or the engine counts new plans, page faults and allocated
//! memory; warm-up ends when these counters are flat, but not before the requested number of runs.

use redline_system::memory::current_bytes;
use serde::{Deserialize, Serialize};

use redline_system::Clock;
use redline_system::machine::Counters;

/// Maximum number of additional runs.
const MAX_RUNS: usize = 20;
/// Maximum duration of the additional runs in seconds.
const MAX_S: f64 = 30.0;
/// Page faults that are allowed in any run.
const MAX_FAULTS: u64 = 64;
/// Growth in bytes that is allowed in any run: the engine's records of passes.
const MAX_GROWN_BYTES: u64 = 64 << 10;

/// The warm-up before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Number of runs.
    pub runs: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// Whether the counters were flat at the end.
    pub converged: bool,
}

/// Counters of first-time work after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct First {
    /// Plans made.
    misses: u64,
    /// Pages read from a disk.
    major: u64,
    /// Page faults without reading from a disk.
    minor: u64,
    /// Bytes allocated at the end.
    allocated: u64,
}

impl First {
    fn now(misses: u64) -> Self {
        let pages = Counters::pages();
        Self {
            misses,
            major: pages.major_faults.unwrap_or(0),
            minor: pages.minor_faults.unwrap_or(0),
            allocated: current_bytes(),
        }
    }
}

/// Whether the last run did no first-time work: no new plan, no page from a disk, no more memory than was held before, and either
/// few page faults or as many as the run before (an allocator that returns pages faults them in again every time).
fn flat(counters: &[First]) -> bool {
    let [.., before, last] = counters else { return false };
    let faults = |from: &First, to: &First| to.minor.saturating_sub(from.minor);
    let filled = faults(before, last);
    let settled = match counters {
        [.., earlier, before, _] => filled as f64 >= 0.8 * faults(earlier, before) as f64,
        _ => false,
    };
    let most = counters[..counters.len() - 1].iter().map(|c| c.allocated).max().unwrap_or(0);
    last.misses == before.misses
        && last.major == before.major
        && last.allocated <= most + MAX_GROWN_BYTES
        && (filled <= MAX_FAULTS || settled)
}

/// Runs `run` at least `least` times, until the counters are flat. `misses` returns the number of plans made so far.
pub(crate) fn warm_up<E>(
    clock: &Clock,
    least: usize,
    misses: impl Fn() -> u64,
    mut run: impl FnMut(usize) -> Result<(), E>,
) -> Result<Warmup, E> {
    let begin = clock.now_ns();
    let mut counters = vec![First::now(misses())];
    let mut late = None;
    loop {
        let runs = counters.len() - 1;
        let converged = flat(&counters);
        if runs == least {
            late = Some(clock.now_ns());
        }
        let spent = late.is_some_and(|at| runs >= least + MAX_RUNS || clock.elapsed_s(at) > MAX_S);
        if runs >= least && (converged || spent) {
            return Ok(Warmup { runs, seconds: clock.elapsed_s(begin), converged });
        }
        run(runs)?;
        counters.push(First::now(misses()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The counters after runs: plans, pages from a disk, other page faults, bytes allocated.
    fn is_flat(runs: &[(u64, u64, u64, u64)]) -> bool {
        let first = |&(misses, major, minor, allocated)| First { misses, major, minor, allocated };
        flat(&runs.iter().map(first).collect::<Vec<_>>())
    }

    #[test]
    fn flat_is_when_nothing_is_new() {
        let start = (0, 0, 0, 0);
        assert!(!is_flat(&[]) && !is_flat(&[start]));
        assert!(is_flat(&[start, (0, 0, 64, 0)]));
        // The first run has many page faults, the second few.
        assert!(!is_flat(&[start, (0, 0, 9000, 0)]));
        assert!(is_flat(&[start, (0, 0, 9000, 0), (0, 0, 9010, 0)]));
        // Decreasing at first, then constant.
        assert!(!is_flat(&[start, (0, 0, 9000, 0), (0, 0, 13_000, 0)]));
        assert!(is_flat(&[(0, 0, 9000, 0), (0, 0, 13_000, 0), (0, 0, 16_500, 0)]));
        assert!(!is_flat(&[start, (1, 0, 0, 0)]) && !is_flat(&[start, (0, 1, 0, 0)]));
        assert!(is_flat(&[(1, 1, 0, 0), (1, 1, 0, 0)]));
        // Memory that was already held before is not new.
        let held = 1 << 20;
        assert!(!is_flat(&[start, (0, 0, 0, held)]));
        assert!(is_flat(&[start, (0, 0, 0, held), (0, 0, 0, 0), (0, 0, 0, held)]));
    }

    #[test]
    fn not_before_the_runs_asked_for_and_not_for_ever() {
        let clock = Clock::scripted(|| 0);
        let done = Cell::new(0);
        let warmed = |least, last_miss: u64| {
            done.set(0);
            let misses = || u64::min(done.get(), last_miss);
            let run = |at| {
                assert_eq!(at as u64, done.get());
                done.set(done.get() + 1);
                Ok::<_, ()>(())
            };
            warm_up(&clock, least, misses, run).unwrap()
        };
        // Other tests in this process cause page faults meanwhile, so more runs may be needed.
        let three = warmed(3, 0);
        assert!(three.runs >= 3);
        let five = warmed(1, 5);
        assert!(five.runs >= 6, "{five:?}");
        let never = warmed(2, u64::MAX);
        assert_eq!((never.runs, never.converged), (2 + MAX_RUNS, false));
        assert_eq!(warm_up(&clock, 1, || 0, |_| Err(7)), Err(7));
    }

    #[test]
    fn warming_up_takes_half_a_minute_more_at_most() {
        // Seven seconds pass between two readings of the clock, and every run makes a plan.
        let clock = Clock::ticking(7_000_000_000);
        let plans = Cell::new(0);
        let misses = || {
            plans.set(plans.get() + 1);
            plans.get()
        };
        let warmed = warm_up(&clock, 1, misses, |_| Ok::<_, ()>(())).unwrap();
        // 7, 14, 21, 28 and 35 seconds after the requested run.
        assert_eq!((warmed.runs, warmed.converged), (5, false));
        // Its duration begins before the requested run, one reading earlier, and ends one reading later.
        assert!((warmed.seconds - 49.0).abs() < 1e-6, "{warmed:?}");
    }

    #[test]
    fn each_counter_may_grow_up_to_its_bound() {
        let start = (0, 0, 0, 0);
        assert!(!is_flat(&[start, (0, 0, 65, 0)]));
        assert!(is_flat(&[start, (0, 0, 0, 65_536)]) && !is_flat(&[start, (0, 0, 0, 65_537)]));
        // Four fifths of the page faults of the run before are as many.
        assert!(is_flat(&[start, (0, 0, 100, 0), (0, 0, 180, 0)]));
        assert!(!is_flat(&[start, (0, 0, 100, 0), (0, 0, 179, 0)]));
    }
}
