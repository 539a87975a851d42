//! Granite 4 (IBM 2025) without experts: Granite 3 with gate and up in one tensor, rotation only if it says so, and in Granite 4 H
//! Mamba-2 in place of attention in most layers.

use redline_kernels::op::conv::MAX_TAPS;
use redline_kernels::op::mamba2::Mamba2Shape;
use redline_weights::ConfigFile;

use super::{Architecture, granite};
use crate::ModelError;
use crate::family::{self, config_error, dimension_or, positive};
use crate::keys;
use crate::spec::{
    DecoderSpec, FfnSpec, LinearSpec, Mamba2Spec, MixerSpec, NormKind, NormSpec, Orientation, Role,
    TensorSpec,
};

/// In `config.json`: `GraniteMoeHybridForCausalLM`. llama.cpp stores models of attention alone as those of Granite 3.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GraniteMoeHybridForCausalLM", model_type: "granitemoehybrid", spec, gguf: None };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[granite::KEYS, &["layer_types", "num_local_experts"]].concat())?;
    family::require(config, &["layer_types", "num_local_experts", "shared_intermediate_size"])?;
    let experts = config.usize("num_local_experts")?;
    if experts > 0 {
        let supported = "`0`: the experts of Granite 4 are not supported";
        return Err(config.refuse("num_local_experts", supported).into());
    }
    let rotates = match config.opt_str("position_embedding_type")? {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(_) => return Err(config.refuse("position_embedding_type", "`rope`, `nope` or `null`").into()),
    };
    let mut spec = granite::decoder(config)?;
    let inner = positive(config, "shared_intermediate_size")?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let FfnSpec::Dense(mlp) = &mut layer.mlp {
            let name = |part: &str| format!("layers.{i}.shared_mlp.{part}");
            mlp.up = LinearSpec::plain(name("input_linear"), spec.hidden, 2 * inner);
            mlp.down = LinearSpec::plain(name("output_linear"), inner, spec.hidden);
        }
    }
    set_recurrences(config, &mut spec)?;
    if !rotates {
        spec.attentions_mut().for_each(|attention| attention.rotation = None);
    }
    Ok(spec)
}

/// Replaces attention by Mamba-2 in the layers that `layer_types` says, by either of the names that each kind has.
fn set_recurrences(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let kinds =
        [("mamba", true), ("attention", false), ("linear_attention", true), ("full_attention", false)];
    let recurs = family::by_layer_type(config, spec.layers.len(), kinds)?.unwrap_or_default();
    if !recurs.contains(&true) {
        return Ok(());
    }
    let recurrences = Recurrences::of(config, spec.hidden)?;
    for (index, layer) in spec.layers.iter_mut().enumerate().filter(|(index, _)| recurs[*index]) {
        layer.mixer = MixerSpec::Mamba2(recurrences.layer(index));
    }
    Ok(())
}

/// What all layers of Mamba-2 have in common.
pub(super) struct Recurrences {
    hidden: usize,
    shape: Mamba2Shape,
    taps: usize,
    limits: (f32, f32),
    eps: f32,
    has_conv_bias: bool,
    has_projection_bias: bool,
}

impl Recurrences {
    /// Reads the keys that begin with `mamba_`.
    pub(super) fn of(config: &ConfigFile, hidden: usize) -> Result<Self, ModelError> {
        family::require(config, &["mamba_n_heads", "mamba_d_state"])?;
        let heads = positive(config, "mamba_n_heads")?;
        let inner = dimension_or(config, "mamba_expand", 2)? * hidden;
        let head_dim = match config.opt_str("mamba_d_head") {
            Ok(None | Some("auto")) => inner / heads,
            _ => positive(config, "mamba_d_head")?,
        };
        if heads * head_dim != inner {
            let fact = format!(
                "`mamba_n_heads` {heads} of `mamba_d_head` {head_dim} are not `mamba_expand` times `hidden_size`, {inner}"
            );
            return Err(config_error(config, fact));
        }
        let groups = dimension_or(config, "mamba_n_groups", 1)?;
        if heads % groups != 0 {
            let fact = format!("`mamba_n_heads` {heads} is not a multiple of `mamba_n_groups` {groups}");
            return Err(config_error(config, fact));
        }
        let taps = dimension_or(config, "mamba_d_conv", 4)?;
        if taps > MAX_TAPS {
            return Err(config.refuse("mamba_d_conv", format!("at most {MAX_TAPS}")).into());
        }
        let limits = match config.numbers("time_step_limit")?[..] {
            [] => (0.0, f32::INFINITY),
            [low, high] if low <= high => (low as f32, high as f32),
            _ => return Err(config.refuse("time_step_limit", "two numbers, the smaller first").into()),
        };
        Ok(Self {
            hidden,
            shape: Mamba2Shape { heads, head_dim, groups, state_dim: positive(config, "mamba_d_state")? },
            taps,
            limits,
            eps: config.f32_or("rms_norm_eps", 1e-6)?,
            has_conv_bias: config.bool_or("mamba_conv_bias", true)?,
            has_projection_bias: config.bool_or("mamba_proj_bias", false)?,
        })
    }

    /// One layer.
    pub(super) fn layer(&self, layer: usize) -> Mamba2Spec {
        let name = |part: &str| format!("layers.{layer}.mamba.{part}");
        let (heads, values, channels) = (self.shape.heads, self.shape.values(), self.shape.channels());
        let tensor = |part, role| TensorSpec::new(name(part), [heads], role);
        let linear = |part, inputs, outputs| {
            LinearSpec::of(Orientation::OutIn, inputs, [(name(part), outputs, self.has_projection_bias)])
        };
        Mamba2Spec {
            shape: self.shape,
            taps: self.taps,
            limits: self.limits,
            input: linear("in_proj", self.hidden, values + channels + heads),
            weights: TensorSpec::new(name("conv1d.weight"), [channels, 1, self.taps], Role::Taps),
            bias: self.has_conv_bias.then(|| TensorSpec::new(name("conv1d.bias"), [channels], Role::Bias)),
            decay: tensor("A_log", Role::LogDecay),
            step_bias: tensor("dt_bias", Role::Bias),
            skip: tensor("D", Role::Scale),
            norm: NormSpec { name: name("norm"), width: values, eps: self.eps, kind: NormKind::Rms },
            output: linear("out_proj", values, self.hidden),
        }
    }
}
