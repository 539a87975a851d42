//! What the requests for generated text have in common.

pub mod canvas;
pub mod mode;
pub mod restrict;
pub mod stream;

use redline_engine::{DiffuseRequest, FinishReason, GenerateRequest, Prompt, Receipt};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::MapAccess;

use crate::cost::{self, Usage};
use crate::diffusion::DiffusionKeys;
use crate::error::ApiError;
use crate::generation::mode::{GenerationMeta, GenerationMode, GenerationRequest, PromptEnd};
use crate::generation::stream::StreamOptions;
use crate::grammar::GrammarKeys;
use crate::head::AnswerHead;
use crate::json::fields::{refused, salt, timeout};
use crate::json::limits::{MAX_CONTINUATIONS, MAX_GUIDANCE};
use crate::json::parts::{Part, part};
use crate::json::shape::CountOrAll;
use crate::jsonl::diffuse::MAX_NEW_TOKENS;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::{ReceiptChoice, ReceiptDocument};
use crate::sampling::SamplingParameters;

/// The limits of the schemas are those of the engine.
const _: () = assert!(
    MAX_CONTINUATIONS == GenerateRequest::MAX_CONTINUATIONS && MAX_GUIDANCE == DiffuseRequest::MAX_GUIDANCE
);

part! {
    /// What the routes for generated text have in common, beside the parameters.
    pub struct GenerationFields {
        /// The model's name.
        pub model: String,
        /// Whether to send the answer as events while it is generated.
        pub stream: bool,
        /// What the events contain.
        pub stream_options: StreamOptions,
        /// Keep only this number of tokens of the prompt, the last ones, and no more than fit beside the new ones; -1: as many as fit.
        /// Default: all; a prompt that is too long is an error.
        #[schemars(with = "Option<CountOrAll>")]
        pub truncate_prompt_tokens: i64,
        /// Names the end user. A response repeats it; it changes nothing else.
        pub user: String,
    }
}

/// How an answer is generated: the fields that the body of each route for generated text has beside its own.
#[derive(Clone, Debug, Default, JsonSchema)]
pub struct GenerationParts {
    /// The model, and whether the answer is streamed.
    #[schemars(flatten)]
    pub fields: GenerationFields,
    /// How tokens are chosen.
    #[schemars(flatten)]
    pub sampling: SamplingParameters,
    /// What the text has to be.
    #[schemars(flatten)]
    pub grammar: GrammarKeys,
    /// The order in which masks are filled.
    #[schemars(flatten)]
    pub diffusion: DiffusionKeys,
    /// Adapters, time limit, receipt.
    #[schemars(flatten)]
    pub options: RequestOptions,
}

impl Part for GenerationParts {
    fn names(to: &mut Vec<&'static str>) {
        GenerationFields::names(to);
        SamplingParameters::names(to);
        GrammarKeys::names(to);
        DiffusionKeys::names(to);
        RequestOptions::names(to);
    }

    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        Ok(self.fields.read(name, map)?
            || self.sampling.read(name, map)?
            || self.grammar.read(name, map)?
            || self.diffusion.read(name, map)?
            || self.options.read(name, map)?)
    }
}

impl GenerationParts {
    /// Whether the answer is to have a receipt.
    pub(crate) fn asks_for_receipt(&self) -> bool {
        self.options.receipt.as_ref().is_some_and(|choice| *choice != ReceiptChoice::No)
    }

    /// Builds a request without a prompt, for a model that predicts the next token.
    pub(crate) fn request(self, max_new_tokens: usize) -> Result<GenerateRequest, ApiError> {
        let Self { fields, sampling, grammar, diffusion, options } = self;
        if let Some(param) = diffusion.given() {
            let fact =
                format!("`{param}` is for models that fill masks, and this one predicts the next token");
            return Err(refused(param, fact, "leave it out, or serve a model such as Dream or LLaDA"));
        }
        sampling.check()?;
        sampling.check_continuations()?;
        let mut request = GenerateRequest {
            cache_salt: salt(options.cache_salt)?,
            timeout_s: timeout(options.timeout_s)?,
            prompt_tokens: prompt_tokens(fields.truncate_prompt_tokens)?,
            receipt: receipt::options(options.receipt),
            grammar: grammar.grammar()?.map(|(_, grammar)| grammar),
            ..GenerateRequest::new(Prompt::Ids(Vec::new()), max_new_tokens)
        };
        sampling.apply(&mut request)?;
        Ok(request)
    }

    /// Builds a request without a prompt, for a model that fills masks.
    pub(crate) fn canvas(self, max_new_tokens: usize) -> Result<DiffuseRequest, ApiError> {
        let Self { fields, sampling, grammar, diffusion, options } = self;
        let is_cut = fields.truncate_prompt_tokens.is_some();
        unsupported_by_canvases("truncate_prompt_tokens", is_cut, "leave it out")?;
        sampling.check()?;
        if let Some((param, _)) = grammar.grammar()? {
            unsupported_by_canvases(param, true, "leave it out")?;
        }
        // Canvases share no keys and values with others.
        salt(options.cache_salt)?;
        let mut request = DiffuseRequest {
            timeout_s: timeout(options.timeout_s)?,
            receipt: receipt::options(options.receipt),
            ..DiffuseRequest::new(Prompt::Ids(Vec::new()), max_new_tokens)
        };
        sampling.apply_to_canvas(&mut request)?;
        diffusion.apply(&mut request);
        request.check()?;
        Ok(request)
    }
}

/// The answer of a route for generated text that consists of choices.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GeneratedAnswer<C> {
    /// Identifies the answer.
    pub id: String,
    /// `text_completion` or `chat.completion`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// The choices: those of the first prompt, then those of the second.
    pub choices: Vec<C>,
    /// Token counts of all choices together.
    pub usage: Usage,
    /// Of a model that fills masks: how they were filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

