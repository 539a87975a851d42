//! Mixtral (Jiang et al. 2024): Mistral whose feed-forward parts are mixtures of experts.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family::{self, Options};
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, WeightingSpec};

/// In `config.json`: `MixtralForCausalLM`. llama.cpp stores its models as those of Llama.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "MixtralForCausalLM", model_type: "mixtral", spec, gguf: None };

const NAMES: Names = Names { module: "block_sparse_moe", gate: "w1", up: "w3", down: "w2" };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(
        config,
        &["sliding_window", "rope_scaling", "rope_parameters", "num_local_experts"],
    )?;
    // In the reference these default to the values of Mixtral 8x7B.
    family::require(config, &["num_key_value_heads", "num_local_experts", "num_experts_per_tok"])?;
    let window = family::sliding_window(config)?;
    let options = Options {
        windows: family::windows(config, window, |_| true)?,
        default_eps: 1e-5,
        rotary: Rules { default_theta: 1e6, ..Rules::default() },
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    let inner = family::positive(config, "intermediate_size")?;
    let counts = experts::counts(config, &["num_local_experts"])?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        layer.mlp = experts::mixture(
            i,
            (spec.hidden, inner),
            counts,
            WeightingSpec::Softmax { normalise: true, factors: None },
            NAMES,
        );
    }
    Ok(spec)
}

/// Files of llama.cpp, which call it `llama`.
pub(super) fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.rename(ARCHITECTURE.name, ARCHITECTURE.model_type);
    keys.copy_counts(&[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")])?;
    keys.set_common()
}
