//! MPNet (Song et al. 2020): BERT without token types, with a learned number for every distance of key and query beside positions.

use redline_weights::ConfigFile;

use super::bert::{self, LayerParts, Shape};
use super::{Architecture, roberta};
use crate::ModelError;
use crate::keys;
use crate::spec::{DecoderSpec, DistanceSpec, LEARNED_BUCKETS};

/// In `config.json`: `MPNetModel`.
pub const MODEL: Architecture = Architecture { name: "MPNetModel", model_type: "mpnet", spec, gguf: None };
/// In `config.json`: `MPNetForMaskedLM`, as published embedding models say, which are saved without the head.
pub const MASKED: Architecture = Architecture { name: "MPNetForMaskedLM", spec: masked, ..MODEL };
/// In `config.json`: `MPNetForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "MPNetForSequenceClassification", spec: classifier, ..MODEL };

/// The class has this id of the padding token, whatever its configuration says, and position p has the row p + 1 after it.
const PADDING: usize = 1;

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let hidden = shape.hidden;
    let name = |part: &str| format!("encoder.layer.{layer}.attention.{part}");
    let qkv = ["q", "k", "v"].map(|part| name(&format!("attn.{part}")));
    LayerParts {
        qkv: bert::apart(hidden, qkv),
        attention_output: bert::biased(name("attn.o"), hidden, hidden),
        attention_norm: name("LayerNorm"),
        ..bert::layer_parts(shape, layer)
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[])?;
    const BUCKETS: &str = "relative_attention_num_buckets";
    if config.usize_or(BUCKETS, LEARNED_BUCKETS)? != LEARNED_BUCKETS {
        return Err(config.refuse(BUCKETS, format!("`{LEARNED_BUCKETS}`")).into());
    }
    let shape = Shape::read(config, &bert::KEYS)?;
    Ok(DecoderSpec {
        prefix: "mpnet.",
        distances: Some(DistanceSpec::Learned {
            name: "encoder.relative_attention_bias".into(),
            heads: shape.heads,
        }),
        ..shape.encoder(config, PADDING + 1, layer_parts)?
    })
}

/// The encoder with what makes logits.
fn masked(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    roberta::with_head(config, spec(config)?)
}

/// The encoder with two layers on the state of the first token.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    roberta::with_classes(config, spec(config)?)
}