impl<C> GeneratedAnswer<C> {
    /// The answer with these choices.
    pub(crate) fn new(
        head: AnswerHead,
        object: &'static str,
        choices: Vec<C>,
        end: PromptEnd,
        receipt: Option<Box<Receipt>>,
    ) -> Self {
        Self {
            id: head.id,
            object,
            created: head.created,
            model: head.model,
            choices,
            usage: cost::usage(end.counts),
            meta: end.meta,
            receipt: receipt::attached(receipt),
        }
    }
}

/// How an answer is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamForm {
    /// Whether the last event has the token counts.
    pub(crate) usage: bool,
    /// Whether every event has the token counts so far.
    pub(crate) running_usage: bool,
    /// Whether events contain what is new of a canvas.
    pub(crate) canvas: bool,
}

impl StreamForm {
    /// How an answer is streamed; `None` if it is not.
    pub(crate) fn of(parts: &GenerationParts, mode: GenerationMode) -> Result<Option<Self>, ApiError> {
        let (streams, options) = (parts.fields.stream == Some(true), parts.fields.stream_options);
        if streams && parts.asks_for_receipt() {
            let fact = "`receipt` is given with `stream`, and a receipt is part of a whole answer";
            return Err(refused("receipt", fact, "leave one of them out"));
        }
        if !streams && options.is_some() {
            let fact = "`stream_options` is given without `stream`";
            return Err(refused("stream_options", fact, "leave it out"));
        }
        let options = options.unwrap_or_default();
        if options.include_obfuscation == Some(true) {
            let param = "stream_options.include_obfuscation";
            return Err(refused(param, "events are not padded", "leave it out"));
        }
        let usage = options.include_usage == Some(true);
        let running_usage = options.continuous_usage_stats == Some(true);
        let canvas = options.include_canvas == Some(true);
        if canvas && mode != GenerationMode::Diffusion {
            let param = "stream_options.include_canvas";
            let fact = "this model predicts the next token, and fills no canvas";
            return Err(refused(param, fact, "leave it out, or serve a model such as Dream or LLaDA"));
        }
        Ok(streams.then_some(Self { usage, running_usage, canvas }))
    }
}

/// Refuses to stream the best of several continuations.
pub(crate) fn best_are_whole(request: &GenerateRequest, stream: Option<StreamForm>) -> Result<(), ApiError> {
    if stream.is_some() && request.continuations() > request.n {
        let fact = "`best_of` is above `n`, and the best are known only at the end";
        return Err(refused("best_of", fact, "leave it out, or leave `stream` out"));
    }
    Ok(())
}

/// Refuses a field that is known and not supported, if it is given.
pub(crate) fn unsupported(param: &str, given: bool, hint: &'static str) -> Result<(), ApiError> {
    if given { Err(refused(param, format!("`{param}` is not supported"), hint)) } else { Ok(()) }
}

/// Like [`unsupported`], for a field that models which fill masks do not support.
pub(crate) fn unsupported_by_canvases(param: &str, given: bool, hint: &'static str) -> Result<(), ApiError> {
    let fact = || format!("`{param}` is not supported by models that fill masks");
    if given { Err(refused(param, fact(), hint)) } else { Ok(()) }
}

/// Refuses formats of text other than plain text.
pub(crate) fn plain_text(param: &str, kind: Option<&str>) -> Result<(), ApiError> {
    match kind {
        Some(kind) if kind != "text" => {
            let fact = format!("`{param}` is {kind:?}, and only \"text\" is supported");
            Err(refused(param, fact, "leave it out"))
        }
        _ => Ok(()),
    }
}

/// The maximum number of tokens of a prompt.
fn prompt_tokens(most: Option<i64>) -> Result<Option<usize>, ApiError> {
    match most {
        Some(most) if most == 0 || most < -1 => {
            let fact = format!("`truncate_prompt_tokens` is {most}");
            Err(refused("truncate_prompt_tokens", fact, "give at least 1, or -1 for as many as fit"))
        }
        most => Ok(most.map(|most| usize::try_from(most).unwrap_or(usize::MAX))),
    }
}

/// The maximum number of new tokens; `None` for as many as fit.
pub(crate) fn max_tokens(param: &str, value: Option<usize>) -> Result<Option<usize>, ApiError> {
    match value {
        Some(0) => Err(refused(param, format!("`{param}` is 0"), "give at least 1")),
        value => Ok(value),
    }
}

/// The request for an answer of this number of new tokens; without a number: as many as fit, or [`MAX_NEW_TOKENS`] masks.
/// `logprobs` is the number of log-probabilities per token.
pub(crate) fn generation_request(
    mode: GenerationMode,
    parts: GenerationParts,
    max_tokens: Option<usize>,
    logprobs: Option<usize>,
    stream: Option<StreamForm>,
) -> Result<GenerationRequest, ApiError> {
    match mode {
        GenerationMode::Autoregressive => {
            let request = parts.request(max_tokens.unwrap_or(usize::MAX))?;
            best_are_whole(&request, stream)?;
            let fit_context = max_tokens.is_none();
            Ok(GenerationRequest::Autoregressive(GenerateRequest { fit_context, logprobs, ..request }))
        }
        GenerationMode::Diffusion => {
            unsupported_by_canvases("logprobs", logprobs.is_some(), "leave it out")?;
            Ok(GenerationRequest::Diffusion(parts.canvas(max_tokens.unwrap_or(MAX_NEW_TOKENS))?))
        }
    }
}

/// The name of a reason to end.
pub(crate) fn reason(of: FinishReason) -> &'static str {
    match of {
        FinishReason::Stop => "stop",
        FinishReason::Length | FinishReason::Cancelled => "length",
    }
}
