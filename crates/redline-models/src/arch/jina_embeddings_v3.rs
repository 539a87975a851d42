//! Jina Embeddings v3 (Sturua et al. 2024): XLM-R with rotary positions.

use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape, ShapeKeys};
use crate::ModelError;
use crate::family::dimension_or;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::DecoderSpec;

/// In `config.json`: `JinaEmbeddingsV3Model`.
pub const MODEL: Architecture =
    Architecture { name: "JinaEmbeddingsV3Model", model_type: "jina_embeddings_v3", spec, gguf: None };

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("encoder.layers.{layer}.{part}");
    LayerParts {
        qkv: bert::biased(name("mixer.Wqkv"), hidden, 3 * hidden),
        attention_output: bert::biased(name("mixer.out_proj"), hidden, hidden),
        attention_norm: name("norm1"),
        up: bert::biased(name("mlp.fc1"), hidden, inner),
        down: bert::biased(name("mlp.fc2"), inner, hidden),
        norm: name("norm2"),
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["rope_parameters"])?;
    let types = dimension_or(config, "type_vocab_size", 1)?;
    let keys = ShapeKeys { default_eps: 1e-5, ..bert::KEYS };
    let shape = Shape { types, embedding_norm: "emb_ln", ..Shape::read(config, &keys)? };
    let rules = Rules { default_theta: 20_000.0, ..Rules::default() };
    Ok(DecoderSpec { prefix: "roberta.", ..shape.rotated(config, rules, layer_parts)? })
}
