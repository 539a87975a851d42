//! Limits of requests. Schemas and flags state them, and routes check them; lines are checked by the engine.

/// Maximum number of prompts of a completion.
pub const MAX_PROMPTS: usize = 128;
/// Maximum number of continuations of a prompt.
pub const MAX_CONTINUATIONS: usize = 128;
/// Highest temperature.
pub const MAX_TEMPERATURE: f32 = 100.0;
/// Highest scale of classifier-free guidance.
pub const MAX_GUIDANCE: f32 = 100.0;
/// Highest number of most probable tokens that are kept.
pub const MAX_TOP_K: i64 = u32::MAX as i64;
/// Largest amount of a presence or frequency penalty.
pub const MAX_PENALTY: f32 = 2.0;
/// Largest amount of a bias of a logit.
pub const MAX_BIAS: f32 = 100.0;
/// Maximum number of log-probabilities per position.
pub const MAX_TOP_LOGPROBS: usize = 20;
/// Maximum number of stop strings.
pub const MAX_STOPS: usize = 16;
/// Maximum number of tokens that end a text.
pub const MAX_STOP_IDS: usize = 128;
/// Longest stop string in characters.
pub const MAX_STOP: usize = 1_024;
/// Longest salt in characters.
pub const MAX_SALT: usize = 256;
/// Longest time limit in seconds: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// Maximum number of items of a score request.
pub const MAX_ITEMS: usize = 2_048;
/// Maximum number of labels of a score request.
pub const MAX_LABELS: usize = 4_096;
/// Maximum number of pairs of texts.
pub const MAX_PAIRS: usize = 1_000;
/// Maximum number of documents to rank.
pub const MAX_DOCUMENTS: usize = 1_000;
/// Maximum number of texts to classify or to embed.
pub const MAX_TEXTS: usize = 2_048;
/// Maximum number of classes of a request.
pub const MAX_CLASSES: usize = 1_024;
/// Maximum number of questions about a state.
pub const MAX_QUESTIONS: usize = 2_000;
/// Maximum number of options of a choice.
pub const MAX_OPTIONS: usize = 255;
/// Maximum number of levels of a score.
pub const MAX_LEVELS: usize = 10;
/// Longest name of an adapter in characters.
pub const MAX_ADAPTER_NAME: usize = 256;
/// Longest path of an adapter in characters.
pub const MAX_ADAPTER_PATH: usize = 1_024;
