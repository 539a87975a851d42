//! Architectures built from named blocks, and the code that runs them.
//!
//! `arch/` turns a configuration into a [`spec::DecoderSpec`], which is data: names, shapes, options. `block/` holds the blocks
//! that all architectures share, made of what `element/` defines. `load` checks a checkpoint against the specification and builds a
//! [`Model`]. Everything that can fail fails there, so that `forward` cannot.
#![forbid(unsafe_code)]

pub mod activation;
pub mod adapter;
mod adapter_rows;
pub mod arch;
pub mod block;
mod checkpoint;
mod convert;
pub mod element;
mod error;
mod experts;
mod family;
mod files;
mod footprint;
mod formats;
pub mod gguf;
pub mod gguf_config;
mod keys;
pub mod kv;
mod labels;
mod load;
mod mamba2;
pub mod model;
mod packing;
mod pass;
mod place;
pub mod plan;
pub mod profile;
mod quantised;
pub mod random;
mod rehearsal;
mod rotary;
pub mod row_digests;
pub mod sentence;
pub mod spec;
pub mod step;
pub mod synth;
mod tensors;
pub mod trace;

pub use convert::{Companion, ConvertOptions, Progress, convert, convert_gguf, convert_on, convert_stored};
pub use error::ModelError;
pub use files::ModelFiles;
pub use footprint::Footprint;
pub use load::{LoadOptions, Loader, Weights, load};
pub use model::Model;
