//! The manifest of plans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Finite;

/// Every plan of a model with given settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `plan_manifest`.
    pub object: String,
    /// The model's name.
    pub model: String,
    /// The tier and formats that run.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Logical devices.
    pub tp: usize,
    /// The plans.
    pub plans: Vec<ManifestEntry>,
    /// What they took.
    pub counters: ManifestCounters,
    /// Seconds of loading the model.
    pub load_s: Finite<f64>,
    /// Seconds of having every plan.
    pub precompile_s: Finite<f64>,
}

/// One plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Its name, such as `pass/128`.
    pub plan: String,
    /// `stored`, `measured` or `estimated`.
    pub origin: String,
    /// The variant of each layer.
    pub choices: BTreeMap<String, String>,
    /// What its layers take as estimated over what they take as planned, where that was measured now.
    pub gain: Option<Finite<f64>>,
    /// Bytes of activations that such a pass takes.
    pub activation_bytes: u64,
    /// Seconds of having it.
    pub seconds: Finite<f64>,
}

/// What plans took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestCounters {
    /// Times that a plan was wanted and not there.
    pub misses: u64,
    /// Plans made by measuring.
    pub compiles: u64,
    /// Runs of a layer that were timed for them.
    pub measurements: u64,
    /// Plans read from disk.
    pub loads: u64,
}
