//! The rotation of queries and keys: `rope_theta`, `rope_scaling` and `partial_rotary_factor`.

use redline_kernels::op::kv::MAX_HEAD_DIM;
use serde_json::{Map, Value, json};

use super::adapted;
use super::dialect::Keys;
use crate::ModelError;

/// Factors by which the inverse frequencies are divided.
pub(super) const FACTORS: &str = "rope_freqs.weight";
/// The same within the original context, and beyond it.
pub(super) const SHORT_FACTORS: &str = "rope_factors_short.weight";
pub(super) const LONG_FACTORS: &str = "rope_factors_long.weight";

/// llama.cpp's base if the file names none.
const DEFAULT_THETA: f32 = 10_000.0;

/// Sets the keys of the rotation.
pub(super) fn set(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let theta = keys.number_or("rope.freq_base", DEFAULT_THETA)?;
    keys.set("rope_theta", f64::from(theta));
    let head_dim = keys.head_dim()?;
    if let Some(rotated) = keys.opt_count("rope.dimension_count")?
        && rotated != head_dim
    {
        if rotated > head_dim {
            return Err(keys.refuse("rope.dimension_count", format!("at most {head_dim}, the values of a head")));
        }
        keys.set("partial_rotary_factor", share(rotated, head_dim));
    }
    if let Some(scaling) = scaling(keys)? {
        keys.set("rope_scaling", scaling);
    }
    if let Some(factors) = factors(keys, FACTORS)? {
        keys.set(adapted::KEY, json!({ adapted::FACTORS: factors }));
    }
    Ok(())
}

/// The share of a head that is rotated, of which `dimensions` is the whole part.
fn share(dimensions: u32, head_dim: u32) -> f64 {
    let share = f64::from(dimensions) / f64::from(head_dim);
    if (f64::from(head_dim) * share) as u32 == dimensions { share } else { share.next_up() }
}

/// `rope_scaling`, if the rotation is scaled.
fn scaling(keys: &Keys<'_>) -> Result<Option<Value>, ModelError> {
    let factor = match keys.opt_number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // Older files
        None => keys.opt_number("rope.scale_linear")?,
    };
    let named = keys.opt_text("rope.scaling.type")?;
    let (short, long) = (factors(keys, SHORT_FACTORS)?, factors(keys, LONG_FACTORS)?);
    let mut scaling = Map::new();
    let mut set = |key: &str, value: Value| scaling.insert(key.to_owned(), value);
    let numbers: &[(&str, &str)] = match (short, long, named) {
        (Some(short), Some(long), None | Some("none" | "linear" | "longrope")) => {
            set("rope_type", "longrope".into());
            set("short_factor", short.into());
            set("long_factor", long.into());
            &[("rope.scaling.attn_factor", "attention_factor")]
        }
        (None, None, Some("yarn")) => {
            set("rope_type", "yarn".into());
            // llama.cpp's other factor is 1, like `mscale` of the models that have one.
            if let Some(all) = keys.opt_number("rope.scaling.yarn_log_multiplier")?.filter(|all| *all != 0.0) {
                set("mscale", 1.0.into());
                set("mscale_all_dim", f64::from(all).into());
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
                set("rope_type", "linear".into());
                set("factor", f64::from(factor).into());
                &[]
            }
        },
        (None, None, Some("none")) => return Ok(None),
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
            set(key, f64::from(number).into());
        }
    }
    if let Some(context) = keys.opt_count("rope.scaling.original_context_length")? {
        set("original_max_position_embeddings", context.into());
    }
    Ok(Some(Value::Object(scaling)))
}

/// Factors of a rotation, if the file has them: at most one for every two values of a head.
fn factors(keys: &Keys<'_>, tensor: &str) -> Result<Option<Vec<f64>>, ModelError> {
    let values = keys.values(tensor, MAX_HEAD_DIM / 2)?;
    Ok(values.map(|values| values.into_iter().map(f64::from).collect()))
}
