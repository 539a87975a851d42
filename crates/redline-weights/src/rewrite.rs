//! Writes a checkpoint again with other values: the same names, types and shapes, in the same files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::checkpoint::{Checkpoint, weight_layouts};
use crate::directory::DirWriter;
use crate::error::{Result, WeightsError};
use crate::file::{FileWriter, exists};
use crate::safetensors::TensorInfo;
use crate::write::{SafetensorsWriter, TensorDeclaration};

/// Writes one tensor of a file.
pub type TensorWriter<'a> = SafetensorsWriter<&'a mut FileWriter>;

const INDEX: &str = "model.safetensors.index.json";

impl Checkpoint {
    /// Writes all tensors into `dir`: file by file, with an index if this checkpoint has one. `write` writes the whole tensor that
    /// it is given.
    ///
    /// Files of PyTorch become safetensors files: `pytorch_model-00001-of-00002.bin` becomes `model-00001-of-00002.safetensors`.
    pub fn rewrite<E: From<WeightsError>>(
        &self,
        dir: &mut DirWriter,
        mut write: impl FnMut(&TensorInfo, &mut TensorWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let index = self.index()?;
        let mut map = BTreeMap::new();
        for (file, tensors) in self.files() {
            let name = if index.is_some() { file_name(file) } else { "model.safetensors".to_owned() };
            let declare = |info: &&TensorInfo| {
                TensorDeclaration::new(info.name.clone(), info.dtype, info.shape.clone())
            };
            let declarations: Vec<_> = tensors.iter().map(declare).collect();
            dir.fill_safetensors(&name, &declarations, |writer| {
                tensors.iter().try_for_each(|info| write(info, writer))
            })?;
            map.extend(tensors.iter().map(|info| (info.name.as_str(), name.clone())));
        }
        match index {
            None => Ok(()),
            Some(name) if name == INDEX => Ok(dir.copy_file(&self.origin().join(name))?),
            Some(_) => {
                let tensors = map.keys().filter_map(|name| self.info(name));
                let size: u64 = tensors.map(TensorInfo::bytes).sum();
                let index = json!({"metadata": {"total_size": size}, "weight_map": map});
                Ok(dir.write(INDEX, format!("{index:#}\n").as_bytes())?)
            }
        }
    }

    /// The name of the index, if the tensors are in several files.
    fn index(&self) -> Result<Option<&'static str>> {
        for (name, has_shards) in weight_layouts() {
            if exists(&self.origin().join(name))? {
                return Ok(has_shards.then_some(name));
            }
        }
        Ok(None)
    }
}

/// The name of the safetensors file in place of a shard.
fn file_name(shard: &Path) -> String {
    let name = shard.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(".bin") {
        None => name.into_owned(),
        Some(stem) => format!("{}.safetensors", stem.strip_prefix("pytorch_").unwrap_or(stem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_pytorch_become_safetensors_files() {
        let name = |shard: &str| file_name(&Path::new("model").join(shard));
        assert_eq!(name("model-00001-of-00002.safetensors"), "model-00001-of-00002.safetensors");
        assert_eq!(name("pytorch_model-00001-of-00002.bin"), "model-00001-of-00002.safetensors");
        assert_eq!(name("part.bin"), "part.safetensors");
    }
}
