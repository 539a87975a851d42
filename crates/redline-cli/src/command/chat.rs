//! `--chat`: formats prompts with the model's chat template.

use clap::Args;
use redline_api::Chat;
use redline_engine::{Engine, Prompt};

use crate::env::Environment;
use crate::message::Failure;
use crate::model::ModelName;

/// How a prompt is put to the model.
#[derive(Debug, Args)]
pub(super) struct ChatFlags {
    /// Format every prompt with the model's chat template, as the user's message
    #[arg(long)]
    chat: bool,
    /// With --chat: the system message
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
}

impl ChatFlags {
    /// Whether `--chat` is given.
    pub(super) fn is_requested(&self) -> bool {
        self.chat
    }

    /// Reads the model's template if `--chat` is given.
    pub(super) fn open(&self, model: &ModelName, environment: Environment) -> Result<Option<Chat>, Failure> {
        if !self.chat {
            return Ok(None);
        }
        Ok(Some(Chat::open(&model.name, &model.source(environment)?, self.system.clone())?))
    }
}

/// Replaces a prompt with the tokens of its chat template, if there is one.
pub(super) fn apply(chat: Option<&Chat>, engine: &Engine, prompt: &mut Prompt) -> Result<(), Failure> {
    if let Some(chat) = chat {
        *prompt = chat.apply(engine, prompt)?;
    }
    Ok(())
}
