//! Qwen3-Next, Qwen3.5 and 3.6 (Alibaba 2025, 2026), text only: gated delta nets, and in every fourth layer attention with gates on its
//! outputs; dense, or with mixtures of experts.

use redline_kernels::op::conv::MAX_TAPS;
use redline_kernels::op::delta::DeltaShape;
use redline_weights::ConfigFile;

use super::{Architecture, qwen2_moe};
use crate::ModelError;
use crate::family::{self, HeadNorms, Options, config_error, dimension_or, positive};
use crate::gguf::adapted;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{
    DecoderSpec, DeltaNetSpec, LinearSpec, MixerSpec, NormKind, NormSpec, Orientation, PartSpec, Role,
    TensorSpec,
};

/// In `config.json`: `Qwen3_5ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Qwen3_5ForCausalLM", model_type: "qwen3_5_text", spec: dense, gguf: Some(GGUF) };
/// In `config.json`: `Qwen3_5ForConditionalGeneration`, of which images are not read.
pub const WITH_IMAGES: Architecture = Architecture {
    name: "Qwen3_5ForConditionalGeneration",
    model_type: "qwen3_5",
    spec: |config| family::of_text(config, dense),
    gguf: None,
};
/// In `config.json`: `Qwen3_5MoeForCausalLM`.
pub const EXPERTS: Architecture = Architecture {
    name: "Qwen3_5MoeForCausalLM",
    model_type: "qwen3_5_moe_text",
    spec: moe,
    gguf: Some(GGUF_OF_EXPERTS),
};
/// In `config.json`: `Qwen3_5MoeForConditionalGeneration`, of which images are not read.
pub const EXPERTS_WITH_IMAGES: Architecture = Architecture {
    name: "Qwen3_5MoeForConditionalGeneration",
    model_type: "qwen3_5_moe",
    spec: |config| family::of_text(config, moe),
    gguf: None,
};
/// In `config.json`: `Qwen3NextForCausalLM`.
pub const NEXT: Architecture =
    Architecture { name: "Qwen3NextForCausalLM", model_type: "qwen3_next", spec: next, gguf: None };

const GGUF: GgufDialect = GgufDialect { mlp_norm: "post_attention_norm", ..GgufDialect::new("qwen35", gguf) };
const GGUF_OF_EXPERTS: GgufDialect =
    GgufDialect { architecture: "qwen35moe", config: gguf_of_experts, ..GGUF };

/// The members of the family.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Dense,
    Moe,
    /// With experts, and the projections of a recurrence grouped by the heads of its keys.
    Next,
}

fn dense(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    spec(config, Member::Dense)
}

fn moe(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    spec(config, Member::Moe)
}

fn next(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    spec(config, Member::Next)
}

