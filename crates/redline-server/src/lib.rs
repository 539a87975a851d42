//! The HTTP server: scoring, ranking, classes, completions and conversations of one model, or of several.
//!
//! [`Server::bind`] opens the port or a Unix socket, [`Server::run`] answers requests until it is told to stop. One thread runs all
//! connections. Requests are parsed and checked before they take a place in the queue, and are tokenised on a few threads of their own.
//! The engine runs them on its own thread. A request that its client abandons is dropped with its tickets, which cancels it before the
//! next pass.
//!
//! An answer is a document, or a stream of events that a bounded pipe brings from the engine's thread to the connection. A stream keeps its
//! places in the queue, its memory and its line of the log until it ends.

#![forbid(unsafe_code)]

mod adapters;
mod admission;
mod answer;
mod app;
mod blocking;
mod body;
mod client_stream;
mod clock;
mod config;
mod connection;
mod encoding;
mod error;
mod error_format;
mod fault;
mod generation;
mod key;
mod listener;
mod log;
mod metrics;
mod models;
mod nesting;
mod openapi;
mod order;
mod origin;
mod pipe;
mod queue;
mod request;
mod route;
mod routes;
mod scrape;
mod server;
mod shared;
mod sizes;

#[cfg(unix)]
mod socket;
mod stop;
mod stream;
mod tls;
mod watchdog;

pub use config::{ApiKey, ModelSet, ServedModel, ServerConfig, ServerLimits, TlsFiles};
pub use error::ServeError;
pub use listener::ServerAddress;
pub use log::LogSink;
pub use metrics::{METRICS, MetricInfo, MetricKind};
pub use routes::{RouteInfo, openapi, routes};
pub use server::{ServeSummary, Server, ServerStop};
