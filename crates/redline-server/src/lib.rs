//! The HTTP server: scoring, ranking, classes and completions of one loaded model.
//!
//! [`Server::bind`] opens the port, [`Server::run`] answers requests until it is told to stop. One thread runs all connections. Requests
//! are parsed and checked before they take a place in the queue, and are tokenised on a few threads of their own. The engine runs them
//! on its own thread. A request that its client abandons is dropped with its tickets, which cancels it before the next pass.

#![forbid(unsafe_code)]

mod admission;
mod answer;
mod app;
mod body;
mod clock;
mod config;
mod connection;
mod fault;
mod form;
mod key;
mod log;
mod nesting;
mod origin;
mod request;
mod route;
mod routes;
mod server;
mod stop;

pub use config::{ApiKey, ServerConfig, ServerLimits};
pub use log::LogSink;
pub use routes::{RouteInfo, routes};
pub use server::{ServeError, ServeSummary, Server, ServerStop};
