//! Models in GGUF files. Metadata becomes the `config.json` that says the same, so that one specification serves both; the tensors
//! of the specification are found under their names in the file.
//!
//! - `keys.rs`: the configuration in the making. `dialect.rs`: what an architecture's files have of their own, and the keys that all have;
//!   `rotary.rs`: those of the rotation.
//! - `adapted.rs`: what differs in a specification whose tensors come from such a file.
//! - `tensors.rs`: names, and the order of rows.
//!
//! Facts about keys, defaults and names are those of llama.cpp (`llama-model.cpp`, `models/`) and of its converters.

pub(crate) mod adapted;
pub(crate) mod dialect;
pub(crate) mod keys;
mod rotary;
pub(crate) mod tensors;

pub use dialect::GgufDialect;
