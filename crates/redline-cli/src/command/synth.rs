//! `redline synth`: writes a model of a real shape with random weights, to measure a machine without downloading a
//! model.

use std::process::ExitCode;

use clap::Args;
use redline_models::synth::{self, Shape};
use redline_tokenizer::padded;

use super::Context;
use super::directory::DirectoryArgs;
use crate::demo_model;
use crate::env;
use crate::message::Failure;
use crate::model::{self, FormatFlags};
use crate::output;
use crate::progress;
use crate::value::{self, BadValue};

/// Flags of `synth`.
#[derive(Debug, Args)]
pub(super) struct SynthArgs {
    #[arg(value_name = "SHAPE", value_parser = shape, help = format!("The shape: {}", names()))]
    shape: &'static Shape,
    #[command(flatten)]
    directory: DirectoryArgs,
    #[command(flatten)]
    format: FormatFlags,
    /// Seed of the weights; the same shape, format and seed give the same bytes
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn names() -> String {
    synth::SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ")
}

fn shape(text: &str) -> Result<&'static Shape, BadValue> {
    let unknown = || BadValue { fact: "no such shape".to_owned(), hint: format!("one of {}", names()) };
    synth::SHAPES.iter().find(|shape| shape.name == text).ok_or_else(unknown)
}

/// Writes the model and prints its directory.
pub(super) fn run(args: &SynthArgs, context: &Context) -> Result<ExitCode, Failure> {
    let directory = args.directory.path()?;
    let tokenizer = padded(demo_model::TOKENIZER, args.shape.vocab)
        .map_err(|error| Failure::failed(error.to_string(), error.hint()))?;
    let format = args.format.resolve(|| context.environment.value(env::FORMAT, value::format))?;
    let format = format.unwrap_or(args.shape.format);
    let threads = model::threads(None, context.environment)?;
    let write = || {
        model::with_team(threads, None, |exec| {
            synth::write(exec, args.shape, directory, format, args.seed, &tokenizer)
        })
    };
    progress::during(&format!("writing {}", args.shape.name), write)?
        .map_err(|error| Failure::advised(&error, error.hint()))?;
    output::line(&directory.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
