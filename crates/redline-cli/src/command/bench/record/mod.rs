//! Output of a measurement: a table, a document, files, a comparison with an earlier run, a baseline.

mod baseline;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use baseline::Baseline;
use clap::Args;
use redline_lab::bench::LaneError;
use redline_lab::exchange::{self, ExchangeFormat};
use redline_lab::lanes::{Lane, LaneProfile};
use redline_lab::run::{Run, RunDirectory, RunError, Start};
use redline_lab::{LaneResult, Row, Verdict, compare, verdict};
use redline_system::{Machine, wall_clock};
use redline_weights::write_file;

use super::Context;
use crate::command::compare::RuleFlags;
use crate::message::{self, Failure};
use crate::{env, output, version};

/// Where results go, and what they are compared with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(super) struct RecordArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// Print nothing but the results: no progress, no notes, no warnings
    #[arg(long)]
    pub(super) quiet: bool,
    /// Write the result to this path (repeatable): a directory gets run.json, results.csv and samples.csv, rewritten after every
    /// case; a file whose name ends in .csv gets comma-separated values, with a summary beside it (F_summary.json); `-` is standard
    /// output, for such values
    #[arg(short, long, aliases = ["out", "csv"], value_name = "PATH")]
    output: Vec<PathBuf>,
    /// Write the summary to this file instead of F_summary.json beside the file of --output
    #[arg(long, value_name = "FILE", requires = "output")]
    summary: Option<PathBuf>,
    /// Print the result as Google Benchmark does: console (the table), csv or json; every repetition is an entry
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "csv_style"])]
    benchmark_format: Option<BenchmarkFormat>,
    /// Write only the columns of a seed's program (docs/seeds.md) to the file of --output: score, gemm, gemm-lora, tokenizer,
    /// attn-decode, attn-prefill or sched-zipf
    #[arg(long, value_name = "NAME", requires = "output")]
    csv_style: Option<String>,
    /// Compare with an earlier run: a directory with run.json, or such a file; lanes score, gemm,
    /// tokenizer, attn-decode, attn-prefill and sched-zipf: also their --output F.csv
    #[arg(long, alias = "baseline-out", value_name = "RUN", help_heading = "Comparison")]
    pub(super) baseline: Option<PathBuf>,
    /// Accept this run as the baseline: it replaces the file of --baseline
    #[arg(long, requires_all = ["baseline", "reason"], help_heading = "Comparison")]
    update_baseline: bool,
    /// Why it is accepted
    #[arg(long, value_name = "TEXT", requires = "update_baseline", help_heading = "Comparison")]
    reason: Option<String>,
    #[command(flatten, next_help_heading = "Comparison")]
    pub(super) rules: RuleFlags,
}

/// Whether a path of `--output` gets comma-separated values: `-`, a name that ends in `.csv`, a pipe or a device.
fn is_csv(path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let special = path.exists() && !path.is_file();
    message::is_stdin(path) || (!path.is_dir() && (named || special))
}

impl RecordArgs {
    /// The file for comma-separated values; `-` is standard output.
    pub(super) fn csv(&self) -> Option<&Path> {
        self.output.iter().map(PathBuf::as_path).find(|path| is_csv(path))
    }

    /// The directory for the run.
    fn directory(&self) -> Option<&Path> {
        self.output.iter().map(PathBuf::as_path).find(|path| !is_csv(path))
    }

