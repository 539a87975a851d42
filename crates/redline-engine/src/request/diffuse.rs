//! What may be asked of a model that fills masks.

use super::{Prompt, Sampling};

/// Which masks are filled first, and how many in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Dream's `origin`: each at random, with the probability of its step.
    Origin,
    /// Dream's `maskgit_plus`: those whose token is most probable.
    MaskgitPlus,
    /// Dream's `topk_margin`: those whose token is furthest ahead of the next one.
    TopkMargin,
    /// Dream's `entropy`: those whose distribution has the least entropy.
    Entropy,
    /// LLaDA's `low_confidence` remasking: those whose token is most probable, block by block, as many in each step.
    LowConfidence,
    /// LLaDA's `random` remasking: any, block by block, as many in each step.
    Random,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Origin,
        Self::MaskgitPlus,
        Self::TopkMargin,
        Self::Entropy,
        Self::LowConfidence,
        Self::Random,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::MaskgitPlus => "maskgit-plus",
            Self::TopkMargin => "topk-margin",
            Self::Entropy => "entropy",
            Self::LowConfidence => "low-confidence",
            Self::Random => "random",
        }
    }

    /// Whether its steps follow LLaDA's schedule.
    pub fn is_even(self) -> bool {
        matches!(self, Self::LowConfidence | Self::Random)
    }
}

/// Which keys and values are taken from the last pass over all instead of being computed again (Fast-dLLM). With either, a pass
/// is cheaper and what it computes is an approximation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockCache {
    /// None: every pass is over all.
    #[default]
    None,
    /// Those of everything before the block.
    Prefix,
    /// Those of everything but the block.
    Dual,
}

impl BlockCache {
    /// All of them.
    pub const ALL: &[Self] = &[Self::None, Self::Prefix, Self::Dual];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Prefix => "prefix",
            Self::Dual => "dual",
        }
    }
}

/// `diffuse`: fill the masks of a canvas, which is a prompt and masks behind it.
#[derive(Clone, Debug)]
pub struct DiffuseRequest {
    /// The prompt. Masks in it are filled too.
    pub prompt: Prompt,
    /// Masks behind the prompt; may be 0 if there are masks in it.
    pub max_new_tokens: usize,
    /// Steps, at most one per mask; `None`: one per mask. With a threshold there are as many as it takes.
    pub steps: Option<usize>,
    /// `None`: entropy where rows are about the next token (Dream), low confidence elsewhere (LLaDA); with a threshold, by
    /// probability.
    pub algorithm: Option<Algorithm>,
    /// Dream's last time, above 0 and below 1.
    pub eps: f32,
    /// How the token of a mask is chosen. Order: temperature, top-p, top-k; min-p is not used.
    pub sampling: Sampling,
    /// Temperature of the choice among masks; 0 takes the surest.
    pub alg_temp: f32,
    /// Masks are filled block by block from left to right, so many in each, which divides `max_new_tokens`; `None`: all in one,
    /// or with a threshold or a cache in blocks of up to 32.
    pub block_length: Option<usize>,
    /// Classifier-free guidance: how far to move away from what the model says without the prompt; 0 does not run that.
    pub cfg_scale: f32,
    /// In a step, the surest mask is filled and every other whose token is at least so probable; above 1: one in a step.
    pub threshold: Option<f32>,
    /// What is not computed again within a block.
    pub cache: BlockCache,
    /// Passes of a block after which one over all comes again.
    pub refresh: Option<usize>,
    /// Generation ends before the first of these strings; it is not part of the text.
    pub stop: Vec<String>,
    /// Go on behind an end-of-sequence token (for measurements).
    pub ignore_eos: bool,
    /// `false`: run every step over all rows with the logits of all, whatever can come of it (the reference arm).
    pub savings: bool,
    /// Seconds that the request may take; `None`: as long as it takes.
    pub timeout_s: Option<f64>,
}

impl DiffuseRequest {
    /// Of these; everything else as it is where nothing is said: greedy, one step per mask, all in one block.
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
            ignore_eos: false,
            savings: true,
            timeout_s: None,
        }
    }

    /// Dream's last time, where nothing is said.
    pub const EPS: f32 = 1e-3;
}
