//! Leaves out cases that would take too long, by estimates from short runs.

use std::cell::Cell;

use crate::lanes::prelude::*;
use crate::number;

/// Least number of runs before the samples: warm-up ends only when two of them show no first-time work.
const LEAST_WARMUPS: usize = 2;

/// The time that a lane may take.
pub(super) struct Budget<'a> {
    bench: &'a Bench<'a>,
    /// When the lane began, in nanoseconds of the clock.
    begin: u64,
    /// Seconds for all cases; `None` without a limit.
    seconds: Option<f64>,
    kept: Cell<usize>,
}

impl<'a> Budget<'a> {
    /// A budget of `seconds` from now on; 0 stands for no limit.
    pub(super) fn new(bench: &'a Bench<'a>, seconds: f64) -> Self {
        let begin = bench.clock.now_ns();
        Self { bench, begin, seconds: (seconds > 0.0).then_some(seconds), kept: Cell::new(0) }
    }

    /// Whether the case `what` fits into what is left of the budget. `one_run` returns an estimate of the seconds of a run. A case
    /// that does not fit is reported.
    pub(super) fn fits(&self, what: &str, runs: Runs, one_run: impl Fn() -> Result<f64>) -> Result<bool> {
        if let Some(seconds) = self.seconds {
            // The first run may do first-time work.
            let one_run = one_run()?.min(one_run()?);
            let needed = one_run * (runs.warmups.max(LEAST_WARMUPS) + runs.timed) as f64;
            let left = (seconds - self.bench.clock.elapsed_s(self.begin)).max(0.0);
            if needed > left {
                let (needed, left) = (number::seconds(needed), number::seconds(left));
                let advice = "`--max-seconds 0` measures it";
                let note = format!(
                    "{what}: left out, because it would take about {needed}, and {left} are left; {advice}"
                );
                (self.bench.note)(&note);
                return Ok(false);
            }
        }
        self.kept.set(self.kept.get() + 1);
        Ok(true)
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
    use crate::Clock;
    use crate::lanes::tests::bench;

    #[test]
    fn what_does_not_fit_is_left_out_and_named() {
        let clock = Clock::ticking(1_000_000_000);
        let notes = RefCell::new(Vec::new());
        let note = |text: &str| notes.borrow_mut().push(text.to_owned());
        let bench = Bench { note: &note, ..bench(&clock) };
        let runs = Runs { timed: 5, warmups: 1 };
        // The clock advances one second with each reading: 19 s are left, then 18 s.
        let budget = Budget::new(&bench, 20.0);
        assert!(budget.fits("short", runs, || Ok(2.7)).unwrap());
        assert!(!budget.fits("long", runs, || Ok(2.7)).unwrap());
        let expected = "long: left out, because it would take about 18.90 s, and 18.00 s are left; `--max-seconds 0` measures it";
        assert_eq!(*notes.borrow(), [expected]);
        assert!(budget.refuse_nothing().is_ok());
        assert!(Budget::new(&bench, 0.0).fits("long", runs, || panic!("no limit")).unwrap());
        let budget = Budget::new(&bench, 20.0);
        assert!(!budget.fits("long", runs, || Ok(9.0)).unwrap());
        let LaneError::Usage(fact) = budget.refuse_nothing().unwrap_err() else { panic!() };
        assert!(fact.starts_with("no case fits into 20.00 s"), "{fact}");
    }
}
