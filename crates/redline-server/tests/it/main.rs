//! Tests of the server over HTTP, in one process.

mod bad_input;
mod completions;
mod decisions;
mod ending;
mod judges;
mod keys;
mod limits;
mod pairs;
mod predict;
mod server;
mod systemone;
mod tokens;
