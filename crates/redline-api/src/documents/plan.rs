//! The manifest of plans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;
use crate::json::version::SchemaVersion;

/// All plans of a model with given settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `plan_manifest`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// The tier and formats that are used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Number of logical devices.
    pub tp: usize,
    /// The plans.
    pub plans: Vec<ManifestEntry>,
    /// Counters of the plan store.
    pub counters: ManifestCounters,
    /// Seconds to load the model.
    pub load_s: Finite<f64>,
    /// Seconds to load or make all plans.
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
    /// Time of the layers with estimated choices over their time with planned choices, if it was measured in this
    /// run.
    pub gain: Option<Finite<f64>>,
    /// Bytes of activations in a pass of this size.
    pub activation_bytes: u64,
    /// Seconds to load or make this plan.
    pub seconds: Finite<f64>,
}

/// Counters of the plan store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestCounters {
    /// Number of lookups that found no plan.
    pub misses: u64,
    /// Plans made by measuring.
    pub compiles: u64,
    /// Number of timed runs of a layer while plans were measured.
    pub measurements: u64,
    /// Plans read from disk.
    pub loads: u64,
}
