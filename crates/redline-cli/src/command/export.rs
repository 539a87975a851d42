//! `redline export`: writes a run in the format of another tool.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use redline_lab::exchange::{self, ExchangeFormat};

use super::compare;
use crate::message::{self, Failure};
use crate::output;
use crate::value::{self, BadValue};

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_help = help("Formats:", |_| true))]
pub(super) struct ExportArgs {
    /// The run: a directory with `run.json`, or such a file
    run: PathBuf,
    /// The format to write
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    to: &'static ExchangeFormat,
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Export invalid rows too
    #[arg(long)]
    invalid: bool,
}

/// The list of formats that `which` selects, for `--help`.
pub(super) fn help(title: &str, which: fn(&ExchangeFormat) -> bool) -> String {
    let lines = exchange::ALL.iter().filter(|format| which(format));
    let lines = lines.map(|format| format!("\n  {:<22} {}", format.name, format.about));
    title.to_owned() + &lines.collect::<String>()
}

/// Parses the name of a format.
pub(super) fn format(text: &str) -> Result<&'static ExchangeFormat, BadValue> {
    let names: Vec<&str> = exchange::ALL.iter().map(|format| format.name).collect();
    exchange::format(text)
        .map_or_else(|| value::bad("no such format", format!("one of {}", names.join(", "))), Ok)
}

/// Writes the run, and reports on standard error what the format cannot express.
pub(super) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let run = compare::read(&args.run)?;
    let exported = exchange::export(&run, args.to, args.invalid)
        .map_err(|error| Failure::usage(format!("{error}\n  in `{}`", args.run.display()), error.hint))?;
    if message::is_stdin(&args.output) {
        output::piece(&exported.text)?;
    } else {
        output::file(&args.output, "-o", &exported.text)?;
    }
    for note in &exported.notes {
        message::note(note);
    }
    Ok(ExitCode::SUCCESS)
}
