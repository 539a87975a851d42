//! Inverse frequencies of rotary positions, with the scalings of published models.

use redline_weights::ConfigFile;

use crate::ModelError;
use crate::spec::{RotarySpec, RotatedPairs};

/// What a family allows beyond the common keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The key of theta outside of `rope_parameters`.
    pub(crate) theta_key: &'static str,
    /// Theta if its key is absent.
    pub(crate) default_theta: f64,
    /// `partial_rotary_factor` if the key is absent; `None`: it is not honoured.
    pub(crate) partial: Option<f64>,
    /// Whether the scaling may be `ntk`.
    pub(crate) ntk: bool,
    /// Whether the scaling may be `dynamic` with a fixed `alpha`.
    pub(crate) alpha: bool,
    /// Whether it may be `proportional`: only the first pairs of whole heads turn.
    pub(crate) proportional: bool,
    /// Which dimensions turn together.
    pub(crate) pairs: RotatedPairs,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            theta_key: "rope_theta",
            default_theta: 10_000.0,
            partial: None,
            ntk: false,
            alpha: false,
            proportional: false,
            pairs: RotatedPairs::Halves,
        }
    }
}

/// The rotation of every layer: inverse frequencies `theta^(-2i / dim)`, one per pair of dimensions, scaled as the configuration
/// says.
///
/// Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5); types `default`, `linear`,
/// `llama3`, `yarn` and `longrope`, in some families `ntk`, `dynamic` or `proportional`; others are refused by name.
pub(crate) fn rotation(config: &ConfigFile, head_dim: usize, rules: Rules) -> Result<RotarySpec, ModelError> {
    let parameters = parameters(config)?;
    let (place, key) = match &parameters {
        Some(parameters) if parameters.opt_f64("rope_theta")?.is_some() => (parameters, "rope_theta"),
        _ => (config, rules.theta_key),
    };
    let theta = theta(place, key, rules.default_theta)?;
    let scaling = match parameters {
        Some(parameters) => Some(parameters),
        None => config.object("rope_scaling")?,
    };
    scaled(config, scaling.as_ref(), theta, head_dim, rules)
}

/// The rotations of layers with full attention and of those with a window. `rope_parameters` of transformers 5 has an object for each
/// of them. Otherwise `rope_theta` and `rope_scaling` are those of full attention, and layers with a window have no scaling;
/// `local_theta` is the key of their theta and its default, `None`: they have the same. The heads of the two kinds
/// may have different widths.
pub(crate) fn rotations_by_layer_type(
    config: &ConfigFile,
    [full_dim, sliding_dim]: [usize; 2],
    rules: Rules,
    local_theta: Option<(&str, f64)>,
) -> Result<Vec<RotarySpec>, ModelError> {
    let parameters = parameters(config)?;
    let nested = |name| parameters.as_ref().map_or(Ok(None), |all| all.object(name));
    let (full, sliding) = (nested("full_attention")?, nested("sliding_attention")?);
    if parameters.is_some() && full.is_none() && sliding.is_none() {
        let supported = "objects `full_attention` and `sliding_attention`";
        return Err(config.refuse("rope_parameters", supported).into());
    }
    let global = theta(config, rules.theta_key, rules.default_theta)?;
    let local = local_theta.map_or(Ok(global), |(key, default)| theta(config, key, default))?;
    let scaling = match &parameters {
        Some(_) => full,
        None => config.object("rope_scaling")?,
    };
    let of = |scaling: Option<ConfigFile>, default, head_dim| {
        let theta = scaling.as_ref().map_or(Ok(default), |scaling| theta(scaling, "rope_theta", default))?;
        scaled(config, scaling.as_ref(), theta, head_dim, rules)
    };
    Ok(vec![of(scaling, global, full_dim)?, of(sliding, local, sliding_dim)?])
}

/// `rope_parameters`, unless there is `rope_scaling` besides.
fn parameters(config: &ConfigFile) -> Result<Option<ConfigFile>, ModelError> {
    let parameters = config.object("rope_parameters")?;
    if parameters.is_some() && config.object("rope_scaling")?.is_some() {
        return Err(config.refuse("rope_scaling", "one of `rope_scaling` and `rope_parameters`").into());
    }
    Ok(parameters)
}

/// The base of the rotations, positive.
fn theta(place: &ConfigFile, key: &str, default: f64) -> Result<f64, ModelError> {
    let theta = place.f64_or(key, default)?;
    if theta.is_finite() && theta > 0.0 {
        Ok(theta)
    } else {
        Err(place.refuse(key, "a positive number").into())
    }
}

