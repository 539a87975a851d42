//! Baselines: reading an earlier run to compare with, and replacing it.

use std::path::{Path, PathBuf};

use redline_lab::baseline::{self, Rule, Standings};
use redline_lab::lanes::Lane;
use redline_lab::result::Column;
use redline_lab::run::{DOCUMENT, Run};
use redline_lab::{LaneResult, Machine, Verdict, wall_clock};

use super::{put, summary_path, values, written};
use crate::built;
use crate::command::compare::read;
use crate::report::Failure;

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
    columns: &'static [Column],
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}

impl Baseline {
    /// Reads a baseline; `None` if it does not exist yet and is about to be written.
    pub(super) fn read(path: &Path, lane: &'static Lane, making: bool) -> Result<Option<Self>, Failure> {
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
        let (Some(rule), Some(columns), true) = (lane.baseline, lane.columns, is_csv(path)) else {
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
        let values = Values { path: path.into(), text, rule, columns };
        // Reject a malformed baseline before anything is measured.
        let nothing = LaneResult { lane: lane.name.into(), machine: Machine::default(), rows: Vec::new() };
        values.standings(&nothing)?;
        Ok(Some(Self::Values(values)))
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
    if built::this().dirty == Some(true) {
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
