//! `/v1/completions`, as OpenAI and vLLM have it.

use std::sync::Arc;

use redline_engine::{Engine, GenerateRequest, PositionLogprobs, PromptLogprobs, TokenLogprob};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::ErrorDetail;
use crate::gap::{self, GapText};
use crate::generation::canvas::CanvasEvent;
use crate::generation::mode::{
    GeneratedChoice, GenerationMode, GenerationOutcome, GenerationPiece, GenerationRequest, PromptEnd,
};
use crate::generation::stream::{Chunks, StreamEvent, StreamFormat, StreamedAnswer, fail};
use crate::generation::{
    GeneratedAnswer, GenerationParts, StreamForm, best_are_whole, reason, unsupported_by_canvases,
};
use crate::head::AnswerHead;
use crate::json::cases::{at_most, case, case_if_given, cases, continuations, not_true, streams};
use crate::json::entries::Entries;
use crate::json::fields::{count, refused, within};
use crate::json::finite::Finite;
use crate::json::input::{Prompts, TextOrIds};
use crate::json::limits::{MAX_PROMPTS, MAX_TOP_LOGPROBS};
use crate::json::parts::with_parts;
use crate::json::shape::text;
use crate::model::LoadedModel;

/// Asks for continuations of prompts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "CompletionBody")]
pub struct CompletionBody {
    /// The prompts.
    pub prompt: Prompts,
    /// Maximum number of new tokens per continuation.
    pub max_tokens: Option<usize>,
    /// Whether the text begins with the prompt.
    pub echo: Option<bool>,
    /// Return log-probabilities of the tokens, and of this number of most probable tokens at each position.
    #[schemars(range(max = MAX_TOP_LOGPROBS))]
    pub logprobs: Option<usize>,
    /// Whether to return the ids of the new tokens.
    pub return_token_ids: Option<bool>,
    /// Text after the completion, which then fills the gap between the two. Not with `echo`, nor with prompts of token ids.
    pub suffix: Option<String>,
    /// How the answer is generated.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub parts: GenerationParts,
}

with_parts! {
    CompletionBody { parts: GenerationParts }
}

/// Answer of `/v1/completions`.
pub type OpenAiCompletion = GeneratedAnswer<OpenAiChoice>;

/// A continuation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpenAiChoice {
    /// Its index.
    pub index: usize,
    /// The text.
    pub text: String,
    /// Log-probabilities of its tokens.
    pub logprobs: Option<LegacyLogprobs>,
    /// Why it ended: `stop` or `length`.
    pub finish_reason: &'static str,
    /// The ids of the new tokens, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// An event of a streamed answer of `/v1/completions`.
pub type CompletionEvent = StreamEvent<CompletionDelta>;

/// New text of a continuation.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CompletionDelta {
    /// The index of the continuation.
    pub index: usize,
    /// The new text.
    pub text: String,
    /// Log-probabilities of the new tokens.
    pub logprobs: Option<LegacyLogprobs>,
    /// In the last chunk of the continuation: `stop` or `length`.
    pub finish_reason: Option<&'static str>,
    /// What is new of the canvas, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canvas: Option<CanvasEvent>,
    /// The ids of the new tokens, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// Log-probabilities as parallel lists, one entry per token.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LegacyLogprobs {
    /// The texts of the tokens.
    pub tokens: Vec<String>,
    /// Their log-probabilities; `null` for the first token of a prompt.
    pub token_logprobs: Vec<Option<Finite<f32>>>,
    /// The most probable tokens at each position, and the token itself; `null` for the first token of a prompt.
    pub top_logprobs: Vec<Option<Entries<Finite<f32>>>>,
    /// Where each token begins in the texts of `tokens` joined, in characters.
    pub text_offset: Vec<usize>,
    /// The probability of all tokens that the grammar did not allow at each position, if there is one; `null` for those of a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_mass: Option<Vec<Option<Finite<f32>>>>,
}

/// The rules between fields: `stream_options` require `stream`, several continuations a temperature, and a request has at most two of
/// `echo`, `logprobs` and several continuations.
fn request_cases(schema: &mut Schema) {
    streams(schema);
    continuations(schema, &["n", "best_of"]);
    let texts = json!({ "anyOf": [text(), { "type": "array", "items": text() }] });
    cases(schema, [case([], &["suffix"]), case_if_given([("echo", not_true()), ("prompt", texts)])]);
    cases(
        schema,
        [
            case_if_given([("echo", not_true())]),
            case([], &["logprobs"]),
            case_if_given([("n", at_most(1)), ("best_of", at_most(1))]),
        ],
    );
}

