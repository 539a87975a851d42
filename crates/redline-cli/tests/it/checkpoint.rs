//! Copies of the demo model on disk, for tests that corrupt them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The files of the demo model.
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");

/// A model directory that is deleted on drop.
pub(crate) struct Copy {
    folder: tempfile::TempDir,
}

/// A tensor of a safetensors file.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

impl Copy {
    /// A copy of the demo model.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy_to(folder.path());
        Self { folder }
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    /// The path of one of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Edits `config.json`.
    pub(crate) fn config(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let path = self.file("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(config.as_object_mut().unwrap());
        fs::write(path, config.to_string()).unwrap();
    }

    /// Edits the weights as a list of tensors.
    pub(crate) fn tensors(&self, change: impl FnOnce(&mut Vec<Tensor>)) {
        let path = self.file("model.safetensors");
        let mut tensors = read(&fs::read(&path).unwrap());
        change(&mut tensors);
        fs::write(path, written(&tensors)).unwrap();
    }

    /// Edits the weights as bytes.
    pub(crate) fn weights(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.file("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}

/// Copies the demo model into a folder.
pub(crate) fn copy_to(folder: &Path) {
    for name in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(Path::new(DEMO).join(name), folder.join(name)).unwrap();
    }
}

/// Parses the tensors of a safetensors file.
pub(crate) fn read(bytes: &[u8]) -> Vec<Tensor> {
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let tensor = |(name, entry): (&String, &Value)| {
        let number = |value: &Value| value.as_u64().unwrap();
        let [begin, end] = [0, 1].map(|at| number(&entry["data_offsets"][at]) as usize);
        Tensor {
            name: name.clone(),
            dtype: entry["dtype"].as_str().unwrap().to_owned(),
            shape: entry["shape"].as_array().unwrap().iter().map(number).collect(),
            bytes: data[begin..end].to_vec(),
        }
    };
    header.iter().filter(|(name, _)| *name != "__metadata__").map(tensor).collect()
}

/// Serializes tensors as a safetensors file.
pub(crate) fn written(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let begin = data.len();
        data.extend_from_slice(&tensor.bytes);
        let entry =
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, data.len()]});
        header.insert(tensor.name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// Finds the tensor of that name.
pub(crate) fn named<'a>(tensors: &'a mut [Tensor], name: &str) -> &'a mut Tensor {
    tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
}
