//! Files on disk: everything Redline reads from a model directory and everything it writes to one.
//!
//! - [`Checkpoint`]: the weights of a model directory (one safetensors file or `pytorch_model.bin`, or an index with
//!   shards), or of bytes embedded in the binary; tensors are read whole or in ranges as `f32`, checked to be
//!   finite.
//! - [`Infq`], [`InfqWriter`]: a directory of packed weights, every byte of it under a [`Checksum`].
//! - [`ConfigFile`]: a JSON configuration file with typed getters.
//! - [`resolve_model`]: from a `--model` argument to a directory, through the local Hugging Face cache.
//! - [`check_signed`]: whether a model directory is what the owner of a key signed.
//! - [`DirWriter`], [`SafetensorsWriter`]: a directory that appears whole or not at all.
//!
//! Every file is taken as hostile: lengths are held against the real file before anything is allocated, every
//! rule of a format is checked, and a broken one is a [`WeightsError`] that names file, tensor and numbers.
//! The files under `attacks/` break the rules one at a time. No environment variable is read here.
#![forbid(unsafe_code)]

mod checkpoint;
mod checksum;
mod config;
mod directory;
mod disk;
mod dtype;
mod error;
mod fault;
mod file;
mod half;
mod header;
mod hub;
mod index;
mod infq;
mod json;
mod plans;
mod pytorch;
mod quoted;
mod safetensors;
mod shard;
mod signed;
mod source;
mod whole;
mod write;

pub use checkpoint::Checkpoint;
pub use checksum::Checksum;
pub use config::ConfigFile;
pub use directory::DirWriter;
pub use disk::{Disk, DiskFile, Operation};
pub use dtype::{Dtype, StoredDtype};
pub use error::{Result, WeightsError};
pub use fault::{HeaderFault, IndexFault};
pub use file::{FileWriter, read_file};
pub use half::{bf16_to_f32, f16_to_f32, f32_to_bf16_rne, f32_to_f16_rne};
pub use hub::{HubRoots, resolve_model};
pub use infq::{Infq, InfqFault, InfqWriter, Part, Scheme, Weight};
pub use plans::{BadPlan, Fields, PlanStore};
pub use pytorch::PytorchFault;
pub use safetensors::TensorInfo;
pub use signed::{SignatureFault, SigningKey, check_signed};
pub use whole::{write_file, write_file_on, write_new_file_on};
pub use write::{SafetensorsWriter, TensorSpec};
