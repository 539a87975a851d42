//! What a configuration that was made from GGUF metadata says beyond the keys of transformers: the object `gguf`. A converted
//! directory has it in its `config.json`.

use std::convert::Infallible;

use redline_weights::ConfigFile;

use crate::ModelError;
use crate::activation::ActivationName;
use crate::block::{Described, LinearRole, Map};
use crate::spec::{
    DecoderSpec, LinearSpec, NormKind, NormSpec, Orientation, PartSpec, PositionSpec, Role, TensorSpec,
};

/// The object. If it is present, the tensors are those of a GGUF file: the scale of a norm and the decay of a recurrence are stored as
/// a whole, and outputs come first in every linear layer.
pub(crate) const KEY: &str = "gguf";
/// In the object: a list of numbers by which the inverse frequencies are divided.
pub(super) const FACTORS: &str = "rope_factors";
/// In the object: whether neighbouring value heads of recurrences have different heads of keys.
pub(crate) const INTERLEAVED: &str = "interleaved_value_heads";

/// Whether a configuration was made from GGUF metadata.
pub(crate) fn is_gguf(config: &ConfigFile) -> Result<bool, ModelError> {
    Ok(config.object(KEY)?.is_some())
}

/// Adapts a specification to a configuration that was made from GGUF metadata; leaves any other as it is.
pub(crate) fn adapt(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let Some(gguf) = config.object(KEY)? else { return Ok(()) };
    spec.final_norm.iter_mut().for_each(|norm| *norm = whole(norm));
    for layer in &mut spec.layers {
        let Ok(stored) = layer.map(&mut Stored);
        *layer = stored;
    }
    divide(&gguf, &mut spec.positions)
}

/// The elements of a layer as GGUF files store them.
struct Stored;

impl<'a> Map<'a, Described, Described> for Stored {
    type Error = Infallible;

    fn linear(&mut self, linear: &'a LinearSpec, _: LinearRole) -> Result<LinearSpec, Infallible> {
        let part = |part: &PartSpec| PartSpec { stack: None, ..part.clone() };
        let parts = linear.parts.iter().map(part).collect();
        Ok(LinearSpec { inputs: linear.inputs, orientation: Orientation::OutIn, parts })
    }

    fn norm(&mut self, norm: &'a NormSpec, _: ActivationName, _: &str) -> Result<NormSpec, Infallible> {
        Ok(whole(norm))
    }

    fn values(&mut self, values: &'a TensorSpec, _: &str) -> Result<TensorSpec, Infallible> {
        let role = if values.role == Role::LogDecay { Role::Decay } else { values.role };
        Ok(TensorSpec { role, ..values.clone() })
    }
}

fn whole(norm: &NormSpec) -> NormSpec {
    let kind = if norm.kind == NormKind::RmsPlusOne { NormKind::Rms } else { norm.kind };
    NormSpec { kind, ..norm.clone() }
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
