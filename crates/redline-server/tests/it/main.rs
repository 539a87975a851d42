//! Tests of the server over HTTP, in one process.

mod adapters;
mod bad_input;
mod completions;
mod ending;
mod fairness;
mod judges;
mod keys;
mod limits;
mod metrics;
mod server;
mod tokens;
mod watchdog;
