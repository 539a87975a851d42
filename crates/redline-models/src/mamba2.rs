//! The keys of configurations that describe layers of Mamba-2.

use redline_kernels::op::conv::MAX_TAPS;
use redline_kernels::op::mamba2::Mamba2Shape;
use redline_weights::ConfigFile;

use crate::ModelError;
use crate::family::{self, MAX_DIMENSION, config_error, dimension_or, positive};
use crate::gguf::keys::Keys;
use crate::spec::{LinearSpec, Mamba2Spec, NormKind, NormSpec, Orientation, Role, TensorSpec};

/// The names of a family's keys, and of the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mamba2Names {
    /// The module, after the name of the layer.
    pub(crate) module: &'static str,
    heads: &'static str,
    head_dim: &'static str,
    groups: &'static str,
    state_dim: &'static str,
    taps: &'static str,
    conv_bias: &'static str,
    projection_bias: &'static str,
    eps: &'static str,
}

impl Mamba2Names {
    /// Those of Bamba, Falcon-H1 and Granite 4 H.
    pub(crate) const BAMBA: Self = Self {
        module: "mamba",
        heads: "mamba_n_heads",
        head_dim: "mamba_d_head",
        groups: "mamba_n_groups",
        state_dim: "mamba_d_state",
        taps: "mamba_d_conv",
        conv_bias: "mamba_conv_bias",
        projection_bias: "mamba_proj_bias",
        eps: "rms_norm_eps",
    };
    /// Those of Nemotron-H.
    pub(crate) const NEMOTRON: Self = Self {
        module: "mixer",
        heads: "mamba_num_heads",
        head_dim: "mamba_head_dim",
        groups: "n_groups",
        state_dim: "ssm_state_size",
        taps: "conv_kernel",
        conv_bias: "use_conv_bias",
        projection_bias: "use_bias",
        eps: "layer_norm_epsilon",
    };
}

/// What all layers have in common.
pub(crate) struct Mamba2Keys {
    names: Mamba2Names,
    hidden: usize,
    shape: Mamba2Shape,
    taps: usize,
    limits: (f32, f32),
    eps: f32,
    has_conv_bias: bool,
    has_projection_bias: bool,
}

impl Mamba2Keys {
    /// Reads those of Bamba, whose heads have a multiple of the hidden width. `eps` is that of the norms if `rms_norm_eps` is absent.
    pub(crate) fn read(config: &ConfigFile, hidden: usize, eps: f32) -> Result<Self, ModelError> {
        let inner = dimension_or(config, "mamba_expand", 2)? * hidden;
        Self::of_width(config, hidden, (inner, "`mamba_expand` times `hidden_size`"), eps)
    }

    /// As [`Self::read`], with the width of all heads, and its name in messages.
    pub(crate) fn of_width(
        config: &ConfigFile,
        hidden: usize,
        (inner, name): (usize, &str),
        eps: f32,
    ) -> Result<Self, ModelError> {
        const NAMES: Mamba2Names = Mamba2Names::BAMBA;
        family::require(config, &[NAMES.heads, NAMES.state_dim])?;
        let heads = positive(config, NAMES.heads)?;
        let head_dim = match config.opt_str(NAMES.head_dim) {
            Ok(None | Some("auto")) => inner / heads,
            _ => positive(config, NAMES.head_dim)?,
        };
        if heads * head_dim != inner {
            let Mamba2Names { heads: all, head_dim: one, .. } = NAMES;
            let fact = format!("`{all}` {heads} of `{one}` {head_dim} are not {name}, {inner}");
            return Err(config_error(config, fact));
        }
        Self::with_names(config, hidden, (heads, head_dim), NAMES, eps)
    }

    /// Reads all keys but those of the heads, whose number and width are given.
    pub(crate) fn with_names(
        config: &ConfigFile,
        hidden: usize,
        (heads, head_dim): (usize, usize),
        names: Mamba2Names,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let groups = dimension_or(config, names.groups, 1)?;
        if heads % groups != 0 {
            let fact = format!("`{}` {heads} is not a multiple of `{}` {groups}", names.heads, names.groups);
            return Err(config_error(config, fact));
        }
        let taps = dimension_or(config, names.taps, 4)?;
        if taps > MAX_TAPS {
            return Err(config.refuse(names.taps, format!("at most {MAX_TAPS}")).into());
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
        let shape = Mamba2Shape { heads, head_dim, groups, state_dim: positive(config, names.state_dim)? };
        if shape.channels() > MAX_DIMENSION {
            let fact =
                format!("Mamba-2 has {} channels; at most {MAX_DIMENSION} are supported", shape.channels());
            return Err(config_error(config, fact));
        }
        Ok(Self {
            names,
            hidden,
            shape,
            taps,
            limits,
            eps: family::check_eps(config, names.eps, config.f32_or(names.eps, eps)?)?,
            has_conv_bias: config.bool_or(names.conv_bias, true)?,
            has_projection_bias: config.bool_or(names.projection_bias, false)?,
        })
    }

    /// One layer.
    pub(crate) fn layer(&self, layer: usize) -> Mamba2Spec {
        let name = |part: &str| format!("layers.{layer}.{}.{part}", self.names.module);
        let (heads, values, channels) = (self.shape.heads, self.shape.values(), self.shape.channels());
        let tensor = |part, role| TensorSpec::new(name(part), [heads], role);
        let linear = |part, inputs, outputs| {
            LinearSpec::of(Orientation::OutIn, inputs, [(name(part), outputs, self.has_projection_bias)])
        };
        Mamba2Spec {
            shape: self.shape,
            taps: self.taps,
            limits: self.limits,
            scales: [1.0; 5],
            input: linear("in_proj", self.hidden, values + channels + heads),
            weights: TensorSpec::new(name("conv1d.weight"), [channels, 1, self.taps], Role::Taps),
            bias: self.has_conv_bias.then(|| TensorSpec::new(name("conv1d.bias"), [channels], Role::Bias)),
            decay: tensor("A_log", Role::LogDecay),
            step_bias: tensor("dt_bias", Role::Bias),
            skip: tensor("D", Role::Scale),
            norm: Some(NormSpec { name: name("norm"), width: values, eps: self.eps, kind: NormKind::Rms }),
            gates_normed: false,
            output: linear("out_proj", values, self.hidden),
        }
    }
}

/// Sets the keys of Mamba-2 from the metadata of a GGUF file. The tensors of `layer`, which is Mamba-2, tell which biases exist. Returns
/// the width of all heads together.
pub(crate) fn set_keys(keys: &mut Keys<'_>, names: Mamba2Names, layer: usize) -> Result<u32, ModelError> {
    let (heads, width) = keys.recurrent_heads()?;
    keys.config().set(names.heads, heads);
    keys.config().set(names.head_dim, width);
    keys.copy_counts(&[
        ("ssm.group_count", names.groups),
        ("ssm.state_size", names.state_dim),
        ("ssm.conv_kernel", names.taps),
    ])?;
    keys.set_presence(names.conv_bias, &format!("blk.{layer}.ssm_conv1d.bias"));
    keys.set_presence(names.projection_bias, &format!("blk.{layer}.ssm_in.bias"));
    Ok(heads * width)
}
