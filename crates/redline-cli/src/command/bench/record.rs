//! What becomes of a measurement: a table, a document, files, a comparison with an earlier run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_lab::baseline::{self, Rule, Standings};
use redline_lab::compare;
use redline_lab::lanes::Lane;
use redline_lab::result::Column;
use redline_lab::run::{Run, RunError, Start};
use redline_lab::{LaneResult, Machine, Verdict, verdict, wall_clock};
use redline_weights::write_file;

use super::Context;
use crate::built;
use crate::command::compare::{RuleFlags, read};
use crate::env;
use crate::output;
use crate::report::{self, Failure};

/// Where results go, and what they are compared with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(super) struct RecordArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// Write comma-separated values; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(super) output: Option<PathBuf>,
    /// Write run.json, results.csv and samples.csv into this directory
    #[arg(short = 'o', id = "directory", value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,
    /// Compare with an earlier run: a directory with run.json, or such a file; lanes score and tokenizer: also their --output F.csv
    #[arg(long, value_name = "RUN", help_heading = "Comparison")]
    pub(super) baseline: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Comparison")]
    pub(super) rules: RuleFlags,
}

/// A run about to be recorded: everything that can be refused is refused before the measurement.
pub(super) struct Recorder<'a> {
    args: &'a RecordArgs,
    start: Start,
    baseline: Option<Baseline>,
}

/// An earlier run.
enum Baseline {
    /// With its samples.
    Run(Box<Run>),
    /// Its comma-separated values alone.
    Values(Values),
}

/// The comma-separated values of an earlier run, and how they are compared.
struct Values {
    path: PathBuf,
    text: String,
    rule: Rule,
    columns: &'static [Column],
}

impl Baseline {
    fn read(path: &Path, lane: &Lane) -> Result<Self, Failure> {
        let (Some(rule), Some(columns)) = (lane.baseline, lane.columns) else {
            return read(path).map(|run| Self::Run(Box::new(run)));
        };
        if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("csv")) {
            return read(path).map(|run| Self::Run(Box::new(run)));
        }
        let text = std::fs::read_to_string(path).map_err(|error| {
            let fact = format!("{error}\n  in `{}`", path.display());
            Failure::usage(fact, "`--output FILE` of an earlier run writes one")
        })?;
        let values = Values { path: path.into(), text, rule, columns };
        // What is no baseline is refused before anything is measured.
        let nothing = LaneResult { lane: lane.name.into(), machine: Machine::default(), rows: Vec::new() };
        values.standings(&nothing)?;
        Ok(Self::Values(values))
    }
}

impl Values {
    fn standings(&self, result: &LaneResult) -> Result<Standings, Failure> {
        baseline::compare(&self.rule, self.columns, result, &self.text).map_err(|error| {
            let fact = format!("{error}\n  in `{}`", self.path.display());
            Failure::usage(fact, "`--output FILE` of an earlier run writes one")
        })
    }

    /// Shows how the cases stand; 1 if one fell or is missing, else the code of the rows.
    fn judge(&self, result: &LaneResult, code: u8, args: &RecordArgs) -> Result<ExitCode, Failure> {
        let standings = self.standings(result)?;
        let text = format!("\n{}", standings.table());
        // A document or values on standard output stay by themselves.
        if args.json || args.output.as_deref().is_some_and(report::is_stdin) {
            report::say(format_args!("{text}"));
        } else {
            output::piece(&text)?;
        }
        Ok(if standings.passed() { ExitCode::from(code) } else { ExitCode::FAILURE })
    }
}

impl<'a> Recorder<'a> {
    /// Reads the baseline and makes the directory.
    pub(super) fn new(args: &'a RecordArgs, lane: &'static Lane, context: &Context) -> Result<Self, Failure> {
        let baseline = args.baseline.as_deref().map(|path| Baseline::read(path, lane)).transpose()?;
        if let Some(dir) = &args.directory {
            Run::prepare(dir).map_err(|error| refused(dir, &error))?;
        }
        let command = env::arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let environment = context.environment.set().collect();
        let start = Start { at: Some(wall_clock()), command, environment };
        Ok(Self { args, start, baseline })
    }

