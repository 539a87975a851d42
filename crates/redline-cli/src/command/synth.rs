//! `redline synth`: writes a model of a real shape with random weights, to measure a machine without downloading a
//! model.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use redline_engine::Cancel;
use redline_kernels::Format;
use redline_models::ModelError;
use redline_models::synth::{self, Shape};
use redline_tokenizer::padded;
use tempfile::TempDir;

use super::Context;
use super::directory::DirectoryArgs;
use crate::env;
use crate::interrupt::Interrupt;
use crate::message::{self, Failure};
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

/// Parses the name of a shape.
pub(super) fn shape(text: &str) -> Result<&'static Shape, BadValue> {
    let unknown = || BadValue { fact: "no such shape".to_owned(), hint: format!("one of {}", names()) };
    synth::SHAPES.iter().find(|shape| shape.name == text).ok_or_else(unknown)
}

/// Writes the model and prints its directory.
pub(super) fn run(args: &SynthArgs, context: &Context) -> Result<ExitCode, Failure> {
    let directory = args.directory.path()?;
    let format = args.format.resolve(|| context.environment.value(env::FORMAT, value::format))?;
    let interrupt = Interrupt::with_termination()?;
    let format = format.unwrap_or(args.shape.format);
    let written =
        interrupt.during(|cancel| write(args.shape, directory, format, args.seed, context, cancel))?;
    if !written {
        message::say(format_args!("cancelled: nothing is written\n"));
        return Ok(ExitCode::from(interrupt.code()));
    }
    output::line(&directory.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A model in a temporary directory, which is removed with it, also by the signals that end the process.
pub(super) struct Made {
    folder: TempDir,
    shape: &'static Shape,
}

impl Made {
    /// Writes a model of this shape, in its own format.
    pub(super) fn new(shape: &'static Shape, context: &Context) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("no directory for a model: {error}"), None);
        let made = Self { folder: tempfile::tempdir().map_err(failed)?, shape };
        Interrupt::with_termination()?.removes(made.folder.path());
        write(shape, &made.path(), shape.format, 0, context, &Cancel::new())?;
        Ok(made)
    }

    /// The directory of the model, which is named after its shape.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(self.shape.name)
    }
}

/// Writes the model. Returns `false` if it was cancelled.
fn write(
    shape: &'static Shape,
    dir: &Path,
    format: Format,
    seed: u64,
    context: &Context,
    cancel: &Cancel,
) -> Result<bool, Failure> {
    let tokenizer = padded(redline_demo::TOKENIZER, shape.vocab)
        .map_err(|error| Failure::failed(error.to_string(), error.hint()))?;
    let threads = model::threads(None, context.environment)?;
    let mut going = |_| if cancel.is_cancelled() { Err(ModelError::Cancelled) } else { Ok(()) };
    let write = || {
        model::with_team(threads, None, |exec| {
            synth::write(exec, shape, dir, format, seed, &tokenizer, &mut going)
        })
    };
    match progress::during(&format!("writing {}", shape.name), write)? {
        Ok(()) => Ok(true),
        Err(ModelError::Cancelled) => Ok(false),
        Err(error) => Err(Failure::advised(&error, error.hint())),
    }
}
