//! Tests of the server over HTTP, in one process.

mod bad_input;
mod chat;
mod completions;
mod ending;
mod judges;
mod keys;
mod limits;
mod responses;
mod server;
mod streams;
mod tokens;
