//! Adds a LoRA adapter to the weights of a model, as `redline adapter merge` does. Both are safetensors in bf16.

use redline_weights::{Checkpoint, f32_to_bf16_rne};
use serde::Deserialize;

/// `adapter_config.json`, as far as it is used here.
#[derive(Deserialize)]
struct Config {
    r: f32,
    lora_alpha: f32,
}

fn values(of: &Checkpoint, name: &str) -> Option<Vec<f32>> {
    let mut values = vec![0.0; of.info(name)?.elements()];
    of.read_f32(name, &mut values).ok()?;
    Some(values)
}

/// The model with `W + alpha / r * B A` in place of every adapted weight W, computed in f32 and rounded once.
pub(crate) fn merged(model: &'static [u8], adapter: &'static [u8], config: &[u8]) -> Option<Vec<u8>> {
    let Config { r, lora_alpha } = serde_json::from_slice(config).ok()?;
    let weights = Checkpoint::from_bytes("model.safetensors", model).ok()?;
    let parts = Checkpoint::from_bytes("adapter_model.safetensors", adapter).ok()?;
    let mut merged = model.to_vec();
    for name in parts.names() {
        let Some(module) = name.strip_suffix(".lora_A.weight") else { continue };
        let weight = weights.info(&format!("{}.weight", module.strip_prefix("base_model.model.")?))?;
        let [_, inputs] = weight.shape[..] else { return None };
        let (a, b) = (values(&parts, name)?, values(&parts, &format!("{module}.lora_B.weight"))?);
        let mut sums = values(&weights, &weight.name)?;
        for (row, factors) in sums.chunks_exact_mut(inputs).zip(b.chunks_exact(a.len() / inputs)) {
            let mut update = vec![0f32; inputs];
            for (factor, of_rank) in factors.iter().zip(a.chunks_exact(inputs)) {
                update.iter_mut().zip(of_rank).for_each(|(sum, value)| *sum += factor * value);
            }
            row.iter_mut().zip(update).for_each(|(value, update)| *value += lora_alpha / r * update);
        }
        let place = merged.get_mut(usize::try_from(weight.offset()).ok()?..)?.chunks_exact_mut(2);
        place.zip(sums).for_each(|(to, sum)| to.copy_from_slice(&f32_to_bf16_rne(sum).to_le_bytes()));
    }
    Some(merged)
}
