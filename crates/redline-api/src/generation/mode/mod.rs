//! How models generate text. The requests, events and outcomes of all modes have the same form for the routes for generated text.

mod autoregressive;
mod diffusion;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use redline_engine::{
    AnyRequest, Cancel, CommonFields, DiffuseRequest, DiffuseTicket, DiffusionPass, Engine, EngineError,
    Event, FinishReason, GenerateRequest, GenerateTicket, Grammar, Objective, PositionLogprobs, Prompt,
    Receipt, ReportedPrompt, Sampling, TokenCounts,
};
use redline_settings::Algorithm;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::generation::unsupported_by_canvases;
use crate::json::named;

/// How the masks of an answer were filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GenerationMeta {
    /// The algorithm that chose the masks.
    #[serde(serialize_with = "named::serialize")]
    #[schemars(with = "named::OneOf<Algorithm>")]
    pub algorithm: Algorithm,
    /// Number of forward passes, of all prompts together.
    pub passes: usize,
    /// Rows computed, summed over all passes.
    pub computed_tokens: usize,
    /// Number of masks in the prompts.
    pub prompt_masks: usize,
}

/// How a model generates text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationMode {
    /// One token after the other.
    Autoregressive,
    /// By filling masks.
    Diffusion,
}

impl GenerationMode {
    /// The mode of a model.
    pub fn of(engine: &Engine) -> Self {
        Self::of_objective(engine.info().objective)
    }

    /// The mode of a model with this objective.
    pub fn of_objective(objective: Objective) -> Self {
        // The engine refuses the requests of an encoder, which generates nothing.
        if objective.fills_masks() { Self::Diffusion } else { Self::Autoregressive }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Autoregressive => "autoregressive",
            Self::Diffusion => "diffusion",
        }
    }
}

/// A request to the engine for the text after one prompt.
#[derive(Clone, Debug)]
pub enum GenerationRequest {
    /// Of an autoregressive model.
    Autoregressive(GenerateRequest),
    /// Of a model that fills masks.
    Diffusion(DiffuseRequest),
}

/// The fields that the requests of all modes have, besides those of requests of all kinds.
#[derive(Debug)]
pub struct SharedFields<'a> {
    /// The prompt.
    pub prompt: &'a mut Prompt,
    /// Further tokens that end the text.
    pub stop_ids: &'a mut Vec<i64>,
    /// Whether the text continues after an end-of-sequence token.
    pub ignore_eos: bool,
}

impl GenerationRequest {
    /// The fields that the requests of all modes have.
    pub fn shared(&mut self) -> SharedFields<'_> {
        match self {
            Self::Autoregressive(request) => autoregressive::shared(request),
            Self::Diffusion(request) => diffusion::shared(request),
        }
    }

    /// Sets what the text has to be, which the field `param` says.
    pub(crate) fn restrict(&mut self, param: &str, grammar: Grammar) -> Result<(), ApiError> {
        match self {
            Self::Autoregressive(request) => request.grammar = Some(grammar),
            Self::Diffusion(_) => unsupported_by_canvases(param, true, "leave it out")?,
        }
        Ok(())
    }

    /// What the text has to be.
    pub fn grammar(&self) -> Option<&Grammar> {
        match self {
            Self::Autoregressive(request) => request.grammar.as_ref(),
            Self::Diffusion(_) => None,
        }
    }

    /// Number of texts that are returned.
    pub fn choices(&self) -> usize {
        match self {
            Self::Autoregressive(request) => request.n,
            Self::Diffusion(_) => 1,
        }
    }

    /// How tokens are chosen.
    pub fn sampling(&self) -> Sampling {
        match self {
            Self::Autoregressive(request) => request.sampling,
            Self::Diffusion(request) => request.sampling,
        }
    }
}

impl AnyRequest for GenerationRequest {
    type Ticket = GenerationTicket;

    fn common(&mut self) -> CommonFields<'_> {
        match self {
            Self::Autoregressive(request) => request.common(),
            Self::Diffusion(request) => request.common(),
        }
    }

    fn submit(self, engine: &Engine, cancel: &Cancel) -> Result<GenerationTicket, EngineError> {
        match self {
            Self::Autoregressive(request) => {
                engine.submit_generate(request, cancel).map(GenerationTicket::Autoregressive)
            }
            Self::Diffusion(request) => {
                let new_tokens = request.max_new_tokens;
                let ticket = engine.submit_diffuse(request, cancel)?;
                Ok(GenerationTicket::Diffusion { ticket, new_tokens })
            }
        }
    }
}

/// A generation that runs. Dropping it cancels it.
#[derive(Debug)]
pub enum GenerationTicket {
    /// Of an autoregressive model.
    Autoregressive(GenerateTicket),
    /// Of a model that fills masks.
    Diffusion {
        /// The engine's ticket.
        ticket: DiffuseTicket,
        /// Number of masks after the prompt.
        new_tokens: usize,
    },
}

/// What a generation reports.
pub type GenerationEvent = Event<GenerationOutcome, GenerationPiece>;

impl GenerationTicket {
    /// Returns a handle that cancels it.
    pub fn canceller(&self) -> Cancel {
        match self {
            Self::Autoregressive(ticket) => ticket.canceller(),
            Self::Diffusion { ticket, .. } => ticket.canceller(),
        }
    }

