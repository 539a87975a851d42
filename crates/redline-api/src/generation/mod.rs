//! What the requests for generated text have in common.

use redline_engine::{
    DiffuseRequest, FinishReason, GenerateRequest, Penalties, Prompt, ReceiptOptions, Sampling,
};

use crate::chat::keys::JsonText;
use crate::error::ApiError;
use crate::generation::mode::{GenerationMode, GenerationRequest};
use crate::generation::stream::StreamOptions;
use crate::json::fields::{above_zero, refused, salt, stops, timeout, within};
use crate::json::input::{LogitBias, Strings};
use crate::json::limits::{
    MAX_BIAS, MAX_CONTINUATIONS, MAX_GUIDANCE, MAX_PENALTY, MAX_TEMPERATURE, MAX_TOP_K,
};
use crate::jsonl::diffuse::{DiffusionKeys, MAX_NEW_TOKENS, with_keys};
use crate::jsonl::generate::SamplingDefaults;

pub mod body;
pub mod canvas;
pub mod mode;
pub mod restrict;
pub mod stream;

/// The limits of the schemas are those of the engine.
const _: () = assert!(
    MAX_CONTINUATIONS == GenerateRequest::MAX_CONTINUATIONS && MAX_GUIDANCE == DiffuseRequest::MAX_GUIDANCE
);

/// The fields that choose tokens.
#[derive(Debug, Default)]
pub(crate) struct GenerationFields {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f32>,
    pub(crate) typical_p: Option<f32>,
    pub(crate) seed: Option<i64>,
    pub(crate) n: Option<usize>,
    pub(crate) best_of: Option<usize>,
    pub(crate) stop: Option<Strings>,
    pub(crate) logit_bias: Option<LogitBias>,
    pub(crate) presence_penalty: Option<f32>,
    pub(crate) frequency_penalty: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) timeout_s: Option<f64>,
    pub(crate) receipt: Option<ReceiptOptions>,
    pub(crate) diffusion: DiffusionKeys,
}

impl GenerationFields {
    /// Builds a request without a prompt, for a model that predicts the next token.
    pub(crate) fn request(self, max_new_tokens: usize) -> Result<GenerateRequest, ApiError> {
        if let Some(param) = self.diffusion.given() {
            let fact =
                format!("`{param}` is for models that fill masks, and this one predicts the next token");
            return Err(refused(param, fact, "leave it out, or serve a model such as Dream or LLaDA"));
        }
        let sampling = SamplingDefaults {
            temperature: within("temperature", self.temperature, 0.0..=MAX_TEMPERATURE)?,
            top_k: top_k(self.top_k)?,
            top_p: above_zero("top_p", self.top_p)?,
            min_p: within("min_p", self.min_p, 0.0..=1.0)?,
            typical_p: above_zero("typical_p", self.typical_p)?,
            seed: self.seed.map(|seed| seed as u64),
        };
        let n = within("n", self.n, 1..=MAX_CONTINUATIONS)?.unwrap_or(1);
        let best_of = within("best_of", self.best_of, n..=MAX_CONTINUATIONS)?;
        let sampling = sampling.sampling();
        if best_of.unwrap_or(n) > 1 && sampling.temperature == 0.0 {
            let (param, value) = if n > 1 { ("n", n) } else { ("best_of", best_of.unwrap_or(n)) };
            let fact = format!("`{param}` is {value}, and greedy continuations are all the same");
            return Err(refused(param, fact, "give a `temperature` above 0"));
        }
        let bias = self.logit_bias.map(|bias| bias.0).unwrap_or_default();
        for (id, bias) in &bias {
            within(&format!("logit_bias.{id}"), Some(*bias), -MAX_BIAS..=MAX_BIAS)?;
        }
        let penalty = |param, value| {
            Ok::<_, ApiError>(within(param, value, -MAX_PENALTY..=MAX_PENALTY)?.unwrap_or(0.0))
        };
        let repetition = self.repetition_penalty;
        if repetition.is_some_and(|value| !(value > 0.0 && value.is_finite())) {
            let fact = format!("`repetition_penalty` is {}", repetition.unwrap_or_default());
            return Err(refused("repetition_penalty", fact, "give a number above 0"));
        }
        Ok(GenerateRequest {
            sampling,
            penalties: Penalties {
                repetition: repetition.unwrap_or(1.0),
                frequency: penalty("frequency_penalty", self.frequency_penalty)?,
                presence: penalty("presence_penalty", self.presence_penalty)?,
            },
            logit_bias: bias,
            n,
            best_of,
            stop: stops(self.stop.unwrap_or_default().0)?,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            cache_salt: salt(self.cache_salt)?,
            timeout_s: timeout(self.timeout_s)?,
            receipt: self.receipt,
            ..GenerateRequest::new(Prompt::Ids(Vec::new()), max_new_tokens)
        })
    }

