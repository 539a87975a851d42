//! `redline report`: renders runs as one self-contained page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_lab::report::{self as page, ReportOptions};
use redline_lab::run::{DOCUMENT, Run};

use super::compare::read;
use crate::message::{self, Failure};
use crate::output;

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(
    after_help = "A run is a directory with `run.json`, as `redline bench LANE -o DIR` writes it, or such a file; a directory of \
                  such directories stands for all of them. One report may show runs of several lanes, commits, engines and machines. \
                  Exit codes: 0 written; 1 the report cannot be written; 2 usage, or a run that cannot be read."
)]
pub(super) struct ReportArgs {
    /// Runs to show (repeatable): directories with `run.json`, such files, or directories of such directories
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// The page to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Compare every other run with the run of the same lane in DIR
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// The page's title
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// Reads the runs and writes the page.
pub(super) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let base = args.base.as_deref().map_or(Ok(Vec::new()), gather)?;
    // The base comes first. A run that is named several times appears once.
    let mut runs = base.clone();
    for path in &args.runs {
        for run in gather(path)? {
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
    }
    let options = ReportOptions { title: args.title.clone(), base };
    let text = page::html(&runs, &options).map_err(|error| Failure::failed(error.to_string(), None))?;
    if text.len() >= page::LIMIT {
        let size = text.len();
        message::note(&format!(
            "the report has {size} bytes; reports of fewer runs or lanes are quicker to open"
        ));
    }
    if message::is_stdin(&args.output) {
        output::piece(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::file(&args.output, "-o", &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The run at a path, or the runs in its direct subdirectories, sorted by name.
fn gather(path: &Path) -> Result<Vec<Run>, Failure> {
    if !path.is_dir() || path.join(DOCUMENT).exists() {
        return read(path).map(|run| vec![run]);
    }
    let unreadable = |error: std::io::Error| {
        Failure::usage(format!("{error}\n  in `{}`", path.display()), "check that the directory may be read")
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let below = entry.map_err(unreadable)?.path();
        if below.join(DOCUMENT).exists() {
            found.push(below);
        }
    }
    found.sort();
    if found.is_empty() {
        let fact = format!(
            "no `{DOCUMENT}`, neither here nor in a directory right below\n  in `{}`",
            path.display()
        );
        return Err(Failure::usage(
            fact,
            "`redline bench LANE -o DIR` writes a run; give DIR, or the directory it lies in",
        ));
    }
    found.iter().map(|run| read(run)).collect()
}
