//! `redline adapter convert`: packs an adapter for a model into an INFQ directory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_engine::AdapterOptions;
use redline_models::LoadOptions;
use redline_models::adapter::AdapterBuilder;

use super::super::Context;
use super::base;
use crate::message::Failure;
use crate::model::{self, SignedFlag, WeightFlags};
use crate::progress::Bar;
use crate::writing;

/// The end of the help.
const ABOUT: &str = "\
The result is an INFQ directory: the adapter in the format in which it lies in
memory beside the weights of BASE, with its outlier columns (`--outliers`) in
bf16, and with a checksum for every byte. `--adapter` loads
it with the same results as ADAPTER, without rounding anything again. It fits
BASE in this format only: give the flags `--format`, `--group` and `--outliers`
that the model is loaded with. OUT appears when it is complete, or not at all.";

/// Flags of `adapter convert`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(super) struct ConvertArgs {
    /// The model: a directory, a Hugging Face id in the local cache, `demo` or `demo-diffusion`
    #[arg(value_name = "BASE")]
    base: String,
    /// The adapter: a directory that PEFT wrote for this model
    #[arg(value_name = "ADAPTER")]
    adapter: PathBuf,
    /// The directory to write; if it exists, it must be empty
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    signed: SignedFlag,
    #[command(flatten)]
    weights: WeightFlags,
}

/// Converts the adapter and prints the directory.
pub(super) fn run(args: &ConvertArgs, context: &Context) -> Result<ExitCode, Failure> {
    let options = LoadOptions {
        format: args.weights.resolve(context.environment)?,
        outliers: args.weights.outliers,
        mmap: false,
    };
    let source = args.signed.of(&args.base, context.environment)?.source(context.environment)?;
    let threads = model::threads(None, context.environment)?;
    let bar = Bar::new("converting the adapter".to_owned());
    let max_rank = AdapterOptions::default().max_rank;
    writing::directory(&bar, &args.out, |watch| {
        model::with_team(threads, None, |exec| {
            let model = base(&source, options, exec)?;
            AdapterBuilder::new(&model).convert(exec, &args.adapter, &args.out, max_rank, watch)
        })
    })
}