/// Default of `max_tokens`, which is OpenAI's.
const MAX_TOKENS: usize = 16;

/// The parts of a request that shape its answer.
#[derive(Clone, Copy, Debug)]
pub struct CompletionForm {
    /// Whether the text begins with the prompt.
    echo: bool,
    /// Whether only the prompt was asked for: the one new token is left out.
    prompt_only: bool,
    /// Whether log-probabilities are returned.
    logprobs: bool,
    /// Whether token ids are returned.
    token_ids: bool,
    /// How the answer is streamed, if it is.
    stream: Option<StreamForm>,
}

impl CompletionForm {
    /// Whether texts begin with their prompts.
    pub fn echoes(&self) -> bool {
        self.echo
    }

    /// How the answer is streamed, if it is.
    pub fn stream(&self) -> Option<StreamForm> {
        self.stream
    }
}

/// Builds the engine's requests, one per prompt.
pub fn request(
    mode: GenerationMode,
    body: CompletionBody,
) -> Result<(Vec<GenerationRequest>, CompletionForm), ApiError> {
    let parts = body.parts;
    let stream = StreamForm::of(&parts, mode)?;
    let prompts = body.prompt.0;
    count("prompt", prompts.len(), 1..=MAX_PROMPTS)?;
    if body.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        unsupported_by_canvases("suffix", mode == GenerationMode::Diffusion, "put masks into the prompt")?;
        if body.echo == Some(true) {
            let fact = "`echo` is given with `suffix`, and the text fills a gap";
            return Err(refused("echo", fact, "leave one of them out"));
        }
        if prompts.iter().any(|prompt| matches!(prompt, TextOrIds::Ids(_))) {
            let fact = "`suffix` is given with a prompt of token ids";
            return Err(refused("suffix", fact, "give the prompt as a text"));
        }
    }
    let several = prompts.len() > 1;
    if several && parts.asks_for_receipt() {
        let fact = format!("`receipt` is given for {} prompts, and a receipt is of one", prompts.len());
        return Err(refused("receipt", fact, "send each prompt in a request of its own"));
    }
    for (at, one) in prompts.iter().enumerate() {
        if matches!(one, TextOrIds::Ids(ids) if ids.is_empty()) {
            let param = if several { format!("prompt[{at}]") } else { "prompt".to_owned() };
            return Err(refused(&param, format!("`{param}` has no tokens"), "give at least one"));
        }
    }
    let echo = body.echo.unwrap_or(false);
    let max_tokens = body.max_tokens.unwrap_or(MAX_TOKENS);
    let logprobs = within("logprobs", body.logprobs, 0..=MAX_TOP_LOGPROBS)?;
    let form = CompletionForm {
        echo,
        prompt_only: max_tokens == 0 && mode == GenerationMode::Autoregressive,
        logprobs: logprobs.is_some(),
        token_ids: body.return_token_ids.unwrap_or(false),
        stream,
    };
    let shared = match mode {
        GenerationMode::Autoregressive => {
            if max_tokens == 0 && !echo {
                let hint = "give at least 1, or `echo` the prompt";
                return Err(refused("max_tokens", "`max_tokens` is 0", hint));
            }
            continued(parts, max_tokens, logprobs, form)?
        }
        GenerationMode::Diffusion => {
            unsupported_by_canvases("echo", echo, "leave it out")?;
            unsupported_by_canvases("logprobs", logprobs.is_some(), "leave it out")?;
            GenerationRequest::Diffusion(parts.canvas(max_tokens)?)
        }
    };
    let of = |text: TextOrIds| {
        let mut request = shared.clone();
        *request.shared().prompt = text.into();
        request
    };
    Ok((prompts.into_iter().map(of).collect(), form))
}

/// The requests, whose prompts are the texts before a gap if there is a text after it.
pub fn with_suffix(
    mut requests: Vec<GenerationRequest>,
    suffix: Option<&str>,
    engine: &Engine,
) -> Result<Vec<GenerationRequest>, ApiError> {
    let Some(suffix) = suffix.filter(|suffix| !suffix.is_empty()) else { return Ok(requests) };
    for request in &mut requests {
        let before = request.shared().prompt.text().unwrap_or_default().to_owned();
        let text = GapText { before, after: suffix.to_owned(), ..GapText::default() };
        let room = match request {
            GenerationRequest::Autoregressive(request) => {
                let fits = engine.info().context.saturating_sub(request.max_new_tokens);
                request.prompt_tokens.take().map(|most| most.min(fits))
            }
            GenerationRequest::Diffusion(_) => None,
        };
        gap::set_prompt(request, engine, &text, room, "suffix")?;
    }
    Ok(requests)
}

