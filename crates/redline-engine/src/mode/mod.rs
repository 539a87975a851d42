//! The modes of requests, one file each, and how they choose tokens.

pub(crate) mod autoregressive;
pub(crate) mod diffusion;
pub(crate) mod encode;
pub(crate) mod perplexity;
pub(crate) mod random;
pub(crate) mod sampler;
pub(crate) mod score;
