//! Faults of a `pytorch_model.bin`, one variant per rule.

use crate::dtype::StoredDtype;
use crate::quoted::{Dims, Quoted};

/// A violated rule of the state-dict files written by `torch.save`, or content that would have to be executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum PytorchFault {
    #[error("the file has the format of PyTorch before 1.6, a bare pickle")]
    Legacy,
    #[error("the file has {bytes} bytes and does not end like a zip archive")]
    NotZip { bytes: u64 },
    #[error("the archive's {what} is {found}, but {needed} is needed")]
    Archive { what: &'static str, found: u64, needed: u64 },
    #[error("the archive's {what} lies at {at} and has {length} bytes, but the file has {bytes}")]
    BeyondEnd { what: &'static str, at: u64, length: u64, bytes: u64 },
    #[error("the archive's {what} is {found}, but at most {limit} is read")]
    Limit { what: &'static str, found: u64, limit: u64 },
    #[error("entry {nth} of the archive's directory is cut short or has no valid name")]
    Directory { nth: u64 },
    #[error("entry `{}` is {how}, but only plain entries are read", Quoted(.entry))]
    NotStored { entry: String, how: &'static str },
    #[error("entry `{}` differs between the archive's directory and its own header", Quoted(.entry))]
    LocalHeader { entry: String },
    #[error("entry `{}` is in the archive twice", Quoted(.entry))]
    Duplicate { entry: String },
    #[error("entry `{}` ends at {end}, but the next one begins at {next}", Quoted(.entry))]
    Overlap { entry: String, end: u64, next: u64 },
    #[error("the archive has {found} entries `data.pkl`, but one is needed")]
    NoPickle { found: usize },
    #[error("the archive's byte order is `{}`, but `little` is needed", Quoted(.found))]
    ByteOrder { found: String },

    #[error("the pickle ends at byte {at}, inside an operation")]
    PickleEnd { at: usize },
    #[error("the pickle goes on after its end at byte {at}")]
    PickleTrailing { at: usize },
    #[error("the pickle has operation 0x{code:02x} at byte {at}, which no state dict needs")]
    Operation { code: u8, at: usize },
    #[error("the pickle has protocol {found}, but 2 is needed")]
    Protocol { found: u8 },
    #[error("the pickle asks for `{}`, which is not executed", Quoted(.name))]
    Global { name: String },
    #[error("the pickle's operation at byte {at} needs {needed}")]
    Operand { at: usize, needed: &'static str },
    #[error("the pickle has more than {limit} {what} at byte {at}")]
    Bound { what: &'static str, limit: usize, at: usize },

    #[error("the pickle holds {found}, not a state dict")]
    NotStateDict { found: &'static str },
    #[error("`{}` is {found}, not a tensor", Quoted(.name))]
    NotTensor { name: String, found: &'static str },
    #[error("tensor `{}` is listed twice", Quoted(.name))]
    Twice { name: String },
    #[error("tensor `{}` has the unsupported storage type `{}`", Quoted(.tensor), Quoted(.storage))]
    StorageType { tensor: String, storage: String },
    #[error("tensor `{}` is in storage `{}`, which is not in the archive", Quoted(.tensor), Quoted(.storage))]
    NoStorage { tensor: String, storage: String },
    #[error(
        "tensor `{}` is in storage `{}`, said to hold {declared} of {dtype}, but it has {bytes} bytes",
        Quoted(.tensor), Quoted(.storage)
    )]
    StorageSize { tensor: String, storage: String, declared: u64, dtype: StoredDtype, bytes: u64 },
    #[error("tensor `{}` has {found} dimensions, but at most {limit} are read", Quoted(.tensor))]
    Rank { tensor: String, found: usize, limit: usize },
    #[error("tensor `{}` has shape {}: more elements or bytes than can be counted", Quoted(.tensor), Dims(.shape))]
    ShapeOverflow { tensor: String, shape: Vec<usize> },
    #[error("tensor `{}` is {} with strides {strides:?}: not contiguous", Quoted(.tensor), Dims(.shape))]
    Strides { tensor: String, shape: Vec<usize>, strides: Vec<usize> },
    #[error(
        "tensor `{}` has {elements} elements from {offset} on, but its storage has {storage}",
        Quoted(.tensor)
    )]
    BeyondStorage { tensor: String, elements: u64, offset: u64, storage: u64 },
}

impl PytorchFault {
    /// Advice for the user, if there is any.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Legacy => "load it with transformers and `save_pretrained` it: that writes safetensors",
            Self::NotZip { .. } | Self::BeyondEnd { .. } => {
                "the file is incomplete, or a git LFS pointer: download it again, or take the safetensors files"
            }
            Self::Global { .. } | Self::Operation { .. } => {
                "a pickle can run any program, so only what a state dict needs is read; take the safetensors files"
            }
            Self::NotStateDict { .. } | Self::NotTensor { .. } => {
                "perhaps a training checkpoint: save its `state_dict()` alone, or take the safetensors files"
            }
            Self::Strides { .. } => "call `contiguous()` on it before saving, or take the safetensors files",
            _ => return None,
        })
    }
}
