//! What chat models write: reasoning, text, and calls of tools, in the format of each family.
//!
//! A [`ChatFormat`] is found in the source of a chat template ([`ChatFormat::of_template`]). A [`Parser`] follows an answer as it is
//! written, and says what each part is; an answer that has ended is parsed by the same code, so that a stream and a whole answer are always
//! equal. It never fails: what is no call stays text. A [`ChatFormat`] also gives the grammar of an answer that has to be a call
//! ([`ChatFormat::grammar`]).
//!
//! Tokens that mark a place, such as `<tool_call>`, come as [`Input::Marker`]; the same characters in a text are no marker, if the
//! vocabulary has a token for them.

#![forbid(unsafe_code)]

mod buffer;
mod deltas;
mod error;
mod forced;
mod format;
mod id;
mod json;
mod parser;
mod python;
mod reader;
mod rules;
mod tool;

pub use buffer::{Input, Marker};
pub use deltas::Delta;
pub use error::{ChatFormatError, Subject};
pub use forced::{Demand, Reasoned};
pub use format::{ChatFormat, Reasoning};
pub use id::call_id;
pub use parser::Parser;
pub use tool::{Tool, Tools};
