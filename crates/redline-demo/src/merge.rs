//! Adds a LoRA adapter to the weights of a model. Both are safetensors in bf16, with adapters named as PEFT names them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

/// What a header says of a tensor.
#[derive(Deserialize)]
struct Tensor {
    shape: Vec<usize>,
    /// Where its bytes are, in the header counted from its end.
    data_offsets: [usize; 2],
}

impl Tensor {
    fn place(&self) -> Range<usize> {
        self.data_offsets[0]..self.data_offsets[1]
    }
}

/// `adapter_config.json`, as far as it is used here.
#[derive(Deserialize)]
struct Config {
    r: f32,
    lora_alpha: f32,
}

/// The tensors of a file by name, with their places in it.
fn tensors(file: &[u8]) -> Option<BTreeMap<String, Tensor>> {
    let length = usize::try_from(u64::from_le_bytes(file.get(..8)?.try_into().ok()?)).ok()?;
    let data = 8 + length;
    let mut header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(file.get(8..data)?).ok()?;
    header.remove("__metadata__");
    let tensor = |(name, value)| {
        let mut tensor: Tensor = serde_json::from_value(value).ok()?;
        tensor.data_offsets = tensor.data_offsets.map(|offset| data + offset);
        Some((name, tensor))
    };
    header.into_iter().map(tensor).collect()
}

fn values(bytes: &[u8]) -> Vec<f32> {
    let value = |pair: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
    bytes.chunks_exact(2).map(value).collect()
}

/// To the nearest bf16, ties to even.
fn rounded(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    (((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16).to_le_bytes()
}

/// The model with `W + alpha / r * B A` in place of every adapted weight W, computed in f32 and rounded once.
pub(crate) fn merged(model: &[u8], adapter: &[u8], config: &[u8]) -> Option<Vec<u8>> {
    let Config { r, lora_alpha } = serde_json::from_slice(config).ok()?;
    let (weights, parts) = (tensors(model)?, tensors(adapter)?);
    let mut merged = model.to_vec();
    for (name, left) in &parts {
        let Some(module) = name.strip_suffix(".lora_A.weight") else { continue };
        let [rank, inputs] = left.shape[..] else { return None };
        let right = parts.get(&format!("{module}.lora_B.weight"))?;
        let weight = weights.get(&format!("{}.weight", module.strip_prefix("base_model.model.")?))?;
        let (a, b) = (values(adapter.get(left.place())?), values(adapter.get(right.place())?));
        let weight = merged.get_mut(weight.place())?;
        for (row, factors) in weight.chunks_exact_mut(2 * inputs).zip(b.chunks_exact(rank)) {
            let mut update = vec![0f32; inputs];
            for (factor, of_rank) in factors.iter().zip(a.chunks_exact(inputs)) {
                update.iter_mut().zip(of_rank).for_each(|(sum, value)| *sum += factor * value);
            }
            let before = values(row);
            for ((to, value), update) in row.chunks_exact_mut(2).zip(before).zip(update) {
                to.copy_from_slice(&rounded(value + lora_alpha / r * update));
            }
        }
    }
    Some(merged)
}
