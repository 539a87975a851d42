//! The modes of requests, one file each.

pub(crate) mod autoregressive;
pub(crate) mod diffusion;
pub(crate) mod perplexity;
pub(crate) mod score;