/// A rotation with a scaling.
fn scaled(
    config: &ConfigFile,
    scaling: Option<&ConfigFile>,
    theta: f64,
    head_dim: usize,
    rules: Rules,
) -> Result<RotarySpec, ModelError> {
    let dim =
        if is_proportional(scaling)? { head_dim } else { rotary_dim(config, scaling, head_dim, rules)? };
    let of_base = |base| -> Vec<f64> {
        (0..dim / 2).map(|i| libm::pow(base, -((2 * i) as f64) / dim as f64)).collect()
    };
    let mut rotation = RotarySpec {
        head_dim,
        inverse_frequencies: of_base(theta),
        pairs: rules.pairs,
        factor: 1.0,
        query_growth: None,
    };
    let Some(scaling) = scaling else { return Ok(rotation) };
    let key = if scaling.opt_str("rope_type")?.is_some() { "rope_type" } else { "type" };
    let frequencies = &mut rotation.inverse_frequencies;
    match scaling.opt_str(key)? {
        None | Some("default") => {}
        Some("linear") => {
            let factor = factor(scaling)?;
            for frequency in frequencies {
                *frequency /= factor;
            }
        }
        Some("llama3") => {
            let llama3 = Llama3::read(scaling)?;
            for frequency in frequencies {
                *frequency = llama3.scale(*frequency);
            }
        }
        // Of GTE's code: the base grows by the factor, and all rotations get slower.
        Some("ntk") if rules.ntk => {
            let factor = factor(scaling)?;
            if scaling.opt_f64("mixed_b")?.is_some() {
                return Err(scaling.refuse("mixed_b", "`null`").into());
            }
            *frequencies = of_base(theta * factor);
            for frequency in frequencies {
                *frequency /= libm::pow(factor, 2.0 / dim as f64);
            }
        }
        // The share of a head that is rotated does not change the frequencies; the others are zero, and so pairs are half a head apart.
        Some("proportional") if rules.proportional => {
            const SHARE: &str = "partial_rotary_factor";
            let share = scaling.f64_or(SHARE, 1.0)?;
            if !(0.0..=1.0).contains(&share) {
                return Err(scaling.refuse(SHARE, "a share from 0 to 1").into());
            }
            let rotated = (share * head_dim as f64) as usize / 2;
            if scaling.f64_or("factor", 1.0)? != 1.0 {
                return Err(scaling.refuse("factor", "`1.0`").into());
            }
            frequencies.iter_mut().skip(rotated).for_each(|frequency| *frequency = 0.0);
        }
        // Its name notwithstanding, `alpha` makes it the same for every length: a larger base.
        Some("dynamic") if rules.alpha => {
            let alpha = scaling.f64("alpha")?;
            if !(alpha > 0.0 && alpha.is_finite()) {
                return Err(scaling.refuse("alpha", "a positive number").into());
            }
            *frequencies = of_base(theta * libm::pow(alpha, dim as f64 / (dim as f64 - 2.0)));
        }
        Some("yarn") => rotation.factor = yarn(config, scaling, theta, frequencies)?,
        // `su` is the name in the first published configurations.
        Some("longrope" | "su") => rotation.factor = long(config, scaling, frequencies)?,
        Some(_) => {
            let supported = "`default`, `linear`, `llama3`, `yarn` or `longrope`";
            return Err(scaling.refuse(key, supported).into());
        }
    }
    Ok(rotation)
}

/// Whether the frequencies are those of a rotation of whole heads, whatever share of them is rotated (Gemma 4).
fn is_proportional(scaling: Option<&ConfigFile>) -> Result<bool, ModelError> {
    Ok(scaling.map_or(Ok(None), |scaling| scaling.opt_str("rope_type"))? == Some("proportional"))
}

/// Number of dimensions of a head that are rotated: the share `partial_rotary_factor`.
fn rotary_dim(
    config: &ConfigFile,
    scaling: Option<&ConfigFile>,
    head_dim: usize,
    rules: Rules,
) -> Result<usize, ModelError> {
    const KEY: &str = "partial_rotary_factor";
    let place = match scaling {
        Some(scaling) if scaling.opt_f64(KEY)?.is_some() => scaling,
        _ => config,
    };
    let share = place.f64_or(KEY, rules.partial.unwrap_or(1.0))?;
    if share == 1.0 {
        return Ok(head_dim);
    }
    if rules.partial.is_none() {
        return Err(place.refuse(KEY, "`1.0`").into());
    }
    let dim = (head_dim as f64 * share) as usize;
    if !(share > 0.0 && share <= 1.0 && dim >= 2 && dim % 2 == 0) {
        let supported = format!("a share of the {head_dim} values of a head that is an even number");
        return Err(place.refuse(KEY, supported).into());
    }
    Ok(dim)
}

/// `factor`, at least 1.
fn factor(scaling: &ConfigFile) -> Result<f64, ModelError> {
    let factor = scaling.f64("factor")?;
    if factor >= 1.0 && factor.is_finite() {
        Ok(factor)
    } else {
        Err(scaling.refuse("factor", "a number of at least 1").into())
    }
}

/// The context before it was extended: `original_max_position_embeddings` of the configuration, else of the scaling, else the whole.
fn original_context(config: &ConfigFile, scaling: &ConfigFile) -> Result<f64, ModelError> {
    const KEY: &str = "original_max_position_embeddings";
    let place = if config.opt_f64(KEY)?.is_some() { config } else { scaling };
    let context = place.f64_or(KEY, config.f64("max_position_embeddings")?)?;
    if context > 1.0 { Ok(context) } else { Err(place.refuse(KEY, "a number above 1").into()) }
}

