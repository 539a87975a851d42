//! Faults of GGUF files, one variant per rule.

use super::block::GgufType;
use crate::quoted::{Dims, Quoted};

/// A violated rule of the GGUF format, or of a model in several files.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum GgufFault {
    #[error("the file begins with `{}`, not with `GGUF`", .begins.escape_ascii())]
    NotGguf { begins: [u8; 4] },
    #[error("the file has version {found} of the format, but 2 and 3 are read")]
    Version { found: u32 },
    #[error(
        "the file is big-endian (version {version} of the format), but only little-endian files are read"
    )]
    BigEndian { version: u32 },
    #[error("{what} takes {needs} bytes from byte {at} on, but the file has {bytes}")]
    End { what: String, needs: u64, at: u64, bytes: u64 },
    #[error("{what} has {count} entries from byte {at} on, which the {bytes} bytes of the file cannot hold")]
    Count { what: String, count: u64, at: u64, bytes: u64 },
    #[error("the header has more than {limit} bytes, the most that are read, with {what}")]
    HeaderLimit { what: String, limit: u64 },
    #[error("{what} is not UTF-8: byte {at} of the file is wrong")]
    NotUtf8 { what: String, at: u64 },

    #[error("key {nth} is empty")]
    EmptyKey { nth: u64 },
    #[error("the key `{}` stands twice", Quoted(.key))]
    DuplicateKey { key: String },
    #[error("`{}` has a value of type {found}, but types are 0 to 12", Quoted(.key))]
    ValueType { key: String, found: u32 },
    #[error("`{}` is an array of arrays, which are not read", Quoted(.key))]
    Nested { key: String },
    #[error("`{}` has the byte {found} for a boolean, but 0 and 1 are allowed", Quoted(.key))]
    Boolean { key: String, found: u8 },
    #[error("`general.alignment` is {found}, but a power of two is needed")]
    Alignment { found: u32 },

    #[error("tensor {nth} has no name")]
    TensorWithoutName { nth: u64 },
    #[error("tensor `{}` is listed twice", Quoted(.tensor))]
    DuplicateTensor { tensor: String },
    #[error("tensor `{}` has {found} dimensions, but at most {limit} are read", Quoted(.tensor))]
    Rank { tensor: String, found: u32, limit: u32 },
    #[error("tensor `{}` has type {number}, which is not known", Quoted(.tensor))]
    UnknownType { tensor: String, number: u32 },
    #[error("tensor `{}` is {removed}, a type that GGML no longer has", Quoted(.tensor))]
    RemovedType { tensor: String, removed: &'static str },
    #[error(
        "tensor `{}` has rows of {columns} values, but {ggml_type} has blocks of {block}",
        Quoted(.tensor)
    )]
    RowBlocks { tensor: String, ggml_type: GgufType, columns: u64, block: u64 },
    #[error("tensor `{}` has shape {}: more elements or bytes than can be counted", Quoted(.tensor), Dims(.shape))]
    ShapeOverflow { tensor: String, shape: Vec<u64> },
    #[error("tensor `{}` begins at {offset}, which is not a multiple of the alignment {alignment}", Quoted(.tensor))]
    Misaligned { tensor: String, offset: u64, alignment: u32 },
    #[error(
        "tensor `{}` has {bytes} bytes from {offset} on, but the file has {data} data bytes",
        Quoted(.tensor)
    )]
    BeyondEnd { tensor: String, offset: u64, bytes: u64, data: u64 },
    #[error(
        "tensor `{}` begins at {offset}, but `{}` before it ends at {end}: an overlap",
        Quoted(.tensor), Quoted(.other)
    )]
    Overlap { tensor: String, offset: u64, other: String, end: u64 },

    #[error("no file here ends in `.gguf`")]
    NoFile,
    #[error("there are {found} models here, like `{}`, but one is needed", Quoted(&.names.join("` and `")))]
    SeveralModels { found: usize, names: Vec<String> },
    #[error(
        "the file is part {number} of {count}, but its name does not end in `-{number:05}-of-{count:05}.gguf`"
    )]
    PartName { number: u32, count: u32 },
    #[error("the number of parts is {found} in the metadata, but {needed} in the name")]
    PartCount { found: u32, needed: u32 },
    #[error("the number of the part is {found} in the metadata, but {needed} in the name")]
    PartNumber { found: u32, needed: u32 },
    #[error("`{}` is missing", Quoted(.part))]
    MissingPart { part: String },
    #[error("`{}` has another value than in the first part", Quoted(.key))]
    ForeignPart { key: String },
    #[error("tensor `{}` is in `{}` too", Quoted(.tensor), Quoted(.other))]
    TensorInTwoParts { tensor: String, other: String },
    #[error("the parts hold {found} tensors, but `split.tensors.count` is {declared}")]
    TensorsOfParts { found: usize, declared: u32 },

    #[error("tensor `{}` is {ggml_type}, which is not read", Quoted(.tensor))]
    Unread { tensor: String, ggml_type: GgufType },
    #[error("tensor `{}` is {value} at element {index} ({ggml_type})", Quoted(.tensor))]
    NonFinite { tensor: String, index: usize, value: f32, ggml_type: GgufType },
    #[error("tensor `{}` has {rows} rows, but {count} from {first} on are to be read", Quoted(.tensor))]
    Rows { tensor: String, rows: usize, first: usize, count: usize },
}

impl GgufFault {
    /// Advice for the user, if there is any.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotGguf { .. } => {
                "perhaps a git LFS pointer, a file from before GGUF, or another format under its name"
            }
            Self::Version { .. } => "convert the model again with a current version of llama.cpp",
            Self::BigEndian { .. } => "take the little-endian file of the model",
            Self::End { .. } | Self::Count { .. } | Self::BeyondEnd { .. } => {
                "the file is incomplete: download it again"
            }
            Self::RemovedType { .. } => "take a file of type Q4_0 or IQ4_NL: these types were copies of them",
            Self::NoFile => {
                "the directory may belong to another kind of model, or its download is not complete"
            }
            Self::SeveralModels { .. } => "give the path of the file, or of the first part",
            Self::PartName { .. } => "give the file its name back: the other parts are found by it",
            Self::MissingPart { .. } => "the download is not complete: get this part too",
            Self::PartCount { .. }
            | Self::PartNumber { .. }
            | Self::ForeignPart { .. }
            | Self::TensorInTwoParts { .. }
            | Self::TensorsOfParts { .. } => "the parts are not from one model; download them again",
            Self::Unread { .. } => "take a file of another type, like Q4_K_M or Q8_0",
            Self::NonFinite { .. } => "the weights are damaged, or the training that made them diverged",
            _ => return None,
        })
    }
}
