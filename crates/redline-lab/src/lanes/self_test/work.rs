//! The work of a process in an experiment, and its disturbances.

use redline_kernels::op::probe;
use redline_kernels::{Arithmetic, Exec, Simd, Team};
use redline_models::random;

use super::Plan;
use crate::Clock;
use crate::bench::busy::BusyThreads;
use crate::bench::{Bench, Result};
use crate::canary::Watched;
use crate::conditions;
use crate::limits::LimitError;

/// An injected disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// Only the disturbances that the machine has anyway.
    None,
    /// One sample in eight takes three times as long.
    Outliers,
    /// A busy thread for every processor.
    Load,
    /// Half of the samples take a third longer.
    TwoSpeeds,
}

impl Disturbance {
    pub(super) const ALL: &[Self] = &[Self::None, Self::Outliers, Self::Load, Self::TwoSpeeds];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Outliers => "outliers",
            Self::Load => "load",
            Self::TwoSpeeds => "two-speeds",
        }
    }

    /// The factor by which a sample's work grows, given a random number.
    fn factor(self, random: u64) -> f64 {
        match self {
            Self::Outliers if random % 8 == 0 => 3.0,
            Self::TwoSpeeds if random % 2 == 0 => 4.0 / 3.0,
            _ => 1.0,
        }
    }
}

/// Rounds of multiply-adds per sample of arm A: half a millisecond. Samples as long as a scheduler's time slice would gain or lose
/// whole slices under load, and hide 5 % more work.
const ROUNDS: usize = 1 << 17;
/// Rounds of the canary: a quarter of a sample, on each side.
const CANARY_ROUNDS: usize = ROUNDS / 4;

/// A fixed amount of work on one thread.
pub(super) struct Work {
    team: Team,
    simd: Simd,
    rounds: usize,
    disturbance: Disturbance,
    random: u64,
    _load: BusyThreads,
}

impl Work {
    pub(super) fn new(bench: &Bench<'_>, plan: Plan) -> Result<Self> {
        let Plan { disturbance, slowdown, seed, .. } = plan;
        let team = Team::new(1).map_err(LimitError::Threads)?;
        let rounds = (ROUNDS as f64 * (1.0 + slowdown)) as usize;
        let busy = if disturbance == Disturbance::Load { bench.machine.default_threads() } else { 0 };
        let load = BusyThreads::start(busy, std::hint::spin_loop).map_err(LimitError::Threads)?;
        Ok(Self { team, simd: bench.simd(), rounds, disturbance, random: seed, _load: load })
    }

    fn exec(&self) -> Exec<'_> {
        Exec { simd: self.simd, team: &self.team }
    }

    /// Rounds of an undisturbed sample.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Nanoseconds per million operations of the canary.
    fn canary_ns(&self, clock: &Clock) -> f64 {
        let (operations, ns) =
            clock.time(|| probe::multiply_add(self.exec(), Arithmetic::F32, CANARY_ROUNDS));
        ns.max(1) as f64 * 1e6 / operations
    }

    /// Seconds of one sample.
    pub(super) fn sample(&mut self, clock: &Clock) -> f64 {
        self.random = self.random.wrapping_add(random::STEP);
        let rounds = self.rounds as f64 * self.disturbance.factor(random::mix(self.random));
        let (_, ns) = clock.time(|| probe::multiply_add(self.exec(), Arithmetic::F32, rounds as usize));
        ns.max(1) as f64 * 1e-9
    }

    /// Takes `n` samples, each between two readings of the canary.
    pub(super) fn samples(&mut self, n: usize, clock: &Clock) -> Vec<Watched<f64>> {
        let work = std::cell::RefCell::new(self);
        let read = || work.borrow().canary_ns(clock);
        let sample = |_| Ok::<_, std::convert::Infallible>(work.borrow_mut().sample(clock));
        let Ok((samples, _)) = conditions::take(n, clock, read, |ns| *ns, sample);
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_are_as_frequent_as_they_say() {
        let count = |kind: Disturbance| {
            let random = |i: u64| random::mix(i.wrapping_mul(random::STEP));
            (0..8000).filter(|&i| kind.factor(random(i)) > 1.0).count()
        };
        assert_eq!((count(Disturbance::None), count(Disturbance::Load)), (0, 0));
        assert!((900..1100).contains(&count(Disturbance::Outliers)));
        assert!((3800..4200).contains(&count(Disturbance::TwoSpeeds)));
    }

    #[test]
    fn a_disturbed_sample_does_so_many_times_the_work() {
        let factors = |kind: Disturbance| [0, 1, 2, 8].map(|random| kind.factor(random));
        assert_eq!(factors(Disturbance::Outliers), [3.0, 1.0, 1.0, 3.0]);
        assert_eq!(factors(Disturbance::TwoSpeeds), [4.0 / 3.0, 1.0, 4.0 / 3.0, 4.0 / 3.0]);
        assert_eq!(factors(Disturbance::Load), [1.0; 4]);
    }
}