/// Builds the request of a model that predicts the next token, but for its prompt.
fn continued(
    parts: GenerationParts,
    max_tokens: usize,
    logprobs: Option<usize>,
    form: CompletionForm,
) -> Result<GenerationRequest, ApiError> {
    let request = GenerateRequest {
        logprobs,
        prompt_logprobs: logprobs.filter(|_| form.echo).map(|top| PromptLogprobs { from: 0, top }),
        // The engine generates at least one token.
        ..parts.request(max_tokens.max(1))?
    };
    let continuations = request.continuations();
    if continuations > 1 && form.echo && logprobs.is_some() {
        let fact = format!("`echo` with `logprobs` is given for {continuations} continuations");
        return Err(refused("echo", fact, "ask for one continuation, or leave one of the two out"));
    }
    best_are_whole(&request, form.stream)?;
    Ok(GenerationRequest::Autoregressive(request))
}

/// Builds the answer from the outcomes of all prompts.
pub fn answer(
    model: &LoadedModel,
    head: AnswerHead,
    form: CompletionForm,
    outcomes: Vec<GenerationOutcome>,
) -> Result<OpenAiCompletion, ApiError> {
    let mut end = PromptEnd::default();
    let (mut choices, mut receipt) = (Vec::new(), None);
    for outcome in outcomes {
        end = end.and(outcome.end);
        receipt = receipt.or(outcome.receipt);
        let echoed = Echoed::of(model, form, &outcome.prompt_token_ids, outcome.prompt_logprobs)?;
        for one in outcome.choices {
            choices.push(choice(choices.len(), form, &echoed, one));
        }
    }
    if form.prompt_only {
        end.counts.completion_tokens = 0;
    }
    Ok(GeneratedAnswer::new(head, "text_completion", choices, end, receipt))
}

/// The prompt as its continuations repeat it.
#[derive(Default)]
struct Echoed {
    text: String,
    /// The first token, which has no log-probability, and the others.
    logprobs: Lists,
}

impl Echoed {
    /// From the tokens of the prompt, and their log-probabilities if they are returned.
    fn of(
        model: &LoadedModel,
        form: CompletionForm,
        ids: &[u32],
        logprobs: Option<Vec<Option<PositionLogprobs>>>,
    ) -> Result<Self, ApiError> {
        let mut echoed = Self::default();
        if !form.echo {
            return Ok(echoed);
        }
        let tokenizer = model.engine.tokenizer();
        if let Some(tokenizer) = tokenizer {
            echoed.text = tokenizer.decode(ids, true)?;
        }
        for (at, entry) in logprobs.into_iter().flatten().enumerate() {
            match entry {
                Some(position) => echoed.logprobs.push_position(&position),
                None => {
                    let text = match (tokenizer, ids.get(at)) {
                        (Some(tokenizer), Some(&id)) => tokenizer.token_text(id)?,
                        _ => String::new(),
                    };
                    echoed.logprobs.push(text, None, None);
                }
            }
        }
        Ok(echoed)
    }
}

fn choice(index: usize, form: CompletionForm, echoed: &Echoed, one: GeneratedChoice) -> OpenAiChoice {
    let mut logprobs = form.logprobs.then(|| echoed.logprobs.clone());
    let mut text = echoed.text.clone();
    if !form.prompt_only {
        text.push_str(&one.text);
        if let Some(all) = &mut logprobs {
            one.logprobs.iter().flatten().for_each(|position| all.push_position(position));
        }
    }
    let token_ids = if form.prompt_only { Vec::new() } else { one.token_ids };
    OpenAiChoice {
        index,
        text,
        logprobs: logprobs.map(|lists| lists.parts),
        finish_reason: if form.prompt_only { "length" } else { reason(one.finish_reason) },
        token_ids: form.token_ids.then_some(token_ids),
    }
}

/// A completion that is sent in events.
pub struct CompletionStream {
    model: Arc<LoadedModel>,
    form: CompletionForm,
    chunks: Chunks,
    /// Number of continuations per prompt.
    n: usize,
    /// The prompts as their continuations repeat them, from their first pieces on.
    echoed: Vec<Echoed>,
    /// Of each continuation: whether it has begun, and where its next token begins, in characters.
    choices: Vec<(bool, usize)>,
}

