//! What decoders are made of: each block's `forward` reads as the paper.

pub mod attention;
pub mod decoder;
pub mod embedding;
pub mod linear;
pub mod mlp;
pub mod norm;
