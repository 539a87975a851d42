//! Low-rank adapters of a model (LoRA, Hu et al. 2021).

mod source;

pub use source::{AdapterWeights, ModuleDelta, ModulePlace, base_modules, check_base, read};
