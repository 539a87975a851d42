//! DistilBERT (Sanh et al. 2019): BERT with half of its layers, without token types and pooler.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape, ShapeKeys};
use crate::ModelError;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `DistilBertModel`.
pub const MODEL: Architecture =
    Architecture { name: "DistilBertModel", model_type: "distilbert", spec, gguf: None };
/// In `config.json`: `DistilBertForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture = Architecture { name: "DistilBertForMaskedLM", spec: masked, ..MODEL };
/// In `config.json`: `DistilBertForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "DistilBertForSequenceClassification", spec: classifier, ..MODEL };

const KEYS: ShapeKeys = ShapeKeys {
    hidden: "dim",
    inner: "hidden_dim",
    heads: "n_heads",
    layers: "n_layers",
    activation: "activation",
    ..bert::KEYS
};

/// The class has this epsilon, and no key for it.
const EPS: f32 = 1e-12;

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("transformer.layer.{layer}.{part}");
    let qkv = ["q", "k", "v"].map(|part| name(&format!("attention.{part}_lin")));
    LayerParts {
        qkv: bert::apart(hidden, qkv),
        attention_output: bert::biased(name("attention.out_lin"), hidden, hidden),
        attention_norm: name("sa_layer_norm"),
        up: bert::biased(name("ffn.lin1"), hidden, inner),
        down: bert::biased(name("ffn.lin2"), inner, hidden),
        norm: name("output_layer_norm"),
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // Sinusoidal positions (`sinusoidal_pos_embds`) are stored as learned ones are.
    keys::refuse_unknown(config, &[])?;
    let shape = Shape { eps: EPS, ..Shape::read(config, &KEYS)? };
    Ok(DecoderSpec {
        prefix: "distilbert.",
        ignored: &[bert::POSITION_IDS, "vocab_transform.", "vocab_layer_norm.", "vocab_projector."],
        ..shape.encoder(config, 0, layer_parts)?
    })
}

/// The encoder with what makes logits.
fn masked(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let names = ["vocab_transform", "vocab_layer_norm", "vocab_projector.bias"];
    bert::add_logits(config, &mut spec, names, bert::activation(config, "activation")?)?;
    spec.outside = &["vocab_"];
    spec.ignored = &[bert::POSITION_IDS, "vocab_projector.weight"];
    Ok(spec)
}

/// A layer with ReLU, then one output for each class, on the state of the first token.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let names = ["pre_classifier", "classifier"];
    bert::classify(config, &mut spec, names, ActivationFunction::Relu)?;
    spec.outside = &["pre_classifier.", "classifier."];
    Ok(spec)
}
