//! Random adapters, written as PEFT directories: serving can be measured without a trained one.

use std::path::Path;

use redline_weights::{DirWriter, Dtype, TensorDeclaration};

use crate::ModelError;
use crate::spec::{DecoderSpec, Role, TensorSpec};
use crate::synth::write_tensor;

/// The factor on `B A`, with which it is about as large as weights of a model.
const SCALING: usize = 32;

/// Writes an adapter with random matrices, in bf16, for all linear layers of the model's layers that adapters can change to `dir`,
/// which must not exist or be empty. Values are a function of tensor name, shape and seed.
///
/// # Errors
/// The files cannot be written.
pub fn synth(spec: &DecoderSpec, rank: usize, seed: u64, dir: &Path) -> Result<(), ModelError> {
    let mut tensors = Vec::new();
    // Whole paths, because the head may have the last name of a layer's module.
    let mut targets = Vec::new();
    for layer in &spec.layers {
        for (site, linear) in layer.adaptable() {
            let parts = linear.parts.iter().enumerate();
            for (_, part) in parts.filter(|(index, _)| !spec.is_used_at_load(site, *index)) {
                targets.push(format!("\"{}\"", spec.prefixed(&part.name)));
                let path = format!("base_model.model.{}", spec.prefixed(&part.name));
                for (end, shape) in [("A", vec![rank, linear.inputs]), ("B", vec![part.outputs, rank])] {
                    let name = format!("{path}.lora_{end}.weight");
                    tensors.push(TensorSpec { name, shape, role: Role::Weight, stored: None });
                }
            }
        }
    }
    let config = format!(
        "{{\n  \"peft_type\": \"LORA\",\n  \"r\": {rank},\n  \"lora_alpha\": {},\n  \"target_modules\": [{}]\n}}\n",
        rank * SCALING,
        targets.join(", ")
    );
    let declared: Vec<TensorDeclaration> = tensors
        .iter()
        .map(|tensor| TensorDeclaration::new(&tensor.name, Dtype::BF16, tensor.shape.clone()))
        .collect();
    let mut out = DirWriter::create(dir)?;
    out.write("adapter_config.json", config.as_bytes())?;
    out.safetensors("adapter_model.safetensors", &declared, |writer| {
        tensors.iter().try_for_each(|tensor| write_tensor(writer, tensor, seed, &mut |_| Ok(())))
    })?;
    Ok(out.finish()?)
}
