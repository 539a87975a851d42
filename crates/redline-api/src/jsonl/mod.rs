//! Requests as lines of JSON, a module for each command, and their answers. Python and tables have the same.

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
