//! Baselines: reading an earlier run to compare with, and replacing it.

use std::path::{Path, PathBuf};

use redline_lab::baseline::{self, Rule, Standings};
use redline_lab::lanes::Lane;
use redline_lab::run::{DOCUMENT, Run};
use redline_lab::{LaneResult, Verdict};
use redline_system::{Machine, wall_clock};

use super::{put, summary_path, values, written};
use crate::command::compare::read;
use crate::message::Failure;
use crate::version;

/// An earlier run.
pub(super) enum Baseline {
    /// A run with its samples.
    Run(Box<Run>),
    /// Comma-separated values without samples.
    Values(Values),
}

/// The comma-separated values of an earlier run, and the rule that compares them.
pub(super) struct Values {
    path: PathBuf,
    text: String,
    rule: Rule,
    columns: &'static [&'static str],
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}

impl Baseline {
    /// Reads a baseline; `None` if it does not exist yet and is about to be written. `threshold` replaces the lane's largest
    /// allowed drop of comma-separated values.
    pub(super) fn read(
        path: &Path,
        lane: &'static Lane,
        making: bool,
        threshold: Option<f64>,
    ) -> Result<Option<Self>, Failure> {
        if is_csv(path) && making && lane.baseline.is_none() {
            let fact = format!(
                "lane {} has no baseline of comma-separated values\n  in `{}`",
                lane.name,
                path.display()
            );
            return Err(Failure::usage(fact, "name a file that ends in .json"));
        }
        if making && !path.exists() {
            return Ok(None);
        }
        let (Some(rule), true) = (lane.baseline, is_csv(path)) else {
            let run = read(path)?;
            if making && run.lane != lane.name {
                let fact = format!(
                    "this is the baseline of lane {}, not of {}\n  in `{}`",
                    run.lane,
                    lane.name,
                    path.display()
                );
                return Err(Failure::usage(fact, "name another file: it would be replaced"));
            }
            return Ok(Some(Self::Run(Box::new(run))));
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let fact = format!("{error}\n  in `{}`", path.display());
            Failure::usage(fact, "`--output FILE` of an earlier run writes one")
        })?;
        let rule = Rule { most_drop: threshold.unwrap_or(rule.most_drop), ..rule };
        let values = Values { path: path.into(), text, rule, columns: lane.columns };
        // Reject a malformed baseline before anything is measured.
        let nothing = LaneResult { lane: lane.name.into(), machine: Machine::default(), rows: Vec::new() };
        values.standings(&nothing)?;
        Ok(Some(Self::Values(values)))
    }

    /// The value of a metric of a case.
    pub(super) fn value(&self, case: &str, metric: &str) -> Option<f64> {
        match self {
            Self::Run(run) => {
                let row = run.rows.iter().find(|row| row.case == case)?;
                row.samples_of(metric)?.headline()
            }
            Self::Values(values) => baseline::value(&values.text, case, metric),
        }
    }

    fn run_id(&self) -> Option<String> {
        match self {
            Self::Run(run) => run.run_id.clone(),
            Self::Values(_) => None,
        }
    }
}

impl Values {
    fn standings(&self, result: &LaneResult) -> Result<Standings, Failure> {
        baseline::compare(&self.rule, self.columns, result, &self.text).map_err(|error| {
            let fact = format!("{error}\n  in `{}`", self.path.display());
            Failure::usage(fact, "`--output FILE` of an earlier run writes one")
        })
    }

    /// Returns the comparison table, and a verdict if a case got slower or is missing.
    pub(super) fn judge(&self, result: &LaneResult) -> Result<(String, Option<Verdict>), Failure> {
        let standings = self.standings(result)?;
        Ok((standings.table(), (!standings.passed()).then_some(Verdict::Slower)))
    }
}

/// Rejects an empty reason, and a build with uncommitted changes, before anything is measured.
pub(super) fn acceptable_build(reason: &str) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::usage(
            "`--reason` says nothing",
            "why is the baseline accepted, in a few words?",
        ));
    }
    if version::build().dirty == Some(true) {
        let fact = "this build has changes that no commit names, so nobody could make it again";
        return Err(Failure::usage(fact, "commit them, build again, then accept the baseline"));
    }
    Ok(())
}

