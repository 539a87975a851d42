//! `--chat`: formats prompts with the model's chat template.

use clap::Args;
use redline_engine::{Engine, EngineError, Prompt, Source};
use redline_tokenizer::{ChatMessage, ChatTemplate, TokenizerError};

use crate::env::Environment;
use crate::model::ModelName;
use crate::report::Failure;

/// How a prompt is put to the model.
#[derive(Debug, Args)]
pub(super) struct ChatFlags {
    /// Put every prompt into the model's chat template, as what a user says
    #[arg(long)]
    chat: bool,
    /// With --chat: what the system says before
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
}

/// The chat template to apply, if any.
pub(super) struct Chat<'a> {
    template: Option<ChatTemplate>,
    system: Option<&'a str>,
}

impl ChatFlags {
    /// Reads the model's template if `--chat` is given.
    pub(super) fn open(&self, model: &ModelName, environment: Environment) -> Result<Chat<'_>, Failure> {
        let system = self.system.as_deref();
        if !self.chat {
            return Ok(Chat { template: None, system });
        }
        let template = match model.source(environment)? {
            Source::Directory(dir) => ChatTemplate::from_dir(&dir).map_err(|error| failed(&error))?,
            Source::Embedded(_) => None,
        };
        match template {
            Some(template) => Ok(Chat { template: Some(template), system }),
            None => Err(Failure::usage(
                format!("`{}` has no chat template", model.name),
                "`chat_template.jinja`, or `chat_template` in `tokenizer_config.json`; models that continue text have none",
            )),
        }
    }
}

impl Chat<'_> {
    /// Replaces a prompt with the tokens of its chat template. The template writes the special tokens itself, so none
    /// are added.
    pub(super) fn put(&self, engine: &Engine, prompt: &mut Prompt) -> Result<(), Failure> {
        let Some(template) = &self.template else { return Ok(()) };
        let Prompt::Text(text) = prompt else {
            return Err(Failure::usage("`--chat` and a prompt of token ids", "a chat template takes text"));
        };
        let system = self.system.map(|text| ChatMessage::new("system", text));
        let messages: Vec<ChatMessage> = system.into_iter().chain([ChatMessage::new("user", text)]).collect();
        let text = template.render(&messages, true).map_err(|error| failed(&error))?;
        let Some(tokenizer) = engine.tokenizer() else {
            return Err(EngineError::NoTokenizer(engine.info().name.clone()).into());
        };
        let ids = tokenizer.encode(&text, false).map_err(|error| failed(&error))?;
        *prompt = Prompt::Ids(ids.into_iter().map(i64::from).collect());
        Ok(())
    }
}

fn failed(error: &TokenizerError) -> Failure {
    Failure::failed(error.to_string(), Some("leave out `--chat` and write the whole prompt".to_owned()))
}
