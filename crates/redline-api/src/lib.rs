//! The layer between JSON and the engine, for every front end: the command line, the server, tables and Python.
//!
//! Everything about a request stands in one module: the type that is read from JSON, its rules and schema, the conversion to the
//! engine's request (`request`), and the answer with the conversion from the engine's outcome (`answer`, and events for streams).
//! [`jsonl`] has the requests of commands, with defaults for absent keys; the other folders have the routes of servers by whose API
//! they are named. What they share stands beside them. Requests of lines are validated by the engine, those of routes here too.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod anthropic;
pub mod chat;
pub mod cohere;
pub mod cost;
pub mod diffusion;
pub mod documents;
pub mod error;
pub mod error_body;
pub mod generation;
pub mod head;
pub mod json;
pub mod jsonl;
pub mod model;
pub mod openai;
pub mod options;
pub mod receipt;
pub mod sampling;
pub mod sglang;
pub mod tei;
pub mod typesafe;
pub mod vllm;
