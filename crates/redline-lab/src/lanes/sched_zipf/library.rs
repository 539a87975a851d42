//! The adapters of a run, as PEFT directories.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use redline_engine::Engine;
use redline_weights::Disk;
use serde_json::Value;
use tempfile::TempDir;

use crate::bench::{LaneError, Result};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// Number of directories with matrices of their own. Others have the file of one of these under a second name, and another
/// `lora_alpha`, so that hundreds of adapters of a large model fit a disk.
const DISTINCT: usize = 16;

/// A temporary directory with adapters, each different from all others.
pub(super) struct Library {
    folder: TempDir,
    adapters: usize,
    disk: Disk,
}

impl Library {
    /// Writes adapters for the model of an engine.
    pub(super) fn new(engine: &Engine, adapters: usize, rank: usize, seed: u64) -> Result<Self> {
        let folder = tempfile::tempdir()
            .map_err(|error| LaneError::Input(format!("no folder for adapters: {error}")))?;
        let library = Self { folder, adapters, disk: Disk::default() };
        for adapter in 0..adapters {
            if adapter < DISTINCT {
                engine.synth_adapter(&library.dir(adapter), rank, seed.wrapping_add(adapter as u64))?;
            } else {
                library.vary(adapter)?;
            }
        }
        Ok(library)
    }

    /// The name of an adapter.
    pub(super) fn name(adapter: usize) -> String {
        format!("zipf-{adapter}")
    }

    /// The directory of an adapter.
    pub(super) fn dir(&self, adapter: usize) -> PathBuf {
        self.folder.path().join(Self::name(adapter))
    }

    /// Publishes all adapters.
    pub(super) fn publish(&self, engine: &Engine) -> Result<()> {
        for adapter in 0..self.adapters {
            engine.load_adapter(&Self::name(adapter), &self.dir(adapter), None)?;
        }
        Ok(())
    }

    /// Writes the matrices of an adapter, with the same values, to a new file that replaces the old one at once.
    pub(super) fn rewrite(&self, adapter: usize) -> Result<()> {
        let path = self.dir(adapter).join(TENSORS);
        let new = self.dir(adapter).join("new");
        let written = std::fs::read(&path).and_then(|bytes| {
            self.disk.create_file(&new)?.write_all(&bytes)?;
            self.disk.rename(&new, &path)
        });
        written.map_err(|error| unwritable(&path, &error.to_string()))
    }

    /// Writes an adapter with the matrices of another one and its own `lora_alpha`.
    fn vary(&self, adapter: usize) -> Result<()> {
        let (of, dir) = (self.dir(adapter % DISTINCT), self.dir(adapter));
        let config = std::fs::read(of.join(CONFIG)).map_err(|e| e.to_string());
        let config = config.and_then(|text| {
            let mut config: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
            let alpha = config["lora_alpha"].as_f64().unwrap_or(1.0);
            config["lora_alpha"] = (alpha * (1.0 - 1e-4 * (adapter / DISTINCT) as f64)).into();
            Ok(config.to_string())
        });
        let written = config.and_then(|config| {
            let write = || {
                self.disk.create_dir(&dir)?;
                self.disk.create_file(&dir.join(CONFIG))?.write_all(config.as_bytes())?;
                self.disk.link(&of.join(TENSORS), &dir.join(TENSORS))
            };
            write().map_err(|error: std::io::Error| error.to_string())
        });
        written.map_err(|error| unwritable(&dir, &error))
    }
}

fn unwritable(path: &Path, error: &str) -> LaneError {
    LaneError::Input(format!("{error}\n  in `{}`", path.display()))
}