/// Replaces a baseline with a run, recording the reason and the time. An invalid run is rejected. A portable baseline (outputs and
/// counts only) requires checked outputs instead.
pub(super) fn accept(
    path: &Path,
    run: Run,
    result: &LaneResult,
    lane: &Lane,
    before: Option<&Baseline>,
    (reason, portable): (&str, bool),
) -> Result<(), Failure> {
    // In a portable baseline the share of a limit does not matter, because it depends on speed.
    let unchecked = run.rows.iter().find(|row| !row.checked).map(|row| format!("{}: not checked", row.case));
    if let Some(why) = if portable { unchecked.as_ref() } else { run.summary.invalid.first() } {
        let fact = format!("{why}\n  in the run that was to become `{}`", path.display());
        return Err(Failure::invalid(fact, "the baseline is as it was"));
    }
    let target = if path.is_dir() { path.join(DOCUMENT) } else { path.to_owned() };
    let run = run.accepted(reason, wall_clock(), before.and_then(Baseline::run_id));
    if !is_csv(&target) {
        return put(&target, &run.json().map_err(|error| written(&error))?);
    }
    put(&target, &values(lane, result, None)?)?;
    put(&summary_path(&target), &run.summary_json().map_err(|error| written(&error))?)
}

#[cfg(test)]
mod tests {
    use redline_lab::run::{Build, Start};
    use redline_lab::{Direction, Row, Samples};

    use super::*;

    /// A run of a lane with one row.
    fn measured(lane: &str, checked: bool, share: f64) -> (Run, LaneResult) {
        let samples = Samples::new("s", Direction::Lower, vec![3.0]).unwrap();
        let row = Row::new("a").metric("seconds", samples).limit("f32_peak", Some(share));
        let rows = vec![Row { checked, ..row }];
        let result = LaneResult { lane: lane.to_owned(), machine: Machine::default(), rows };
        (Run::new(Build::default(), Start::default(), result.clone()).unwrap(), result)
    }

    #[test]
    fn a_run_that_must_not_be_believed_does_not_become_a_baseline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gemm.json");
        let lane = Lane::named("gemm").unwrap();
        let made = |checked: bool, share: f64, portable: bool| {
            let (run, result) = measured("gemm", checked, share);
            accept(&path, run, &result, lane, None, ("why", portable))
        };
        for (checked, share, portable, fact) in [
            (true, 1.16, false, "a: 116.0 % of the limit"),
            (false, 1.0, false, "a: not checked"),
            (false, 1.16, true, "a: not checked"),
        ] {
            let Err(Failure::Invalid(message)) = made(checked, share, portable) else { panic!("{fact}") };
            assert!(message.fact.starts_with(fact) && !path.exists(), "{}", message.fact);
        }
        made(true, 1.16, true).unwrap();
        made(true, 1.0, false).unwrap();
    }

    #[test]
    fn a_baseline_names_its_reason_and_the_run_that_it_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let (before, _) = measured("gemm", true, 1.0);
        let before = Baseline::Run(Box::new(Run { run_id: Some("before".to_owned()), ..before }));
        let (run, result) = measured("gemm", true, 1.0);
        let lane = Lane::named("gemm").unwrap();
        accept(folder.path(), run, &result, lane, Some(&before), ("less noise", false)).unwrap();
        let meta = read(&folder.path().join(DOCUMENT)).unwrap().meta.unwrap();
        assert_eq!((meta.reason.as_str(), meta.supersedes.as_deref()), ("less noise", Some("before")));
        assert!(meta.accepted_at.is_some());
    }

    #[test]
    fn a_baseline_of_another_lane_is_compared_with_but_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base.json");
        let lane = Lane::named("gemm").unwrap();
        let of = |making| Baseline::read(&path, lane, making, None);
        assert!(matches!(of(true), Ok(None)), "it is about to be written");
        assert!(matches!(of(false), Err(Failure::Usage(_))));
        std::fs::write(&path, measured("score", true, 1.0).0.json().unwrap()).unwrap();
        assert!(matches!(of(false), Ok(Some(Baseline::Run(_)))));
        let Err(Failure::Usage(message)) = of(true) else { panic!("accepted") };
        assert!(message.fact.contains("of lane score, not of gemm"), "{}", message.fact);
        let Err(Failure::Usage(message)) =
            Baseline::read(Path::new("base.CSV"), Lane::named("forward").unwrap(), true, None)
        else {
            panic!("accepted")
        };
        assert!(message.fact.contains("lane forward has no baseline"), "{}", message.fact);
    }

    #[test]
    fn values_that_become_a_baseline_have_a_summary_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base.csv");
        let (run, result) = measured("score", true, 1.0);
        accept(&path, run, &result, Lane::named("score").unwrap(), None, ("why", false)).unwrap();
        let csv = std::fs::read_to_string(&path).unwrap();
        assert!(csv.starts_with("batch_size,num_labels,") && csv.lines().count() == 2, "{csv}");
        let summary = std::fs::read_to_string(folder.path().join("base_summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["lane"], "score", "{summary}");
    }
}
