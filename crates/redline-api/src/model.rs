//! A loaded model.

use redline_engine::Engine;

/// A loaded model, with its name in answers.
pub struct LoadedModel {
    /// The name.
    pub name: String,
    /// The engine that runs the model.
    pub engine: Engine,
}

impl LoadedModel {
    /// Number of threads of the engine.
    pub fn threads(&self) -> usize {
        self.engine.info().threads
    }
}
