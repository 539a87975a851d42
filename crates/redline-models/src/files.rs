//! The files of a model, opened: a Hugging Face directory, a converted one, or a GGUF file.

use std::path::{Path, PathBuf};

use redline_weights::{Checkpoint, ConfigFile, Gguf, Infq};

use crate::load::Weights;
use crate::{ModelError, gguf_config};

/// An opened model. Nothing but headers and configurations was read.
pub struct ModelFiles {
    path: PathBuf,
    config: ConfigFile,
    contents: Contents,
}

enum Contents {
    Checkpoint(Checkpoint),
    Infq(Infq),
    Gguf(Gguf),
}

impl ModelFiles {
    /// Opens the model at `path`: a directory that transformers or `convert` wrote, a GGUF file, or a directory with one.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let (config, contents) = if Gguf::is(path) {
            let gguf = Gguf::open(path)?;
            (gguf_config::config(&gguf)?, Contents::Gguf(gguf))
        } else {
            // Opened first, because it holds checksums of the files beside it.
            let infq = if Infq::is(path) { Some(Infq::open(path)?) } else { None };
            let config = ConfigFile::open(&path.join("config.json"))?;
            let contents = match infq {
                Some(infq) => Contents::Infq(infq),
                None => Contents::Checkpoint(Checkpoint::open(path)?),
            };
            (config, contents)
        };
        Ok(Self { path: path.to_owned(), config, contents })
    }

    /// What `config.json` says, or one that was made from the metadata of a GGUF file.
    pub fn config(&self) -> &ConfigFile {
        &self.config
    }

    /// `generation_config.json`, if there is one.
    pub fn generation(&self) -> Result<Option<ConfigFile>, ModelError> {
        let generation = self.path.join("generation_config.json");
        Ok(if generation.is_file() { Some(ConfigFile::open(&generation)?) } else { None })
    }

    /// Whether the checkpoint holds matrices as integers with scales.
    ///
    /// # Errors
    /// The configuration describes no model that is supported.
    pub fn stores_blocks(&self) -> Result<bool, ModelError> {
        let is_checkpoint = matches!(self.contents, Contents::Checkpoint(_));
        Ok(is_checkpoint && crate::arch::specification(&self.config)?.1.stores_blocks())
    }

    /// The weights.
    pub fn weights(&self) -> Weights<'_> {
        match &self.contents {
            Contents::Checkpoint(checkpoint) => Weights::Checkpoint(checkpoint),
            Contents::Infq(infq) => Weights::Infq(infq),
            Contents::Gguf(gguf) => Weights::Gguf(gguf),
        }
    }

    /// The GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Gguf> {
        match &self.contents {
            Contents::Gguf(gguf) => Some(gguf),
            Contents::Checkpoint(_) | Contents::Infq(_) => None,
        }
    }
}
