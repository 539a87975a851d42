//! What a model is for and what it needs, which is known before it is loaded.

use redline_kernels::Format;
use redline_models::spec::Objective;
use redline_models::{
    LoadOptions, Loader, ModelFiles, Weights,
    sentence::{self, Forms},
};
use redline_weights::{Checkpoint, ConfigFile};

use super::Engine;
use super::budget::least_memory;
use super::judge::preset;
use crate::error::EngineError;
use crate::options::{Options, Source};
use crate::vocabulary::vocabulary;

/// What a model is for and what it needs, which is known before it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSummary {
    /// The architecture in `config.json`.
    pub architecture: String,
    /// Format of the weights.
    pub format: Format,
    /// What the model was trained to predict.
    pub objective: Objective,
    /// Maximum sequence length in tokens.
    pub context: usize,
    /// Number of classes, if it was trained to classify; a model that ranks has one.
    pub classes: Option<usize>,
    /// Whether it says how the states of a text become an embedding.
    pub embeds: bool,
    /// Whether it makes sparse vectors.
    pub embeds_sparsely: bool,
    /// Whether it was trained to rank.
    pub ranks: bool,
    /// Bytes of memory that it needs at least: for weights and adapters, for activations, and for keys and values of two pages, or of the
    /// context that the options ask for.
    pub least_memory: u64,
}

impl Engine {
    /// What the model is for and what it needs.
    pub fn summary(&self) -> ModelSummary {
        let info = &self.info;
        let classes = info.classes.as_ref().map(Vec::len);
        ModelSummary {
            architecture: info.architecture.clone(),
            format: info.format,
            objective: info.objective,
            context: info.context,
            classes,
            embeds: info.embedding_pooling.is_some(),
            embeds_sparsely: info.sparse,
            ranks: self.rerank_preset.is_some() || classes == Some(1) || info.multi_vector.is_some(),
            least_memory: info.weight_bytes + info.activation_bytes,
        }
    }

    /// Reads what a model is for and what it needs, without its weights.
    pub fn inspect(options: &Options) -> Result<ModelSummary, EngineError> {
        let load = LoadOptions { format: options.format, outliers: options.outliers, mmap: options.mmap };
        match &options.source {
            Source::Path(path) => {
                let files = ModelFiles::open(path)?;
                let loader = Loader::new(files.config(), files.weights(), load)?;
                let (forms, preset) = match files.gguf() {
                    Some(gguf) => {
                        let preset = vocabulary(gguf)?.as_ref().and_then(preset::of_gguf);
                        let dense = sentence::of_gguf(gguf)?.is_some();
                        (Forms { dense, ..Forms::default() }, preset)
                    }
                    None => {
                        let preset = preset::of_directory(path, loader.architecture())?;
                        (sentence::forms(path, loader.spec())?, preset)
                    }
                };
                Ok(of(&loader, options, forms, preset.is_some()))
            }
            Source::Embedded(embedded) => {
                let config = ConfigFile::from_bytes("config.json", embedded.config)?;
                let checkpoint = Checkpoint::from_bytes("model.safetensors", (embedded.weights)())?;
                let loader = Loader::new(&config, Weights::Checkpoint(&checkpoint), load)?;
                Ok(of(&loader, options, Forms::default(), false))
            }
        }
    }
}

fn of(loader: &Loader<'_>, options: &Options, forms: Forms, has_preset: bool) -> ModelSummary {
    let context = options.max_context.unwrap_or(usize::MAX).min(loader.context());
    let classes = loader.spec().classifier.as_ref().map(|classifier| classifier.labels.len());
    ModelSummary {
        architecture: loader.architecture().to_owned(),
        format: loader.format(),
        objective: loader.objective(),
        context,
        classes,
        embeds: forms.dense,
        embeds_sparsely: forms.sparse,
        ranks: has_preset || classes == Some(1) || forms.multi_vector,
        least_memory: least_memory(loader, options, options.max_context.map(|_| context)),
    }
}
