//! Adapters that are loaded and removed while the server runs, as vLLM has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::adapter::BASE;
use crate::json::limits::{MAX_ADAPTER_NAME, MAX_ADAPTER_PATH};
use crate::json::shape::schemas;

/// Asks to load an adapter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadAdapterBody {
    /// The name under which requests ask for it: letters, digits, `-`, `_`, `.` and `/`, and not `base`.
    #[schemars(with = "NewName")]
    pub lora_name: String,
    /// Its directory, below the server's directory of adapters: an absolute path, or one relative to that directory.
    #[schemars(with = "Directory")]
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

/// The name of an adapter that is loaded.
struct NewName;
/// The path of a directory.
struct Directory;

schemas! {
    // The engine takes the letters and digits of all languages.
    NewName: |_g| json!({
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ADAPTER_NAME,
        "pattern": r"^[\p{Alpha}\p{N}_./-]+$",
        "not": { "const": BASE }
    });
    Directory: |_g| json!({
        "type": "string", "minLength": 1, "maxLength": MAX_ADAPTER_PATH, "pattern": r"^[^\x00]+$"
    });
}