impl CompletionStream {
    /// The stream of the answer to requests that [`request`] built.
    pub fn new(
        model: Arc<LoadedModel>,
        head: AnswerHead,
        form: CompletionForm,
        requests: &[GenerationRequest],
    ) -> Self {
        let n = requests.first().map_or(1, GenerationRequest::choices);
        Self {
            model,
            form,
            chunks: Chunks::new(head, "text_completion", form.stream, requests.len()),
            n,
            echoed: requests.iter().map(|_| Echoed::default()).collect(),
            choices: vec![(false, 0); n * requests.len()],
        }
    }
}

impl StreamedAnswer for CompletionStream {
    type Event = CompletionEvent;

    const FORMAT: StreamFormat = StreamFormat::EventsWithEndMark;

    fn piece(
        &mut self,
        prompt: usize,
        mut piece: GenerationPiece,
        events: &mut Vec<CompletionEvent>,
    ) -> Result<(), ApiError> {
        self.chunks.counts.add(prompt, &piece);
        let canvas = self.chunks.canvas(&self.model, prompt, piece.canvas.take())?;
        if let Some(reported) = piece.prompt.take() {
            let echoed = Echoed::of(&self.model, self.form, &reported.token_ids, reported.logprobs)?;
            if let Some(own) = self.echoed.get_mut(prompt) {
                *own = echoed;
            }
        }
        let index = prompt * self.n + piece.choice;
        let (Some((begun, offset)), Some(echoed)) = (self.choices.get_mut(index), self.echoed.get(prompt))
        else {
            return Ok(());
        };
        let is_first = !std::mem::replace(begun, true);
        let (mut text, mut logprobs) = (String::new(), Lists { next: *offset, ..Lists::default() });
        if is_first {
            text.push_str(&echoed.text);
            logprobs = echoed.logprobs.clone();
        }
        let only_prompt = self.form.prompt_only;
        if only_prompt && !is_first {
            return Ok(());
        }
        let mut token_ids = Vec::new();
        if !only_prompt {
            text.push_str(&piece.text);
            if self.form.token_ids {
                token_ids.extend_from_slice(piece.tokens.as_slice());
            }
            piece.logprobs.iter().for_each(|position| logprobs.push_position(position));
        }
        *offset = logprobs.next;
        let finish_reason = if only_prompt { Some("length") } else { piece.finish_reason.map(reason) };
        let says_nothing = text.is_empty()
            && logprobs.parts.tokens.is_empty()
            && token_ids.is_empty()
            && finish_reason.is_none()
            && canvas.is_none();
        if says_nothing && !self.chunks.form.running_usage {
            return Ok(());
        }
        let delta = CompletionDelta {
            index,
            text,
            logprobs: self.form.logprobs.then_some(logprobs.parts),
            finish_reason,
            canvas,
            token_ids: self.form.token_ids.then_some(token_ids),
        };
        events.push(self.chunks.chunk(vec![delta], || self.usage()));
        Ok(())
    }

    fn sends_canvas(&self) -> bool {
        self.chunks.form.canvas
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.chunks.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<CompletionEvent>) {
        self.chunks.end(self.usage(), events);
    }

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<CompletionEvent>) {
        fail(error, events);
    }

    fn usage(&self) -> Usage {
        let usage = self.chunks.counts.total();
        let new = if self.form.prompt_only { 0 } else { usage.completion_tokens };
        Usage::new(usage.prompt_tokens, new, usage.prompt_tokens_details.cached_tokens)
    }
}

/// The parallel lists while they grow.
#[derive(Clone, Debug, Default)]
struct Lists {
    parts: LegacyLogprobs,
    /// Where the next token begins, in characters.
    next: usize,
}

impl Lists {
    /// Appends a token, which has log-probabilities unless it is the first of a prompt.
    fn push(&mut self, text: String, own: Option<f32>, top: Option<Entries<Finite<f32>>>) {
        self.parts.text_offset.push(self.next);
        self.next += text.chars().count();
        self.parts.tokens.push(text);
        self.parts.token_logprobs.push(own.map(Finite));
        self.parts.top_logprobs.push(top);
    }

    fn push_position(&mut self, position: &PositionLogprobs) {
        let chosen = &position.chosen;
        self.push(chosen.text.clone(), Some(chosen.logprob), Some(named(chosen, &position.top)));
        if let Some(mass) = position.masked_mass {
            let before = self.parts.tokens.len() - 1;
            let masses = self.parts.masked_mass.get_or_insert_default();
            masses.resize(before, None);
            masses.push(Some(Finite(mass)));
        }
    }
}

