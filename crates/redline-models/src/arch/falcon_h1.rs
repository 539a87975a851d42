//! Falcon-H1 (TII 2025): attention and Mamba-2 side by side in every layer, and factors on most activations.

use redline_kernels::op::activation::Gating;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bamba::{self, DEFAULT_EPS};
use super::granite::factor;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::adapted;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::mamba2::{self, Mamba2Keys, Mamba2Names};
use crate::spec::{DecoderSpec, FfnSpec, Mamba2Spec, MixerSpec, ParallelSpec};

/// In `config.json`: `FalconH1ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "FalconH1ForCausalLM", model_type: "falcon_h1", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("falcon-h1", gguf);

const KEYS: &[&str] = &["attention_bias", "rope_scaling", "rope_parameters", "embedding_multiplier"];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    family::require(config, &["num_key_value_heads"])?;
    let bias = config.bool_or("attention_bias", false)?;
    let options =
        Options { qkv_bias: bias, output_bias: bias, default_eps: DEFAULT_EPS, ..Options::default() };
    let mut spec = family::decoder(config, &options)?;
    bamba::set_names(config, &mut spec)?;
    let input = factor(config, "attention_in_multiplier")?;
    if bias && input != 1.0 {
        return Err(config.refuse("attention_in_multiplier", "`1` beside `attention_bias`").into());
    }
    spec.embedding_scale = factor(config, "embedding_multiplier")?;
    spec.logits.scale = factor(config, "lm_head_multiplier")?;
    // The factor on the input of attention is applied later: for queries and for keys in the scale of the logits, for values in that of the
    // output.
    let scale = input * input * factor(config, "key_multiplier")?;
    let attention_scale = input * factor(config, "attention_out_multiplier")?;
    let recurrence_scale = factor(config, "ssm_out_multiplier")?;
    let [gate_scale, mlp_scale] = factors(config, "mlp_multipliers")?;
    let recurrence = Recurrence::read(config, spec.hidden)?;
    spec.attentions_mut().for_each(|attention| attention.scale *= scale);
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let MixerSpec::Attention(attention) = std::mem::replace(&mut layer.mixer, MixerSpec::None) {
            let recurrence = recurrence.layer(i);
            let both = ParallelSpec { attention, attention_scale, recurrence, recurrence_scale };
            layer.mixer = MixerSpec::Parallel(Box::new(both));
        }
        if let FfnSpec::Dense(mlp) = &mut layer.mlp {
            mlp.gate = Some(Gating::ScaledSilu(gate_scale));
        }
        layer.residual.mlp_scale = mlp_scale;
    }
    spec.holds_factors = adapted::is_gguf(config)?;
    Ok(spec)
}

/// Reads a list of factors, 1 if the key is absent.
fn factors<const N: usize>(config: &ConfigFile, key: &str) -> Result<[f32; N], ModelError> {
    let factors: Vec<f32> = config.numbers(key)?.into_iter().map(|factor| factor as f32).collect();
    if factors.is_empty() {
        return Ok([1.0; N]);
    }
    let all = <[f32; N]>::try_from(factors).ok();
    let is_factor = |factor: &f32| *factor > 0.0 && factor.is_finite();
    let all = all.filter(|all| all.iter().all(is_factor));
    Ok(all.ok_or_else(|| config.refuse(key, format!("{N} positive numbers")))?)
}

/// What Mamba-2 has in common in all layers.
struct Recurrence {
    keys: Mamba2Keys,
    /// Factors on z, x, B, C and dt.
    scales: [f32; 5],
    has_norm: bool,
    gates_normed: bool,
    has_output_bias: bool,
}

impl Recurrence {
    fn read(config: &ConfigFile, hidden: usize) -> Result<Self, ModelError> {
        const WIDTH: &str = "mamba_d_ssm";
        let keys = match config.opt_usize(WIDTH)? {
            Some(_) => {
                let width = (family::positive(config, WIDTH)?, "`mamba_d_ssm`");
                Mamba2Keys::of_width(config, hidden, width, DEFAULT_EPS)?
            }
            None => Mamba2Keys::read(config, hidden, DEFAULT_EPS)?,
        };
        let (input, scales) = (factor(config, "ssm_in_multiplier")?, factors(config, "ssm_multipliers")?);
        if config.bool_or("mamba_proj_bias", false)? && input != 1.0 {
            return Err(config.refuse("ssm_in_multiplier", "`1` beside `mamba_proj_bias`").into());
        }
        Ok(Self {
            keys,
            scales: scales.map(|scale: f32| input * scale),
            has_norm: config.bool_or("mamba_rms_norm", false)?,
            gates_normed: config.bool_or("mamba_norm_before_gate", true)?,
            has_output_bias: config.bool_or("projectors_bias", false)?,
        })
    }

    fn layer(&self, layer: usize) -> Mamba2Spec {
        let mut spec = self.keys.layer(layer);
        spec.scales = self.scales;
        spec.norm = spec.norm.filter(|_| self.has_norm);
        spec.gates_normed = self.gates_normed;
        spec.output.parts.iter_mut().for_each(|part| part.bias = self.has_output_bias);
        spec
    }
}

/// llama.cpp's converter multiplies weights by the factors, and gates come before the norm.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    let width = mamba2::set_keys(keys, Mamba2Names::BAMBA, 0)?;
    keys.config().set("mamba_d_ssm", width);
    keys.config().set("mamba_norm_before_gate", false);
    keys.set_presence("mamba_rms_norm", "blk.0.ssm_norm.weight");
    keys.set_presence("projectors_bias", "blk.0.ssm_out.bias");
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    Ok(())
}
