//! Faults of safetensors headers and shard indices, one variant per rule.

use crate::dtype::StoredDtype;
use crate::quoted::{Dims, Quoted};

/// A violated rule of the safetensors format. Offsets count from the first data byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum HeaderFault {
    #[error("the file has {bytes} bytes, but the header length alone takes 8")]
    TooShort { bytes: u64 },
    #[error("the header claims {declared} bytes, but at most {limit} are allowed")]
    LengthLimit { declared: u64, limit: u64 },
    #[error("the header claims {declared} bytes, but only {available} follow its length")]
    LengthBeyondFile { declared: u64, available: u64 },
    #[error("the header is not UTF-8: byte {offset} of it is wrong")]
    NotUtf8 { offset: usize },
    #[error("the header is not a JSON object: it begins with `{}`", Quoted(.begins))]
    NotObject { begins: String },
    #[error("the header is wrong: {}", Quoted(.message))]
    Json { message: String },
    #[error("the header is wrong at `{}`: {}", Quoted(.tensor), Quoted(.message))]
    Entry { tensor: String, message: String },
    #[error("tensor `{}` has shape {}: more elements or bytes than can be counted", Quoted(.tensor), Dims(.shape))]
    ShapeOverflow { tensor: String, shape: Vec<usize> },
    #[error("tensor `{}` is {} of {dtype}: {bits} bits are no whole number of bytes", Quoted(.tensor), Dims(.shape))]
    PartialByte { tensor: String, dtype: StoredDtype, shape: Vec<usize>, bits: u64 },
    #[error("tensor `{}` ends at {end}, before it begins at {begin}", Quoted(.tensor))]
    Reversed { tensor: String, begin: u64, end: u64 },
    #[error(
        "tensor `{}` is {} of {dtype}: {needs} bytes, but its offsets hold {has}",
        Quoted(.tensor), Dims(.shape)
    )]
    Size { tensor: String, dtype: StoredDtype, shape: Vec<usize>, needs: u64, has: u64 },
    #[error("tensor `{}` ends at {end}, but the file has {data} data bytes", Quoted(.tensor))]
    BeyondEnd { tensor: String, end: u64, data: u64 },
    #[error("tensor `{}` begins at {begin}, but the data before it ends at {previous}: a hole", Quoted(.tensor))]
    Hole { tensor: String, begin: u64, previous: u64 },
    #[error("tensor `{}` begins at {begin}, but the data before it ends at {previous}: an overlap", Quoted(.tensor))]
    Overlap { tensor: String, begin: u64, previous: u64 },
    #[error("the tensors end at {end}, but the file has {data} data bytes")]
    Trailing { end: u64, data: u64 },
}

/// A violated rule of `model.safetensors.index.json`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum IndexFault {
    #[error("the index is wrong: {}", Quoted(.message))]
    Json { message: String },
    #[error("the index is wrong at `{}`: {}", Quoted(.tensor), Quoted(.message))]
    Entry { tensor: String, message: String },
    #[error("the index has no `weight_map`")]
    NoWeightMap,
    #[error("the index lists no tensors")]
    Empty,
    #[error("tensor `{}` is said to be in `{}`, which is no file of this directory", Quoted(.tensor), Quoted(.shard))]
    OutsideDirectory { tensor: String, shard: String },
    #[error("tensor `{}` is said to be in `{}`, which does not exist", Quoted(.tensor), Quoted(.shard))]
    MissingShard { tensor: String, shard: String },
    #[error("tensor `{}` is said to be in `{}`, which does not hold it", Quoted(.tensor), Quoted(.shard))]
    NotInShard { tensor: String, shard: String },
    #[error("tensor `{}` is in `{}`, but the index does not list it there", Quoted(.tensor), Quoted(.shard))]
    Unlisted { tensor: String, shard: String },
}
