//! Converts lines to requests for front ends without flags: absent keys take the defaults of the command line.

use std::mem;
use std::sync::{Mutex, PoisonError};

use redline_engine::{
    ClassifyRequest, DiffuseRequest, EmbedRequest, GenerateRequest, JudgeOptions, Prompt, RerankRequest,
    ScoreRequest,
};

use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::jsonl::classify::{self, ClassifyLine};
use crate::jsonl::diffuse::{self, DiffuseLine};
use crate::jsonl::embed::{self, EmbedLine};
use crate::jsonl::generate::{self, GenerateLine};
use crate::jsonl::judge::ChatFrames;
use crate::jsonl::rerank::{self, RerankLine};
use crate::jsonl::score::{self, ScoreLine};
use crate::model::LoadedModel;

/// A loaded model with its chat template.
#[derive(Clone, Copy)]
pub struct ChatModel<'a> {
    /// The model.
    pub model: &'a LoadedModel,
    /// The template, and whether it formats prompts.
    pub chat: &'a Chat,
    /// The template around the instructions of `classify` and `rerank`, if prompts are formatted.
    pub frames: Option<&'a Mutex<ChatFrames>>,
}

impl ChatModel<'_> {
    /// The request of a line to score.
    pub fn score(self, mut line: ScoreLine) -> Result<ScoreRequest, ApiError> {
        let query =
            self.chat.prompt("query", line.query.take(), line.messages.take(), mem::take(&mut line.chat))?;
        let defaults = ScoreRequest::new(Prompt::Text(String::new()), Vec::new(), Vec::new());
        score::request(line, query, &defaults)
    }

    /// The request of a line to classify.
    pub fn classify(self, line: ClassifyLine) -> Result<ClassifyRequest, ApiError> {
        let request = classify::request(line, &ClassifyRequest::new(Vec::new(), Vec::new()));
        let options = self.framed(request.options, ClassifyRequest::INSTRUCTION)?;
        Ok(ClassifyRequest { options, ..request })
    }

    /// The request of a line to rerank.
    pub fn rerank(self, line: RerankLine) -> Result<RerankRequest, ApiError> {
        let request = rerank::request(line, &RerankRequest::new(String::new(), Vec::new()))?;
        let options = self.framed(request.options, RerankRequest::INSTRUCTION)?;
        Ok(RerankRequest { options, ..request })
    }

    /// The request of a line to embed.
    pub fn embed(self, line: EmbedLine) -> EmbedRequest {
        embed::request(line, &EmbedRequest::new(Vec::new()))
    }

    /// The request of a line to generate. It also ends where the chat template ends answers.
    pub fn generate(self, mut line: GenerateLine) -> Result<GenerateRequest, ApiError> {
        let prompt = self.chat.prompt(
            "prompt",
            line.prompt.take(),
            line.messages.take(),
            mem::take(&mut line.chat),
        )?;
        let mut request = generate::request(line, prompt, &GenerateLine::default())?;
        let stop = self.chat.stop_id(&request.prompt, request.ignore_eos, &self.model.engine);
        request.stop_ids.extend(stop);
        Ok(request)
    }

    /// The request of a line to fill masks. It also ends where the chat template ends answers.
    pub fn diffuse(self, mut line: DiffuseLine) -> Result<DiffuseRequest, ApiError> {
        let prompt = self.chat.prompt(
            "prompt",
            line.prompt.take(),
            line.messages.take(),
            mem::take(&mut line.chat),
        )?;
        let mut request = diffuse::request(line, prompt, &DiffuseLine::default())?;
        let stop = self.chat.stop_id(&request.prompt, request.ignore_eos, &self.model.engine);
        request.stop_ids.extend(stop);
        Ok(request)
    }

    /// The options with the chat template around the instruction, if prompts are formatted and the model has no classes of its own.
    fn framed(self, options: JudgeOptions, instruction: &str) -> Result<JudgeOptions, ApiError> {
        match self.frames.filter(|_| self.model.engine.info().classes.is_none()) {
            Some(frames) => frames.lock().unwrap_or_else(PoisonError::into_inner).apply(options, instruction),
            None => Ok(options),
        }
    }
}
