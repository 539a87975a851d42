//! `/v1/completions`, as OpenAI and vLLM have it.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::generation::generation_body;
use crate::cases::{at_most, case, case_if_given, cases, continuations, not_true, streams};
use crate::limits::{MAX_CONTINUATIONS, MAX_PENALTY, MAX_TOP_LOGPROBS};
use crate::shape::{self, schemas};
use crate::{
    CanvasEvent, Finite, GenerationMeta, LogitBias, Prompts, ReceiptDocument, StreamEvent, Strings, Usage,
};

generation_body! {
    /// Asks for continuations of prompts.
    #[derive(Clone, Debug, Deserialize, JsonSchema)]
    #[schemars(transform = request_cases)]
    #[serde(deny_unknown_fields)]
    pub struct CompletionBody {
        /// The prompts.
        pub prompt: Prompts,
        /// Maximum number of new tokens per continuation.
        pub max_tokens: Option<usize>,
        /// Locally typical sampling up to this probability.
        #[schemars(with = "Option<shape::ShareAboveZero>")]
        pub typical_p: Option<f32>,
        /// Number of continuations per prompt to return.
        #[schemars(range(min = 1, max = MAX_CONTINUATIONS))]
        pub n: Option<usize>,
        /// Number of continuations per prompt to generate, of which the most probable are returned.
        #[schemars(range(min = 1, max = MAX_CONTINUATIONS))]
        pub best_of: Option<usize>,
        /// Texts before which generation stops.
        #[schemars(with = "Option<shape::Stops>")]
        pub stop: Option<Strings>,
        /// Whether the text begins with the prompt.
        pub echo: Option<bool>,
        /// Return log-probabilities of the tokens, and of this number of most probable tokens at each position.
        #[schemars(range(max = MAX_TOP_LOGPROBS))]
        pub logprobs: Option<usize>,
        /// Numbers that are added to logits.
        pub logit_bias: Option<LogitBias>,
        /// Subtracted once from the logits of generated tokens.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub presence_penalty: Option<f32>,
        /// Subtracted from the logit of a token for each time it was generated.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub frequency_penalty: Option<f32>,
        /// Divides positive logits of tokens that occurred.
        #[schemars(with = "Option<shape::Repetition>")]
        pub repetition_penalty: Option<f32>,
        /// Whether to return the ids of the new tokens.
        pub return_token_ids: Option<bool>,
        /// Text after the completion. Nothing but an empty one is supported.
        #[schemars(length(max = 0))]
        pub suffix: Option<String>,
    }
}

/// Answer of `/v1/completions`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpenAiCompletion {
    /// Identifies the answer.
    pub id: String,
    /// Always `text_completion`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// The continuations: those of the first prompt, then those of the second.
    pub choices: Vec<OpenAiChoice>,
    /// Token counts of all prompts together.
    pub usage: Usage,
    /// Of a model that fills masks: how they were filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

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
    pub top_logprobs: Vec<Option<NamedLogprobs>>,
    /// Where each token begins in the texts of `tokens` joined, in characters.
    pub text_offset: Vec<usize>,
}

/// Log-probabilities by the texts of tokens: an object that keeps its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedLogprobs(pub Vec<(String, Finite<f32>)>);

impl Serialize for NamedLogprobs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

schemas! {
    NamedLogprobs: |_g| json!({
        "type": "object", "additionalProperties": { "type": "number", "format": "float" }
    });
}

/// The rules between fields: `stream_options` require `stream`, several continuations a temperature, and a request has at most two of
/// `echo`, `logprobs` and several continuations.
fn request_cases(schema: &mut Schema) {
    streams(schema);
    continuations(schema, &["n", "best_of"]);
    cases(
        schema,
        [
            case_if_given([("echo", not_true())]),
            case([], &["logprobs"]),
            case_if_given([("n", at_most(1)), ("best_of", at_most(1))]),
        ],
    );
}
