//! Loading, replacing and removing adapters while requests run.

use std::path::Path;

use redline_models::adapter;
use redline_settings::{Setting, hint};
use redline_weights::Checksum;

use super::Engine;
use crate::adapters::AdapterInfo;
use crate::error::EngineError;
use crate::heartbeat::loader::AdapterLoader;

impl Engine {
    /// Reads a directory, PEFT's or a converted one, and publishes it under a name, in place of the adapter that has the name.
    /// Requests that use the latter keep it until they end. With `expected`, the adapter that is replaced must have this generation
    /// (0: none has the name). If anything fails, nothing changes. Other requests run meanwhile. It is read by the threads that also
    /// read evicted adapters, in turn.
    pub fn load_adapter(
        &self,
        name: &str,
        dir: &Path,
        expected: Option<u64>,
    ) -> Result<AdapterInfo, EngineError> {
        self.loader()?.load(name, dir, expected)
    }

    /// Removes an adapter. Requests that use it keep it until they end.
    pub fn unload_adapter(&self, name: &str, expected: Option<u64>) -> Result<(), EngineError> {
        self.loader()?.store().unload(name, expected)
    }

    /// Publishes the adapter that the last publication under this name replaced, as a new generation.
    pub fn roll_back_adapter(&self, name: &str) -> Result<AdapterInfo, EngineError> {
        self.loader()?.store().roll_back(name)
    }

    /// The published adapters, by name.
    pub fn adapters(&self) -> Vec<AdapterInfo> {
        self.loader.as_ref().map_or_else(Vec::new, |loader| loader.store().list())
    }

    /// The names of the published adapters, each with a checksum over its weights.
    pub fn adapter_checksums(&self) -> Vec<(String, Checksum)> {
        self.loader.as_ref().map_or_else(Vec::new, |loader| loader.store().checksums())
    }

    /// Writes a PEFT directory with random values for all linear layers of the model's layers, to measure with. `dir` must not exist
    /// or be empty. Values are a function of the model's shape, rank and seed.
    pub fn synth_adapter(&self, dir: &Path, rank: usize, seed: u64) -> Result<(), EngineError> {
        Ok(adapter::synth(&self.spec, rank, seed, dir)?)
    }

    pub(super) fn loader(&self) -> Result<&AdapterLoader, EngineError> {
        self.loader.as_ref().ok_or_else(|| {
            EngineError::request("no adapter is loaded", hint!["load one with ", Setting::Adapter])
        })
    }
}
