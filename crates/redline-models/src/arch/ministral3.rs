//! Ministral 3 (Mistral AI 2025), text only: Mistral with YaRN, and queries that grow with their position.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, PositionSpec, QueryGrowth};

/// In `config.json`: `Ministral3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Ministral3ForCausalLM", model_type: "ministral3", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("mistral3", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["sliding_window", "rope_parameters"])?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    // Without this object, the reference has the values of one published model.
    let Some(parameters) = config.object("rope_parameters")? else {
        return Err(config.refuse("rope_parameters", "an object").into());
    };
    let options = Options {
        windows: family::windows(config, family::sliding_window(config)?, |_| true)?,
        default_eps: 1e-5,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    if let Some(beta) = parameters.opt_f64("llama_4_scaling_beta")? {
        let key = "original_max_position_embeddings";
        let context = parameters.f64(key)?;
        if !(context >= 1.0 && context.is_finite()) {
            return Err(parameters.refuse(key, "a number of at least 1").into());
        }
        if let PositionSpec::Rotary(rotations) = &mut spec.positions {
            rotations[0].query_growth = Some(QueryGrowth { beta, context });
        }
    }
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    let theta = keys.config().remove("rope_theta");
    let mut parameters = keys.config().take_object("rope_scaling").unwrap_or_default();
    if let Some(theta) = theta {
        parameters.set("rope_theta", theta);
    }
    if let Some(beta) = keys.opt_number("attention.temperature_scale")?.filter(|beta| *beta != 0.0) {
        parameters.set("llama_4_scaling_beta", f64::from(beta));
    }
    keys.config().set("rope_parameters", parameters);
    Ok(())
}
