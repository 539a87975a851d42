//! `/generate` and `/generate_stream`, as Text Generation Inference (TGI) has them.

use std::sync::Arc;

use redline_engine::{FinishReason, PositionLogprobs};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::{ErrorDetail, TeiErrorBody};
use crate::generation::mode::{
    GeneratedChoice, GenerationMode, GenerationOutcome, GenerationPiece, GenerationRequest, PromptEnd,
};
use crate::generation::restrict::one_ranked_text;
use crate::generation::stream::{ServerEvent, StreamCounts, StreamFormat, StreamedAnswer};
use crate::generation::{GenerationParts, StreamForm, generation_request, max_tokens};
use crate::grammar::GrammarKeys;
use crate::json::cases::{case, cases};
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::named::names;
use crate::json::object::objects;
use crate::json::parts::with_parts;
use crate::json::shape::{self, one_of, text};
use crate::json::text::JsonText;
use crate::model::LoadedModel;
use crate::sampling::SamplingParameters;

/// Asks for the text after a prompt.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TgiBody {
    /// The prompt.
    pub inputs: String,
    /// How it is continued.
    pub parameters: Option<TgiParameters>,
    /// At `/`: whether to send the answer as events while it is generated.
    pub stream: Option<bool>,
}

/// How a prompt is continued.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(transform = one_ranked_text)]
#[serde(deny_unknown_fields, remote = "TgiParameters")]
pub struct TgiParameters {
    /// Maximum number of new tokens. Default: 100.
    #[schemars(range(min = 1))]
    pub max_new_tokens: Option<usize>,
    /// Whether tokens are drawn; with `true`, the default of `temperature` is 1.
    pub do_sample: Option<bool>,
    /// Whether the text begins with the prompt.
    pub return_full_text: Option<bool>,
    /// Whether to return the tokens, and why the text ended.
    pub details: Option<bool>,
    /// Keep only this number of tokens of the prompt, the last ones.
    #[schemars(range(min = 1, max = i64::MAX))]
    pub truncate: Option<usize>,
    /// What the text has to be.
    pub grammar: Option<TgiGrammar>,
    /// The name of an adapter.
    pub adapter_id: Option<String>,
    /// Whether to return the tokens of the prompt. Only `false` is supported.
    #[schemars(with = "Option<shape::False>")]
    pub decoder_input_details: Option<bool>,
    /// Number of most probable tokens to return at each position. None are supported.
    #[schemars(range(max = 0))]
    pub top_n_tokens: Option<usize>,
    /// Whether the text has a watermark. Only `false` is supported.
    #[schemars(with = "Option<shape::False>")]
    pub watermark: Option<bool>,
    /// How tokens are chosen.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub sampling: SamplingParameters,
}

with_parts! {
    TgiParameters { sampling: SamplingParameters }
}

/// What a text has to be.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = grammar_cases)]
#[serde(deny_unknown_fields, remote = "TgiGrammar")]
pub struct TgiGrammar {
    /// What `value` is.
    #[serde(rename = "type")]
    pub kind: TgiGrammarKind,
    /// A JSON schema, or a regular expression.
    #[schemars(with = "serde_json::Value")]
    pub value: JsonText,
}

objects!(TgiGrammar);

/// A regular expression is a text.
fn grammar_cases(schema: &mut Schema) {
    let of_json = json!({ "type": ["object", "string"] });
    let json = case([("type", one_of(&["json"])), ("value", of_json)], &[]);
    cases(schema, [json, case([("value", text())], &[])]);
}

/// The kinds of grammars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "TgiGrammarKind")]
pub enum TgiGrammarKind {
    /// A JSON schema: the text is a value that it allows.
    Json,
    /// A regular expression that the whole text matches.
    Regex,
}

names!(TgiGrammarKind);

/// The text after a prompt.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TgiAnswer {
    /// The text.
    pub generated_text: String,
    /// Its tokens, and why it ended, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<TgiDetails>,
}

/// The tokens of a text, and why it ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TgiDetails {
    /// `length`, `eos_token` or `stop_sequence`.
    pub finish_reason: &'static str,
    /// Number of new tokens.
    pub generated_tokens: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The tokens of the prompt; always empty.
    pub prefill: [TgiToken; 0],
    /// The new tokens.
    pub tokens: Vec<TgiToken>,
}

/// A token.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TgiToken {
    /// Its id.
    pub id: u32,
    /// The text that became final with it. The texts of all tokens make up the generated text.
    pub text: String,
    /// Its log-probability.
    pub logprob: Finite<f32>,
    /// Whether it is a special token.
    pub special: bool,
}

/// An event of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TgiEvent {
    /// A new token.
    Token(TgiStreamToken),
    /// Why the answer ends before its time.
    Failed(TeiErrorBody),
}

impl ServerEvent for TgiEvent {}

/// A new token.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TgiStreamToken {
    /// Its number, from 1 on.
    pub index: usize,
    /// The token.
    pub token: TgiToken,
    /// In the last event: the whole text.
    pub generated_text: Option<String>,
    /// In the last event: why the text ended.
    pub details: Option<TgiStreamDetails>,
}