/// The attention factor that a configuration names, if it does: positive.
fn attention_factor(scaling: &ConfigFile) -> Result<Option<f64>, ModelError> {
    match scaling.opt_f64("attention_factor")? {
        Some(factor) if !(factor > 0.0 && factor.is_finite()) => {
            Err(scaling.refuse("attention_factor", "a positive number").into())
        }
        factor => Ok(factor),
    }
}

/// YaRN (Peng et al. 2023): frequencies that turn often stay, those that turn seldom are divided by `factor`, with a ramp between
/// them. Returns the attention factor.
fn yarn(
    config: &ConfigFile,
    scaling: &ConfigFile,
    theta: f64,
    frequencies: &mut [f64],
) -> Result<f64, ModelError> {
    let (factor, context) = (factor(scaling)?, original_context(config, scaling)?);
    let magnitude = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * libm::log(factor) + 1.0 };
    let nonzero = |key| scaling.opt_f64(key).map(|value| value.filter(|value| *value != 0.0));
    let attention = match (attention_factor(scaling)?, nonzero("mscale")?, nonzero("mscale_all_dim")?) {
        (Some(factor), ..) => factor,
        (None, Some(mscale), Some(all)) => magnitude(mscale) / magnitude(all),
        _ => magnitude(1.0),
    };
    let dim = (2 * frequencies.len()) as f64;
    // The pair of dimensions that turns so many times within the context.
    let pair = |turns: f64| {
        dim * libm::log(context / (turns * 2.0 * std::f64::consts::PI)) / (2.0 * libm::log(theta))
    };
    let (fast, slow) = (nonzero("beta_fast")?.unwrap_or(32.0), nonzero("beta_slow")?.unwrap_or(1.0));
    if !(fast > 0.0 && slow > 0.0 && theta > 1.0) {
        let supported = "positive with a positive `beta_slow` and a `rope_theta` above 1";
        return Err(scaling.refuse("beta_fast", supported).into());
    }
    let (mut low, mut high) = (pair(fast), pair(slow));
    if scaling.bool_or("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    for (i, frequency) in frequencies.iter_mut().enumerate() {
        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        *frequency = *frequency / factor * divided + *frequency * (1.0 - divided);
    }
    Ok(attention)
}

/// LongRoPE (Ding et al. 2024): every frequency is divided by a factor of its own. There are two lists of factors; one is for contexts
/// beyond the original one. The reference chooses by the length of each sequence, so that the keys of its first tokens change when it
/// grows; here the model's context decides, so that keys never change. Returns the attention factor.
fn long(config: &ConfigFile, scaling: &ConfigFile, frequencies: &mut [f64]) -> Result<f64, ModelError> {
    let context = config.f64("max_position_embeddings")?;
    let original = original_context(config, scaling)?;
    let key = if context > original { "long_factor" } else { "short_factor" };
    let factors = scaling.numbers(key)?;
    if factors.len() != frequencies.len() || !factors.iter().all(|factor| *factor > 0.0) {
        let supported = format!("{} positive numbers", frequencies.len());
        return Err(scaling.refuse(key, supported).into());
    }
    for (frequency, factor) in frequencies.iter_mut().zip(&factors) {
        *frequency /= factor;
    }
    let factor = scaling.opt_f64("factor")?.unwrap_or(context / original);
    let extended = libm::sqrt(1.0 + libm::log(factor) / libm::log(original));
    Ok(attention_factor(scaling)?.unwrap_or(if factor <= 1.0 { 1.0 } else { extended }))
}

/// `rope_scaling` of type `llama3`.
struct Llama3 {
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    original_context: f64,
}

impl Llama3 {
    fn read(scaling: &ConfigFile) -> Result<Self, ModelError> {
        let this = Self {
            factor: factor(scaling)?,
            low_freq_factor: scaling.f64("low_freq_factor")?,
            high_freq_factor: scaling.f64("high_freq_factor")?,
            original_context: scaling.f64("original_max_position_embeddings")?,
        };
        if this.high_freq_factor <= this.low_freq_factor {
            return Err(scaling.refuse("high_freq_factor", "a number above `low_freq_factor`").into());
        }
        Ok(this)
    }

    fn scale(&self, frequency: f64) -> f64 {
        let wavelength = 2.0 * std::f64::consts::PI / frequency;
        if wavelength < self.original_context / self.high_freq_factor {
            return frequency;
        }
        if wavelength > self.original_context / self.low_freq_factor {
            return frequency / self.factor;
        }
        let smooth = (self.original_context / wavelength - self.low_freq_factor)
            / (self.high_freq_factor - self.low_freq_factor);
        (1.0 - smooth) * frequency / self.factor + smooth * frequency
    }
}
