//! Jina Embeddings v2 (Günther et al. 2023): BERT with slopes of distances in place of positions, and gates.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape};
use crate::ModelError;
use crate::family::dimension_or;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, DistanceSpec, LinearSpec};

/// In `config.json`: `JinaBertModel`.
pub const MODEL: Architecture =
    Architecture { name: "JinaBertModel", model_type: "jina_bert", spec, gguf: Some(GGUF) };
/// In `config.json`: `JinaBertForMaskedLM`, as the published embedding models say, of which the encoder is read.
pub const MASKED: Architecture = Architecture { name: "JinaBertForMaskedLM", gguf: None, ..MODEL };

const GGUF: GgufDialect = GgufDialect::new("jina-bert-v2", gguf);

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("encoder.layer.{layer}.mlp.{part}");
    LayerParts {
        // The gate, then what it is multiplied with.
        up: LinearSpec::plain(name("gated_layers"), hidden, 2 * inner),
        down: bert::biased(name("wo"), inner, hidden),
        norm: name("layernorm"),
        ..bert::layer_parts(shape, layer)
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["auto_map"])?;
    const POSITIONS: &str = "position_embedding_type";
    if config.opt_str(POSITIONS)? != Some("alibi") {
        return Err(config.refuse(POSITIONS, "`alibi`").into());
    }
    const KIND: &str = "feed_forward_type";
    let activation = match config.opt_str(KIND)? {
        Some("geglu") => ActivationFunction::Gelu,
        Some("reglu") => ActivationFunction::Relu,
        _ => return Err(config.refuse(KIND, "`geglu` or `reglu`").into()),
    };
    let types = dimension_or(config, "type_vocab_size", 2)?;
    let shape = Shape { types, activation, gated: true, ..Shape::read(config, &bert::KEYS)? };
    let distances = Some(DistanceSpec::Slopes { heads: shape.heads });
    Ok(DecoderSpec { prefix: "bert.", distances, ..shape.without_positions(config, layer_parts)? })
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_encoder()?;
    keys.copy_numbers(&[("attention.layer_norm_epsilon", "layer_norm_eps")])?;
    let types = keys.token_types();
    keys.config().set("type_vocab_size", types);
    keys.config().set("position_embedding_type", "alibi");
    keys.config().set("feed_forward_type", "geglu");
    Ok(())
}
