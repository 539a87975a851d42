//! `/infill`, as llama.cpp has it: fills a gap in a text.

use std::sync::Arc;

use redline_engine::{Engine, FinishReason, TokenCounts};
use redline_tokenizer::Tokenizer;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::{ErrorBody, ErrorDetail};
use crate::gap::{self, GapText};
use crate::generation::mode::{
    GenerationMode, GenerationOutcome, GenerationPiece, GenerationRequest, PromptEnd,
};
use crate::generation::restrict::one_ranked_text;
use crate::generation::stream::{ServerEvent, StreamCounts, StreamFormat, StreamedAnswer};
use crate::generation::{GenerationParts, StreamForm, generation_request, unsupported_by_canvases};
use crate::json::cases::streams;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::parts::with_parts;
use crate::json::shape::CountOrAll;
use crate::json::text::JsonText;
use crate::model::LoadedModel;

/// Asks for the text of a gap.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "InfillBody")]
pub struct InfillBody {
    /// The text before the gap.
    pub input_prefix: String,
    /// The text after the gap.
    pub input_suffix: String,
    /// Other files, the least important first.
    pub input_extra: Option<Vec<ExtraFile>>,
    /// The beginning of the text of the gap.
    pub prompt: Option<String>,
    /// Maximum number of new tokens; -1: as many as fit. Default: -1.
    #[schemars(with = "Option<CountOrAll>")]
    pub n_predict: Option<i64>,
    /// Accepted and not used.
    pub n_indent: Option<usize>,
    /// Accepted and not used: equal beginnings of prompts are always shared.
    pub cache_prompt: Option<bool>,
    /// Accepted and not used.
    pub id_slot: Option<i64>,
    /// Accepted and not used.
    #[schemars(with = "Option<Vec<String>>")]
    pub samplers: Option<JsonText>,
    /// Accepted and not used.
    pub t_max_prompt_ms: Option<i64>,
    /// Accepted and not used: `timeout_s` is a time limit.
    pub t_max_predict_ms: Option<i64>,
    /// Accepted and not used: an answer has all its fields.
    pub response_fields: Option<Vec<String>>,
    /// How the answer is generated.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub parts: GenerationParts,
}

with_parts! {
    InfillBody { parts: GenerationParts }
}

fn request_cases(schema: &mut Schema) {
    one_ranked_text(schema);
    streams(schema);
}

/// Another file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "ExtraFile")]
pub struct ExtraFile {
    /// Its name.
    pub filename: Option<String>,
    /// Its text.
    pub text: String,
}

objects!(ExtraFile);

/// The text of a gap, or a part of it in a stream.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InfillAnswer {
    /// The text.
    pub content: String,
    /// Whether this is the end of the text.
    pub stop: bool,
    /// Always 0.
    pub index: usize,
    /// The ids of the new tokens.
    pub tokens: Vec<u32>,
    /// At the end: what there is to know of the whole.
    #[serde(flatten)]
    pub end: Option<InfillEnd>,
}

/// The end of the text of a gap.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InfillEnd {
    /// The model's name.
    pub model: String,
    /// Why the text ended: `limit`, `eos` (with a token that ends it) or `word` (with a stop text).
    pub stop_type: &'static str,
    /// Number of new tokens.
    pub tokens_predicted: usize,
    /// Number of tokens of the prompt.
    pub tokens_evaluated: usize,
    /// How many of these came from the prefix cache.
    pub tokens_cached: usize,
}

impl InfillEnd {
    fn new(
        form: &InfillForm,
        model: &LoadedModel,
        reason: FinishReason,
        last: Option<u32>,
        of: TokenCounts,
    ) -> Self {
        let stop_type = match reason {
            FinishReason::Length | FinishReason::Cancelled => "limit",
            FinishReason::Stop if last.is_some_and(|id| form.ends(&model.engine, id)) => "eos",
            FinishReason::Stop => "word",
        };
        Self {
            model: form.model.clone(),
            stop_type,
            tokens_predicted: of.completion_tokens,
            tokens_evaluated: of.prompt_tokens,
            tokens_cached: of.cached_tokens,
        }
    }
}

