//! Adapters that are loaded and removed while the server runs, as vLLM has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_ADAPTER_NAME;

/// Asks to load an adapter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadAdapterBody {
    /// The name under which requests ask for it.
    #[schemars(length(min = 1, max = MAX_ADAPTER_NAME))]
    pub lora_name: String,
    /// Its directory.
    #[schemars(length(min = 1))]
    pub lora_path: String,
    /// Whether it replaces an adapter of this name; otherwise such an adapter is an error.
    pub load_inplace: Option<bool>,
}

/// Asks to remove an adapter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnloadAdapterBody {
    /// Its name.
    pub lora_name: String,
}

/// The adapters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AdapterList {
    /// Always `list`.
    pub object: &'static str,
    /// The adapters by name.
    pub data: Vec<AdapterEntry>,
}

/// An adapter.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AdapterEntry {
    /// The name under which requests ask for it.
    pub id: String,
    /// Always `adapter`.
    pub object: &'static str,
    /// Number of its publication: it grows whenever an adapter is loaded.
    pub generation: u64,
    /// Bytes in memory; 0 while it is evicted.
    pub bytes: u64,
    /// Whether it is in memory. One that is not is read again when a request needs it.
    pub loaded: bool,
}
