//! Files on disk: everything that Redline reads from a model directory and writes to one.
//!
//! - [`Checkpoint`]: the weights of a model directory (one safetensors file or `pytorch_model.bin`, or an index with
//!   shards), or of bytes embedded in the binary. Tensors are read completely or in ranges as `f32`, and checked to be
//!   finite.
//! - [`Gguf`]: a model in the format of llama.cpp: metadata with typed getters, and tensors, read as stored or as `f32`.
//! - [`Infq`], [`InfqWriter`]: a directory of packed weights in which a [`Checksum`] covers every byte.
//! - [`ConfigFile`]: a JSON configuration file with typed getters.
//! - [`AdapterFiles`]: a LoRA adapter that PEFT wrote.
//! - [`resolve_model`]: resolves the name of a model to a directory, using the local Hugging Face cache.
//! - [`HubFolder`]: stores downloaded files in that cache.
//! - [`check_signed`]: checks that a model directory was signed by the owner of a key.
//! - [`PageFiles`]: keys and values that outlive the process.
//! - [`DirWriter`], [`SafetensorsWriter`]: write a directory that appears completely or not at all.
//!
//! Every file is treated as hostile. Lengths are checked against the actual file before anything is allocated, every
//! rule of a format is checked, and a violation is a [`WeightsError`] that names file, tensor and numbers. The files
//! under `attacks/` break the rules one at a time. No environment variable is read here.
#![forbid(unsafe_code)]

mod adapter;
mod blocks;
mod checkpoint;
mod checksum;
mod config;
mod digest;
mod directory;
mod disk;
mod dtype;
mod error;
mod fault;
mod file;
mod gguf;
mod half;
mod header;
mod hub;
mod index;
mod infq;
mod json;
mod kv_pages;
mod plans;
mod pytorch;
mod quoted;
mod rewrite;
mod safetensors;
mod shard;
mod signed;
mod source;
mod state;
mod whole;
mod write;

pub use adapter::{
    AdapterConfig, AdapterFault, AdapterFiles, AdapterModule, BaseModule, FittedModule, LowRank,
    LowRankModules, ModuleKind, path_in_root,
};
pub use blocks::BlockRows;
pub use checkpoint::{Checkpoint, shard_names, weight_layouts};
pub use checksum::Checksum;
pub use config::{ConfigFile, ConfigObject};
pub use digest::{Sha256Digest, Sha256Hasher};
pub use directory::DirWriter;
pub use disk::{Disk, DiskFile, FileOperation};
pub use dtype::{Dtype, StoredDtype};
pub use error::{Result, WeightsError};
pub use fault::{HeaderFault, IndexFault};
pub use file::{FileWriter, read_file};
pub use gguf::{
    Gguf, GgufArray, GgufFault, GgufMetadata, GgufPartName, GgufParts, GgufStrings, GgufTensor, GgufType,
    GgufValue, is_gguf_name,
};
pub use half::{bf16_to_f32, f16_to_f32, f32_to_bf16_rne, f32_to_f16_rne};
pub use hub::{HubFolder, HubId, HubRoots, PartialBlob, cached_model, cached_models, resolve_model};
pub use infq::{Infq, InfqFault, InfqWriter, Scheme, Weight, WeightPart};
pub use kv_pages::{PageError, PageFiles, PageKey, PageWriter};
pub use plans::{BadPlan, Fields, PlanStore};
pub use pytorch::PytorchFault;
pub use rewrite::TensorWriter;
pub use safetensors::TensorInfo;
pub use signed::{SignatureFault, SigningKey, check_signed, is_signed_name};
pub use state::FilesState;
pub use whole::{write_file, write_file_on, write_new_file_on};
pub use write::{SafetensorsWriter, TensorDeclaration};
