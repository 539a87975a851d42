//! Requests and answers in the shapes of other servers: OpenAI, SGLang, vLLM, Cohere and Text Embeddings Inference (TEI).

pub(crate) mod adapters;
pub(crate) mod canvas;
pub(crate) mod chat;
pub(crate) mod classify;
pub(crate) mod completion;
pub(crate) mod decision;
pub(crate) mod embeddings;
pub(crate) mod fault;
mod generation;
pub(crate) mod models;
pub(crate) mod pairs;
pub(crate) mod rerank;
pub(crate) mod responses;
pub(crate) mod score;
pub(crate) mod stream;
pub(crate) mod systemone;
pub(crate) mod tei;
pub(crate) mod tokens;
