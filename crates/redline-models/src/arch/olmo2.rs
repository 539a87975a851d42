//! OLMo 2 (OLMo Team 2024): norms of the outputs of attention and of the feed-forward part instead of their inputs, and norms over all
//! queries and all keys.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, NormSpec, NormsSpec};

/// In `config.json`: `Olmo2ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Olmo2ForCausalLM", model_type: "olmo2", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("olmo2", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["attention_bias", "rope_scaling", "rope_parameters"])?;
    let mut spec = family::decoder(config, &options(config)?)?;
    norm_outputs(&mut spec);
    Ok(spec)
}

/// OLMo 3 has this name, too; its layers have windows.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    let slides = keys.slides(4)?;
    if let Some(window) = keys.opt_count("attention.sliding_window")?.filter(|window| *window > 0) {
        keys.config().set("architectures", vec!["Olmo3ForCausalLM"]);
        keys.config().set("model_type", "olmo3");
        keys.config().set("sliding_window", window);
        keys.set_layer_types(&slides);
        keys.set_local_rotation(None)?;
    }
    Ok(())
}

/// The options of OLMo 2 and 3.
pub(super) fn options(config: &ConfigFile) -> Result<Options, ModelError> {
    let bias = config.bool_or("attention_bias", false)?;
    Ok(Options {
        qkv_bias: bias,
        output_bias: bias,
        head_norms: HeadNorms::Whole,
        default_eps: 1e-5,
        ..Options::default()
    })
}

/// Moves the norms to the outputs.
pub(super) fn norm_outputs(spec: &mut DecoderSpec) {
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        let after = |name| {
            let like = |norm: &NormSpec| NormSpec { name: format!("layers.{i}.{name}"), ..norm.clone() };
            NormsSpec { after: spec.final_norm.as_ref().map(like), ..NormsSpec::default() }
        };
        layer.mixer_norms = after("post_attention_layernorm");
        layer.mlp_norms = after("post_feedforward_layernorm");
    }
}
