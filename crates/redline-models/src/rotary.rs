//! Inverse frequencies of rotary positions, with the scaling of Llama 3.

use redline_weights::ConfigFile;

use crate::ModelError;

/// One inverse frequency per pair of dimensions: `theta^(-2i / head_dim)`, scaled as the configuration says.
///
/// Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5); types `default` and
/// `llama3`, others are refused by name.
pub(crate) fn inverse_frequencies(config: &ConfigFile, head_dim: usize) -> Result<Vec<f64>, ModelError> {
    let parameters = config.object("rope_parameters")?;
    if parameters.is_some() && config.object("rope_scaling")?.is_some() {
        return Err(config.refuse("rope_scaling", "one of `rope_scaling` and `rope_parameters`").into());
    }
    let scaling = match &parameters {
        Some(parameters) => Some(parameters.clone()),
        None => config.object("rope_scaling")?,
    };
    let place = match &parameters {
        Some(parameters) if parameters.opt_f64("rope_theta")?.is_some() => parameters,
        _ => config,
    };
    let theta = place.f64_or("rope_theta", 10_000.0)?;
    if !(theta.is_finite() && theta > 0.0) {
        return Err(place.refuse("rope_theta", "a positive number").into());
    }
    let mut frequencies: Vec<f64> =
        (0..head_dim / 2).map(|i| libm::pow(theta, -((2 * i) as f64) / head_dim as f64)).collect();
    let Some(scaling) = scaling else { return Ok(frequencies) };
    let key = if scaling.opt_str("rope_type")?.is_some() { "rope_type" } else { "type" };
    match scaling.opt_str(key)? {
        None | Some("default") => {}
        Some("llama3") => {
            let llama3 = Llama3::read(&scaling)?;
            for frequency in &mut frequencies {
                *frequency = llama3.scale(*frequency);
            }
        }
        Some(_) => return Err(scaling.refuse(key, "`default` or `llama3`").into()),
    }
    if scaling.opt_f64("partial_rotary_factor")?.is_some_and(|f| f != 1.0) {
        return Err(scaling.refuse("partial_rotary_factor", "`1.0`").into());
    }
    Ok(frequencies)
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
            factor: scaling.f64("factor")?,
            low_freq_factor: scaling.f64("low_freq_factor")?,
            high_freq_factor: scaling.f64("high_freq_factor")?,
            original_context: scaling.f64("original_max_position_embeddings")?,
        };
        if this.factor < 1.0 || !this.factor.is_finite() {
            return Err(scaling.refuse("factor", "a number of at least 1").into());
        }
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
