//! Adapters (LoRA, Hu et al. 2021): low-rank updates of a model's linear layers, applied to some rows of a pass.
//!
//! An adapter in memory has the format of the model's weights: f32 or bf16, or eight bits if those are integers. It is built beside
//! the model and changes none of its weights, so that rows with different adapters, and rows without, share every pass. `packed` writes
//! that form to a directory.

mod build;
mod fit;
mod memory;
mod merge;
mod packed;
mod source;
mod synth;
mod update;

pub use self::build::AdapterBuilder;
pub use self::fit::{AdapterFit, fit};
pub use self::merge::{merge, merge_on};
pub use self::packed::PackedFiles;
pub use self::source::{AdapterWeights, ModuleDelta, ModulePlace, base_modules, check_base, read};
pub use self::synth::synth;
pub use crate::adapter_rows::{Adapter, AdapterLimits, AdapterUse, Adapters, HeadUpdates};
