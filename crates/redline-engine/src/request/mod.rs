//! Requests to the engine: plain types, no JSON, nothing that can block.

mod classify;
mod diffuse;
mod embed;
mod judge;
mod rerank;

use redline_grammar::Grammar;

pub use classify::ClassifyRequest;
pub use diffuse::DiffuseRequest;
pub use embed::EmbedRequest;
pub use judge::JudgeOptions;
pub use redline_settings::{
    Algorithm, BlockCache, LabelEnd, LongLabels, Pooling, Tokenization, Truncate, VectorForm,
};
pub use rerank::RerankRequest;

/// Text, or token ids used unchanged. Ids are signed so that a negative one can be refused by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text, to be tokenised by the model's tokenizer, which adds its special tokens.
    Text(String),
    /// Text that contains its special tokens, such as a conversation in the format of a chat template: none are added.
    Formatted(String),
    /// Token ids, used unchanged: nothing is added before or after them.
    Ids(Vec<i64>),
}

impl Prompt {
    /// Whether this prompt is text (mixing text and ids in one request is refused).
    pub fn is_text(&self) -> bool {
        self.text().is_some()
    }

    /// The text, unless the prompt is token ids.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Formatted(text) => Some(text),
            Self::Ids(_) => None,
        }
    }
}

/// A label whose probability is requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// Text, tokenised separately from the prompts; exactly one token unless [`LongLabels`] allows more.
    Text(String),
    /// Its token ids: one, or more if [`LongLabels`] allows it.
    Ids(Vec<i64>),
}

/// An adapter that a request uses.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterChoice {
    /// Its name.
    pub name: String,
    /// Factor on its updates; 1 is the adapter as it was trained.
    pub scale: f32,
}

/// Asks for a receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptOptions {
    /// The layers, counted from 0, of which the receipt has digests; `None`: all.
    pub layers: Option<Vec<usize>>,
    /// Number of rows beyond which the request is cancelled; `None`: any number.
    pub most_rows: Option<u64>,
}

/// Whose request it is, and how long it may wait to begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queueing {
    /// The tenant. Tenants that have requests get equal shares of the time, however many requests each has. By default all requests
    /// are of one tenant.
    pub tenant: String,
    /// Longest wait for its first pass in seconds, after which it ends with [`crate::EngineError::Expired`]; `None`: no limit but that
    /// of the request.
    pub longest_wait_s: Option<f64>,
}

/// `score`: for each item, the probability of each label as the next token after query and item.
#[derive(Clone, Debug)]
pub struct ScoreRequest {
    /// The text that all items share.
    pub query: Prompt,
    /// One score row per item, in this order. May be empty: then no row is returned.
    pub items: Vec<Prompt>,
    /// The labels, in the order of the columns. Duplicates keep their place.
    pub labels: Vec<Label>,
    /// Separate labels for each item, one list per item, instead of `labels`.
    pub item_labels: Option<Vec<Vec<Label>>>,
    /// How a label of several tokens is scored.
    pub long_labels: LongLabels,
    /// What the model writes after every label. Its log-probability, after prompt and label, is added to that of the label.
    /// `None`: what follows a label does not count.
    pub label_end: Option<Label>,
    /// `true`: softmax over the labels only. `false`: true probability over the whole vocabulary.
    pub softmax: bool,
    /// Put the item before the query.
    pub item_first: bool,
    /// Evaluate the whole vocabulary even when the softmax is over labels, so that log-probabilities are true ones.
    pub full_logprobs: bool,
    /// How texts are joined.
    pub tokenization: Tokenization,
    /// What to do with a prompt longer than the context: `None` is an error.
    pub truncate: Option<Truncate>,
    /// Report an item's error in its place instead of failing the whole request.
    pub item_errors: bool,
    /// Return the token ids of every scored prompt.
    pub return_token_ids: bool,
    /// Return what the model would write in the place of the labels, as [`LabelReading`](crate::LabelReading).
    pub return_reading: bool,
    /// For models that fill masks: maximum number of maskings per label, from 1 to [`ScoreRequest::MAX_SAMPLES`]. If a label
    /// has more maskings, this number of them is sampled. `None`: [`ScoreRequest::SAMPLES`].
    pub mc_samples: Option<usize>,
    /// For models that fill masks: seed of that sampling. Same seed, same scores.
    pub seed: Option<u64>,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
    /// Whose request it is, and how long it may wait to begin.
    pub queueing: Queueing,
    /// Ask for a receipt.
    pub receipt: Option<ReceiptOptions>,
}

