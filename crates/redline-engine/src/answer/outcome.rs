//! Outcomes of requests: plain types with full f32 precision, nothing rounded.

pub use redline_settings::FinishReason;
use redline_settings::VectorForm;

use crate::receipt::Receipt;
use crate::request::{Algorithm, Label};

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Number of prompt tokens; for `score`, the sum over items of query plus item.
    pub prompt_tokens: usize,
    /// Generated tokens; 0 for `score`.
    pub completion_tokens: usize,
    /// Prompt tokens taken from a cache filled by an earlier request.
    pub cached_tokens: usize,
}

/// Use of the prefix cache by a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheCounts {
    /// Prompts that began with tokens of an earlier request.
    pub hits: usize,
    /// Prompts that did not.
    pub misses: usize,
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
}

impl PrefixCacheCounts {
    /// Counts for a single prompt with `tokens` cached tokens.
    pub(crate) fn of(tokens: usize) -> Self {
        let mut one = Self::default();
        one.count(tokens);
        one
    }

    /// Adds a prompt with `tokens` cached tokens.
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
    /// The fact with its numbers.
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
    /// Total probability of the distinct labels over the vocabulary; `None` if the normaliser was not computed.
    pub label_mass: Option<f32>,
    /// Tokens of this prompt.
    pub prompt_tokens: usize,
    /// The prompt was cut to fit the context.
    pub truncated: bool,
    /// For text only: whether concatenated and separate tokenisation differ at the boundary of query and item.
    pub boundary_mismatch: Option<bool>,
    /// The token ids of the prompt, if requested.
    pub token_ids: Option<Vec<u32>>,
    /// What the model would write in the place of the labels, if requested. `None` too for labels of several tokens of a model that
    /// fills masks.
    pub reading: Option<LabelReading>,
}

/// What a model would write in the place of labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelReading {
    /// The probability that it would write one of the labels.
    pub label_mass: f32,
    /// The most probable token, the one with the smallest id among equals.
    pub most_probable: u32,
}

/// Resources that a score request used.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestCost {
    /// Token counts.
    pub usage: TokenCounts,
    /// Number of tokens run through the model (the shared prefix counts once).
    pub computed_tokens: usize,
    /// Length of the longest token prefix common to all prompts.
    pub shared_prefix_tokens: usize,
    /// Use of the prefix cache; `None` if it is off.
    pub prefix_cache: Option<PrefixCacheCounts>,
    /// Number of plans that were missing for passes of this request.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds from the request reaching the engine to the last row.
    pub compute_s: f64,
    /// Peak of allocated bytes in the process while the request ran, weights included; `None` if allocations are not counted or
    /// another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// Tier and formats in use, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// Answer to `score`.
#[derive(Clone, Debug)]
pub struct ScoreOutcome {
    /// In the order of the items.
    pub items: Vec<Result<ItemScore, ItemError>>,
    /// The tokens of each label, in the order of the columns; empty if every item has its own labels.
    pub label_token_ids: Vec<Vec<u32>>,
    /// The tokens of each label of each item, if items have their own labels.
    pub item_label_token_ids: Option<Vec<Vec<Vec<u32>>>>,
    /// The tokens that were scored after every label; empty if the end of labels was not scored.
    pub end_token_ids: Vec<u32>,
    /// How labels were masked; `None` if the model predicts the next token.
    pub monte_carlo: Option<MaskSamples>,
    /// Resources used.
    pub cost: RequestCost,
    /// Its receipt, if one was asked for.
    pub receipt: Option<Box<Receipt>>,
}

/// The answer to one text.
#[derive(Clone, Debug)]
pub struct Classified {
    /// The probability of each class, in the order of the classes; they sum to one.
    pub probabilities: Vec<f32>,
    /// The logarithms of the probabilities.
    pub logprobs: Vec<f32>,
    /// The index of the most probable class, the first among equals; `None` if its probability is below the threshold.
    pub best: Option<usize>,
    /// The probability of the best class minus that of the second.
    pub margin: f32,
    /// Number of tokens in its prompt.
    pub prompt_tokens: usize,
    /// Whether the text was cut to fit the context.
    pub truncated: bool,
}

