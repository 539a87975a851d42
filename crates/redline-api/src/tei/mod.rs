//! Routes of Text Embeddings Inference (TEI).

pub mod embed;
pub mod embed_all;
pub mod embed_sparse;
pub mod info;
pub mod predict;
pub mod similarity;
pub mod tokens;
pub mod truncation;
