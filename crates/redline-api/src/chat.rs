//! Formats prompts with the model's chat template.

use redline_engine::{Engine, EngineError, Prompt, Source};
use redline_tokenizer::{ChatMessage, ChatTemplate, Tokenizer};

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
        let ids = tokenizer(engine)?.encode(&self.text(text)?, false)?;
        Ok(Prompt::Ids(ids.into_iter().map(i64::from).collect()))
    }

    /// The text of a conversation whose user message is `message`, up to where the answer begins.
    pub fn text(&self, message: &str) -> Result<String, ApiError> {
        Ok(self.template.render(&self.messages(message), true)?)
    }

    /// The first token that the template puts after an answer; `None` if it puts nothing there.
    pub fn answer_end(&self, engine: &Engine) -> Result<Option<u32>, ApiError> {
        let mut messages = self.messages("?");
        messages.push(ChatMessage::new("assistant", ANSWER));
        let text = self.template.render(&messages, false)?;
        let after = text.rsplit_once(ANSWER).map_or("", |(_, after)| after);
        Ok(tokenizer(engine)?.encode(after, false)?.first().copied())
    }

    fn messages(&self, message: &str) -> Vec<ChatMessage> {
        let system = self.system.as_deref().map(|text| ChatMessage::new("system", text));
        system.into_iter().chain([ChatMessage::new("user", message)]).collect()
    }
}

/// An answer that no template contains.
const ANSWER: &str = "0xA115E7";

fn tokenizer(engine: &Engine) -> Result<&Tokenizer, ApiError> {
    Ok(engine.tokenizer().ok_or_else(|| EngineError::NoTokenizer(engine.info().name.clone()))?)
}
