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

use redline_weights::{ConfigFile, ConfigObject, Gguf};

use crate::ModelError;
use crate::arch::{ALL, Architecture};
use keys::Keys;

/// The key that names the architecture.
const ARCHITECTURE: &str = "general.architecture";
/// The mask token of a diffusion model.
const MASK: &str = "tokenizer.ggml.mask_token_id";
/// The key that names the kind of the tokenizer.
const TOKENIZER: &str = "tokenizer.ggml.model";

/// The `config.json` that says the same as the metadata of a file, as its bytes.
///
/// # Errors
/// Names the architecture that is not known, or the key that is missing, wrong, or not supported.
pub fn config_json(gguf: &Gguf) -> Result<Vec<u8>, ModelError> {
    let metadata = gguf.metadata();
    let (architecture, dialect) = find(gguf)?;
    let mut keys = Keys::new(gguf, dialect.architecture);
    let config = keys.config();
    config.set("architectures", vec![architecture.name]);
    config.set("model_type", architecture.model_type);
    config.set(adapted::KEY, ConfigObject::default());
    (dialect.config)(&mut keys)?;
    if let Some(mask) = metadata.opt_u32(MASK)? {
        keys.config().set("mask_token_id", mask);
    }
    Ok(keys.finish()?.to_json())
}

/// [`config_json`], read. Messages name the file.
pub fn config(gguf: &Gguf) -> Result<ConfigFile, ModelError> {
    Ok(ConfigFile::from_bytes(&gguf.origin().display().to_string(), &config_json(gguf)?)?)
}

/// The architecture that the metadata name, and how its files are made.
pub(crate) fn find(gguf: &Gguf) -> Result<(&'static Architecture, GgufDialect), ModelError> {
    let (name, tokenizer) = (gguf.metadata().string(ARCHITECTURE)?, gguf.metadata().opt_string(TOKENIZER)?);
    let dialects = || ALL.iter().filter_map(|architecture| Some((architecture, architecture.gguf?)));
    let with = |tokenizer: Option<&str>| {
        dialects().find(|(_, dialect)| dialect.architecture == name && dialect.tokenizer == tokenizer)
    };
    with(tokenizer).or_else(|| with(None)).ok_or_else(|| ModelError::UnknownArchitecture {
        name: name.to_owned(),
        file: gguf.origin().display().to_string(),
        known: dialects().filter(|(_, it)| it.tokenizer.is_none()).map(|(_, it)| it.architecture).collect(),
    })
}