/// An event of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum InfillEvent {
    /// New text.
    Text(Box<InfillAnswer>),
    /// Why the answer ends before its time.
    Failed(ErrorBody),
}

impl ServerEvent for InfillEvent {}

/// A request whose prompt is not made of its parts yet.
#[derive(Clone, Debug)]
pub struct InfillRequest {
    /// The request without its prompt.
    pub request: GenerationRequest,
    text: GapText,
}

/// The parts of a request that shape its answer.
#[derive(Clone, Debug)]
pub struct InfillForm {
    model: String,
    stop_ids: Vec<i64>,
    /// How the answer is streamed, if it is.
    pub stream: Option<StreamForm>,
}

impl InfillForm {
    /// Whether a token ends the text.
    fn ends(&self, engine: &Engine, id: u32) -> bool {
        let of_gap = || engine.tokenizer().and_then(Tokenizer::gap_tokens);
        engine.end_ids().contains(&id)
            || self.stop_ids.contains(&i64::from(id))
            || of_gap().is_some_and(|gap| gap.ends.contains(&id))
    }
}

/// The share of the context that is kept for the text of the gap, if its maximum length is not given.
const SHARE: usize = 4;

impl InfillRequest {
    /// The request with its prompt. What does not fit is cut: the other files first, then the far ends of the texts around the gap.
    pub fn completed(self, engine: &Engine) -> Result<GenerationRequest, ApiError> {
        let Self { mut request, text } = self;
        let context = engine.info().context;
        let (new, most) = match &mut request {
            GenerationRequest::Autoregressive(request) if request.fit_context => (context / SHARE, None),
            GenerationRequest::Autoregressive(request) => {
                (request.max_new_tokens, request.prompt_tokens.take())
            }
            GenerationRequest::Diffusion(_) => (0, None),
        };
        let room = context.saturating_sub(new).min(most.unwrap_or(usize::MAX));
        gap::set_prompt(&mut request, engine, &text, Some(room), "input_suffix")?;
        Ok(request)
    }
}

/// Builds the engine's request, but for its prompt. The answer names the model so.
pub fn request(
    mode: GenerationMode,
    model: String,
    body: InfillBody,
) -> Result<(InfillRequest, InfillForm), ApiError> {
    unsupported_by_canvases(
        "input_suffix",
        mode == GenerationMode::Diffusion,
        "put masks into a completion",
    )?;
    let parts = body.parts;
    parts.sampling.check_one_text(true)?;
    let most = match body.n_predict.unwrap_or(-1) {
        -1 => None,
        count => Some(usize::try_from(count).ok().filter(|&count| count > 0).ok_or_else(|| {
            refused(
                "n_predict",
                format!("`n_predict` is {count}"),
                "give at least 1, or -1 for as many as fit",
            )
        })?),
    };
    let stream = StreamForm::of(&parts, mode)?;
    let stop_ids = parts.sampling.stop_token_ids.clone().unwrap_or_default();
    let request = generation_request(mode, parts, most, None, stream)?;
    let files = body.input_extra.unwrap_or_default().into_iter();
    let text = GapText {
        before: body.input_prefix,
        after: body.input_suffix,
        begun: body.prompt.unwrap_or_default(),
        files: files.map(|file| (file.filename.unwrap_or_else(|| "file".to_owned()), file.text)).collect(),
    };
    Ok((InfillRequest { request, text }, InfillForm { model, stop_ids, stream }))
}

