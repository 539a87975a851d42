//! NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and gates, without biases.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape, ShapeKeys};
use crate::ModelError;
use crate::family::dimension_or;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, LinearSpec, Orientation};

/// In `config.json`: `NomicBertModel`.
pub const MODEL: Architecture =
    Architecture { name: "NomicBertModel", model_type: "nomic_bert", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("nomic-bert", gguf);

/// The keys of the published models, whose code comes with them.
const PUBLISHED: ShapeKeys = ShapeKeys {
    hidden: "n_embd",
    inner: "n_inner",
    heads: "n_head",
    layers: "n_layer",
    positions: "n_positions",
    eps: "layer_norm_epsilon",
    ..bert::KEYS
};
/// Variants of that code which no published model without experts is.
const OFF: &[&str] = &[
    "causal",
    "mlp_fc1_bias",
    "mlp_fc2_bias",
    "parallel_block",
    "prenorm",
    "qkv_proj_bias",
    "rotary_emb_interleaved",
    "use_rms_norm",
];
/// Keys of variants, with the value that is supported.
const NUMBERS: &[(&str, f64)] = &[("rotary_emb_fraction", 1.0), ("moe_every_n_layers", 0.0)];

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("encoder.layers.{layer}.{part}");
    // The gate is the second layer.
    let up = ["fc12", "fc11"].map(|part| (name(&format!("mlp.{part}")), inner, false));
    LayerParts {
        qkv: LinearSpec::plain(name("attn.Wqkv"), hidden, 3 * hidden),
        attention_output: LinearSpec::plain(name("attn.out_proj"), hidden, hidden),
        attention_norm: name("norm1"),
        up: LinearSpec::of(Orientation::OutIn, hidden, up),
        down: LinearSpec::plain(name("mlp.fc2"), inner, hidden),
        norm: name("norm2"),
    }
}

/// The encoder without a head.
fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // The checkpoints include the reference's code (`auto_map`).
    keys::refuse_unknown(config, &["auto_map", "rope_parameters"])?;
    let is_published = config.opt_usize(PUBLISHED.hidden)?.is_some();
    let (keys, theta_key, activation) = if is_published {
        (&PUBLISHED, "rotary_emb_base", published_activation(config)?)
    } else if config.opt_str(bert::KEYS.activation)?.is_some() {
        (&bert::KEYS, "rope_theta", bert::activation(config, bert::KEYS.activation)?)
    } else {
        (&bert::KEYS, "rope_theta", ActivationFunction::Silu)
    };
    let shape = Shape {
        types: dimension_or(config, "type_vocab_size", 2)?,
        activation,
        gated: true,
        embedding_norm: "emb_ln",
        ..Shape::read(config, keys)?
    };
    let rules = Rules { default_theta: 1_000.0, theta_key, ..Rules::default() };
    Ok(DecoderSpec { prefix: "nomic_bert.", ..shape.rotated(config, rules, layer_parts)? })
}

/// The activation of the gate; refuses other variants.
fn published_activation(config: &ConfigFile) -> Result<ActivationFunction, ModelError> {
    for key in OFF {
        if config.bool_or(key, false)? {
            return Err(config.refuse(key, "`false`").into());
        }
    }
    for (key, number) in NUMBERS {
        if config.f64_or(key, *number)? != *number {
            return Err(config.refuse(key, format!("`{number}`")).into());
        }
    }
    // With it, the rotation depends on the length of the text.
    for key in ["rotary_scaling_factor", "rotary_emb_scale_base"] {
        if config.opt_f64(key)?.is_some() {
            return Err(config.refuse(key, "`null`").into());
        }
    }
    const KEY: &str = "activation_function";
    match config.str(KEY)? {
        "swiglu" => Ok(ActivationFunction::Silu),
        "geglu" => Ok(ActivationFunction::Gelu),
        _ => Err(config.refuse(KEY, "`swiglu` or `geglu`").into()),
    }
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_encoder()?;
    keys.copy_numbers(&[("attention.layer_norm_epsilon", "layer_norm_eps")])?;
    const LENGTHS: [&str; 2] = ["attention.key_length", "rope.dimension_count"];
    let (hidden, heads) = (keys.count("embedding_length")?, keys.count("attention.head_count")?);
    let given = [keys.head_dim()?, keys.opt_count(LENGTHS[1])?.unwrap_or(hidden / heads.max(1))];
    if let Some(at) = given.iter().position(|dim| dim.checked_mul(heads) != Some(hidden)) {
        return Err(keys.refuse(LENGTHS[at], format!("{hidden} / {heads}, the width of a head")));
    }
    let (types, theta) = (keys.token_types(), keys.number_or("rope.freq_base", 1_000.0)?);
    keys.config().set("type_vocab_size", types);
    keys.config().set("rope_theta", f64::from(theta));
    Ok(())
}