/// Answer to `classify`.
#[derive(Clone, Debug)]
pub struct ClassifyOutcome {
    /// The classes, of the request or of the model.
    pub classes: Vec<Label>,
    /// In the order of the texts.
    pub texts: Vec<Result<Classified, ItemError>>,
    /// The tokens of each class, in the order of the classes; empty for a model with classes of its own.
    pub class_token_ids: Vec<Vec<u32>>,
    /// The tokens that were scored after every class; empty if the end of classes was not scored.
    pub end_token_ids: Vec<u32>,
    /// The indices of a class and of another that begins with it, if the end was not scored: the first one has the higher
    /// probability whatever the text.
    pub prefix_class: Option<(usize, usize)>,
    /// Resources used.
    pub cost: RequestCost,
    /// Its receipt, if one was asked for.
    pub receipt: Option<Box<Receipt>>,
}

/// What an encoder makes of one text.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// The embedding, or a number for each class. If the states of tokens were asked for, these, one after the other; of a sparse
    /// vector, the values that are not zero.
    pub values: Vec<f32>,
    /// Of a sparse vector, the tokens of the vocabulary that its values are the weights of, ascending; otherwise empty.
    pub indices: Vec<u32>,
    /// Number of vectors that the values are, one after the other; 1 but for those of tokens.
    pub vectors: usize,
    /// Number of tokens, special ones included.
    pub prompt_tokens: usize,
    /// Whether the text was cut.
    pub truncated: bool,
}

impl Encoded {
    /// The vectors.
    pub fn each_vector(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        let width = self.values.len() / self.vectors.max(1);
        self.values.chunks_exact(width.max(1))
    }
}

/// Answer to `embed`.
#[derive(Clone, Debug)]
pub struct EncodeOutcome {
    /// What represents a text.
    pub form: VectorForm,
    /// In the order of the texts.
    pub texts: Vec<Encoded>,
    /// Resources used.
    pub cost: RequestCost,
    /// Its receipt, if one was asked for.
    pub receipt: Option<Box<Receipt>>,
}

/// A ranked document.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The document's index in the request.
    pub index: usize,
    /// The probability of yes against no: a softmax over the two. Of a cross-encoder, the logistic function of its output; of late
    /// interaction, the similarity, which may be any number.
    pub relevance: f32,
    /// The logarithm of the ratio of yes to no. Of a cross-encoder, its output; of late interaction, the relevance again.
    pub log_odds: f32,
    /// Number of tokens in its prompt.
    pub prompt_tokens: usize,
    /// Whether the document was cut to fit the context.
    pub truncated: bool,
}

/// Answer to `rerank`.
#[derive(Clone, Debug)]
pub struct RerankOutcome {
    /// The most relevant documents first, equals by index; then failed documents, by index.
    pub results: Vec<Result<Ranked, ItemError>>,
    /// The tokens of yes and of no; empty for a cross-encoder.
    pub label_token_ids: Vec<Vec<u32>>,
    /// The tokens that were scored after both; empty if the end was not scored.
    pub end_token_ids: Vec<u32>,
    /// The indices of a label (0: yes, 1: no) and of the other, which begins with it, if the end was not scored.
    pub prefix_label: Option<(usize, usize)>,
    /// Resources used, for all documents.
    pub cost: RequestCost,
    /// Its receipt, if one was asked for.
    pub receipt: Option<Box<Receipt>>,
}

/// How the labels were masked for a model that fills masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskSamples {
    /// Maximum number of maskings per label.
    pub samples: usize,
    /// Seed of the random maskings.
    pub seed: u64,
    /// Number of labels, distinct within their list, whose maskings were sampled. All maskings of the other labels were run, so
    /// their scores are exact.
    pub sampled_labels: usize,
}

/// One token with its log-probability over the whole vocabulary (before any sampling filter).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// The text that the id alone decodes to (lossy).
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
    /// The probability of all tokens that the constraint did not allow here; `None` without a constraint.
    pub masked_mass: Option<f32>,
}

/// The prompt of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedPrompt {
    /// Its tokens.
    pub token_ids: Vec<u32>,
    /// As [`GenerateOutcome::prompt_logprobs`].
    pub logprobs: Option<Vec<Option<PositionLogprobs>>>,
    /// Number of tokens taken from a cache filled by an earlier request.
    pub cached_tokens: usize,
}

