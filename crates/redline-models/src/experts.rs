//! Mixtures of experts, as the configurations of their families describe them.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_weights::ConfigFile;

use crate::ModelError;
use crate::family::{config_error, layers, positive};
use crate::spec::{ExpertsSpec, FfnSpec, LinearSpec, MlpSpec, Orientation, StoredAs, WeightingSpec};

/// Maximum number of experts of a layer, whose names are made before the checkpoint is read.
const MAX_EXPERTS: usize = 1 << 12;

/// The names of a mixture's tensors, after that of the layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// The module.
    pub(crate) module: &'static str,
    /// The projection that the activation belongs to.
    pub(crate) gate: &'static str,
    /// The projection that the gate multiplies.
    pub(crate) up: &'static str,
    /// Back to the hidden width.
    pub(crate) down: &'static str,
}

/// Number of experts of a layer and of a row, the first from one of `keys`, the second from `num_experts_per_tok`.
pub(crate) fn counts(config: &ConfigFile, keys: &[&str]) -> Result<(usize, usize), ModelError> {
    counts_of(config, keys, "num_experts_per_tok")
}

/// Number of experts of a layer and of a row, the first from one of `keys`, the second from `of_row`.
pub(crate) fn counts_of(
    config: &ConfigFile,
    keys: &[&str],
    of_row: &str,
) -> Result<(usize, usize), ModelError> {
    let mut present = keys.iter().filter(|key| config.keys().any(|k| k == **key));
    let all = present.next().unwrap_or(&keys[0]);
    let experts = config.usize(all)?;
    if !(1..=MAX_EXPERTS).contains(&experts) {
        return Err(config.refuse(all, format!("a value from 1 to {MAX_EXPERTS}")).into());
    }
    if let Some(other) = present.find(|key| config.usize(key).ok() != Some(experts)) {
        return Err(config.refuse(other, format!("`{experts}`, as in `{all}`")).into());
    }
    let top_k = positive(config, of_row)?;
    if top_k > experts {
        let fact = format!("`{of_row}` {top_k} is more than `{all}` {experts}");
        return Err(config_error(config, fact));
    }
    Ok((experts, top_k))
}

/// How the weights of experts are stored, as `quantization_config` says. All others are floats.
pub(crate) fn stored_as(config: &ConfigFile) -> Result<StoredAs, ModelError> {
    const KEYS: [&str; 3] = ["quant_method", "modules_to_not_convert", "dequantize"];
    let Some(quantisation) = config.object("quantization_config")? else { return Ok(StoredAs::Floats) };
    if quantisation.opt_str("quant_method")? != Some("mxfp4") {
        return Err(quantisation.refuse("quant_method", "`mxfp4`").into());
    }
    match quantisation.keys().find(|key| !KEYS.contains(key)) {
        Some(key) => Err(quantisation.refuse(key, "no such key").into()),
        None => Ok(StoredAs::Mxfp4),
    }
}

/// The layers that have experts: every `decoder_sparse_step`th, except for `mlp_only_layers`.
pub(crate) fn sparse_layers(config: &ConfigFile) -> Result<Vec<bool>, ModelError> {
    let step = match config.usize_or("decoder_sparse_step", 1)? {
        0 => return Err(config.refuse("decoder_sparse_step", "a value of at least 1").into()),
        step => step,
    };
    let dense = config.numbers("mlp_only_layers")?;
    let count = layers(config, "num_hidden_layers")?;
    Ok((0..count).map(|layer| (layer + 1) % step == 0 && !dense.contains(&(layer as f64))).collect())
}

/// A gated expert with projections `{name}.{gate}`, `{name}.{up}` and `{name}.{down}`.
pub(crate) fn expert(name: &str, hidden: usize, inner: usize, names: Names) -> MlpSpec {
    let part = |part: &str| format!("{name}.{part}");
    let gate_up = [(part(names.gate), inner, false), (part(names.up), inner, false)];
    MlpSpec {
        activation: ActivationFunction::None,
        gate: Some(Gating::Function(ActivationFunction::Silu)),
        up: LinearSpec::of(Orientation::OutIn, hidden, gate_up),
        down: LinearSpec::plain(part(names.down), inner, hidden),
    }
}

/// The mixture of a layer with experts of this inner width.
pub(crate) fn mixture(
    layer: usize,
    (hidden, inner): (usize, usize),
    (experts, top_k): (usize, usize),
    weighting: WeightingSpec,
    names: Names,
) -> FfnSpec {
    let module = format!("layers.{layer}.{}", names.module);
    let each = |id: usize| expert(&format!("{module}.experts.{id}"), hidden, inner, names);
    FfnSpec::Experts(Box::new(ExpertsSpec {
        router: LinearSpec::plain(format!("{module}.gate"), hidden, experts),
        experts: (0..experts).map(each).collect(),
        grouped: false,
        top_k,
        weighting,
        shared: None,
    }))
}
