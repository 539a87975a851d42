//! Routes of Text Embeddings Inference (TEI).

pub mod embed;
pub mod info;
pub mod predict;
pub mod similarity;
pub mod tokens;
pub mod truncation;
