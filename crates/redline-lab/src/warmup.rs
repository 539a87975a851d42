//! When a measurement may begin: once what happens for the first time has happened.
//!
//! A number of runs before is a guess. Plans that are made, pages that are filled, memory that is taken are counted by the
//! system or the engine; warm-up ends when they are flat, and not before the runs that were asked for.

use redline_kernels::memory::current_bytes;
use serde::{Deserialize, Serialize};

use crate::Clock;
use crate::machine::Counters;

/// Runs beyond those asked for, at most.
const MOST_RUNS: usize = 20;
/// Seconds beyond those runs, at most.
const MOST_S: f64 = 30.0;
/// Pages that any run may fill anew.
const FEW_PAGES: u64 = 64;
/// Bytes by which any run may grow: what an engine remembers of passes.
const FEW_BYTES: u64 = 64 << 10;

/// What was run before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warmup {
    /// Runs.
    pub runs: usize,
    /// Seconds they took.
    pub seconds: f64,
    /// Whether the counters of first times were flat at the end.
    pub converged: bool,
}

/// Counters of first times, after some run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct First {
    /// Plans that had to be made.
    misses: u64,
    /// Pages read from a disk.
    major: u64,
    /// Pages filled.
    minor: u64,
    /// Bytes allocated at its end.
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

/// Whether the last run did nothing for the first time: no plan, no page from a disk, no memory beyond what was held before, and as
/// many pages filled as the run before (an allocator that gives pages back fills them anew every time) or few.
fn flat(counters: &[First]) -> bool {
    let [.., before, last] = counters else { return false };
    let filled = last.minor - before.minor.min(last.minor);
    let settled = match counters {
        [.., earlier, before, _] => {
            filled as f64 >= 0.8 * (before.minor - earlier.minor.min(before.minor)) as f64
        }
        _ => false,
    };
    let most = counters[..counters.len() - 1].iter().map(|c| c.allocated).max().unwrap_or(0);
    last.misses == before.misses
        && last.major == before.major
        && last.allocated <= most + FEW_BYTES
        && (filled <= FEW_PAGES || settled)
}

/// Runs `run` at least `least` times, until the counters are flat. `misses` tells how many plans had to be made so far.
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
        let spent = late.is_some_and(|at| runs >= least + MOST_RUNS || clock.elapsed_s(at) > MOST_S);
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

    fn after(runs: &[(u64, u64, u64, u64)]) -> Vec<First> {
        runs.iter()
            .map(|&(misses, major, minor, allocated)| First { misses, major, minor, allocated })
            .collect()
    }

    #[test]
    fn flat_is_when_nothing_is_new() {
        let start = (0, 0, 0, 0);
        assert!(!flat(&after(&[])) && !flat(&after(&[start])));
        assert!(flat(&after(&[start, (0, 0, 64, 0)])));
        // The first run fills many pages, the second few.
        assert!(!flat(&after(&[start, (0, 0, 9000, 0)])));
        assert!(flat(&after(&[start, (0, 0, 9000, 0), (0, 0, 9010, 0)])));
        // Fewer and fewer, then always as many.
        assert!(!flat(&after(&[start, (0, 0, 9000, 0), (0, 0, 13_000, 0)])));
        assert!(flat(&after(&[(0, 0, 9000, 0), (0, 0, 13_000, 0), (0, 0, 16_500, 0)])));
        assert!(!flat(&after(&[start, (1, 0, 0, 0)])) && !flat(&after(&[start, (0, 1, 0, 0)])));
        assert!(flat(&after(&[(1, 1, 0, 0), (1, 1, 0, 0)])));
        // Memory that was held once before is nothing new.
        let held = 1 << 20;
        assert!(!flat(&after(&[start, (0, 0, 0, held)])));
        assert!(flat(&after(&[start, (0, 0, 0, held), (0, 0, 0, 0), (0, 0, 0, held)])));
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
        // Other tests of this process fill pages meanwhile, so more runs may be needed.
        let three = warmed(3, 0);
        assert!(three.runs >= 3);
        let five = warmed(1, 5);
        assert!(five.runs >= 6, "{five:?}");
        let never = warmed(2, u64::MAX);
        assert_eq!((never.runs, never.converged), (2 + MOST_RUNS, false));
        assert_eq!(warm_up(&clock, 1, || 0, |_| Err(7)), Err(7));
    }
}