fn spec(config: &ConfigFile, member: Member) -> Result<DecoderSpec, ModelError> {
    const KEYS: [&str; 8] = [
        "attention_bias",
        "layer_types",
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
        // Those of experts.
        "num_experts",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
    ];
    keys::refuse_unknown(config, if member == Member::Dense { &KEYS[..5] } else { &KEYS })?;
    // In the reference these default to the values of one model.
    let heads = ["linear_num_key_heads", "linear_num_value_heads"];
    let dims = ["linear_key_head_dim", "linear_value_head_dim"];
    let required = ["num_key_value_heads", "head_dim", "num_hidden_layers"];
    family::require(config, &[&required[..], &heads, &dims].concat())?;
    if !config.bool_or("attn_output_gate", true)? {
        return Err(config.refuse("attn_output_gate", "`true`").into());
    }
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        head_norms: HeadNorms::Each,
        norm: NormKind::RmsPlusOne,
        rotary: Rules { partial: Some(0.25), ..Rules::default() },
        default_eps: 1e-6,
        // Every layer of Qwen3.5 has experts, and no key says how wide another one were.
        inner_key: (member == Member::Moe).then_some("moe_intermediate_size"),
        ..Options::default()
    };
    let mut decoder = if member == Member::Dense {
        family::decoder(config, &options)?
    } else {
        let mut decoder = qwen2_moe::decoder(config, &options, &["num_experts"], true)?;
        qwen2_moe::add_shared(config, &mut decoder)?;
        // The reference of Qwen3.5 does not have these keys of Qwen3-Next.
        let is_dense = decoder.layers.iter().position(|layer| layer.mlp.experts().is_none());
        if let Some(layer) = is_dense.filter(|_| member == Member::Moe) {
            let key = if config.usize_or("decoder_sparse_step", 1)? == 1 {
                "mlp_only_layers"
            } else {
                "decoder_sparse_step"
            };
            return Err(config
                .refuse(key, format!("experts in all layers, but layer {layer} has none"))
                .into());
        }
        if member == Member::Moe && !config.bool_or("norm_topk_prob", true)? {
            return Err(config.refuse("norm_topk_prob", "`true` (for this architecture)").into());
        }
        decoder
    };
    let net = Net {
        is_grouped: member == Member::Next,
        hidden: decoder.hidden,
        shape: shape(config, heads, dims)?,
        taps: dimension_or(config, "linear_conv_kernel_dim", 4)?,
        eps: config.f32_or("rms_norm_eps", 1e-6)?,
    };
    if net.taps > MAX_TAPS {
        return Err(config.refuse("linear_conv_kernel_dim", format!("at most {MAX_TAPS}")).into());
    }
    let recurs = recurs(config, decoder.layers.len())?;
    for (index, (layer, recurs)) in decoder.layers.iter_mut().zip(recurs).enumerate() {
        if recurs {
            layer.mixer = MixerSpec::DeltaNet(net.spec(index));
        } else if let Some(attention) = layer.mixer.attention_mut() {
            attention.gated = true;
            attention.qkv.parts[0].outputs *= 2;
        }
    }
    // The layers that predict several tokens, and those that read images.
    decoder.ignored = &["rotary_emb.inv_freq", "mtp.", "model.visual."];
    Ok(decoder)
}

fn shape(config: &ConfigFile, heads: [&str; 2], dims: [&str; 2]) -> Result<DeltaShape, ModelError> {
    let shape = DeltaShape {
        key_heads: positive(config, heads[0])?,
        value_heads: positive(config, heads[1])?,
        key_dim: positive(config, dims[0])?,
        value_dim: positive(config, dims[1])?,
        is_interleaved: match config.object(adapted::KEY)? {
            Some(gguf) => gguf.bool_or(adapted::INTERLEAVED, false)?,
            None => false,
        },
    };
    if shape.value_heads % shape.key_heads != 0 {
        let fact = format!(
            "`{}` {} is not a multiple of `{}` {}",
            heads[1], shape.value_heads, heads[0], shape.key_heads
        );
        return Err(config_error(config, fact));
    }
    if shape.key_dim % 4 != 0 {
        return Err(config.refuse(dims[0], "a multiple of 4").into());
    }
    Ok(shape)
}

/// What all recurrent layers have in common.
struct Net {
    /// Whether the rows of the projections are grouped by the heads of keys.
    is_grouped: bool,
    hidden: usize,
    shape: DeltaShape,
    taps: usize,
    eps: f32,
}

impl Net {
    fn spec(&self, layer: usize) -> DeltaNetSpec {
        let name = |part: &str| format!("layers.{layer}.linear_attn.{part}");
        let (heads, values) = (self.shape.value_heads, self.shape.values());
        let channels = 2 * self.shape.keys() + values;
        let input = if self.is_grouped {
            self.grouped(&name)
        } else {
            let parts = [
                ("in_proj_qkv", channels),
                ("in_proj_z", values),
                ("in_proj_b", heads),
                ("in_proj_a", heads),
            ];
            let parts = parts.map(|(part, outputs)| (name(part), outputs, false));
            LinearSpec::of(Orientation::OutIn, self.hidden, parts)
        };
        DeltaNetSpec {
            shape: self.shape,
            taps: self.taps,
            input,
            weights: TensorSpec::new(name("conv1d.weight"), [channels, 1, self.taps], Role::Taps),
            decay: TensorSpec::new(name("A_log"), [heads], Role::LogDecay),
            decay_bias: TensorSpec::new(name("dt_bias"), [heads], Role::Bias),
            norm: NormSpec {
                name: name("norm"),
                width: self.shape.value_dim,
                eps: self.eps,
                kind: NormKind::Rms,
            },
            output: LinearSpec::plain(name("out_proj"), values, self.hidden),
        }
    }
}

