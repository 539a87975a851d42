//! The keys of `config.json` that describe layers of Mamba-2, in Granite 4 H and Bamba.

use redline_kernels::op::conv::MAX_TAPS;
use redline_kernels::op::mamba2::Mamba2Shape;
use redline_weights::ConfigFile;

use crate::ModelError;
use crate::family::{self, config_error, dimension_or, positive};
use crate::spec::{LinearSpec, Mamba2Spec, NormKind, NormSpec, Orientation, Role, TensorSpec};

/// What all layers have in common.
pub(crate) struct Mamba2Keys {
    hidden: usize,
    shape: Mamba2Shape,
    taps: usize,
    limits: (f32, f32),
    eps: f32,
    has_conv_bias: bool,
    has_projection_bias: bool,
}

impl Mamba2Keys {
    /// Reads them. `eps` is that of the norms if `rms_norm_eps` is absent.
    pub(crate) fn read(config: &ConfigFile, hidden: usize, eps: f32) -> Result<Self, ModelError> {
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
        let limits = match config.numbers_or_infinity("time_step_limit")?[..] {
            [] => (0.0, f32::INFINITY),
            [low, high] => (low as f32, high as f32),
            _ => (f32::NAN, f32::NAN),
        };
        if !(0.0 <= limits.0 && limits.0.is_finite() && limits.0 <= limits.1) {
            let supported = "two numbers, the first of them finite, at least 0 and at most the second";
            return Err(config.refuse("time_step_limit", supported).into());
        }
        Ok(Self {
            hidden,
            shape: Mamba2Shape { heads, head_dim, groups, state_dim: positive(config, "mamba_d_state")? },
            taps,
            limits,
            eps: config.f32_or("rms_norm_eps", eps)?,
            has_conv_bias: config.bool_or("mamba_conv_bias", true)?,
            has_projection_bias: config.bool_or("mamba_proj_bias", false)?,
        })
    }

    /// One layer.
    pub(crate) fn layer(&self, layer: usize) -> Mamba2Spec {
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
