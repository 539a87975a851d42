//! `redline parity`: compares every activation with a reference dump, and reports the first that diverges.

mod answer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_api::model::LoadedModel;
use redline_parity::{ParityError, ParityReport, Reference};
use redline_system::number;

use super::Context;
use crate::message::{self, Failure, INCORRECT};
use crate::model::{MachineFlags, ModelFlag};
use crate::{output, progress, value};

/// What is judged, for the help.
const METHOD: &str = "Each activation is judged by its normalised squared error: squared error over squared reference. \
    Default tolerance: 1e-9 with f32 weights, 4e-4 with those and a bf16 KV cache, 2e-3 with bf16, 1e-2 with w8, 0.9 with w4; \
    a dump may set its own. `cargo xtask parity-reference` makes dumps with transformers.\n\n\
    Exit codes: 0 within the tolerance; 1 failed; 2 wrong usage, or a dump of another model; 6 beyond the tolerance.";

/// Flags of `parity`.
#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(super) struct ParityArgs {
    #[command(flatten)]
    model: ModelFlag,
    /// The dump: a directory with `parity.json` and `activations.safetensors`
    #[arg(long, value_name = "DIR")]
    reference: PathBuf,
    /// Largest normalised squared error of an activation that counts as parity; default: by format
    #[arg(long, value_name = "NMSE", value_parser = value::tolerance, allow_negative_numbers = true)]
    tolerance: Option<f64>,
    /// List every activation, not only the first that diverge
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print nothing but the figures
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    machine: MachineFlags,
}

/// The description of the dump, kept because the comparison takes ownership of the dump.
struct Described {
    source: String,
    versions: std::collections::BTreeMap<String, String>,
}

/// Opens the dump, then the model, and compares them.
pub(super) fn run(args: &ParityArgs, context: &Context) -> Result<ExitCode, Failure> {
    let model = args.model.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let reference = Reference::open(&args.reference).map_err(refused)?;
    let described =
        Described { source: reference.source().to_owned(), versions: reference.versions().clone() };
    let loaded = settings.load(&model, context.environment)?;
    let compare = || redline_parity::run(&loaded.engine, reference, args.tolerance);
    let found = progress::during("comparing", compare).map_err(refused)?;
    if args.json {
        let document = answer::document(&loaded, &described, &found, args.all);
        return output::verdict(&(output::json(&document)? + "\n"), code(&found));
    }
    if !args.quiet {
        message::say(summary(&loaded, &described));
    }
    output::verdict(&answer::table(&found, args.all), code(&found))
}

fn code(found: &ParityReport) -> u8 {
    if found.first_divergence().is_some() { INCORRECT } else { 0 }
}

fn summary(loaded: &LoadedModel, described: &Described) -> String {
    let info = loaded.engine.info();
    let threads = number::count(info.threads, "thread");
    format!("{} against {}; {}, {threads}\n", loaded.name, described.source, info.kernel_path)
}

fn refused(error: ParityError) -> Failure {
    match error {
        ParityError::Misfit { fact, hint } => Failure::usage(fact, hint),
        ParityError::Damaged { fact, hint } => Failure::failed(fact, hint),
        ParityError::Engine(error) => error.into(),
    }
}