impl ScoreRequest {
    /// Default number of samples (LLaDA's `mc_num`).
    pub const SAMPLES: usize = 128;
    /// Maximum number of samples; more would run for hours.
    pub const MAX_SAMPLES: usize = 65_536;

    /// Creates a request with these values. Other fields take their defaults: true probabilities, texts concatenated, the query
    /// first, and an error in any item fails the request.
    pub fn new(query: Prompt, items: Vec<Prompt>, labels: Vec<Label>) -> Self {
        Self {
            query,
            items,
            labels,
            item_labels: None,
            long_labels: LongLabels::Refuse,
            label_end: None,
            softmax: false,
            item_first: false,
            full_logprobs: false,
            tokenization: Tokenization::Concat,
            truncate: None,
            item_errors: false,
            return_token_ids: false,
            return_reading: false,
            mc_samples: None,
            seed: None,
            cache_salt: String::new(),
            adapters: Vec::new(),
            timeout_s: None,
            queueing: Queueing::default(),
            receipt: None,
        }
    }
}

/// Sampling parameters, applied in the order temperature, top-k, top-p, min-p, typical-p.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy. Must be finite and not negative.
    pub temperature: f32,
    /// Keep the k most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set whose probability reaches this; 1 keeps all. In (0, 1].
    pub top_p: f32,
    /// Drop tokens below this share of the most probable one; 0 keeps all. In [0, 1].
    pub min_p: f32,
    /// Keep the tokens whose information content is closest to the entropy of the distribution, up to this probability (locally
    /// typical sampling, arXiv 2202.00666); 1 keeps all. In (0, 1].
    pub typical_p: f32,
    /// The random number of position p is a pure function of (seed, p).
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, typical_p: 1.0, seed: 0 }
    }
}

/// Changes to the logits of tokens that occurred and of those that end the text, in the order of the fields. They hold for greedy decoding
/// too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Logits of tokens of the prompt or the continuation are divided by this if positive, else multiplied by it (CTRL, arXiv
    /// 1909.05858). Above 0; 1 changes nothing.
    pub repetition: f32,
    /// Subtracted from the logit of a token for each time it was generated. In [-2, 2]; 0 changes nothing.
    pub frequency: f32,
    /// Subtracted once from the logits of tokens that were generated. In [-2, 2]; 0 changes nothing.
    pub presence: f32,
    /// No token that ends the text is chosen before this number of tokens was generated, unless a constraint allows only that one
    /// ([`Allowed::Only`](crate::Allowed::Only)).
    pub min_tokens: usize,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { repetition: 1.0, frequency: 0.0, presence: 0.0, min_tokens: 0 }
    }
}

/// Which prompt tokens get log-probabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptLogprobs {
    /// The first position. Earlier positions may come from the prefix cache. The very first token has no log-probability,
    /// because nothing comes before it.
    pub from: usize,
    /// Number of most probable alternatives to return per position.
    pub top: usize,
}

