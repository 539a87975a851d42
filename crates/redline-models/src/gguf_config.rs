//! Which architecture a GGUF file holds, and its metadata as the `config.json` that says the same.

use redline_weights::{ConfigFile, ConfigObject, Gguf};

use crate::ModelError;
use crate::arch::{ALL, Architecture};
use crate::gguf::keys::Keys;
use crate::gguf::{GgufDialect, adapted};

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
        dialects().filter(|(_, dialect)| dialect.tokenizer == tokenizer).find_map(
            |(architecture, dialect)| {
                let named = dialect.names().find(|of| *of == name)?;
                Some((architecture, GgufDialect { architecture: named, ..dialect }))
            },
        )
    };
    with(tokenizer).or_else(|| with(None)).ok_or_else(|| ModelError::UnknownArchitecture {
        name: name.to_owned(),
        file: gguf.origin().display().to_string(),
        known: dialects().filter(|(_, it)| it.tokenizer.is_none()).flat_map(|(_, it)| it.names()).collect(),
    })
}