    /// Declares that only the outcome is waited for.
    #[must_use]
    pub fn outcome_only(self) -> Self {
        match self {
            Self::Autoregressive(ticket) => Self::Autoregressive(ticket.outcome_only()),
            Self::Diffusion { ticket, new_tokens } => {
                Self::Diffusion { ticket: ticket.outcome_only(), new_tokens }
            }
        }
    }

    /// Exchanges the ticket for a function that receives every event, mostly on the engine's thread: it must be quick.
    pub fn send_to(self, mut sink: impl FnMut(GenerationEvent) + Send + 'static) -> Cancel {
        match self {
            Self::Autoregressive(ticket) => ticket.send_to(move |event| sink(autoregressive::event(event))),
            Self::Diffusion { ticket, new_tokens } => {
                ticket.send_to(move |event| diffusion::events(event, new_tokens, &mut sink))
            }
        }
    }
}

impl Future for GenerationTicket {
    type Output = Result<GenerationOutcome, EngineError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Autoregressive(ticket) => Pin::new(ticket).poll(context).map_ok(autoregressive::outcome),
            Self::Diffusion { ticket, .. } => Pin::new(ticket).poll(context).map_ok(diffusion::outcome),
        }
    }
}

/// What a generation reports while it runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationPiece {
    /// Its choice.
    pub choice: usize,
    /// Number of new tokens.
    pub new_tokens: usize,
    /// The ids of the tokens.
    pub tokens: PieceTokens,
    /// The text that has become final. The texts of all pieces make up the text of the choice.
    pub text: String,
    /// The log-probabilities of the token, if requested.
    pub logprobs: Option<PositionLogprobs>,
    /// In the last piece of the choice: why it ended.
    pub finish_reason: Option<FinishReason>,
    /// In the first piece of the first choice: the prompt.
    pub prompt: Option<Box<ReportedPrompt>>,
    /// What is new of the canvas, if masks are filled.
    pub canvas: Option<CanvasPiece>,
}

/// The ids of the tokens of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PieceTokens {
    /// None.
    #[default]
    None,
    /// The next token.
    One(u32),
    /// In the last piece, if masks are filled: all tokens, in the order of the text.
    All(Vec<u32>),
}

impl PieceTokens {
    /// The ids.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::All(ids) => ids,
        }
    }
}

/// What is new of a canvas.
#[derive(Clone, Debug, PartialEq)]
pub enum CanvasPiece {
    /// The tokens before the first pass.
    Begun(Vec<u32>),
    /// A pass.
    Passed(DiffusionPass),
}

/// How the generation after a prompt ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptEnd {
    /// Its token counts.
    pub counts: TokenCounts,
    /// Whether it was cancelled.
    pub cancelled: bool,
    /// How masks were filled, if the model fills masks.
    pub meta: Option<GenerationMeta>,
    /// How long its parts took.
    pub seconds: GenerationSeconds,
}

/// How long the parts of a generation took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationSeconds {
    /// From the request reaching the engine to its first pass.
    pub queue: f64,
    /// To the first new token; 0 if masks are filled.
    pub prompt: f64,
    /// To the last new token.
    pub text: f64,
}

impl PromptEnd {
    /// The ends of two prompts together: the sums of their counts, of their times and of how their masks were filled, and whether any was
    /// cancelled.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        let (one, two) = (self.counts, other.counts);
        let both = |one: GenerationMeta, two: GenerationMeta| GenerationMeta {
            algorithm: one.algorithm,
            passes: one.passes + two.passes,
            computed_tokens: one.computed_tokens + two.computed_tokens,
            prompt_masks: one.prompt_masks + two.prompt_masks,
        };
        Self {
            counts: TokenCounts {
                prompt_tokens: one.prompt_tokens + two.prompt_tokens,
                completion_tokens: one.completion_tokens + two.completion_tokens,
                cached_tokens: one.cached_tokens + two.cached_tokens,
            },
            cancelled: self.cancelled || other.cancelled,
            meta: match (self.meta, other.meta) {
                (Some(one), Some(two)) => Some(both(one, two)),
                (one, two) => one.or(two),
            },
            seconds: GenerationSeconds {
                queue: self.seconds.queue + other.seconds.queue,
                prompt: self.seconds.prompt + other.seconds.prompt,
                text: self.seconds.text + other.seconds.text,
            },
        }
    }
}

/// The texts after a prompt.
#[derive(Clone, Debug)]
pub struct GenerationOutcome {
    /// How it ended.
    pub end: PromptEnd,
    /// The tokens of the prompt; none if masks are filled.
    pub prompt_token_ids: Vec<u32>,
    /// Their log-probabilities, if requested.
    pub prompt_logprobs: Option<Vec<Option<PositionLogprobs>>>,
    /// The texts.
    pub choices: Vec<GeneratedChoice>,
    /// The receipt, if one was asked for.
    pub receipt: Option<Box<Receipt>>,
}

impl GenerationOutcome {
    /// Takes the only choice.
    pub(crate) fn take_one(&mut self) -> GeneratedChoice {
        self.choices.pop().unwrap_or_default()
    }
}

/// A generated text.
#[derive(Clone, Debug)]
pub struct GeneratedChoice {
    /// The text.
    pub text: String,
    /// The new tokens.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// One entry per new token, if requested.
    pub logprobs: Option<Vec<PositionLogprobs>>,
}

impl Default for GeneratedChoice {
    fn default() -> Self {
        Self {
            text: String::new(),
            token_ids: Vec::new(),
            finish_reason: FinishReason::Length,
            logprobs: None,
        }
    }
}
