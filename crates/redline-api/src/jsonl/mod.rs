//! Requests and answers of commands as JSON Lines, one module per command. Python and tables use them too.

pub mod classify;
pub mod diffuse;
pub mod embed;
pub mod fault;
pub mod generate;
pub mod judge;
pub mod model;
pub mod perplexity;
pub mod rerank;
pub mod score;
pub mod tokenize;