/// Builds the answer.
pub fn answer(model: &LoadedModel, form: &InfillForm, mut outcome: GenerationOutcome) -> InfillAnswer {
    let choice = outcome.choices.pop().unwrap_or_default();
    let last = choice.token_ids.last().copied();
    let end = InfillEnd::new(form, model, choice.finish_reason, last, outcome.end.counts);
    InfillAnswer { content: choice.text, stop: true, index: 0, tokens: choice.token_ids, end: Some(end) }
}

/// An answer that is sent in events.
pub struct InfillStream {
    model: Arc<LoadedModel>,
    form: InfillForm,
    counts: StreamCounts,
}

impl InfillStream {
    /// The stream of the answer to a request that [`request`] built.
    pub fn new(model: Arc<LoadedModel>, form: InfillForm) -> Self {
        Self { model, form, counts: StreamCounts::new(1) }
    }
}

impl StreamedAnswer for InfillStream {
    type Event = InfillEvent;

    const FORMAT: StreamFormat = StreamFormat::Events;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<InfillEvent>,
    ) -> Result<(), ApiError> {
        self.counts.add(prompt, &piece);
        let tokens = piece.tokens.as_slice().to_vec();
        let usage = self.counts.total();
        let counts = TokenCounts {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.prompt_tokens_details.cached_tokens,
        };
        let last = tokens.last().copied();
        let end =
            piece.finish_reason.map(|reason| InfillEnd::new(&self.form, &self.model, reason, last, counts));
        if piece.text.is_empty() && tokens.is_empty() && end.is_none() {
            return Ok(());
        }
        let event = InfillAnswer { content: piece.text, stop: end.is_some(), index: 0, tokens, end };
        events.push(InfillEvent::Text(Box::new(event)));
        Ok(())
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, _events: &mut Vec<InfillEvent>) {}

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<InfillEvent>) {
        events.push(InfillEvent::Failed(ErrorBody { error }));
    }

    fn usage(&self) -> Usage {
        self.counts.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<(InfillRequest, InfillForm), ApiError> {
        request(GenerationMode::Autoregressive, "m".to_owned(), serde_json::from_str(json).unwrap())
    }

    #[test]
    fn every_part_of_the_text_reaches_the_request() {
        let json = r#"{"input_prefix":"a","input_suffix":"b","prompt":"c","input_extra":[{"filename":"f","text":"d"},{"text":"e"}],
            "n_predict":7,"temperature":0.5,"stop_token_ids":[3],"n_indent":4,"cache_prompt":true,"id_slot":0,
            "samplers":["top_k"],"t_max_prompt_ms":500,"t_max_predict_ms":1000,"response_fields":["content"]}"#;
        let (asked, form) = read(json).unwrap();
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let text = |text: &str| text.to_owned();
        let files = vec![pair("f", "d"), pair("file", "e")];
        assert_eq!(asked.text, GapText { before: text("a"), after: text("b"), begun: text("c"), files });
        let GenerationRequest::Autoregressive(request) = asked.request else { panic!("a canvas") };
        assert_eq!(
            (request.max_new_tokens, request.sampling.temperature, request.fit_context),
            (7, 0.5, false)
        );
        assert_eq!((request.stop_ids, form.stop_ids, form.stream), (vec![3], vec![3], None));
    }

    #[test]
    fn what_is_no_request_is_refused_by_name() {
        for (rest, param) in
            [(r#""n_predict":0"#, "n_predict"), (r#""n_predict":-2"#, "n_predict"), (r#""n":2"#, "n")]
        {
            let error = read(&format!(r#"{{"input_prefix":"a","input_suffix":"b",{rest}}}"#)).unwrap_err();
            assert!(matches!(error, ApiError::Field { param: named, .. } if named == param), "{rest}");
        }
        let body = serde_json::from_str(r#"{"input_prefix":"a","input_suffix":"b"}"#).unwrap();
        assert!(request(GenerationMode::Diffusion, "m".to_owned(), body).is_err());
        assert!(serde_json::from_str::<InfillBody>(r#"{"input_prefix":"a"}"#).is_err());
    }
}