/// Why a streamed text ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TgiStreamDetails {
    /// `length`, `eos_token` or `stop_sequence`.
    pub finish_reason: &'static str,
    /// Number of new tokens.
    pub generated_tokens: usize,
    /// Number of tokens of the prompt.
    pub input_length: usize,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// Default of `max_new_tokens`, which is TGI's.
const MAX_TOKENS: usize = 100;

/// The parts of a request that shape its answer.
#[derive(Clone, Debug)]
pub struct TgiForm {
    details: bool,
    /// What the text begins with.
    full: Option<String>,
    seed: u64,
    /// The tokens that end a text besides those of the model.
    stop_ids: Vec<i64>,
}

impl TgiForm {
    /// Whether the text begins with the prompt.
    pub fn echoes(&self) -> bool {
        self.full.is_some()
    }

    /// The names of finish reasons in TGI. `last` is the last token.
    fn reason(&self, model: &LoadedModel, of: FinishReason, last: Option<u32>) -> &'static str {
        let ends = |id: u32| model.engine.end_ids().contains(&id) || self.stop_ids.contains(&i64::from(id));
        match of {
            FinishReason::Length | FinishReason::Cancelled => "length",
            FinishReason::Stop if last.is_some_and(ends) => "eos_token",
            FinishReason::Stop => "stop_sequence",
        }
    }
}

/// Builds the engine's request, for an answer in events or a whole one. Errors name the fields of `parameters`.
pub fn request(body: TgiBody, streams: bool) -> Result<(GenerationRequest, TgiForm), ApiError> {
    let parameters = body.parameters.unwrap_or_default();
    parameters_request(&body.inputs, parameters, streams).map_err(|error| match error {
        ApiError::Field { param, fact, hint } => {
            let param = match param.as_str() {
                "truncate_prompt_tokens" => "truncate",
                "guided_json" | "guided_regex" => "grammar",
                param => param,
            };
            ApiError::Field { param: format!("parameters.{param}"), fact, hint }
        }
        other => other,
    })
}

fn parameters_request(
    prompt: &str,
    parameters: TgiParameters,
    streams: bool,
) -> Result<(GenerationRequest, TgiForm), ApiError> {
    for (param, given) in [
        ("watermark", parameters.watermark == Some(true)),
        ("decoder_input_details", parameters.decoder_input_details == Some(true)),
        ("top_n_tokens", parameters.top_n_tokens.is_some_and(|count| count > 0)),
    ] {
        crate::generation::unsupported(param, given, "leave it out")?;
    }
    let mut sampling = parameters.sampling;
    sampling.check_one_text(true)?;
    if parameters.do_sample == Some(true) {
        sampling.temperature.get_or_insert(1.0);
    }
    let form = TgiForm {
        details: parameters.details == Some(true),
        full: (parameters.return_full_text == Some(true)).then(|| prompt.to_owned()),
        seed: sampling.sampling().seed,
        stop_ids: sampling.stop_token_ids.clone().unwrap_or_default(),
    };
    let mut parts = GenerationParts { sampling, ..GenerationParts::default() };
    parts.grammar = parameters.grammar.map(grammar).transpose()?.unwrap_or_default();
    parts.fields.truncate_prompt_tokens =
        parameters.truncate.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    let most = max_tokens("max_new_tokens", parameters.max_new_tokens)?.unwrap_or(MAX_TOKENS);
    let logprobs = (streams || form.details).then_some(0);
    let stream = streams.then(StreamForm::default);
    let mut request =
        generation_request(GenerationMode::Autoregressive, parts, Some(most), logprobs, stream)?;
    *request.shared().prompt = redline_engine::Prompt::Text(prompt.to_owned());
    Ok((request, form))
}

fn grammar(of: TgiGrammar) -> Result<GrammarKeys, ApiError> {
    match of.kind {
        TgiGrammarKind::Json => Ok(GrammarKeys { guided_json: Some(of.value), ..GrammarKeys::default() }),
        TgiGrammarKind::Regex => match serde_json::from_str(of.value.as_str()) {
            Ok(regex) => Ok(GrammarKeys { guided_regex: Some(regex), ..GrammarKeys::default() }),
            Err(_) => {
                Err(refused("grammar.value", "`grammar.value` is no string", "give a regular expression"))
            }
        },
    }
}

/// Builds the answer.
pub fn answer(model: &LoadedModel, form: &TgiForm, mut outcome: GenerationOutcome) -> TgiAnswer {
    let GeneratedChoice { text, token_ids, finish_reason, logprobs } =
        outcome.choices.pop().unwrap_or_default();
    let details = form.details.then(|| TgiDetails {
        finish_reason: form.reason(model, finish_reason, token_ids.last().copied()),
        generated_tokens: token_ids.len(),
        seed: form.seed,
        prefill: [],
        tokens: logprobs.iter().flatten().map(|at| token(model, at, at.chosen.text.clone())).collect(),
    });
    let begin = form.full.clone().unwrap_or_default();
    TgiAnswer { generated_text: begin + &text, details }
}

