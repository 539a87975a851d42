//! gpt-oss (OpenAI 2025): attention with sinks and biases, windows in every other layer, and mixtures of experts whose gates are clamped.
//! Checkpoints stack the experts of a layer in one tensor, as four-bit floats in those that were published.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_weights::{ConfigFile, ConfigObject};

use super::Architecture;
use crate::ModelError;
use crate::experts;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{
    DecoderSpec, ExpertsSpec, FfnSpec, LinearSpec, MlpSpec, Orientation, PartSpec, Role, StackSpec, StoredAs,
    TensorSpec, WeightingSpec,
};

/// In `config.json`: `GptOssForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GptOssForCausalLM", model_type: "gpt_oss", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect =
    GgufDialect { mlp_norm: "post_attention_norm", ..GgufDialect::new("gpt-oss", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let honoured = [
        "attention_bias",
        "sliding_window",
        "layer_types",
        "rope_scaling",
        "rope_parameters",
        "num_local_experts",
        "num_experts",
        "quantization_config",
    ];
    keys::refuse_unknown(config, &honoured)?;
    // In the reference these default to the values of one model.
    let needed = ["num_key_value_heads", "head_dim", "num_experts_per_tok", "sliding_window"];
    family::require(config, &needed)?;
    if config.object("rope_scaling")?.is_none() && config.object("rope_parameters")?.is_none() {
        return Err(family::config_error(config, "the key `rope_parameters` is missing".into()));
    }
    let bias = config.bool_or("attention_bias", true)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        windows: family::windows(config, family::sliding_window(config)?, |layer| layer % 2 == 0)?,
        rotary: Rules { default_theta: 150_000.0, ..Rules::default() },
        default_eps: 1e-5,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    let (count, top_k) = experts::counts(config, &["num_local_experts", "num_experts"])?;
    let stacked = Stacked {
        hidden: spec.hidden,
        inner: family::positive(config, "intermediate_size")?,
        count,
        gating: gating(config)?,
        stored_as: experts::stored_as(config)?,
    };
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let Some(attention) = layer.mixer.attention_mut() {
            let name = format!("layers.{i}.self_attn.sinks");
            attention.sinks = Some(TensorSpec::new(name, [attention.heads], Role::Bias));
        }
        layer.mlp = FfnSpec::Experts(Box::new(ExpertsSpec {
            router: router(format!("layers.{i}.mlp.router"), spec.hidden, count),
            experts: (0..count).map(|id| stacked.expert(i, id)).collect(),
            grouped: false,
            top_k,
            weighting: WeightingSpec::Softmax { normalise: true, factors: None },
            shared: None,
        }));
    }
    Ok(spec)
}

/// A router with a bias.
fn router(name: String, hidden: usize, experts: usize) -> LinearSpec {
    LinearSpec::of(Orientation::OutIn, hidden, [(name, experts, true)])
}

/// The clamped SwiGLU of the experts.
fn gating(config: &ConfigFile) -> Result<Gating, ModelError> {
    let (alpha, limit) = (config.f32_or("swiglu_alpha", 1.702)?, config.f32_or("swiglu_limit", 7.0)?);
    for (key, value) in [("swiglu_alpha", alpha), ("swiglu_limit", limit)] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(config.refuse(key, "a positive number").into());
        }
    }
    Ok(Gating::Clamped { alpha, limit })
}

/// Experts that are stacked in the tensors of a checkpoint.
struct Stacked {
    hidden: usize,
    inner: usize,
    count: usize,
    gating: Gating,
    stored_as: StoredAs,
}

impl Stacked {
    /// The expert of this id. The rows of gate and up alternate. Blocks of four-bit floats are those of outputs, floats those of inputs.
    fn expert(&self, layer: usize, id: usize) -> MlpSpec {
        let Self { hidden, inner, count, gating, stored_as } = *self;
        let module = format!("layers.{layer}.mlp.experts");
        let part = |name: &str, outputs, tensor: &str, alternating| PartSpec {
            name: format!("{module}.{id}.{name}"),
            outputs,
            bias: true,
            stack: Some(StackSpec {
                weight: format!("{module}.{tensor}"),
                bias: format!("{module}.{tensor}_bias"),
                expert: Some((id, count)),
                rows: None,
                alternating,
                stored_as,
            }),
        };
        let orientation = match stored_as {
            StoredAs::Floats => Orientation::InOut,
            StoredAs::Mxfp4 => Orientation::OutIn,
        };
        let gate_up = [("gate_proj", 0), ("up_proj", 1)];
        let gate_up = gate_up.map(|(name, lane)| part(name, inner, "gate_up_proj", (lane, 2)));
        MlpSpec {
            activation: ActivationFunction::None,
            gate: Some(gating),
            up: LinearSpec { inputs: hidden, orientation, parts: gate_up.to_vec() },
            down: LinearSpec {
                inputs: inner,
                orientation,
                parts: vec![part("down_proj", hidden, "down_proj", (0, 1))],
            },
        }
    }
}

/// The constants of the gate have no keys. Nor has the rounding of YaRN's ends, which llama.cpp does and these models do not.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.copy_counts(&[
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "intermediate_size"),
        ("attention.sliding_window", "sliding_window"),
    ])?;
    let slides = keys.slides(2)?;
    keys.set_layer_types(&slides);
    let mut scaling = keys.config().take_object("rope_scaling").unwrap_or_else(|| {
        let mut plain = ConfigObject::default();
        plain.set("rope_type", "default");
        plain
    });
    scaling.set("truncate", false);
    keys.config().set("rope_scaling", scaling);
    Ok(())
}
