//! `redline adapter`: what adapter directories contain, converted adapters, and models with an adapter merged in.

mod convert;
mod inspect;
mod merge;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use redline_engine::Source;
use redline_kernels::Exec;
use redline_models::{LoadOptions, Model, ModelError, ModelFiles, Weights};
use redline_weights::{Checkpoint, ConfigFile};

use super::Context;
use crate::message::Failure;

/// Arguments of `adapter`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(super) struct AdapterArgs {
    #[command(subcommand)]
    command: AdapterCommand,
}

#[derive(Debug, Subcommand)]
enum AdapterCommand {
    /// Pack an adapter for a model into an INFQ directory, which is verified when it is loaded
    Convert(convert::ConvertArgs),
    /// Print what an adapter directory contains, and whether it fits a model
    Inspect(inspect::InspectArgs),
    /// Write a model with an adapter merged into its weights, as a Hugging Face directory
    Merge(merge::MergeArgs),
}

/// Runs the command that the arguments name.
pub(super) fn run(args: &AdapterArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.command {
        AdapterCommand::Convert(args) => convert::run(args, context),
        AdapterCommand::Inspect(args) => inspect::run(args, context),
        AdapterCommand::Merge(args) => merge::run(args, context),
    }
}

/// Calls `then` with the configuration and the weights of a model.
pub(super) fn opened<T>(
    source: &Source,
    then: impl FnOnce(&ConfigFile, Weights<'_>) -> Result<T, ModelError>,
) -> Result<T, ModelError> {
    match source {
        Source::Path(path) => {
            let files = ModelFiles::open(path)?;
            then(files.config(), files.weights())
        }
        Source::Embedded(model) => {
            let config = ConfigFile::from_bytes("config.json", model.config)?;
            then(&config, Weights::Checkpoint(&Checkpoint::from_bytes(model.name, (model.weights)())?))
        }
    }
}

/// Loads the model that adapters are converted for.
fn base(source: &Source, options: LoadOptions, exec: Exec<'_>) -> Result<Model, ModelError> {
    opened(source, |config, weights| redline_models::load(exec, config, weights, options))
}