/// What a generation reports while it runs: a new token of one of its continuations, or the end of one that was cut short.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedPiece {
    /// Its continuation: 0 is the first, of [`GenerateOutcome`] itself; the others follow in the order of `others`.
    pub continuation: usize,
    /// The token; `None` if the continuation was cut short after its last one.
    pub token_id: Option<u32>,
    /// The text that has become final, often empty: characters of several tokens and possible beginnings of stop strings are held
    /// back. The texts of all pieces make up the text of the continuation.
    pub text: String,
    /// The log-probabilities of the token, if requested.
    pub logprobs: Option<PositionLogprobs>,
    /// In the last piece of the continuation: why it ended.
    pub finish_reason: Option<FinishReason>,
    /// In the piece of the first token of the first continuation: the prompt.
    pub prompt: Option<Box<ReportedPrompt>>,
}

/// One continuation of a prompt.
#[derive(Clone, Debug)]
pub struct Continuation {
    /// The new text, up to a stop string.
    pub text: String,
    /// The new token ids, an end-of-sequence token included.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// One entry per new token, if requested.
    pub logprobs: Option<Vec<PositionLogprobs>>,
    /// Seconds from the request reaching the engine to each new token being chosen.
    pub token_s: Vec<f64>,
    /// Seed of its random numbers. A request for one continuation with this seed gives the same tokens.
    pub seed: u64,
    /// Mean log-probability of its tokens, if continuations were ranked by it; `None` without tokens too.
    pub mean_logprob: Option<f64>,
}

/// Answer to `generate`. Text, ids, finish reason, log-probabilities, times of tokens, seed and mean log-probability are those of the
/// first continuation.
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
    /// One entry per new token, if requested.
    pub logprobs: Option<Vec<PositionLogprobs>>,
    /// One entry per prompt token, if requested; `None` for the first token, for those before the first requested one, and for
    /// those that had not been run when the request was cancelled.
    pub prompt_logprobs: Option<Vec<Option<PositionLogprobs>>>,
    /// Token counts; those of all continuations that were generated, including those that are not returned.
    pub usage: TokenCounts,
    /// Use of the prefix cache; `None` if it is off or the KV cache is not used.
    pub prefix_cache: Option<PrefixCacheCounts>,
    /// Number of plans that were missing for passes of this request.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds until the first new token was chosen, including the time in the queue.
    pub prefill_s: f64,
    /// Seconds for all further tokens.
    pub decode_s: f64,
    /// New tokens after the first of each continuation, per second of `decode_s`; `None` without such tokens.
    pub decode_tokens_per_s: Option<f64>,
    /// Seconds from the request reaching the engine to each new token being chosen.
    pub token_s: Vec<f64>,
    /// Seed of its random numbers: the request's, unless continuations were ranked.
    pub seed: u64,
    /// Mean log-probability of its tokens, if continuations were ranked by it; `None` without tokens too.
    pub mean_logprob: Option<f64>,
    /// The further continuations: in the order of their seeds, or if continuations were ranked, the most probable first.
    pub others: Vec<Continuation>,
    /// Whether the caller cancelled any continuation that was generated, also one that is not returned.
    pub cancelled: bool,
    /// When the request reached the engine, seconds on the engine's clock: comparable between requests to one engine.
    pub arrived_s: f64,
    /// Peak of allocated bytes in the process while the request ran, weights included; `None` if allocations are not counted or
    /// another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// Tier and formats in use, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
    /// Its receipt, if one was asked for and it was not cancelled.
    pub receipt: Option<Box<Receipt>>,
}

impl GenerateOutcome {
    /// Takes all continuations, the first included, and leaves none.
    pub fn take_continuations(&mut self) -> Vec<Continuation> {
        let first = Continuation {
            text: std::mem::take(&mut self.text),
            token_ids: std::mem::take(&mut self.token_ids),
            finish_reason: self.finish_reason,
            logprobs: self.logprobs.take(),
            token_s: std::mem::take(&mut self.token_s),
            seed: self.seed,
            mean_logprob: self.mean_logprob,
        };
        std::iter::once(first).chain(self.others.drain(..)).collect()
    }
}

/// A mask that was filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilledMask {
    /// Its position in the canvas.
    pub position: usize,
    /// The token that replaced it.
    pub token: u32,
    /// Confidence of the prediction; larger is more confident. Depending on the algorithm, it is a probability, a difference of
    /// two probabilities, or a negative entropy in nats.
    pub confidence: f64,
}