/// The most probable tokens and the chosen one, by their texts. Where two tokens have one text, the chosen one keeps it, and others are
/// named by their ids.
fn named(chosen: &TokenLogprob, top: &[TokenLogprob]) -> Entries<Finite<f32>> {
    let mut all: Vec<(String, Finite<f32>)> = Vec::with_capacity(top.len() + 1);
    let beyond = (!top.iter().any(|token| token.id == chosen.id)).then_some(chosen);
    for token in top.iter().chain(beyond) {
        let taken = |text: &str| all.iter().any(|(other, _)| other == text);
        let name = if token.id != chosen.id && (token.text == chosen.text || taken(&token.text)) {
            format!("token_id:{}", token.id)
        } else {
            token.text.clone()
        };
        all.push((name, Finite(token.logprob)));
    }
    Entries(all)
}

#[cfg(test)]
mod tests {
    use redline_engine::Penalties;

    use super::*;

    fn parse(json: &str) -> Result<(Vec<GenerateRequest>, CompletionForm), ApiError> {
        let (requests, form) = request(GenerationMode::Autoregressive, serde_json::from_str(json).unwrap())?;
        let of = |request| match request {
            GenerationRequest::Autoregressive(request) => request,
            GenerationRequest::Diffusion(_) => panic!("a canvas"),
        };
        Ok((requests.into_iter().map(of).collect(), form))
    }

    #[test]
    fn every_field_reaches_the_request() {
        let json = r#"{"prompt":[[4],[5]],"max_tokens":2,"temperature":0.5,"top_k":7,"top_p":0.75,"min_p":0.0625,"seed":-1,
            "typical_p":0.5,"repetition_penalty":0.75,"frequency_penalty":-1,"presence_penalty":2,"logit_bias":{"9":-100},
            "n":5,"best_of":6,"stop":["x"],"ignore_eos":true,"logprobs":6,"echo":false,"cache_salt":"tenant","timeout_s":3}"#;
        let (requests, form) = parse(json).unwrap();
        let one = &requests[1];
        assert_eq!((requests.len(), &one.prompt), (2, &redline_engine::Prompt::Ids(vec![5])));
        let sampling = one.sampling;
        assert_eq!((sampling.temperature, sampling.top_k, sampling.top_p), (0.5, 7, 0.75));
        assert_eq!((sampling.min_p, sampling.typical_p, sampling.seed), (0.0625, 0.5, u64::MAX));
        assert_eq!(
            one.penalties,
            Penalties { repetition: 0.75, frequency: -1.0, presence: 2.0, min_tokens: 0 }
        );
        assert_eq!((&one.logit_bias[..], one.n, one.best_of), (&[(9, -100.0)][..], 5, Some(6)));
        assert_eq!((&one.stop[..], one.ignore_eos, one.logprobs), (&["x".to_owned()][..], true, Some(6)));
        assert_eq!(one.prompt_logprobs, None);
        assert_eq!((one.max_new_tokens, one.timeout_s, one.cache_salt.as_str()), (2, Some(3.0), "tenant"));
        assert!(!form.echo && form.logprobs && !form.prompt_only && !form.token_ids);
        let (requests, form) = parse(r#"{"prompt":"p","logprobs":6,"echo":true,"max_tokens":0}"#).unwrap();
        assert_eq!(requests[0].prompt_logprobs, Some(PromptLogprobs { from: 0, top: 6 }));
        assert!(form.echo && form.prompt_only);
    }

    #[test]
    fn without_fields_generation_is_greedy_with_seed_0() {
        let (requests, _) = parse(r#"{"prompt":"p"}"#).unwrap();
        assert_eq!(requests[0].sampling, redline_engine::Sampling::default());
        assert_eq!((requests[0].max_new_tokens, requests[0].n, requests[0].prompt_logprobs), (16, 1, None));
    }

    #[test]
    fn texts_of_two_tokens_that_are_equal_do_not_hide_the_chosen_one() {
        let token = |id, text: &str, logprob| TokenLogprob { id, text: text.to_owned(), logprob };
        let named = named(&token(3, "x", -2.0), &[token(1, "x", -0.5), token(2, "y", -1.0)]);
        let expect = [("token_id:1", -0.5), ("y", -1.0), ("x", -2.0)];
        assert_eq!(named.0, expect.map(|(name, value)| (name.to_owned(), Finite(value))));
    }
}
