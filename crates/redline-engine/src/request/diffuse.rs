//! Requests to models that fill masks.

use super::{AdapterChoice, Algorithm, BlockCache, Prompt, Queueing, ReceiptOptions, Sampling};

/// `diffuse`: fill the masks of a canvas, which is a prompt followed by masks.
#[derive(Clone, Debug)]
pub struct DiffuseRequest {
    /// The prompt. Masks in it are filled too.
    pub prompt: Prompt,
    /// Number of masks after the prompt; may be 0 if the prompt contains masks.
    pub max_new_tokens: usize,
    /// Number of steps; `None`: one per mask. More steps than masks are allowed, up to [`DiffuseRequest::MAX_STEPS`]: the steps that
    /// fill nothing are left out. With a threshold, the confidences determine the number.
    pub steps: Option<usize>,
    /// `None`: entropy for models whose rows predict the next token (Dream), low confidence for others (LLaDA); with a
    /// threshold, by probability.
    pub algorithm: Option<Algorithm>,
    /// End time of Dream's schedule, above 0 and below 1.
    pub eps: f32,
    /// How the token of a mask is chosen. Order: temperature, top-p, top-k; min-p and typical-p are not used.
    pub sampling: Sampling,
    /// Temperature for choosing among masks; 0 takes the most confident.
    pub alg_temp: f32,
    /// Number of new masks per block; blocks are filled from left to right. Must divide `max_new_tokens`. `None`: a single
    /// block, or with a threshold or a cache blocks of up to 32.
    pub block_length: Option<usize>,
    /// Scale of classifier-free guidance, away from the prediction without the prompt; 0 disables it.
    pub cfg_scale: f32,
    /// In each step, fill the most confident mask and all masks whose tokens have at least this probability, from 0 to 1.
    pub threshold: Option<f32>,
    /// Which keys and values are reused within a block.
    pub cache: BlockCache,
    /// Number of passes of a block after which the whole canvas is run again.
    pub refresh: Option<usize>,
    /// Generation ends before the first of these strings; it is not part of the text.
    pub stop: Vec<String>,
    /// Further tokens that end the text if they fill a mask, such as the end of a turn in a conversation.
    pub stop_ids: Vec<i64>,
    /// Continue after an end-of-sequence token (for measurements).
    pub ignore_eos: bool,
    /// `false`: run every step over all rows and compute all logits, even if they cannot change the result (the reference arm).
    pub savings: bool,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
    /// The adapters, applied one after the other; empty: the base model.
    pub adapters: Vec<AdapterChoice>,
    /// Whose request it is, and how long it may wait to begin.
    pub queueing: Queueing,
    /// Ask for a receipt.
    pub receipt: Option<ReceiptOptions>,
}

impl DiffuseRequest {
    /// Creates a request with these values. Other fields take their defaults: greedy, one step per mask, a single block.
    pub fn new(prompt: Prompt, max_new_tokens: usize) -> Self {
        Self {
            prompt,
            max_new_tokens,
            steps: None,
            algorithm: None,
            eps: Self::EPS,
            sampling: Sampling::default(),
            alg_temp: 0.0,
            block_length: None,
            cfg_scale: 0.0,
            threshold: None,
            cache: BlockCache::None,
            refresh: None,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            ignore_eos: false,
            savings: true,
            timeout_s: None,
            adapters: Vec::new(),
            queueing: Queueing::default(),
            receipt: None,
        }
    }

    /// Largest number of steps, if there are not more masks. The schedule walks through all of them, including those that fill nothing.
    pub const MAX_STEPS: usize = 4096;
    /// Greatest strength of guidance. Logits that are scaled much further leave the range of f32.
    pub const MAX_GUIDANCE: f32 = 100.0;
    /// Default end time of Dream's schedule.
    pub const EPS: f32 = 1e-3;
}
