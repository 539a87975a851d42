//! What a request can be: one file each.

pub(crate) mod autoregressive;
pub(crate) mod diffusion;
pub(crate) mod perplexity;
pub(crate) mod score;