/// A pass over a canvas.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionPass {
    /// The step of the schedule, or the number of the pass if there is no schedule.
    pub step: usize,
    /// The rows that were run: all, or a range that begins with the block.
    pub rows: std::ops::Range<usize>,
    /// Rows whose logits were computed.
    pub outputs: usize,
    /// The masks that it filled, by position.
    pub filled: Vec<FilledMask>,
}

/// Progress of a canvas while it is being filled.
#[derive(Clone, Debug, PartialEq)]
pub enum DiffusionProgress {
    /// The tokens before the first pass: the prompt and masks. Reported once, before anything else.
    Canvas(Vec<u32>),
    /// A pass, with the masks that it filled.
    Pass(DiffusionPass),
    /// Text that has become final.
    Text(String),
}

/// Answer to `diffuse`.
#[derive(Clone, Debug)]
pub struct DiffuseOutcome {
    /// The text from the first mask up to an end-of-sequence token or a stop string, including prompt text between masks.
    pub text: String,
    /// The tokens after the prompt, including an end-of-sequence token. Unfilled masks, left after the end of the text or by
    /// cancellation, appear as the id of the mask token.
    pub token_ids: Vec<u32>,
    /// All tokens: the prompt with its masks filled, and the tokens after it.
    pub canvas: Vec<u32>,
    /// Number of prompt tokens.
    pub prompt_tokens: usize,
    /// Number of masks among them.
    pub prompt_masks: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The algorithm that chose the masks to fill.
    pub algorithm: Algorithm,
    /// Every pass.
    pub passes: Vec<DiffusionPass>,
    /// Number of rows run, over all passes.
    pub computed_tokens: usize,
    /// Mean number of masks filled per pass.
    pub tokens_per_pass: Option<f64>,
    /// Number of plans that were missing for passes of this request.
    pub plan_misses: u64,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: f64,
    /// Seconds from its first pass to its end.
    pub compute_s: f64,
    /// Seconds of `compute_s` in which tokens were predicted from logits, and masks chosen: the overhead of the sampler.
    pub sampling_s: f64,
    /// Masks filled per second of `compute_s`.
    pub tokens_per_s: Option<f64>,
    /// Peak of allocated bytes in the process while the request ran, weights included; `None` if allocations are not counted or
    /// another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// Tier and formats in use, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
    /// Its receipt, if one was asked for and it was not cancelled.
    pub receipt: Option<Box<Receipt>>,
}

/// A mean and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Standard deviation over the square root of the number of values, which are taken as independent; `None` with fewer than
    /// two.
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
    /// Whether the caller cancelled; the figures then cover the tokens up to that moment.
    pub cancelled: bool,
    /// Seconds on the engine's thread.
    pub compute_s: f64,
    /// Peak of allocated bytes in the process while the request ran, weights included; `None` if allocations are not counted or
    /// another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// Tier and formats in use, such as `avx512+bf16/bf16`.
    pub kernel_path: String,
}

/// Divergence of the distributions of a model Q from those of a reference P, over every predicted token.
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
    /// Share of tokens for which both models rank the same token first (ties: the lower id).
    pub top1_agreement: f64,
    /// ln(perplexity of Q / perplexity of P), its standard error from the differences token by token.
    pub ln_ratio: Estimate,
}

impl Divergence {
    /// Minimum number of values for a median and a 99th percentile.
    pub const ENOUGH: usize = 100;
}

/// Answer to `compare`.
#[derive(Clone, Debug)]
pub struct ComparisonOutcome {
    /// The model.
    pub model: PerplexityOutcome,
    /// The reference model.
    pub reference: PerplexityOutcome,
    /// Divergence of the model from the reference.
    pub divergence: Divergence,
}

/// Resources that requests hold at a moment between two passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUse {
    /// Requests that are waiting or running.
    pub requests: usize,
    /// Sequences whose keys and values are stored.
    pub sequences: usize,
    /// Number of these sequences that the prefix cache keeps.
    pub kept: usize,
    /// Pages of keys and values that these sequences own.
    pub pages: usize,
    /// Copies of the rows of the head that belong to the labels of score requests.
    pub label_heads: usize,
}
