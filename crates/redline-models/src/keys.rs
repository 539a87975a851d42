//! Configuration keys that change the result in some family: an architecture must honour them or is refused.
//!
//! A key that is absent, null or neutral changes nothing. An architecture lists the keys that it honours.

use redline_weights::{ConfigFile, WeightsError};

/// The value with which a key changes nothing.
enum Neutral {
    False,
    True,
    Number(f64),
    /// Only absent or null.
    Absent,
}
use Neutral::{Absent, False, Number, True};

/// Every such key that published configurations of decoder families carry.
const SENSITIVE: &[(&str, Neutral)] = &[
    ("attention_bias", False),
    ("mlp_bias", False),
    ("use_sliding_window", False),
    ("sliding_window", Absent),
    ("layer_types", Absent),
    ("rope_scaling", Absent),
    ("rope_parameters", Absent),
    ("quantization_config", Absent),
    ("auto_map", Absent),
    ("partial_rotary_factor", Number(1.0)),
    ("rotary_pct", Number(1.0)),
    ("rope_interleaved", False),
    ("use_mrope", False),
    ("attention_multiplier", Absent),
    ("attention_scale", Absent),
    ("query_pre_attn_scalar", Absent),
    ("embedding_multiplier", Number(1.0)),
    ("residual_multiplier", Number(1.0)),
    ("logits_scaling", Number(1.0)),
    ("logit_scale", Number(1.0)),
    ("attn_logit_softcapping", Absent),
    ("final_logit_softcapping", Absent),
    ("clip_qkv", Absent),
    ("qk_layernorm", False),
    ("use_qk_norm", False),
    ("use_bias", False),
    ("no_rope_layers", Absent),
    ("no_rope_layer_interval", Absent),
    ("num_local_experts", Number(0.0)),
    ("num_experts", Number(0.0)),
    ("moe_intermediate_size", Absent),
    ("shared_expert_intermediate_size", Number(0.0)),
    ("n_routed_experts", Number(0.0)),
    ("n_shared_experts", Number(0.0)),
    ("routed_scaling_factor", Number(1.0)),
    ("scale_attn_by_inverse_layer_idx", False),
    ("reorder_and_upcast_attn", False),
    ("add_cross_attention", False),
    ("is_encoder_decoder", False),
    ("is_decoder", False),
    ("is_causal", True),
    ("attention_chunk_size", Absent),
    ("use_bidirectional_attention", False),
];

/// Refuses every sensitive key that is set and not in `honoured`.
pub(crate) fn refuse_unknown(config: &ConfigFile, honoured: &[&str]) -> Result<(), WeightsError> {
    for (key, neutral) in SENSITIVE {
        if honoured.contains(key) || !config.keys().any(|k| k == *key) {
            continue;
        }
        let (is_neutral, supported) = match neutral {
            False => (matches!(config.opt_bool(key), Ok(None | Some(false))), "`false`".to_owned()),
            True => (matches!(config.opt_bool(key), Ok(None | Some(true))), "`true`".to_owned()),
            Number(n) => {
                (matches!(config.opt_f64(key), Ok(x) if x.is_none_or(|x| x == *n)), format!("`{n}`"))
            }
            // Any value that is not null fails to read as a bool, or is one.
            Absent => (matches!(config.opt_bool(key), Ok(None)), "`null`".to_owned()),
        };
        if !is_neutral {
            return Err(config.refuse(key, format!("{supported} (for this architecture)")));
        }
    }
    Ok(())
}