    /// Rejects outputs that do not fit together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let (files, directories): (Vec<_>, Vec<_>) = self.output.iter().partition(|path| is_csv(path));
        if let [first, second, ..] =
            [&files[..], &directories[..]].into_iter().max_by_key(|all| all.len()).unwrap_or_default()
        {
            let fact = format!("`--output` names `{}` and `{}`", first.display(), second.display());
            return Err(Failure::usage(fact, "at most one directory and one file that ends in .csv"));
        }
        if let Some(path) = self.directory().filter(|path| path.is_file()) {
            let fact = format!("`--output {}` is a file, and not a directory", path.display());
            return Err(Failure::usage(
                fact,
                "a file for comma-separated values has a name that ends in .csv",
            ));
        }
        if let Some(path) = self.csv().filter(|_| self.json) {
            let fact = format!("`--json` cannot be used with `--output {}`", path.display());
            return Err(Failure::usage(fact, "`--output DIR` writes a run besides the document"));
        }
        let exchanged = self.benchmark_format.is_some_and(|format| format.exchange().is_some());
        if exchanged && self.csv().is_some_and(message::is_stdin) {
            return Err(Failure::usage(
                "`--benchmark-format` cannot be used with `--output -`: both write to standard output",
                "`--output FILE.csv` writes the values to a file",
            ));
        }
        if self.summary.is_some() && self.csv().is_none_or(message::is_stdin) {
            return Err(Failure::usage(
                "`--summary` without a file for comma-separated values",
                "`--output FILE.csv`; `--json` prints the whole result",
            ));
        }
        if let Some(style) = self.csv_style.as_ref().filter(|_| self.csv().is_none()) {
            let fact = format!("`--csv-style {style}` without a file for comma-separated values");
            return Err(Failure::usage(fact, "`--output FILE.csv`, or `--output -` for standard output"));
        }
        Ok(())
    }
}

/// The formats of Google Benchmark's flag of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BenchmarkFormat {
    Console,
    Csv,
    Json,
}

impl BenchmarkFormat {
    /// The exchange format; `None` for the table.
    fn exchange(self) -> Option<&'static ExchangeFormat> {
        match self {
            Self::Console => None,
            Self::Csv => exchange::format("gbench-csv"),
            Self::Json => exchange::format("gbench-json"),
        }
    }
}

/// A run that is being recorded. Every invalid flag is rejected before the measurement starts.
pub(super) struct Recorder<'a> {
    args: &'a RecordArgs,
    lane: &'static Lane,
    profile: Option<LaneProfile>,
    start: Start,
    machine: Machine,
    baseline: Option<Baseline>,
    place: Option<RunDirectory>,
    rows: RefCell<Vec<Row>>,
}

impl<'a> Recorder<'a> {
    /// Reads the baseline and reserves the output directory.
    pub(super) fn new(
        args: &'a RecordArgs,
        lane: &'static Lane,
        profile: Option<LaneProfile>,
        context: &Context,
    ) -> Result<Self, Failure> {
        if let Some(style) = &args.csv_style {
            known_style(lane, style)?;
        }
        let baseline = args.baseline.as_deref().filter(|_| args.update_baseline);
        for path in [args.csv(), args.summary.as_deref(), baseline] {
            path.map_or(Ok(()), writable)?;
        }
        let baseline = match &args.baseline {
            Some(path) => Baseline::read(path, lane, args.update_baseline, args.rules.rules().threshold)?,
            None => None,
        };
        if let Some(reason) = args.reason.as_deref().filter(|_| args.update_baseline) {
            baseline::acceptable_build(reason)?;
        }
        let command = env::arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let environment = context.environment.set().collect();
        let start = Start { at: Some(wall_clock()), command, environment };
        let rows = RefCell::default();
        let machine = Machine::here();
        let mut recorder = Self { args, lane, profile, start, machine, baseline, place: None, rows };
        if let Some(dir) = args.directory() {
            let place = RunDirectory::claim(dir, &recorder.so_far(Vec::new())?);
            recorder.place = Some(place.map_err(|error| refused(dir, &error))?);
        }
        Ok(recorder)
    }

    /// The machine that is measured.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Records the rows of a finished case, and writes them to the output directory if there is one.
    pub(super) fn take(&self, rows: Vec<Row>) -> Result<(), LaneError> {
        self.rows.borrow_mut().extend(rows);
        let failed = |fact: String| LaneError::Record(fact);
        let run =
            self.so_far(self.rows.borrow().clone()).map_err(|error| failed(error.into_message().fact))?;
        self.write(&run).map_err(|error| failed(error.into_message().fact))
    }

    /// Replaces all recorded rows.
    pub(super) fn replace(&self, rows: Vec<Row>) -> Result<(), Failure> {
        self.rows.replace(rows);
        self.write(&self.so_far(self.rows.borrow().clone())?)
    }

