//! Grammars that restrict what a model writes, compiled by `llguidance` for the vocabulary of a model.
//!
//! A [`Grammar`] is plain data. A [`Compiler`] of a model compiles it once, on a thread of its own, and keeps the result. Each answer
//! gets a [`Matcher`], which says after each token which ones may follow. What follows depends on the bytes so far only, not on their
//! tokens.

#![forbid(unsafe_code)]

mod closed;
mod compiler;
mod error;
mod gbnf;
mod grammar;
mod levels;
mod matcher;
mod schema;
mod text;
mod vocabulary;

pub use closed::closed;
pub use compiler::Compiler;
pub use error::GrammarError;
pub use grammar::{Grammar, GrammarKind, VERSION, json_value};
pub use matcher::Matcher;
pub use text::{escaped, plain_text};
pub use vocabulary::Words;
