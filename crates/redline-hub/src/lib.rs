//! Downloads models from the Hugging Face hub into its local cache.
//!
//! [`Hub::pull`] asks a hub which files a revision has, downloads those that Redline reads, checks the hash of each, and lets the
//! revision refer to the new snapshot. The layout of the cache is that of `huggingface_hub`, so each finds what the other
//! downloaded. A download that was interrupted continues where it ended. This is the only crate that opens connections.
//!
//! The answers of a hub are treated as hostile. Paths are chosen from a list of plain names, lengths are compared before anything
//! is written, and the token is sent to the endpoint only. No environment variable is read here, except that
//! [`HubOptions::proxy_of_environment`] lets the HTTP client look for a proxy.
#![forbid(unsafe_code)]

mod client;
mod download;
mod error;
mod gguf;
mod https;
mod pull;
mod repository;
mod selection;

pub use client::HubOptions;
pub use error::{GgufChoice, HubError};
pub use pull::{Hub, PullEvent};
