//! `redline adapter`: what adapter directories contain, and models with an adapter merged in.

mod inspect;
mod merge;

use std::process::ExitCode;

use clap::{Args, Subcommand};

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
    /// Print what an adapter directory contains, and whether it fits a model
    Inspect(inspect::InspectArgs),
    /// Write a model with an adapter merged into its weights, as a Hugging Face directory
    Merge(merge::MergeArgs),
}

/// Runs the command that the arguments name.
pub(super) fn run(args: &AdapterArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.command {
        AdapterCommand::Inspect(args) => inspect::run(args, context),
        AdapterCommand::Merge(args) => merge::run(args, context),
    }
}
