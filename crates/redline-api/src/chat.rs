//! Formats prompts with the model's chat template.

use redline_engine::{Engine, EngineError, Prompt, Source};
use redline_tokenizer::{ChatMessage, ChatTemplate};

use crate::ApiError;

/// A chat template, and the system message that precedes every prompt.
#[derive(Clone, Debug)]
pub struct Chat {
    template: ChatTemplate,
    system: Option<String>,
}

impl Chat {
    /// Reads the template of the model at `source`. It is an error if the model has none; the error names the model `name`.
    pub fn open(name: &str, source: &Source, system: Option<String>) -> Result<Self, ApiError> {
        let template = match source {
            Source::Directory(dir) => ChatTemplate::from_dir(dir)?,
            Source::Embedded(_) => None,
        };
        let template = template.ok_or_else(|| ApiError::NoChatTemplate(name.to_owned()))?;
        Ok(Self { template, system })
    }

    /// The token ids of a conversation whose user message is the prompt. The template contains the special tokens, so none are
    /// added. It is an error if the prompt consists of token ids.
    pub fn apply(&self, engine: &Engine, prompt: &Prompt) -> Result<Prompt, ApiError> {
        let Prompt::Text(text) = prompt else {
            return Err(ApiError::ChatOfIds);
        };
        let system = self.system.as_deref().map(|text| ChatMessage::new("system", text));
        let messages: Vec<ChatMessage> = system.into_iter().chain([ChatMessage::new("user", text)]).collect();
        let text = self.template.render(&messages, true)?;
        let Some(tokenizer) = engine.tokenizer() else {
            return Err(EngineError::NoTokenizer(engine.info().name.clone()).into());
        };
        let ids = tokenizer.encode(&text, false)?;
        Ok(Prompt::Ids(ids.into_iter().map(i64::from).collect()))
    }
}
