//! LoRA adapters as PEFT's `save_pretrained` writes them: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! [`AdapterFiles::open`] reads the configuration and the names of the tensors. [`AdapterFiles::read`] takes the modules of a
//! model, checks that adapter and model fit each other completely, and reads the values. Everything that would change the
//! result and is not supported is refused by name; nothing is left out with a warning.

mod by_module;
mod config;
mod contents;
mod fault;
mod files;
mod fit;
mod names;
mod pattern;
mod root;
mod targets;

pub use config::AdapterConfig;
pub use contents::AdapterModule;
pub use fault::AdapterFault;
pub use files::{AdapterFiles, LowRank, LowRankModules};
pub use fit::{BaseModule, FittedModule, ModuleKind};
pub use root::path_in_root;
