//! How the states of a text become one vector.

use std::path::Path;

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Exec, Format, Matrix};
use redline_settings::Pooling;
use redline_weights::{Checkpoint, ConfigFile};

use crate::ModelError;
use crate::block::dense::DenseLayers;
use crate::element::dense::DenseLayer;
use crate::family;
use crate::step::padded;

/// How the states of a text become one vector.
#[derive(Debug)]
pub struct DenseRules {
    /// How states become one.
    pub pooling: Pooling,
    /// Layers on that vector; may be none.
    pub layers: DenseLayers,
    /// Whether the vector is divided by its length.
    pub normalise: bool,
}

/// Reads how the states of a text become one vector, without what follows.
pub(super) fn read_pooling(config: &Path) -> Result<DenseRules, ModelError> {
    let pooling = pooling(config)?;
    Ok(DenseRules { pooling, layers: DenseLayers::default(), normalise: false })
}

fn pooling(config: &Path) -> Result<Pooling, ModelError> {
    const MODES: [(&str, &str, Option<Pooling>); 7] = [
        ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
        ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
        ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
        ("pooling_mode_max_tokens", "max", None),
        ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", "weightedmean", None),
        ("pooling_mode_weightedmean", "weightedmean", None),
    ];
    let config = ConfigFile::open(config)?;
    if !config.bool_or("include_prompt", true)? {
        return Err(config.refuse("include_prompt", "`true`").into());
    }
    let supported = "one of `cls`, `mean` and `lasttoken`";
    if let Some(mode) = config.opt_str("pooling_mode")? {
        let found = MODES.iter().find(|(_, name, _)| *name == mode).and_then(|(_, _, pooling)| *pooling);
        return found.ok_or_else(|| config.refuse("pooling_mode", supported).into());
    }
    let mut pooling = None;
    for (key, _, found) in MODES {
        if config.bool_or(key, false)? {
            if pooling.is_some() || found.is_none() {
                return Err(config.refuse(key, supported).into());
            }
            pooling = found;
        }
    }
    // As in the library, the mean if nothing is said.
    Ok(pooling.unwrap_or(Pooling::Mean))
}

/// A dense layer of `width` inputs; `width` becomes its number of outputs. `input` names what it reads and writes, if its configuration
/// says so.
pub(super) fn read_layer(
    exec: Exec<'_>,
    [config, weights]: [&Path; 2],
    input: Option<&str>,
    width: &mut usize,
) -> Result<DenseLayer, ModelError> {
    let config = ConfigFile::open(config)?;
    if config.usize("in_features")? != *width {
        return Err(config.refuse("in_features", format!("`{width}`, as many as there are")).into());
    }
    for key in ["module_input_name", "module_output_name"] {
        let Some(input) = input else { continue };
        if config.opt_str(key)?.unwrap_or("sentence_embedding") != input {
            return Err(config.refuse(key, format!("`{input}`")).into());
        }
    }
    if config.bool_or("use_residual", false)? {
        return Err(config.refuse("use_residual", "`false`").into());
    }
    let outputs = family::positive(&config, "out_features")?;
    let activation = match config.opt_str("activation_function")?.and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => ActivationFunction::None,
        None | Some("Tanh") => ActivationFunction::Tanh,
        Some("GELU") => ActivationFunction::Gelu,
        Some("SiLU") => ActivationFunction::Silu,
        Some("ReLU") => ActivationFunction::Relu,
        Some(_) => {
            return Err(config
                .refuse("activation_function", "`Identity`, `Tanh`, `GELU`, `ReLU` or `SiLU`")
                .into());
        }
    };
    let checkpoint = Checkpoint::open_file(weights)?;
    let bias = config.bool_or("bias", true)?.then_some("linear.bias");
    let layer = linear(exec, &checkpoint, ("linear.weight", bias), [*width, outputs])?;
    *width = outputs;
    Ok(DenseLayer { activation, ..layer })
}

/// A layer of a file with these names, from `inputs` to `outputs` values.
pub(super) fn linear(
    exec: Exec<'_>,
    checkpoint: &Checkpoint,
    (weight, bias): (&str, Option<&str>),
    [inputs, outputs]: [usize; 2],
) -> Result<DenseLayer, ModelError> {
    checkpoint.require(weight, &[outputs, inputs])?;
    let mut values = vec![0f32; outputs * inputs];
    checkpoint.read_f32(weight, &mut values)?;
    let mut weights = Matrix::zeroed(Format::F32, outputs, inputs)?;
    weights.set_rows(exec, 0, &values);
    let read_bias = |name| {
        checkpoint.require(name, &[outputs])?;
        let mut bias = Buffer::zeroed(padded(outputs))?;
        checkpoint.read_f32(name, &mut bias[..outputs])?;
        Ok::<_, ModelError>(bias)
    };
    let bias = bias.map(read_bias).transpose()?;
    Ok(DenseLayer { weights, bias, activation: ActivationFunction::None, norm: None })
}
