//! `redline adapter merge`: writes a model with an adapter merged into its weights.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use redline_engine::Source;
use redline_models::adapter::merge;

use super::super::Context;
use crate::message::Failure;
use crate::model::SignedFlag;
use crate::progress::Bar;
use crate::value::{self, BadValue};
use crate::writing;

/// The end of the help.
const ABOUT: &str = "\
The result is a model directory like BASE: the same tensors, types and files,
with `W + scale * scaling * B A` in place of every adapted weight W, and with a
copy of tokenizer and configuration. Any program that reads Hugging Face
directories can load it, and it needs no `--adapter`. Values are computed in f32
and rounded to the types of BASE, so a merged bf16 model differs from bf16
weights with the adapter beside them by that rounding. One weight at a time is
in memory. OUT appears when it is complete, or not at all.

Not merged are: an adapter of a converted model (merge first, then convert), a
DoRA adapter with a scale other than 1, and an adapter of embedding or head if
the model has one tensor for both, since merging it would change both.";

/// Flags of `adapter merge`.
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(super) struct MergeArgs {
    /// The model: a directory with safetensors or `pytorch_model.bin`, or a Hugging Face id in the local cache
    #[arg(value_name = "BASE")]
    base: String,
    /// The adapter: a directory that PEFT wrote for this model
    #[arg(value_name = "ADAPTER")]
    adapter: PathBuf,
    /// The directory to write; if it exists, it must be empty
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Factor on the adapter's updates
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = scale, allow_negative_numbers = true)]
    scale: f32,
    #[command(flatten)]
    signed: SignedFlag,
}

/// Parses `--scale`.
fn scale(text: &str) -> Result<f32, BadValue> {
    match text.parse::<f32>() {
        Ok(scale) if scale.is_finite() => Ok(scale),
        _ => value::bad(
            format!("`{text}` is no scale"),
            "a finite number, such as 0.5; 1 is the adapter as it was trained",
        ),
    }
}

/// Merges the adapter and prints the directory.
pub(super) fn run(args: &MergeArgs, context: &Context) -> Result<ExitCode, Failure> {
    let base = match args.signed.of(&args.base, context.environment)?.source(context.environment)? {
        Source::Path(dir) => dir,
        Source::Embedded(embedded) => {
            let fact = format!("`{}` is inside the program", embedded.name);
            return Err(Failure::usage(
                fact,
                "give the directory of a model; models/demo in the source has this one",
            ));
        }
    };
    let bar = Bar::of_bytes("merging".to_owned());
    writing::directory(&bar, &args.out, |watch| Ok(merge(&base, &args.adapter, &args.out, args.scale, watch)))
}
