//! What `redline adapter inspect` reports.

use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;
use crate::json::version::SchemaVersion;

/// The contents of an adapter directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterInspection {
    /// Always `adapter`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The directory.
    pub adapter: String,
    /// Name or path of the model that it was trained on, as the configuration has it.
    pub base_model: Option<String>,
    /// Whether updates are scaled by alpha over the root of the rank.
    pub rslora: bool,
    /// Whether the adapted weights are rescaled.
    pub dora: bool,
    /// Number of adapted modules.
    pub modules: usize,
    /// Values of A, B and magnitudes.
    pub parameters: u64,
    /// Bytes of the tensors in the file, with copies of base weights.
    pub bytes: u64,
    /// Types of the tensors, each once.
    pub dtypes: Vec<String>,
    /// A hash of the tensors, and of the ranks and factors of their modules.
    pub digest: String,
    /// The adapted modules: those with one name and equal shapes together.
    pub targets: Vec<AdapterTarget>,
    /// How it fits the model that was named.
    pub fit: Option<AdapterModelFit>,
}

/// Modules of one name, rank, scaling and shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterTarget {
    /// The last part of their paths, such as `q_proj`.
    pub name: String,
    /// Number of modules.
    pub modules: usize,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The numerator of the scaling.
    pub alpha: Finite<f64>,
    /// The factor on B A.
    pub scaling: Finite<f32>,
    /// Number of inputs of a module; of an embedding, the size of the vocabulary.
    pub inputs: usize,
    /// Number of outputs of a module.
    pub outputs: usize,
    /// Values of A, B and magnitudes of all modules.
    pub parameters: u64,
    /// Bytes of all modules in the file.
    pub bytes: u64,
    /// Types of the tensors, each once.
    pub dtypes: Vec<String>,
}

/// An adapter beside a model that it fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterModelFit {
    /// The model's name.
    pub model: String,
    /// The format of its weights.
    pub format: String,
    /// Bytes that the adapter takes in memory beside them.
    pub memory_bytes: u64,
}
