//! What the answers of a model depend on, in short: digests of its weights and of its texts.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use redline_kernels::op::kv::KvFormat;
use redline_models::sentence;
use redline_models::{LoadOptions, Loader, ModelFiles, Weights};
use redline_weights::{Checkpoint, ConfigFile, FilesState, Sha256Digest};

use super::Engine;
use super::budget::Room;
use crate::error::EngineError;
use crate::identity::ModelIdentity;
use crate::options::{Embedded, Options, Source};
use crate::vocabulary::vocabulary;

/// Changes whenever keys, values or states of equal tokens get other bits, or another place in a page.
const PAGE_REVISION: u32 = 1;

/// What the identity of a loaded model is computed of, once it is needed.
pub(super) struct Origin {
    source: Source,
    load: LoadOptions,
    /// The files of the model, as they were when it was loaded.
    files: Option<FilesState>,
    known: OnceLock<ModelIdentity>,
    /// Held while it is computed: several requests that need it at once wait for one reading.
    reading: Mutex<()>,
}

impl Origin {
    /// The origin of a model that is about to be loaded.
    pub(super) fn new(options: &Options) -> Self {
        let files = match &options.source {
            // What is wrong with them, loading tells.
            Source::Path(path) => FilesState::of(path).ok(),
            Source::Embedded(_) => None,
        };
        let load = LoadOptions { format: options.format, outliers: options.outliers, mmap: options.mmap };
        let source = options.source.clone();
        Self { source, load, files, known: OnceLock::new(), reading: Mutex::new(()) }
    }

    /// Refuses files that changed after the model was loaded.
    fn check_unchanged(&self, path: &Path) -> Result<(), EngineError> {
        if self.files.as_ref() == Some(&FilesState::of(path)?) {
            return Ok(());
        }
        let fact = format!("the model's files changed after it was loaded\n  in `{}`", path.display());
        Err(EngineError::request(fact, "load it again"))
    }

    /// The identity, if it was computed already.
    pub(super) fn known(&self) -> Option<&ModelIdentity> {
        self.known.get()
    }

    /// The identity, which the first call computes.
    pub(super) fn identity(&self, kv_format: KvFormat) -> Result<&ModelIdentity, EngineError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let identity = self.read(kv_format)?;
        Ok(self.known.get_or_init(|| identity))
    }

    fn read(&self, kv_format: KvFormat) -> Result<ModelIdentity, EngineError> {
        let identity = |weights: String, texts: Sha256Digest| ModelIdentity {
            weights: Sha256Digest::of_texts([weights]).to_string(),
            texts: texts.to_string(),
        };
        match &self.source {
            Source::Path(path) => {
                self.check_unchanged(path)?;
                let files = ModelFiles::open(path)?;
                let loader = Loader::new(files.config(), files.weights(), self.load)?;
                let weights = text(&loader, kv_format)?;
                let texts = match files.gguf() {
                    Some(gguf) => {
                        let pooling = sentence::of_gguf(gguf)?.and_then(|rules| Some(rules.dense?.pooling));
                        Sha256Digest::of_texts([format!("{:?} {pooling:?}", vocabulary(gguf)?)])
                    }
                    None => Sha256Digest::of_text_files(path)?,
                };
                self.check_unchanged(path)?;
                Ok(identity(weights, texts))
            }
            Source::Embedded(Embedded { config, generation_config, tokenizer, weights, .. }) => {
                let parsed = ConfigFile::from_bytes("config.json", config)?;
                let checkpoint = Checkpoint::from_bytes("model.safetensors", weights())?;
                let loader = Loader::new(&parsed, Weights::Checkpoint(&checkpoint), self.load)?;
                let texts = Sha256Digest::of_texts([tokenizer, config, generation_config]);
                Ok(identity(text(&loader, kv_format)?, texts))
            }
        }
    }
}

/// A text that is equal only for models whose keys and values are equal for all tokens.
fn text(loader: &Loader<'_>, kv_format: KvFormat) -> Result<String, EngineError> {
    let (version, format) = (env!("CARGO_PKG_VERSION"), kv_format.name());
    Ok(format!("redline {version} revision {PAGE_REVISION} kv-{format} {}", loader.identity()?))
}

/// What all keys and values are computed with, if they are to outlive the process.
pub(super) fn of_pages(
    loader: &Loader<'_>,
    room: &Room,
    options: &Options,
) -> Result<Option<String>, EngineError> {
    options.disk().map(|_| text(loader, room.kv_format)).transpose()
}

impl Engine {
    /// What the model's answers depend on. Unless the model is converted, the first call reads all of its weights again.
    ///
    /// # Errors
    /// The files of the model cannot be read, or have changed since it was loaded.
    pub fn identity(&self) -> Result<&ModelIdentity, EngineError> {
        self.origin.identity(self.info.kv_format)
    }
}
