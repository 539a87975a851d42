//! What a configuration that was made from GGUF metadata says beyond the keys of transformers: the object `gguf`. A converted
//! directory has it in its `config.json`.

use redline_weights::ConfigFile;

use crate::ModelError;
use crate::spec::{DecoderSpec, FfnSpec, LayerSpec, NormKind, NormSpec, Orientation, PositionSpec};

/// The object. If it is present, the tensors are those of a GGUF file: the scale of a norm is stored as a whole, and outputs come
/// first in every linear layer.
pub(super) const KEY: &str = "gguf";
/// In the object: a list of numbers by which the inverse frequencies are divided.
pub(super) const FACTORS: &str = "rope_factors";

/// Adapts a specification to a configuration that was made from GGUF metadata; leaves any other as it is.
pub(crate) fn adapt(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let Some(gguf) = config.object(KEY)? else { return Ok(()) };
    spec.final_norm.iter_mut().for_each(whole);
    for layer in &mut spec.layers {
        let LayerSpec { attention, attention_norms, mlp, mlp_norms, .. } = layer;
        attention_norms.iter_mut().chain(mlp_norms.iter_mut()).for_each(whole);
        if let Some((query, key)) = &mut attention.head_norms {
            whole(query);
            whole(key);
        }
        let mut linears = vec![&mut attention.qkv, &mut attention.output];
        match mlp {
            FfnSpec::Dense(mlp) => linears.extend([&mut mlp.up, &mut mlp.down]),
            FfnSpec::Experts(mixture) => {
                linears.extend(mixture.experts.iter_mut().flat_map(|mlp| [&mut mlp.up, &mut mlp.down]));
            }
        }
        for linear in linears {
            linear.orientation = Orientation::OutIn;
            linear.parts.iter_mut().for_each(|part| part.stack = None);
        }
    }
    divide(&gguf, &mut spec.positions)
}

fn whole(norm: &mut NormSpec) {
    if norm.kind == NormKind::RmsPlusOne {
        norm.kind = NormKind::Rms;
    }
}

/// Divides the inverse frequencies by the factors, if there are some.
fn divide(gguf: &ConfigFile, positions: &mut PositionSpec) -> Result<(), ModelError> {
    let factors = gguf.numbers(FACTORS)?;
    if factors.is_empty() {
        return Ok(());
    }
    let PositionSpec::Rotary(rotations) = positions else {
        return Err(gguf.refuse(FACTORS, "no factors, since nothing is rotated").into());
    };
    let [rotation] = &mut rotations[..] else {
        return Err(gguf.refuse(FACTORS, "no factors, since layers have different rotations").into());
    };
    let frequencies = &mut rotation.inverse_frequencies;
    if factors.len() != frequencies.len() || !factors.iter().all(|factor| *factor > 0.0 && factor.is_finite())
    {
        return Err(gguf.refuse(FACTORS, format!("{} positive numbers", frequencies.len())).into());
    }
    for (frequency, factor) in frequencies.iter_mut().zip(factors) {
        *frequency /= factor;
    }
    Ok(())
}
