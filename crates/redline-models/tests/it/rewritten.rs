//! Copies of checkpoints with other values.

use std::path::Path;

use redline_weights::{Checkpoint, DirWriter, Dtype, TensorDeclaration};
use serde_json::Value;

use crate::reference::config_in;

/// A tensor of f32 values.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Tensor {
    /// A tensor whose values are all one.
    pub(crate) fn ones(name: &str, shape: &[usize]) -> Self {
        let values = vec![1.0; shape.iter().product()];
        Self { name: name.to_owned(), shape: shape.to_vec(), values }
    }
}

/// Writes a copy of a checkpoint of f32 tensors, with another configuration and other tensors. Buffers of integers are left out.
pub(crate) fn rewrite(dir: &Path, to: &Path, change: impl FnOnce(&mut Value, &mut Vec<Tensor>)) {
    let mut config = config_in(dir);
    let checkpoint = Checkpoint::open(dir).unwrap();
    let mut tensors = Vec::new();
    for name in checkpoint.names().filter(|name| !name.ends_with("position_ids")) {
        let shape = checkpoint.info(name).unwrap().shape.clone();
        let mut tensor = Tensor::ones(name, &shape);
        checkpoint.read_f32(name, &mut tensor.values).unwrap();
        tensors.push(tensor);
    }
    change(&mut config, &mut tensors);
    let declare = |it: &Tensor| TensorDeclaration::new(it.name.clone(), Dtype::F32, it.shape.clone());
    let declared: Vec<_> = tensors.iter().map(declare).collect();
    let mut writer = DirWriter::create(to).unwrap();
    writer.write("config.json", config.to_string().as_bytes()).unwrap();
    let written = writer.safetensors("model.safetensors", &declared, |out| {
        tensors.iter().try_for_each(|tensor| out.write_f32(&tensor.values))
    });
    written.unwrap();
    writer.finish().unwrap();
}
