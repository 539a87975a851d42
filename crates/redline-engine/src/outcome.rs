//! What the engine answers: plain types, full f32 precision, nothing rounded.

use crate::request::Algorithm;

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens; for `score` the sum over items of query plus item.
    pub prompt_tokens: usize,
    /// Generated tokens; 0 for `score`.
    pub completion_tokens: usize,
    /// Prompt tokens taken from a cache filled by an earlier request.
    pub cached_tokens: usize,
}

/// What a request had from the prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheUse {
    /// Prompts that began with tokens of an earlier request.
    pub hits: usize,
    /// Prompts that did not.
    pub misses: usize,
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
}

impl PrefixCacheUse {
    /// Of one prompt of which `tokens` tokens were taken from the cache.
    pub(crate) fn of(tokens: usize) -> Self {
        let mut one = Self::default();
        one.count(tokens);
        one
    }

    /// Counts a prompt of which `tokens` tokens were taken from the cache.
    pub(crate) fn count(&mut self, tokens: usize) {
        *(if tokens > 0 { &mut self.hits } else { &mut self.misses }) += 1;
        self.cached_tokens += tokens;
    }
}

/// Why one item of a score request has no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemError {
    /// The item's index in the request.
    pub index: usize,
    /// Fact with numbers.
    pub message: String,
}

/// Answer to one item.
#[derive(Clone, Debug)]
pub struct ItemScore {
    /// One score per label.
    pub scores: Vec<f32>,
    /// Log-probability of each label: over the vocabulary, or (softmax over labels without
    /// `full_logprobs`) the logarithm of the returned row.
    pub logprobs: Vec<f32>,
    /// Summed probability of the distinct labels over the vocabulary; `None` where the normaliser was not computed.
    pub label_mass: Option<f32>,
    /// Tokens of this prompt.
    pub prompt_tokens: usize,
    /// The prompt was cut to fit the context.
    pub truncated: bool,
    /// Text only: concatenated and separate tokenisation differ at the boundary of query and item.
    pub boundary_mismatch: Option<bool>,
    /// The scored token ids, on request.
    pub token_ids: Option<Vec<u32>>,
}

/// What scores took.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Token counts.
    pub usage: Usage,
    /// Tokens run through the model (the shared prefix once).
    pub computed_tokens: usize,
    /// Length of the longest token prefix common to all prompts.
    pub shared_prefix_tokens: usize,
    /// What came from the prefix cache; `None` where it is off.
    pub prefix_cache: Option<PrefixCacheUse>,
    /// Plans that were not there for passes it took part in.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds from the request reaching the engine to the last row.
    pub compute_s: f64,
    /// Most bytes that the process had allocated while the request ran, weights included; `None` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// Answer to `score`.
#[derive(Clone, Debug)]
pub struct ScoreOutcome {
    /// In the order of the items.
    pub items: Vec<Result<ItemScore, ItemError>>,
    /// The tokens of each label, in the order of the columns; none where every item has labels of its own.
    pub label_token_ids: Vec<Vec<u32>>,
    /// The tokens of each label of each item, where items have labels of their own.
    pub item_label_token_ids: Option<Vec<Vec<Vec<u32>>>>,
    /// How labels were covered by masks; `None` where the model predicts the token that follows.
    pub monte_carlo: Option<MonteCarlo>,
    /// What it took.
    pub taken: Taken,
}

/// How a model that fills masks was asked for its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonteCarlo {
    /// Most ways in which the tokens of a label were covered.
    pub samples: usize,
    /// Of the draws.
    pub seed: u64,
    /// Labels, distinct within their list, for which samples were drawn; all ways were run for the others, whose scores are exact.
    pub sampled_labels: usize,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token or a stop string.
    Stop,
    /// `max_new_tokens` reached.
    Length,
    /// The caller cancelled.
    Cancelled,
}

/// One token with its log-probability over the whole vocabulary (before any sampling filter).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// What the id decodes to on its own (lossy).
    pub text: String,
    /// Natural logarithm of its probability at temperature 1.
    pub logprob: f32,
}

/// Log-probabilities at one generated position.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionLogprobs {
    /// The chosen token.
    pub chosen: TokenLogprob,
    /// The n most probable tokens, most probable first, ties by lower id.
    pub top: Vec<TokenLogprob>,
}

/// Answer to `generate`.
#[derive(Clone, Debug)]
pub struct GenerateOutcome {
    /// The new text, up to a stop string.
    pub text: String,
    /// The new token ids, an end-of-sequence token included.
    pub token_ids: Vec<u32>,
    /// The prompt as token ids.
    pub prompt_token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Per new token, if asked for.
    pub logprobs: Option<Vec<PositionLogprobs>>,
    /// Per token of the prompt, if asked for; `None` for the first token and for those before the first asked for.
    pub prompt_logprobs: Option<Vec<Option<PositionLogprobs>>>,
    /// Token counts.
    pub usage: Usage,
    /// What came from the prefix cache; `None` where it is off or the KV cache is not used.
    pub prefix_cache: Option<PrefixCacheUse>,
    /// Plans that were not there for passes it took part in.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds until the first new token was chosen, those in the queue included.
    pub prefill_s: f64,
    /// Seconds for all further tokens.
    pub decode_s: f64,
    /// New tokens after the first, per second of `decode_s`; `None` with fewer than two tokens.
    pub decode_tokens_per_s: Option<f64>,
    /// Seconds from the request reaching the engine to each new token being chosen.
    pub token_s: Vec<f64>,
    /// When the request reached the engine, seconds on the engine's clock: comparable between requests to one engine.
    pub arrived_s: f64,
    /// Most bytes that the process had allocated while the request ran, weights included; `None` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// A mask that was filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilledMask {
    /// Its position in the canvas.
    pub position: usize,
    /// What it became.
    pub token: u32,
    /// How sure that was; the larger, the surer. What it is depends on the algorithm: a probability, a difference of two, or a
    /// negative entropy in nats.
    pub confidence: f64,
}

