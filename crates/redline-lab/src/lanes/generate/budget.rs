//! Leaves out cases that would take too long, by estimates from short runs.

use std::cell::Cell;

use crate::lanes::prelude::*;
use redline_system::number;

/// Least number of runs before the samples: warm-up ends only when two of them show no first-time work.
const MIN_WARMUPS: usize = 2;

/// The time that the cases of a lane may take.
pub(super) struct Budget<'a> {
    bench: &'a Bench<'a>,
    /// Seconds for all cases; `None` without a limit.
    seconds: Option<f64>,
    /// When the first case was begun, in nanoseconds of the clock.
    begin: Cell<Option<u64>>,
    kept: Cell<usize>,
}

impl<'a> Budget<'a> {
    /// A budget of `seconds` from the first case on; 0 stands for no limit.
    pub(super) fn new(bench: &'a Bench<'a>, seconds: f64) -> Self {
        let seconds = (seconds > 0.0).then_some(seconds);
        Self { bench, seconds, begin: Cell::default(), kept: Cell::default() }
    }

    /// Whether the case `what` fits into what is left of the budget. `one_run` returns an estimate of the seconds of a run. A case
    /// that does not fit is reported.
    pub(super) fn fits(&self, what: &str, runs: Runs, one_run: impl Fn() -> Result<f64>) -> Result<bool> {
        if let Some(seconds) = self.seconds
            && let Some(why) = self.too_long(seconds, runs, one_run)?
        {
            (self.bench.note)(&format!("{what}: left out, because {why}; `--max-seconds 0` measures it"));
            return Ok(false);
        }
        self.kept.set(self.kept.get() + 1);
        Ok(true)
    }

    /// Why a case does not fit; `None` if it fits.
    fn too_long(
        &self,
        seconds: f64,
        runs: Runs,
        one_run: impl Fn() -> Result<f64>,
    ) -> Result<Option<String>> {
        let clock = self.bench.clock;
        let begin = self.begin.get().unwrap_or_else(|| clock.now_ns());
        self.begin.set(Some(begin));
        let left = || seconds - clock.elapsed_s(begin);
        if left() <= 0.0 {
            return Ok(Some(format!("the {} for all cases are over", number::seconds(seconds))));
        }
        // The first run may do first-time work.
        let one_run = one_run()?.min(one_run()?);
        let needed = one_run * (runs.warmups.max(MIN_WARMUPS) + runs.timed) as f64;
        let left = left();
        let (would, are) = (number::seconds(needed), number::seconds(left.max(0.0)));
        Ok((needed > left).then(|| format!("it would take about {would}, and {are} are left")))
    }

    /// An error if every case was left out.
    pub(super) fn refuse_nothing(&self) -> Result<()> {
        let seconds = number::seconds(self.seconds.unwrap_or_default());
        require(self.kept.get() > 0, || {
            format!(
                "no case fits into {seconds}: `--max-seconds 0` measures all, a smaller `--new-tokens` shorter ones"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::lanes::tests::bench;
    use redline_system::Clock;

    #[test]
    fn what_does_not_fit_is_left_out_and_named() {
        let clock = Clock::ticking(1_000_000_000);
        let notes = RefCell::new(Vec::new());
        let note = |text: &str| notes.borrow_mut().push(text.to_owned());
        let bench = Bench { note: &note, ..bench(&clock) };
        let runs = Runs { timed: 5, warmups: 1 };
        // The clock advances one second with each reading, of which a case takes two.
        let budget = Budget::new(&bench, 20.0);
        assert!(budget.fits("short", runs, || Ok(2.5)).unwrap());
        assert!(!budget.fits("long", runs, || Ok(2.5)).unwrap());
        for _ in 0..20 {
            let _ = clock.now_ns();
        }
        assert!(!budget.fits("late", runs, || panic!("too late")).unwrap());
        let expected = [
            "long: left out, because it would take about 17.50 s, and 16.00 s are left; `--max-seconds 0` measures it",
            "late: left out, because the 20.00 s for all cases are over; `--max-seconds 0` measures it",
        ];
        assert_eq!(*notes.borrow(), expected);
        assert!(budget.refuse_nothing().is_ok());
        assert!(Budget::new(&bench, 0.0).fits("long", runs, || panic!("no limit")).unwrap());
        let budget = Budget::new(&bench, 20.0);
        assert!(!budget.fits("long", runs, || Ok(9.0)).unwrap());
        let LaneError::Usage(fact) = budget.refuse_nothing().unwrap_err() else { panic!() };
        assert!(fact.starts_with("no case fits into 20.00 s"), "{fact}");
    }
}
