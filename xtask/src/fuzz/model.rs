//! The models that requests are generated for: the tiny checkpoints of `tests/golden` and the embedded models.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The properties of a model that requests depend on.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The value of `--model`, relative to the root of the repository.
    pub(super) name: String,
    pub(super) vocab: usize,
    /// Maximum sequence length.
    pub(super) context: usize,
    /// The id of the mask token, if the model fills masks.
    pub(super) mask: Option<usize>,
    /// Whether the model accepts text.
    pub(super) text: bool,
}

/// Every model below `root`, in a fixed order.
pub(super) fn all(root: &Path) -> Result<Vec<Model>> {
    let folder = root.join("tests/golden");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if folder.join(&name).join("config.json").is_file() {
            names.push(name);
        }
    }
    names.sort();
    let mut models = Vec::new();
    for name in names {
        let name = format!("tests/golden/{name}");
        models.push(read(root, &name, &name, false)?);
    }
    for name in ["demo", "demo-diffusion"] {
        models.push(read(root, &format!("models/{name}"), name, true)?);
    }
    Ok(models)
}

/// Reads the model in a folder.
fn read(root: &Path, folder: &str, name: &str, text: bool) -> Result<Model> {
    let path = root.join(folder).join("config.json");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config: Value =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is not JSON", path.display()))?;
    let number = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| config.get(key)?.as_u64());
        found.map(|n| n as usize).with_context(|| format!("{} has none of {keys:?}", path.display()))
    };
    Ok(Model {
        name: name.to_owned(),
        vocab: number(&["vocab_size"])?,
        context: number(&["max_position_embeddings", "n_positions", "max_sequence_length"])?,
        mask: config.get("mask_token_id").and_then(Value::as_u64).map(|id| id as usize),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_checkpoints_are_found() {
        let models = all(crate::root()).unwrap();
        assert!(models.len() >= 16);
        let qwen = models.iter().find(|m| m.name == "tests/golden/qwen3-a").unwrap();
        assert_eq!((qwen.vocab, qwen.context, qwen.mask, qwen.text), (257, 128, None, false));
        let llada = models.iter().find(|m| m.name == "tests/golden/llada-a").unwrap();
        assert_eq!((llada.context, llada.mask), (256, Some(143)));
        assert!(models.iter().any(|m| m.name == "demo" && m.text && m.mask.is_none()));
    }
}
