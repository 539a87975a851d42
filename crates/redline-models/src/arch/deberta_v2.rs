//! DeBERTa-v2 and v3 (He et al. 2021): BERT whose logits depend on distances by relative position embeddings.

use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape, ShapeKeys};
use crate::ModelError;
use crate::family::{dimension_or, positive};
use crate::keys;
use crate::spec::{DecoderSpec, DistanceSpec, RelativeSpec};

/// In `config.json`: `DebertaV2Model`.
pub const MODEL: Architecture =
    Architecture { name: "DebertaV2Model", model_type: "deberta-v2", spec, gguf: None };
/// In `config.json`: `DebertaV2ForSequenceClassification`.
pub const CLASSIFIER: Architecture =
    Architecture { name: "DebertaV2ForSequenceClassification", spec: classifier, ..MODEL };

const KEYS: ShapeKeys = ShapeKeys { default_eps: 1e-7, ..bert::KEYS };
/// Layers of what the encoder was trained for, and of positions that no class reads.
const UNUSED: &[&str] = &[
    bert::POOLER[0],
    bert::POOLER[1],
    bert::POSITION_IDS,
    "embeddings.position_embeddings.weight",
    "cls.",
    "lm_predictions.",
    "mask_predictions.",
];

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let name = |part: &str| format!("encoder.layer.{layer}.attention.self.{part}_proj");
    LayerParts {
        qkv: bert::apart(shape.hidden, ["query", "key", "value"].map(name)),
        ..bert::layer_parts(shape, layer)
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[])?;
    bert::require_absolute(config)?;
    let types = match config.opt_usize("type_vocab_size")? {
        None | Some(0) => 0,
        Some(_) => dimension_or(config, "type_vocab_size", 1)?,
    };
    let shape = Shape { types, ..Shape::read(config, &KEYS)? };
    for (key, width) in
        [("embedding_size", shape.hidden), ("attention_head_size", shape.hidden / shape.heads)]
    {
        if config.usize_or(key, width)? != width {
            return Err(config.refuse(key, format!("`{width}`")).into());
        }
    }
    if config.usize_or("conv_kernel_size", 0)? != 0 {
        return Err(config.refuse("conv_kernel_size", "`0`: no convolution after the first layer").into());
    }
    let distances = Some(DistanceSpec::Relative(relative(config, &shape)?));
    let spec = if config.bool_or("position_biased_input", true)? {
        shape.encoder(config, 0, layer_parts)?
    } else {
        shape.without_positions(config, layer_parts)?
    };
    let mut layers = spec.layers;
    // Three products are added.
    for attention in layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        attention.scale = 1.0 / ((3 * attention.head_dim) as f32).sqrt();
    }
    Ok(DecoderSpec { prefix: "deberta.", layers, distances, ignored: UNUSED, ..spec })
}

/// The relative position embeddings.
fn relative(config: &ConfigFile, shape: &Shape) -> Result<RelativeSpec, ModelError> {
    for key in ["relative_attention", "share_att_key"] {
        if !config.bool_or(key, false)? {
            return Err(config.refuse(key, "`true`").into());
        }
    }
    const KINDS: &str = "pos_att_type";
    // A list, or as in the published files a text with bars.
    let mut kinds = match config.opt_str(KINDS) {
        Ok(Some(kinds)) => kinds.to_lowercase().split('|').map(|kind| kind.trim().to_owned()).collect(),
        _ => config.strings(KINDS)?,
    };
    kinds.sort_unstable();
    if kinds != ["c2p", "p2c"] {
        return Err(config.refuse(KINDS, "`c2p` and `p2c`").into());
    }
    let given = |key| Ok::<_, ModelError>(config.f64_or(key, -1.0)? >= 1.0);
    const MOST: &str = "max_relative_positions";
    let most = positive(config, if given(MOST)? { MOST } else { "max_position_embeddings" })?;
    const BUCKETS: &str = "position_buckets";
    let (buckets_per_side, max_distance) = if given(BUCKETS)? {
        let buckets_per_side = positive(config, BUCKETS)?;
        // Half of the buckets of a side hold one distance each; the largest distance lies beyond them.
        if buckets_per_side < 4 || buckets_per_side % 2 != 0 || most <= buckets_per_side / 2 + 1 {
            let supported = format!("an even number of at least 4, less than {}", 2 * (most - 1));
            return Err(config.refuse(BUCKETS, supported).into());
        }
        (buckets_per_side, Some(most - 1))
    } else {
        (most, None)
    };
    const NORM: &str = "norm_rel_ebd";
    let is_normed = match config.opt_str(NORM)? {
        None | Some("none") => false,
        Some("layer_norm") => true,
        Some(_) => return Err(config.refuse(NORM, "`none` or `layer_norm`").into()),
    };
    Ok(RelativeSpec {
        name: "encoder.rel_embeddings".to_owned(),
        norm: is_normed.then(|| shape.norm("encoder.LayerNorm".to_owned(), shape.hidden)),
        hidden: shape.hidden,
        heads: shape.heads,
        buckets_per_side,
        max_distance,
    })
}

/// A layer as wide as the states, then one output for each class, on the state of the first token.
fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    let (pooled, width) = ("pooler_hidden_size", spec.hidden);
    if config.usize_or(pooled, width)? != width {
        return Err(config.refuse(pooled, format!("`{width}`")).into());
    }
    let activation = bert::activation(config, "pooler_hidden_act")?;
    bert::classify(config, &mut spec, ["pooler.dense", "classifier"], activation)?;
    spec.outside = &["pooler.", "classifier."];
    spec.ignored = &UNUSED[bert::POOLER.len()..];
    Ok(spec)
}
