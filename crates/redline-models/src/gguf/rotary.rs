//! The rotation of queries and keys: `rope_theta`, `rope_scaling` and `partial_rotary_factor`.

use redline_kernels::op::kv::MAX_HEAD_DIM;
use redline_weights::ConfigObject;

use super::adapted;
use super::keys::Keys;
use crate::ModelError;

/// Factors by which the inverse frequencies are divided.
pub(super) const FACTORS: &str = "rope_freqs.weight";
/// The same within the original context, and beyond it.
pub(super) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(super) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// llama.cpp's base if the file names none.
const DEFAULT_THETA: f32 = 10_000.0;

impl Keys<'_> {
    /// Sets the keys of the rotation: `rope_theta`, `rope_scaling` and `partial_rotary_factor`.
    pub(crate) fn set_rotation(&mut self) -> Result<(), ModelError> {
        let theta = self.number_or("rope.freq_base", DEFAULT_THETA)?;
        self.config().set("rope_theta", f64::from(theta));
        let head_dim = self.head_dim()?;
        if let Some(rotated) = self.opt_count("rope.dimension_count")? {
            if rotated > head_dim {
                let supported = format!("at most {head_dim}, the values of a head");
                return Err(self.refuse("rope.dimension_count", supported));
            }
            self.config().set("partial_rotary_factor", share(rotated, head_dim));
        }
        if let Some(scaling) = scaling(self)? {
            self.config().set("rope_scaling", scaling);
        }
        if let Some(factors) = factors(self, FACTORS)? {
            let mut gguf = ConfigObject::default();
            gguf.set(adapted::FACTORS, factors);
            self.config().set(adapted::KEY, gguf);
        }
        Ok(())
    }

    /// Gives layers with a window a rotation of their own, without scaling, as transformers 5 writes it. `default_theta` is its base if the
    /// file names none; `None`: that of the others.
    pub(crate) fn set_local_rotation(&mut self, default_theta: Option<f32>) -> Result<(), ModelError> {
        let global = self.number_or("rope.freq_base", DEFAULT_THETA)?;
        let local = self.opt_number("rope.freq_base_swa")?.or(default_theta).unwrap_or(global);
        let config = self.config();
        let (mut full, mut sliding) =
            (config.take_object("rope_scaling").unwrap_or_default(), ConfigObject::default());
        full.set("rope_theta", f64::from(global));
        sliding.set("rope_theta", f64::from(local));
        let mut parameters = ConfigObject::default();
        parameters.set("full_attention", full);
        parameters.set("sliding_attention", sliding);
        config.remove("rope_theta");
        config.set("rope_parameters", parameters);
        Ok(())
    }
}

/// The share of a head that is rotated, of which `dimensions` is the whole part.
fn share(dimensions: u32, head_dim: u32) -> f64 {
    let share = f64::from(dimensions) / f64::from(head_dim);
    if (f64::from(head_dim) * share) as u32 == dimensions { share } else { share.next_up() }
}

/// `rope_scaling`, if the rotation is scaled.
fn scaling(keys: &Keys<'_>) -> Result<Option<ConfigObject>, ModelError> {
    let factor = match keys.opt_number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // Older files
        None => keys.opt_number("rope.scale_linear")?,
    };
    let named = keys.opt_text("rope.scaling.type")?;
    let (short, long) = (factors(keys, SHORT_FACTORS)?, factors(keys, LONG_FACTORS)?);
    let mut scaling = ConfigObject::default();
    let numbers: &[(&str, &str)] = match (short, long, named) {
        (Some(short), Some(long), None | Some("none" | "linear" | "longrope")) => {
            scaling.set("rope_type", "longrope");
            scaling.set("short_factor", short);
            scaling.set("long_factor", long);
            &[("rope.scaling.attn_factor", "attention_factor")]
        }
        (None, None, Some("yarn")) => {
            scaling.set("rope_type", "yarn");
            // llama.cpp's other factor is 1, like `mscale` of the models that have one.
            if let Some(all) = keys.opt_number("rope.scaling.yarn_log_multiplier")?.filter(|all| *all != 0.0)
            {
                scaling.set("mscale", 1.0);
                scaling.set("mscale_all_dim", f64::from(all));
            }
            &[
                ("rope.scaling.factor", "factor"),
                ("rope.scaling.yarn_attn_factor", "attention_factor"),
                ("rope.scaling.yarn_beta_fast", "beta_fast"),
                ("rope.scaling.yarn_beta_slow", "beta_slow"),
            ]
        }
        // A factor of 0 stands for none.
        (None, None, None | Some("linear")) => match factor {
            None | Some(0.0 | 1.0) => return Ok(None),
            Some(factor) => {
                scaling.set("rope_type", "linear");
                scaling.set("factor", f64::from(factor));
                &[]
            }
        },
        (None, None, Some("none")) => {
            keys.leave_out(&["rope.scaling.original_context_length"]);
            return Ok(None);
        }
        (None, None, Some("longrope")) => {
            return Err(keys.refuse("rope.scaling.type", "tensors of factors beside `longrope`"));
        }
        (short, long, Some("yarn" | "longrope") | None) if short.is_some() != long.is_some() => {
            return Err(keys.refuse("rope.scaling.type", "both lists of factors, or none"));
        }
        _ => return Err(keys.refuse("rope.scaling.type", "`none`, `linear`, `yarn` or `longrope`")),
    };
    for (name, key) in numbers {
        if let Some(number) = keys.opt_number(name)? {
            scaling.set(key, f64::from(number));
        }
    }
    if let Some(context) = keys.opt_count("rope.scaling.original_context_length")? {
        scaling.set("original_max_position_embeddings", context);
    }
    Ok(Some(scaling))
}

/// Factors of a rotation, if the file has them: at most one for every two values of a head.
fn factors(keys: &Keys<'_>, tensor: &str) -> Result<Option<Vec<f64>>, ModelError> {
    let values = keys.values(tensor, MAX_HEAD_DIM / 2)?;
    Ok(values.map(|values| values.into_iter().map(f64::from).collect()))
}