/// A pass over a canvas.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionPass {
    /// The step of the schedule; where there is none, the number of the pass.
    pub step: usize,
    /// The rows that were run: all, or those of a block and behind it.
    pub rows: std::ops::Range<usize>,
    /// Rows whose logits were computed.
    pub outputs: usize,
    /// The masks that it filled, by position.
    pub filled: Vec<FilledMask>,
}

/// What is reported of a canvas while it is being filled.
#[derive(Clone, Debug, PartialEq)]
pub enum DiffusionProgress {
    /// The tokens before the first pass: the prompt and masks. Reported first, and once.
    Canvas(Vec<u32>),
    /// What a pass filled.
    Pass(DiffusionPass),
    /// Text that has become final.
    Text(String),
}

/// Answer to `diffuse`.
#[derive(Clone, Debug)]
pub struct DiffuseOutcome {
    /// From the first mask on, up to an end-of-sequence token or a stop string; what stood between masks is part of it.
    pub text: String,
    /// The tokens behind the prompt, an end-of-sequence token included. Where masks are left, because nothing behind the end was
    /// computed or the request was cancelled, the id of the mask stands for them.
    pub token_ids: Vec<u32>,
    /// All tokens: the prompt, its masks filled, and what came behind it.
    pub canvas: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Masks of the prompt among them.
    pub prompt_masks: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Which masks were filled first.
    pub algorithm: Algorithm,
    /// Every pass.
    pub passes: Vec<DiffusionPass>,
    /// Rows that were run, all passes together.
    pub computed_tokens: usize,
    /// Masks that were filled, per pass.
    pub tokens_per_pass: Option<f64>,
    /// Plans that were not there for passes it took part in.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds from its first pass to its end.
    pub compute_s: f64,
    /// Masks that were filled, per second of `compute_s`.
    pub tokens_per_s: Option<f64>,
    /// Most bytes that the process had allocated while the request ran, weights included; `None` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// Answer to `generate_batch`.
#[derive(Clone, Debug)]
pub struct BatchOutcome {
    /// The new token ids of each prompt, an end-of-sequence token included; fewer than asked for after one, or when
    /// cancelled.
    pub token_ids: Vec<Vec<u32>>,
    /// Token counts of all prompts together.
    pub usage: Usage,
    /// Seconds until every sequence had its first new token.
    pub prefill_s: f64,
    /// Seconds for all further tokens.
    pub decode_s: f64,
    /// New tokens after the first of each sequence, all together, per second of `decode_s`; `None` without such tokens.
    pub decode_tokens_per_s: Option<f64>,
    /// Most bytes that the process had allocated while the request ran, weights included; `None` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// A mean and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Standard deviation over the root of the number of values, which are taken as independent; `None` with fewer than two.
    pub standard_error: Option<f64>,
}

/// How well one model predicts a text.
#[derive(Clone, Debug)]
pub struct PerplexityOutcome {
    /// `e^nll`; its standard error to first order.
    pub perplexity: Estimate,
    /// Negative log-likelihood, nats per token.
    pub nll: Estimate,
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Windows that were run.
    pub windows: usize,
    /// Tokens of a window; the last one may be shorter.
    pub window: usize,
    /// The caller cancelled: the figures are those of the tokens until then.
    pub cancelled: bool,
    /// Seconds inside the engine's thread.
    pub compute_s: f64,
    /// Most bytes that the process had allocated while the request ran, weights included; `None` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// How far the distributions of a model Q lie from those of a reference P, over every token that was predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// KL(P || Q), nats per token.
    pub kl: Estimate,
    /// Half of the values are at most this; `None` with fewer than [`Divergence::ENOUGH`] of them.
    pub kl_median: Option<f64>,
    /// 99 of 100 values are at most this; `None` with fewer than [`Divergence::ENOUGH`] of them.
    pub kl_p99: Option<f64>,
    /// The largest value.
    pub kl_max: f64,
    /// Share of tokens for which both find the same token most probable (ties: the lower id).
    pub top1_agreement: f64,
    /// ln(perplexity of Q / perplexity of P), its standard error from the differences token by token.
    pub ln_ratio: Estimate,
}

impl Divergence {
    /// Values that a median and a 99th percentile take.
    pub const ENOUGH: usize = 100;
}

/// Answer to `compare`.
#[derive(Clone, Debug)]
pub struct ComparisonOutcome {
    /// The model.
    pub model: PerplexityOutcome,
    /// What it was compared with.
    pub reference: PerplexityOutcome,
    /// How far the model lies from the reference.
    pub divergence: Divergence,
}

/// What requests hold of an engine at a moment between two passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUse {
    /// Requests that are waiting or running.
    pub requests: usize,
    /// Sequences whose keys and values are stored.
    pub sequences: usize,
    /// Those of them that the prefix cache keeps.
    pub kept: usize,
    /// Pages of keys and values that these sequences own.
    pub pages: usize,
}