impl Net {
    /// The projections of Qwen3-Next: for each head of keys its query, key, values and gates of the output in one tensor, its b and a in
    /// another one. Each becomes a part of its own.
    fn grouped(&self, name: &dyn Fn(&str) -> String) -> LinearSpec {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, .. } = self.shape;
        let ratio = value_heads / key_heads;
        let values = ratio * value_dim;
        let tensors = [
            ("in_proj_qkvz", &[("q", key_dim), ("k", key_dim), ("v", values), ("z", values)][..]),
            ("in_proj_ba", &[("b", ratio), ("a", ratio)]),
        ];
        let mut parts = Vec::with_capacity(6 * key_heads);
        for (tensor, group) in tensors {
            let tensor = name(tensor);
            let of_group: usize = group.iter().map(|(_, rows)| rows).sum();
            let mut before = 0;
            for (part, rows) in group {
                parts.extend((0..key_heads).map(|head| {
                    let rows_of = (head * of_group + before, key_heads * of_group);
                    PartSpec::of_rows(format!("{tensor}.{part}.{head}"), &tensor, *rows, rows_of)
                }));
                before += rows;
            }
        }
        LinearSpec { inputs: self.hidden, orientation: Orientation::OutIn, parts }
    }
}

/// Whether each layer is a recurrence: as `layer_types` says, or all but every fourth.
fn recurs(config: &ConfigFile, layers: usize) -> Result<Vec<bool>, ModelError> {
    let kinds = [("linear_attention", true), ("full_attention", false)];
    if let Some(recurs) = family::by_layer_type(config, layers, kinds)? {
        return Ok(recurs);
    }
    let interval = dimension_or(config, "full_attention_interval", 4)?;
    Ok((1..=layers).map(|layer| layer % interval != 0).collect())
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    set_recurrences(keys)
}

fn gguf_of_experts(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    qwen2_moe::set_experts(keys, true)?;
    let shared = keys.count("expert_shared_feed_forward_length")?;
    keys.config().set("shared_expert_intermediate_size", shared);
    keys.leave_out(&["feed_forward_length"]);
    keys.set_common_but_width()?;
    set_recurrences(keys)
}

/// The layers at the end that predict further tokens are not read. Value heads are in another order than in checkpoints, and so are the
/// sums of the layer after them: with several for each head of keys, a file has other bits.
fn set_recurrences(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let (layers, (heads, width)) = (keys.own_layers()?, keys.recurrent_heads()?);
    let recurs = keys.recurs(layers)?;
    keys.copy_counts(&[
        ("ssm.conv_kernel", "linear_conv_kernel_dim"),
        ("ssm.group_count", "linear_num_key_heads"),
        ("ssm.state_size", "linear_key_head_dim"),
    ])?;
    keys.config().set("num_hidden_layers", layers);
    keys.config().set("linear_num_value_heads", heads);
    keys.config().set("linear_value_head_dim", width);
    // Without images, all sections of a position are the same.
    keys.leave_out(&["rope.dimension_sections"]);
    let head_dim = keys.head_dim()?;
    if keys.opt_count("rope.dimension_count")?.is_none_or(|rotated| rotated == head_dim) {
        keys.config().set("partial_rotary_factor", 1.0);
    }
    let attention = recurs.iter().position(|recurs| !recurs).unwrap_or(0);
    keys.set_presence("attention_bias", &format!("blk.{attention}.attn_q.bias"));
    let name = |recurs: &bool| if *recurs { "linear_attention" } else { "full_attention" };
    let config = keys.config();
    // It may have factors of the rotation already.
    let mut gguf = config.take_object(adapted::KEY).unwrap_or_default();
    gguf.set(adapted::INTERLEAVED, true);
    config.set("layer_types", recurs.iter().map(name).collect::<Vec<_>>());
    config.set(adapted::KEY, gguf);
    Ok(())
}