    /// An unfinished run with these rows.
    fn so_far(&self, rows: Vec<Row>) -> Result<Run, Failure> {
        Ok(Run { finished: false, ..self.run(rows)? })
    }

    /// A run with these rows.
    pub(super) fn run(&self, rows: Vec<Row>) -> Result<Run, Failure> {
        let run = Run::new(version::build(), self.start.clone(), self.result(rows));
        let run = run.map_err(|error| written(&error))?;
        Ok(Run { profile: self.profile.map(|profile| profile.name().to_owned()), ..run })
    }

    fn result(&self, rows: Vec<Row>) -> LaneResult {
        LaneResult { lane: self.lane.name.to_owned(), machine: self.machine.clone(), rows }
    }

    /// Writes the files of a run to the output directory, if there is one.
    pub(super) fn write(&self, run: &Run) -> Result<(), Failure> {
        let Some(place) = &self.place else { return Ok(()) };
        place.write(run).map_err(|error| refused(place.dir(), &error))
    }

    /// Turns an error into a failure. Rows measured before the error are kept.
    fn failed(&self, error: &LaneError) -> Failure {
        let rows = self.rows.borrow();
        match &self.place {
            Some(place) if rows.is_empty() => place.leave(),
            Some(place) if !matches!(error, LaneError::Record(_)) => {
                message::say(format_args!(
                    "{} rows of finished cases are in `{}`\n",
                    rows.len(),
                    place.dir().display()
                ));
            }
            _ if !rows.is_empty() => {
                let table = self.lane.table(&self.result(rows.clone()));
                message::say(format_args!("finished before it failed:\n{table}\n"));
            }
            _ => {}
        }
        failure(self.lane, error)
    }

    /// Removes the output directory if nothing was measured.
    pub(super) fn leave(&self) {
        if let Some(place) = self.place.as_ref().filter(|_| self.rows.borrow().is_empty()) {
            place.leave();
        }
    }

    /// Shows and writes the result of one arm. Returns the exit code of its rows, or of the comparison.
    pub(super) fn finish(self, measured: Result<(), LaneError>) -> Result<ExitCode, Failure> {
        if let Err(error) = &measured {
            return Err(self.failed(error));
        }
        let rows = self.rows.take();
        let result = self.result(rows.clone());
        let own: Vec<Verdict> = verdicts(&result.rows, self.args.rules.portable)
            .into_iter()
            .map(|(verdict, line)| {
                message::say(line);
                verdict
            })
            .collect();
        let in_baseline = |case: &str, metric: &str| self.baseline.as_ref()?.value(case, metric);
        let warnings = self.lane.warnings(&result.rows, in_baseline);
        for warning in warnings.iter().filter(|_| !self.args.quiet) {
            message::say(format_args!("warning: {warning}\n"));
        }
        let mut run = self.run(rows)?;
        let compared = match &self.baseline {
            Some(Baseline::Run(base)) => {
                let mut comparison = compare::compare(base, &run, &self.args.rules.rules());
                let judged = comparison.lines.iter().filter_map(|line| line.verdict);
                comparison.exit_code = verdict::exit_code(judged.chain(own));
                run.comparison = serde_json::to_value(&comparison).map_err(|error| written(&error))?;
                Some((comparison.table(), comparison.exit_code))
            }
            Some(Baseline::Values(values)) => {
                let (table, found) = values.judge(&result)?;
                Some((table, code_of(own.into_iter().chain(found))))
            }
            None => {
                let code = code_of(own);
                Some((String::new(), code)).filter(|_| code != 0)
            }
        };
        // The result is shown even if writing it failed, and the exit code holds even if standard output is closed.
        let written = self.write(&run);
        let whole = compared.is_some() && run.comparison.is_object();
        let shown = self.show(&run, &result, whole);
        let (table, code) = compared.unwrap_or_default();
        let printed = if table.is_empty() { Ok(()) } else { self.print(&table) };
        for outcome in [shown, printed, written] {
            match outcome {
                Ok(()) | Err(Failure::Closed) => {}
                Err(error) => return Err(error),
            }
        }
        match self.args.reason.as_deref().filter(|_| self.args.update_baseline) {
            Some(reason) => self.accept(run, &result, reason),
            None => Ok(ExitCode::from(code)),
        }
    }

