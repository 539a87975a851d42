//! The building blocks of decoders: each block's `forward` reads as the paper.

pub mod attention;
pub mod decoder;
pub mod embedding;
pub mod experts;
pub mod ffn;
pub mod linear;
pub mod mlp;
pub mod norm;
pub mod pooled;
pub mod rotation;
