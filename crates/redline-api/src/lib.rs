//! The layer between JSON and the engine, for every front end: the command line, the server, tables and Python.
//!
//! Each kind of request has one module: the type read from JSON with its schema and rules, `request` (conversion to the engine's
//! request), and `answer` (conversion from the engine's outcome; events for streams). [`jsonl`] has the requests of commands, whose
//! absent keys take defaults. [`openai`], [`anthropic`], [`cohere`], [`infill`], [`ollama`], [`sglang`], [`tei`], [`tgi`], [`typesafe`] and
//! [`vllm`] have the routes of those APIs. The other modules are shared. The engine validates the requests of lines; routes are
//! checked here as well.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod anthropic;
pub mod chat;
pub mod cohere;
pub mod conversation;
pub mod cost;
pub mod diffusion;
pub mod documents;
pub mod error;
pub mod error_body;
mod gap;
pub mod generation;
pub mod grammar;
pub mod head;
pub mod infill;
pub mod json;
pub mod jsonl;
pub mod model;
pub mod ollama;
pub mod openai;
pub mod options;
pub mod pump;
pub mod receipt;
pub mod sampling;
pub mod sglang;
pub mod tei;
pub mod tgi;
pub mod typesafe;
pub mod vllm;