    /// Replaces the baseline with this run.
    fn accept(&self, run: Run, result: &LaneResult, reason: &str) -> Result<ExitCode, Failure> {
        let Some(path) = &self.args.baseline else { return Ok(ExitCode::SUCCESS) };
        baseline::accept(
            path,
            run,
            result,
            self.lane,
            self.baseline.as_ref(),
            (reason, self.args.rules.portable),
        )?;
        message::say(format_args!("accepted as baseline: `{}`\n", path.display()));
        Ok(ExitCode::SUCCESS)
    }

    /// Prints a comparison; to standard error if standard output carries a document or values.
    fn print(&self, table: &str) -> Result<(), Failure> {
        let data =
            self.args.json || self.exchange().is_some() || self.args.csv().is_some_and(message::is_stdin);
        match (data, &self.baseline) {
            (true, Some(Baseline::Run(_))) if self.args.json => Ok(()),
            (true, _) => {
                message::say(format_args!("\n{table}"));
                Ok(())
            }
            (false, _) => output::piece(&format!("\n{table}")),
        }
    }

    /// The format of another program in which the result is printed, if one was requested.
    fn exchange(&self) -> Option<&'static ExchangeFormat> {
        self.args.benchmark_format.and_then(BenchmarkFormat::exchange)
    }

    /// Prints the result in the requested form. `whole` selects the run's document, which includes the comparison.
    fn show(&self, run: &Run, result: &LaneResult, whole: bool) -> Result<(), Failure> {
        if self.args.json {
            let text = if whole { run.json() } else { result.json() };
            return output::piece(&text.map_err(|error| written(&error))?);
        }
        let text = match self.exchange() {
            Some(format) => {
                let exported = exchange::export(run, format, true)
                    .map_err(|error| Failure::failed(error.to_string(), Some(error.hint.clone())))?;
                exported.notes.iter().for_each(|note| message::note(note));
                exported.text
            }
            None => self.lane.table(result),
        };
        let Some(path) = self.args.csv() else { return output::piece(&text) };
        let csv = values(self.lane, result, self.args.csv_style.as_deref())?;
        if message::is_stdin(path) {
            return output::piece(&csv);
        }
        let shown = output::piece(&text);
        put(path, &csv)?;
        let summary = self.args.summary.clone().unwrap_or_else(|| summary_path(path));
        put(&summary, &run.summary_json().map_err(|error| written(&error))?)?;
        shown
    }
}

/// The failure of a lane.
pub(super) fn failure(lane: &Lane, error: &LaneError) -> Failure {
    match error {
        LaneError::Usage(fact) => {
            Failure::usage(fact.as_str(), format!("`redline bench {} --help`", lane.name))
        }
        LaneError::Incorrect(fact) => Failure::incorrect(fact.as_str()),
        other => Failure::advised(&other, other.hint()),
    }
}

/// The verdicts of the rows themselves (invalid, or a missed gate), each with its line for standard error.
pub(super) fn verdicts(rows: &[Row], portable: bool) -> Vec<(Verdict, String)> {
    let mut found = Vec::new();
    for row in rows {
        // The share of a limit depends on speed, which a portable comparison does not judge.
        let invalid = row.invalid().filter(|_| !row.checked || !portable);
        found.extend(invalid.map(|why| (Verdict::Invalid, format!("invalid: {}: {why}\n", row.case))));
        let missed = row.missed().into_iter();
        found.extend(missed.map(|why| (Verdict::Slower, format!("missed: {}: {why}\n", row.case))));
    }
    found
}

/// Returns the exit code of the worst verdict, or 0 if there is none.
pub(super) fn code_of(verdicts: impl IntoIterator<Item = Verdict>) -> u8 {
    let mut verdicts = verdicts.into_iter().peekable();
    if verdicts.peek().is_some() { verdict::exit_code(verdicts) } else { 0 }
}

