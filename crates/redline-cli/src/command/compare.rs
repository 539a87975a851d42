//! `redline compare`: a verdict for every metric of two runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_lab::Comparison;
use redline_lab::compare::{self, Rules};
use redline_lab::run::Run;

use crate::message::Failure;
use crate::output;
use crate::value;

/// Exit codes, for `--help`.
pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 same, faster or new; 1 slower, missing, or a gate missed; 2 wrong usage, or a run that cannot be read; 3 inconclusive; \
4 not comparable; 5 too noisy, or an invalid row; 6 wrong outputs. The worst verdict decides: \
6, 4, 5 (invalid), 1, 5 (too noisy), 3, 0.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct CompareArgs {
    /// The run to compare with: a directory with `run.json`, or such a file
    base: PathBuf,
    /// The run to judge
    new: PathBuf,
    #[command(flatten)]
    rules: RuleFlags,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What may differ, and how much.
#[derive(Clone, Debug, Args)]
pub(super) struct RuleFlags {
    /// Smallest difference that matters, in percent; default: the lane's, 5 or 10. Of comma-separated values: the largest drop allowed
    #[arg(long, value_name = "PERCENT", value_parser = value::percent)]
    threshold: Option<f64>,
    /// Compare figures of different machines
    #[arg(long)]
    allow_different_machine: bool,
    /// A parameter of cases that may differ, such as format (repeatable)
    #[arg(long, value_name = "NAME")]
    allow_different_param: Vec<String>,
    /// Judge only what does not depend on how fast a machine is: outputs, counts, bytes; machines may differ
    #[arg(long)]
    pub(super) portable: bool,
}

impl RuleFlags {
    /// The rules for two runs.
    pub(super) fn rules(&self) -> Rules {
        Rules {
            different_machine: self.allow_different_machine,
            different_params: self.allow_different_param.clone(),
            threshold: self.threshold,
            portable: self.portable,
            arms: false,
        }
    }

    /// Whether a flag was given that only a comparison can use.
    pub(super) fn need_two_runs(&self) -> bool {
        self.threshold.is_some() || self.allow_different_machine || !self.allow_different_param.is_empty()
    }
}

/// Compares two runs and returns the exit code of the worst verdict.
pub(super) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let (base, new) = (read(&args.base)?, read(&args.new)?);
    let comparison = compare::compare(&base, &new, &args.rules.rules());
    let text = if args.json { json(&comparison)? } else { comparison.table() };
    output::verdict(&text, comparison.exit_code)
}

/// Reads a run. A path that holds no run is a usage error.
pub(super) fn read(path: &Path) -> Result<Run, Failure> {
    Run::read(path)
        .map_err(|(path, error)| Failure::usage(format!("{error}\n  in `{}`", path.display()), error.hint()))
}

fn json(comparison: &Comparison) -> Result<String, Failure> {
    comparison.json().map_err(|error| Failure::failed(error.to_string(), None))
}
