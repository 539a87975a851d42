//! `redline import`: reads results of another tool as a run, so that they can be compared with ours.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use redline_lab::exchange::{self, ExchangeFormat, Said};
use redline_lab::run::{Run, RunError};

use super::export::{self, format};
use crate::message::{self, Failure};
use crate::output;

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = export::help("Formats that are read:", |format| format.read.is_some()))]
pub(super) struct ImportArgs {
    /// The file that the other tool wrote
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Its format; default: the format that recognises it
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    from: Option<&'static ExchangeFormat>,
    /// The directory to write: run.json, results.csv, samples.csv
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: PathBuf,
    /// The engine's name; default: the name in the file, else `unknown`
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Vouch for the outputs behind the figures: other tools do not check them, and rows that are not checked compare as
    /// invalid
    #[arg(long)]
    trust: bool,
}

/// Writes the run and prints its directory.
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let refused = |error: exchange::ExchangeError| {
        Failure::usage(format!("{error}\n  in `{}`", args.file.display()), error.hint)
    };
    let said = Said { engine: args.engine.clone(), trust: args.trust };
    let text = exchange::read_text(&args.file).map_err(refused)?;
    let run = exchange::import(&text, args.from, &said).map_err(refused)?;
    run.write(&args.output).map_err(|error| not_written(args, &error))?;
    report(&run);
    output::line(&args.output.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn not_written(args: &ImportArgs, error: &RunError) -> Failure {
    let fact = format!("{error}\n  in `{}`", args.output.display());
    match error {
        RunError::Occupied => Failure::usage(fact, error.hint()),
        _ => Failure::failed(fact, Some(error.hint().to_owned())),
    }
}

/// Reports what was read, and which rows are invalid.
fn report(run: &Run) {
    let unchecked = run.rows.iter().filter(|row| !row.checked).count();
    let means = run.rows.iter().filter(|row| row.params.get("aggregate").is_some()).count();
    let all = run.rows.len();
    let noun = if all == 1 { "case" } else { "cases" };
    message::note(&format!("{all} {noun} of {}, lane {}", run.engine.one_line(), run.lane));
    if unchecked > 0 {
        message::note(&format!(
            "{unchecked} of {all} are not checked and compare as invalid; `--trust` vouches for them"
        ));
    }
    if means > 0 {
        message::note(&format!("{means} of {all} have no samples, only a mean: they have no interval"));
    }
}