/// Rejects a file whose directory does not exist, before anything is measured.
fn writable(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    if message::is_stdin(path) || directory.is_none_or(Path::is_dir) {
        return Ok(());
    }
    let fact = format!("its directory is not there\n  in `{}`", path.display());
    Err(Failure::usage(fact, "make the directory first"))
}

/// Rejects a CSV style that the lane does not have.
fn known_style(lane: &Lane, style: &str) -> Result<(), Failure> {
    if lane.styles.iter().any(|(name, _)| *name == style) {
        return Ok(());
    }
    let names: Vec<&str> = lane.styles.iter().map(|(name, _)| *name).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let fact = format!("`--csv-style {style}` is no layout of lane {}", lane.name);
    Err(Failure::usage(fact, format!("it has: {known}; without the flag, `--output` writes all columns")))
}

/// Comma-separated values: in the style of this name if given, else the lane's columns, else a line per row and
/// metric.
fn values(lane: &Lane, result: &LaneResult, style: Option<&str>) -> Result<String, Failure> {
    let styled = style.and_then(|style| lane.styles.iter().find(|(name, _)| *name == style));
    let mut csv = Vec::new();
    let wrote = match styled.map_or(lane.columns, |(_, columns)| std::slice::from_ref(columns)) {
        [] => result.write_csv(&mut csv),
        columns => result.write_columns(columns, &mut csv),
    };
    wrote.map_err(|error| Failure::writing(&error))?;
    Ok(String::from_utf8_lossy(&csv).into_owned())
}

/// The path of the summary: `F_summary.json` beside `F.csv`.
fn summary_path(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}_summary.json"))
}

/// Writes a whole file.
fn put(path: &Path, text: &str) -> Result<(), Failure> {
    write_file(path, text.as_bytes())
        .map_err(|error| Failure::failed(format!("{error}\n  in `{}`", path.display()), None))
}

/// The failure of serializing a result as JSON.
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

#[cfg(test)]
mod tests {
    use redline_lab::{Direction, Samples};

    use super::*;

    #[test]
    fn rows_that_must_not_be_believed_end_in_code_5_and_missed_gates_in_1() {
        let samples = || Samples::new("s", Direction::Lower, vec![3.0]).unwrap();
        let row = |share| Row {
            checked: true,
            ..Row::new("a").metric("seconds", samples()).limit("f32_peak", Some(share))
        };
        let outcome = |rows: &[Row], portable| {
            let found = verdicts(rows, portable);
            let text: String = found.iter().map(|(_, line)| line.as_str()).collect();
            (code_of(found.into_iter().map(|(verdict, _)| verdict)), text)
        };
        assert_eq!(outcome(&[row(1.15)], false), (0, String::new()));
        assert_eq!(
            outcome(&[row(1.0), row(1.16)], false),
            (5, "invalid: a: 116.0 % of the limit\n".to_owned())
        );
        assert_eq!(outcome(&[row(1.16)], true), (0, String::new()), "speed is not judged");
        let unchecked = Row { checked: false, ..row(1.0) };
        assert_eq!(
            outcome(std::slice::from_ref(&unchecked), true),
            (5, "invalid: a: not checked\n".to_owned())
        );
        assert_eq!(outcome(&[row(1.0).at_most("seconds", 3.0).gate("seconds", 3.0)], false).0, 0);
        let line = "missed: a: seconds is 3.000, but at most 2.000 is required\n";
        assert_eq!(outcome(&[row(1.0).at_most("seconds", 2.0)], true), (1, line.to_owned()));
        assert_eq!(outcome(&[row(1.0).gate("seconds", 4.0)], false).0, 1);
        assert_eq!(outcome(&[row(1.0).at_most("seconds", 2.0), unchecked], false).0, 5, "the worse of both");
    }

    #[test]
    fn a_summary_lies_beside_its_values() {
        assert_eq!(summary_path(Path::new("d/run.csv")), Path::new("d/run_summary.json"));
        assert_eq!(summary_path(Path::new("run")), Path::new("run_summary.json"));
    }
}