    /// Builds a request without a prompt, for a model that fills masks. Fields that such models do not support are accepted only with
    /// their neutral values.
    pub(crate) fn canvas(self, max_new_tokens: usize) -> Result<DiffuseRequest, ApiError> {
        let is = |value: Option<f32>, neutral: f32| value.is_none_or(|value| value == neutral);
        let (one, omit) = ("send several requests with different seeds", "leave it out");
        for (param, fits, hint) in [
            ("n", self.n.is_none_or(|n| n == 1), one),
            ("best_of", self.best_of.is_none_or(|best_of| best_of == 1), one),
            ("min_p", is(self.min_p, 0.0), omit),
            ("typical_p", is(self.typical_p, 1.0), omit),
            ("logit_bias", self.logit_bias.is_none_or(|bias| bias.0.is_empty()), omit),
            ("presence_penalty", is(self.presence_penalty, 0.0), omit),
            ("frequency_penalty", is(self.frequency_penalty, 0.0), omit),
            ("repetition_penalty", is(self.repetition_penalty, 1.0), omit),
        ] {
            unsupported_by_canvases(param, !fits, hint)?;
        }
        // Canvases share no keys and values with others.
        salt(self.cache_salt)?;
        let default = Sampling::default();
        let sampling = Sampling {
            temperature: within("temperature", self.temperature, 0.0..=MAX_TEMPERATURE)?
                .unwrap_or(default.temperature),
            top_k: top_k(self.top_k)?.unwrap_or(default.top_k),
            top_p: above_zero("top_p", self.top_p)?.unwrap_or(default.top_p),
            seed: self.seed.map_or(default.seed, |seed| seed as u64),
            ..default
        };
        let plain = DiffuseRequest {
            sampling,
            stop: stops(self.stop.unwrap_or_default().0)?,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            timeout_s: timeout(self.timeout_s)?,
            receipt: self.receipt,
            ..DiffuseRequest::new(Prompt::Ids(Vec::new()), max_new_tokens)
        };
        let request = with_keys(&self.diffusion, plain);
        request.check()?;
        Ok(request)
    }
}

/// A number of tokens to keep; 0 and -1 keep all.
fn top_k(value: Option<i64>) -> Result<Option<usize>, ApiError> {
    Ok(within("top_k", value, -1..=MAX_TOP_K)?.map(|k| k.max(0) as usize))
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
    pub(crate) fn of(
        stream: Option<bool>,
        options: Option<StreamOptions>,
        mode: GenerationMode,
        receipt: Option<&ReceiptOptions>,
    ) -> Result<Option<Self>, ApiError> {
        let streams = stream == Some(true);
        if streams && receipt.is_some() {
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

/// Refuses a field that is known and not supported, if it is given.
pub(crate) fn unsupported(param: &str, given: bool, hint: &'static str) -> Result<(), ApiError> {
    if given { Err(refused(param, format!("`{param}` is not supported"), hint)) } else { Ok(()) }
}

/// Like [`unsupported`], for a field that models which fill masks do not support.
pub(crate) fn unsupported_by_canvases(param: &str, given: bool, hint: &'static str) -> Result<(), ApiError> {
    let fact = || format!("`{param}` is not supported by models that fill masks");
    if given { Err(refused(param, fact(), hint)) } else { Ok(()) }
}

/// Refuses functions that the model may call.
pub(crate) fn no_tools(tools: Option<&[JsonText]>, choice: Option<&JsonText>) -> Result<(), ApiError> {
    let choice = choice.map_or("\"auto\"", JsonText::as_str);
    if choice == "\"none\"" {
        return Ok(());
    }
    let hint = "leave `tools` out, or give `tool_choice` = \"none\"";
    unsupported("tools", tools.is_some_and(|tools| !tools.is_empty()), hint)?;
    unsupported("tool_choice", choice != "\"auto\"", "leave it out")
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
    fields: GenerationFields,
    max_tokens: Option<usize>,
    logprobs: Option<usize>,
) -> Result<GenerationRequest, ApiError> {
    match mode {
        GenerationMode::Autoregressive => {
            let request = fields.request(max_tokens.unwrap_or(usize::MAX))?;
            let fit_context = max_tokens.is_none();
            Ok(GenerationRequest::Autoregressive(GenerateRequest { fit_context, logprobs, ..request }))
        }
        GenerationMode::Diffusion => {
            unsupported_by_canvases("logprobs", logprobs.is_some(), "leave it out")?;
            Ok(GenerationRequest::Diffusion(fields.canvas(max_tokens.unwrap_or(MAX_NEW_TOKENS))?))
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
