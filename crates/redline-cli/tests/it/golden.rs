//! Golden checkpoints and adapters.

use std::fs;

/// The directory of golden values.
pub(crate) const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");

/// The directory of a checkpoint.
pub(crate) fn golden(name: &str) -> String {
    format!("{GOLDEN}/{name}")
}

/// The directory of an adapter.
pub(crate) fn adapter(name: &str) -> String {
    format!("{GOLDEN}/adapters/{name}")
}

/// Every adapter with its base.
pub(crate) fn adapters() -> Vec<(String, String)> {
    let manifest = fs::read(format!("{GOLDEN}/adapters/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let of = |(name, facts): (&String, &serde_json::Value)| {
        (name.clone(), facts["base"].as_str().unwrap().to_owned())
    };
    manifest.as_object().unwrap().iter().map(of).collect()
}
