//! Shared parts of `classify` and `rerank`: flags and input texts.

use std::path::Path;

use clap::Args;
use redline_api::LoadedModel;
use redline_engine::{EngineError, Truncate};

use super::Context;
use crate::message::Failure;
use crate::model::{MachineFlags, MemoryFlags, ModelName};
use crate::spelling::spelled;
use crate::text;
use crate::value;

/// Flags of both.
#[derive(Debug, Args)]
pub(super) struct JudgeFlags {
    /// Which end of a text is cut if its prompt exceeds the context; without this flag, such a text is an error
    #[arg(long, value_parser = value::choice::<Truncate>(), value_name = "END")]
    pub(super) truncate: Option<Truncate>,
    /// Report a text's error in its place instead of failing the whole request
    #[arg(long)]
    pub(super) item_errors: bool,
    /// Time limit of the request in seconds; if it is exceeded, the request fails
    #[arg(long, value_name = "S", value_parser = value::seconds)]
    pub(super) timeout: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    /// Print nothing but the answer
    #[arg(long, short)]
    pub(super) quiet: bool,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    memory: MemoryFlags,
}

impl JudgeFlags {
    /// Loads the model.
    pub(super) fn load(&self, model: &ModelName, context: &Context) -> Result<LoadedModel, Failure> {
        let settings = self.machine.resolve(context.environment, &context.clock)?;
        let settings = self.memory.resolve(settings, context.environment)?;
        settings.load(model, context.environment)
    }
}

/// The texts from the flags or a file.
pub(super) fn texts(typed: &[String], file: Option<&Path>) -> Result<Vec<String>, Failure> {
    file.map_or_else(|| Ok(typed.to_vec()), text::read_lines)
}

/// Turns an error that no model could avoid into a usage error.
pub(super) fn senseless(error: EngineError) -> Failure {
    Failure::usage(error.to_string(), spelled(error.hint()).unwrap_or_default())
}