/// `generate`: continue a prompt token by token.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// The prompt. At least one token after tokenising.
    pub prompt: Prompt,
    /// Keep only this number of tokens of the prompt, the last ones, and no more than fit beside the new ones. `None`: all; a prompt that
    /// is too long is refused.
    pub prompt_tokens: Option<usize>,
    /// Maximum number of new tokens; at least 1.
    pub max_new_tokens: usize,
    /// Where the context or the memory budget ends earlier, generate up to there, instead of refusing the request. A prompt that
    /// leaves no room for one new token is refused.
    pub fit_context: bool,
    /// How each token is chosen.
    pub sampling: Sampling,
    /// Changes to the logits of tokens that occurred.
    pub penalties: Penalties,
    /// Token ids, each with a number from -100 to 100 that is added to its logit before the penalties. No id occurs twice.
    pub logit_bias: Vec<(i64, f32)>,
    /// Number of continuations to return, from 1 to [`GenerateRequest::MAX_CONTINUATIONS`]. The first is that of a request for
    /// one. More than one need a temperature above 0.
    pub n: usize,
    /// Number of continuations to generate, from `n` to [`GenerateRequest::MAX_CONTINUATIONS`]; `None`: `n`. If more are
    /// generated, those with the highest mean log-probability per token are returned, highest first.
    pub best_of: Option<usize>,
    /// Generation ends before the first of these strings; it is not part of the text.
    pub stop: Vec<String>,
    /// Token ids after which generation ends too. Like an end-of-sequence token, such a token is returned and has no text.
    pub stop_ids: Vec<i64>,
    /// Continue after an end-of-sequence token (for measurements).
    pub ignore_eos: bool,
    /// What the text has to be. It ends when nothing may follow.
    pub grammar: Option<Grammar>,
    /// `Some(n)`: return the log-probability of every new token and of the n most probable ones. Log-probabilities are those of
    /// the model's own distribution, before bias, penalties, temperature and filters.
    pub logprobs: Option<usize>,
    /// `Some`: return the log-probabilities of prompt tokens, each given those before it.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// `false`: recompute the whole sequence for every token (the reference arm of the cache).
    pub kv_cache: bool,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
    /// Whose request it is, and how long it may wait to begin.
    pub queueing: Queueing,
    /// Ask for a receipt.
    pub receipt: Option<ReceiptOptions>,
}

impl GenerateRequest {
    /// Maximum number of continuations of one prompt.
    pub const MAX_CONTINUATIONS: usize = 128;

    /// Number of continuations to generate.
    pub fn continuations(&self) -> usize {
        self.best_of.unwrap_or(self.n)
    }

    /// Creates a request with these values. Other fields take their defaults: greedy, until an end-of-sequence token.
    pub fn new(prompt: Prompt, max_new_tokens: usize) -> Self {
        Self {
            prompt,
            prompt_tokens: None,
            max_new_tokens,
            fit_context: false,
            sampling: Sampling::default(),
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            best_of: None,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_eos: false,
            grammar: None,
            logprobs: None,
            prompt_logprobs: None,
            kv_cache: true,
            cache_salt: String::new(),
            adapters: Vec::new(),
            timeout_s: None,
            queueing: Queueing::default(),
            receipt: None,
        }
    }
}

/// `perplexity`: how probable the model finds a text, window by window.
#[derive(Clone, Debug)]
pub struct PerplexityRequest {
    /// The text. Text is cut between tokens, and every window begins with the special tokens that the tokenizer puts before a
    /// text. Ids are cut unchanged.
    pub text: Prompt,
    /// Number of tokens in a window, at least 2; `None`: 512, or the context if that is shorter. Windows do not overlap. The
    /// first token of each is not counted, because nothing predicts it.
    pub window: Option<usize>,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_an_end_token_ends_a_text_and_nothing_is_computed_twice() {
        let prompt = || Prompt::Ids(vec![1]);
        let (generate, diffuse) = (GenerateRequest::new(prompt(), 1), DiffuseRequest::new(prompt(), 1));
        assert!(!generate.ignore_eos && !diffuse.ignore_eos);
        assert!(generate.kv_cache && diffuse.savings);
    }
}
