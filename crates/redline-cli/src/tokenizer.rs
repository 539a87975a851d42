//! Selects a tokenizer: from a model, or from a file of its own.

use std::path::{Path, PathBuf};

use clap::Args;
use redline_engine::{EngineError, Source, vocabulary};
use redline_tokenizer::{Encoder, GgufVocabulary, Tokenizer, TokenizerError};
use redline_weights::{Gguf, Infq};

use crate::env::Environment;
use crate::message::Failure;
use crate::model::{ModelFlag, ModelName};

/// A model, or a tokenizer alone.
#[derive(Debug, Args)]
pub(crate) struct TokenizerFlags {
    #[command(flatten)]
    model: ModelFlag,
    /// A `tokenizer.json`, or a GGUF file; needs no model (--model takes such files too)
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    tokenizer: Option<PathBuf>,
}

/// Where a tokenizer is read from.
pub(crate) struct TokenizerSource {
    /// The name used in answers.
    pub(crate) name: String,
    place: Place,
}

enum Place {
    File(PathBuf),
    Directory(PathBuf),
    Embedded(&'static [u8]),
    /// Of a GGUF file with this path.
    Vocabulary(Box<GgufVocabulary>, String),
}

impl TokenizerFlags {
    /// The tokenizer that the flags name, or that of the model in the environment.
    pub(crate) fn resolve(&self, environment: Environment) -> Result<TokenizerSource, Failure> {
        match &self.tokenizer {
            Some(path) => TokenizerSource::file(path),
            None => TokenizerSource::of_model(&self.model.resolve(environment)?, environment),
        }
    }

    /// Like `resolve`, but defaults to the embedded model.
    pub(crate) fn or_demo(&self, environment: Environment) -> Result<TokenizerSource, Failure> {
        match &self.tokenizer {
            Some(path) => TokenizerSource::file(path),
            None => TokenizerSource::of_model(&self.model.or(redline_demo::NAME, environment)?, environment),
        }
    }
}

impl TokenizerSource {
    fn file(path: &Path) -> Result<Self, Failure> {
        let place = if Gguf::is(path) { Place::of_gguf(path)? } else { Place::File(path.to_owned()) };
        Ok(Self { name: path.display().to_string(), place })
    }

    fn of_model(model: &ModelName, environment: Environment) -> Result<Self, Failure> {
        if Path::new(&model.name).is_file() {
            return Self::file(Path::new(&model.name));
        }
        let place = match model.source(environment)? {
            Source::Embedded(model) => Place::Embedded(model.tokenizer),
            Source::Path(path) if Gguf::is(&path) => Place::of_gguf(&path)?,
            Source::Path(dir) => {
                // The files beside packed weights have checksums too.
                if Infq::is(&dir) {
                    Infq::open(&dir).map_err(EngineError::from)?;
                }
                Place::Directory(dir)
            }
        };
        Ok(Self { name: named(&model.name), place })
    }
}

impl Place {
    /// The vocabulary of a GGUF file.
    fn of_gguf(path: &Path) -> Result<Self, Failure> {
        let gguf = Gguf::open(path).map_err(EngineError::from)?;
        let place = path.display().to_string();
        match vocabulary(&gguf).map_err(EngineError::from)? {
            Some(vocabulary) => Ok(Self::Vocabulary(Box::new(vocabulary), place)),
            None => Err(EngineError::NoTokenizer(place).into()),
        }
    }
}

/// The name of a model in answers; for a directory, the name of its folder.
fn named(model: &str) -> String {
    let folder = Path::new(model).file_name().filter(|_| Path::new(model).is_dir());
    folder.map_or_else(|| model.to_owned(), |name| name.display().to_string())
}

impl TokenizerSource {
    /// Loads the tokenizer.
    pub(crate) fn load(&self, encoder: Encoder) -> Result<Tokenizer, TokenizerError> {
        match &self.place {
            Place::File(path) => Tokenizer::from_file_with(path, encoder),
            Place::Directory(dir) => Tokenizer::from_dir_with(dir, encoder),
            Place::Vocabulary(vocabulary, place) => vocabulary.tokenizer_with(place, encoder),
            Place::Embedded(json) => Tokenizer::from_bytes_with("tokenizer.json", json, encoder),
        }
    }
}
