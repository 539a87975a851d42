//! Routes of OpenAI's API.

pub mod chat_completions;
pub mod completions;
pub mod decisions;
pub mod embeddings;
pub mod models;
pub mod responses;
