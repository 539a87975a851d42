//! ELECTRA (Clark et al. 2020): BERT whose embeddings may be narrower than its states, trained to tell which tokens were replaced.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, Shape};
use crate::ModelError;
use crate::family::dimension_or;
use crate::keys;
use crate::spec::{DecoderSpec, DenseLayerSpec};

/// In `config.json`: `ElectraModel`.
pub const MODEL: Architecture =
    Architecture { name: "ElectraModel", model_type: "electra", spec, gguf: None };
/// In `config.json`: `ElectraForPreTraining`, as the published encoders say, with the layers of their training.
pub const PRETRAINED: Architecture = Architecture { name: "ElectraForPreTraining", ..MODEL };
/// In `config.json`: `ElectraForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "ElectraForSequenceClassification", spec: classifier, ..MODEL };

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[])?;
    bert::require_absolute(config)?;
    let of_states = Shape::read(config, &bert::KEYS)?;
    let hidden = of_states.hidden;
    let shape = Shape {
        types: dimension_or(config, "type_vocab_size", 2)?,
        embedding: dimension_or(config, "embedding_size", 128)?,
        ..of_states
    };
    let projection = DenseLayerSpec {
        linear: bert::biased("embeddings_project".into(), shape.embedding, hidden),
        activation: ActivationFunction::None,
        norm: None,
    };
    Ok(DecoderSpec {
        prefix: "electra.",
        projection: (shape.embedding != hidden).then_some(projection),
        outside: &["classifier.", "discriminator_predictions."],
        ignored: &[bert::POSITION_IDS, "discriminator_predictions."],
        ..shape.encoder(config, 0, bert::layer_parts)?
    })
}

/// A layer with GELU, then one output for each class, on the state of the first token.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let names = ["classifier.dense", "classifier.out_proj"];
    bert::classify(config, &mut spec, names, ActivationFunction::Gelu)?;
    Ok(spec)
}
