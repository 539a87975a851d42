//! The layer between JSON and the engine, for every front end. The command line and the server are front ends.
//!
//! Each kind of request has a module. Its `answer` converts the engine's outcome to the JSON type of the answer. If requests of the
//! kind can be read from JSON, its `request` converts the JSON type (of `redline-wire`) to the engine's request, with defaults for
//! absent keys. [`Chat`] formats prompts and conversations with a model's chat template. Requests are validated by the engine, not here.

#![forbid(unsafe_code)]

mod adapter;
mod chat;
mod chat_model;
pub mod classify;
mod cost;
pub mod diffuse;
pub mod embed;
mod error;
pub mod foreign;
pub mod generate;
mod judge;
mod model;
pub mod perplexity;
mod prompt;
pub mod receipt;
pub mod rerank;
pub mod score;
pub mod tokenize;

pub use adapter::adapters;
pub use chat::{Chat, ChatOptions};
pub use chat_model::ChatModel;
pub use error::ApiError;
pub use judge::ChatFrames;
pub use model::LoadedModel;
pub use prompt::prompt;