    /// When and how it was started.
    pub(super) fn start(&self) -> Start {
        self.start.clone()
    }

    /// Shows and writes the result of one arm; the code of its rows, or of its comparison.
    pub(super) fn finish(self, lane: &Lane, result: LaneResult) -> Result<ExitCode, Failure> {
        let own = verdicts(&result);
        let code = if own.is_empty() { 0 } else { verdict::exit_code(own.iter().copied()) };
        if self.baseline.is_none() && self.args.directory.is_none() {
            show(lane, &result, self.args)?;
            return Ok(ExitCode::from(code));
        }
        let mut run = Run::new(built::this(), self.start, result.clone()).map_err(|error| written(&error))?;
        let comparison = match self.baseline {
            Some(Baseline::Values(values)) => {
                write(&run, self.args)?;
                show(lane, &result, self.args)?;
                return values.judge(&result, code, self.args);
            }
            Some(Baseline::Run(base)) => {
                let mut comparison = compare::compare(&base, &run, &self.args.rules.rules());
                let judged = comparison.lines.iter().filter_map(|line| line.verdict);
                comparison.exit_code = verdict::exit_code(judged.chain(own));
                Some(comparison)
            }
            None => None,
        };
        if let Some(comparison) = &comparison {
            run.comparison = serde_json::to_value(comparison).map_err(|error| written(&error))?;
        }
        write(&run, self.args)?;
        let Some(comparison) = comparison else {
            show(lane, &result, self.args)?;
            return Ok(ExitCode::from(code));
        };
        if self.args.json {
            output::piece(&run.json().map_err(|error| written(&error))?)?;
        } else {
            show(lane, &result, self.args)?;
            output::piece(&format!("\n{}", comparison.table()))?;
        }
        Ok(ExitCode::from(comparison.exit_code))
    }
}

/// Writes the files of a run where they were asked for.
pub(super) fn write(run: &Run, args: &RecordArgs) -> Result<(), Failure> {
    let Some(dir) = &args.directory else { return Ok(()) };
    run.write(dir).map_err(|error| refused(dir, &error))
}

/// A result that cannot be written as JSON.
pub(super) fn written(error: &serde_json::Error) -> Failure {
    Failure::failed(error.to_string(), None)
}

fn refused(dir: &Path, error: &RunError) -> Failure {
    let fact = format!("{error}\n  in `{}`", dir.display());
    match error {
        RunError::Occupied => Failure::usage(fact, error.hint()),
        _ => Failure::failed(fact, Some(error.hint().to_owned())),
    }
}

fn show(lane: &Lane, result: &LaneResult, args: &RecordArgs) -> Result<(), Failure> {
    if args.json {
        return output::piece(&result.json().map_err(|error| written(&error))?);
    }
    let Some(path) = &args.output else { return output::piece(&lane.table(result)) };
    let mut csv = Vec::new();
    let rows = match lane.columns {
        Some(columns) => result.write_columns(columns, &mut csv),
        None => result.write_csv(&mut csv),
    };
    rows.map_err(|error| Failure::writing(&error))?;
    if report::is_stdin(path) {
        return output::piece(&String::from_utf8_lossy(&csv));
    }
    write_file(path, &csv)
        .map_err(|error| Failure::failed(format!("{error}\n  in `{}`", path.display()), None))?;
    output::piece(&lane.table(result))
}

/// What rows say by themselves: one must not be believed, one does not reach what it must.
fn verdicts(result: &LaneResult) -> Vec<Verdict> {
    let mut found = Vec::new();
    for row in &result.rows {
        if let Some(why) = row.invalid() {
            report::say(format_args!("invalid: {}: {why}\n", row.case));
            found.push(Verdict::Invalid);
        }
        for why in row.missed() {
            report::say(format_args!("missed: {}: {why}\n", row.case));
            found.push(Verdict::Slower);
        }
    }
    found
}
