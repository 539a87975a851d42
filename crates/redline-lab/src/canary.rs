//! A canary, for work that is not compared with the machine's limits.

use redline_kernels::{Arithmetic, Exec, Simd, Team};

pub(crate) use crate::conditions::Watched;
use crate::conditions::take;
use crate::limits::{self, LimitError};
use redline_system::Clock;

/// A fixed loop of multiply-adds from registers.
#[derive(Debug)]
pub(crate) struct Canary {
    team: Team,
    simd: Simd,
    reading_ns: u64,
}

impl Canary {
    pub(crate) fn new(threads: usize, simd: Simd, reading_ns: u64) -> Result<Self, LimitError> {
        Ok(Self { team: Team::new(threads).map_err(LimitError::Threads)?, simd, reading_ns })
    }

    /// Takes `n` samples, each between two readings: nanoseconds per million operations.
    pub(crate) fn watch<T, E>(
        &self,
        n: usize,
        clock: &Clock,
        sample: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Vec<Watched<T>>, E> {
        let exec = Exec { simd: self.simd, team: &self.team };
        let read = || 1e15 / limits::peak(exec, Arithmetic::F32, self.reading_ns, clock);
        Ok(take(n, clock, read, |ns| *ns, sample)?.0)
    }
}

#[cfg(test)]
mod tests {
    use redline_kernels::op::probe;

    use super::*;

    #[test]
    fn samples_stand_between_two_readings() {
        let canary = Canary::new(1, Simd::best(), limits::READING_NS).unwrap();
        let clock = Clock::start();
        let watched = canary.watch(3, &clock, Ok::<_, ()>).unwrap();
        assert_eq!(watched.iter().map(|w| w.value).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(watched.iter().all(|w| w.condition.canary_ns.is_some_and(|ns| ns > 0.0)));
        assert!(watched.windows(2).all(|pair| pair[0].condition.start_ns <= pair[1].condition.start_ns));
        assert_eq!(canary.watch(2, &clock, Err::<(), _>).err(), Some(0));
    }

    #[test]
    fn the_canary_tells_nanoseconds_per_million_operations() {
        let canary = Canary::new(1, Simd::best(), limits::READING_NS).unwrap();
        // A reading of the clock is ten milliseconds after the one before, so the fewest rounds are enough.
        let watched = canary.watch(1, &Clock::ticking(10_000_000), Ok::<_, ()>).unwrap();
        let exec = Exec { simd: canary.simd, team: &canary.team };
        let operations = probe::multiply_add(exec, Arithmetic::F32, 1 << 10);
        let (found, expected) = (watched[0].condition.canary_ns.unwrap(), 1e7 * 1e6 / operations);
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
    }
}
