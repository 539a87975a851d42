//! Tests of the server over HTTP, in one process.

mod adapters;
mod bad_input;
mod chat;
mod completions;
mod compressed;
mod decisions;
mod diffusion;
mod ending;
mod fairness;
mod judges;
mod keys;
mod limits;
mod metrics;
mod openapi;
mod page;
mod pairs;
mod predict;
mod responses;
mod score;
mod server;
mod streams;
mod systemone;
mod tokens;
mod transport;
mod watchdog;