fn token(model: &LoadedModel, at: &PositionLogprobs, text: String) -> TgiToken {
    let id = at.chosen.id;
    let special = model.engine.tokenizer().is_some_and(|tokenizer| tokenizer.is_marker(id));
    TgiToken { id, text, logprob: Finite(at.chosen.logprob), special }
}

/// An answer that is sent in events.
pub struct TgiStream {
    model: Arc<LoadedModel>,
    form: TgiForm,
    counts: StreamCounts,
    text: String,
}

impl TgiStream {
    /// The stream of the answer to a request that [`request`] built.
    pub fn new(model: Arc<LoadedModel>, form: TgiForm) -> Self {
        let text = form.full.clone().unwrap_or_default();
        Self { model, form, counts: StreamCounts::new(1), text }
    }
}

impl StreamedAnswer for TgiStream {
    type Event = TgiEvent;

    const FORMAT: StreamFormat = StreamFormat::Events;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<TgiEvent>,
    ) -> Result<(), ApiError> {
        self.counts.add(prompt, &piece);
        self.text.push_str(&piece.text);
        let Some(at) = &piece.logprobs else { return Ok(()) };
        let token = token(&self.model, at, piece.text);
        let usage = self.counts.total();
        let details = piece.finish_reason.map(|reason| TgiStreamDetails {
            finish_reason: self.form.reason(&self.model, reason, Some(token.id)),
            generated_tokens: usage.completion_tokens,
            input_length: usage.prompt_tokens,
            seed: self.form.seed,
        });
        let generated_text = details.is_some().then(|| self.text.clone());
        let index = usage.completion_tokens;
        events.push(TgiEvent::Token(TgiStreamToken { index, token, generated_text, details }));
        Ok(())
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, _events: &mut Vec<TgiEvent>) {}

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<TgiEvent>) {
        events.push(TgiEvent::Failed(TeiErrorBody { error: error.message, error_type: "generation" }));
    }

    fn usage(&self) -> Usage {
        self.counts.total()
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{GenerateRequest, GrammarKind, Prompt};

    use super::*;

    fn read(json: &str, streams: bool) -> Result<(GenerateRequest, TgiForm), ApiError> {
        let (request, form) = request(serde_json::from_str(json).unwrap(), streams)?;
        match request {
            GenerationRequest::Autoregressive(request) => Ok((request, form)),
            GenerationRequest::Diffusion(_) => panic!("a canvas"),
        }
    }

    #[test]
    fn every_parameter_reaches_the_request() {
        let json = r#"{"inputs":"p","parameters":{"max_new_tokens":7,"temperature":0.5,"top_k":3,"top_p":0.75,"typical_p":0.5,"seed":9,
            "repetition_penalty":1.5,"frequency_penalty":0.5,"stop":["x"],"truncate":4,"best_of":2,"return_full_text":true,
            "details":true,"watermark":false,"decoder_input_details":false,"top_n_tokens":0,
            "grammar":{"type":"regex","value":"a+"}}}"#;
        let (request, form) = read(json, false).unwrap();
        assert_eq!((&request.prompt, request.prompt_tokens), (&Prompt::Text("p".to_owned()), Some(4)));
        assert_eq!((request.max_new_tokens, request.best_of, request.logprobs), (7, Some(2), Some(0)));
        let sampling = request.sampling;
        assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed), (0.5, 3, 0.75, 9));
        assert_eq!((request.penalties.repetition, request.penalties.frequency), (1.5, 0.5));
        let grammar = request.grammar.unwrap();
        assert_eq!((grammar.kind, grammar.source.as_str()), (GrammarKind::Regex, "a+"));
        assert_eq!((form.details, form.full.as_deref(), form.seed), (true, Some("p"), 9));
        let (plain, form) = read(r#"{"inputs":"p"}"#, false).unwrap();
        assert_eq!((plain.max_new_tokens, plain.sampling.temperature, plain.logprobs), (100, 0.0, None));
        assert!(!form.details && form.full.is_none());
        let (drawn, _) = read(r#"{"inputs":"p","parameters":{"do_sample":true}}"#, true).unwrap();
        assert_eq!((drawn.sampling.temperature, drawn.logprobs), (1.0, Some(0)));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (parameters, param) in [
            (r#""watermark":true"#, "watermark"),
            (r#""decoder_input_details":true"#, "decoder_input_details"),
            (r#""top_n_tokens":1"#, "top_n_tokens"),
            (r#""max_new_tokens":0"#, "max_new_tokens"),
            (r#""truncate":0"#, "truncate"),
            (r#""top_p":0"#, "top_p"),
            (r#""n":2,"temperature":1"#, "n"),
            (r#""grammar":{"type":"regex","value":7}"#, "grammar.value"),
        ] {
            let error =
                read(&format!(r#"{{"inputs":"p","parameters":{{{parameters}}}}}"#), false).unwrap_err();
            let ApiError::Field { param: named, .. } = error else { panic!("{parameters}: {error}") };
            assert_eq!(named, format!("parameters.{param}"));
        }
        let best = r#"{"inputs":"p","parameters":{"best_of":2,"temperature":1}}"#;
        assert!(read(best, false).is_ok() && read(best, true).is_err());
    }
}
