//! The crate's error type: the message states the fact with numbers, then the place; [`WeightsError::hint`] gives
//! advice.

use std::io;
use std::path::{Path, PathBuf};

use redline_settings::{Command, Hint, hint};

use crate::adapter::AdapterFault;
use crate::dtype::{Dtype, StoredDtype};
use crate::fault::{HeaderFault, IndexFault};
use crate::gguf::GgufFault;
use crate::infq::InfqFault;
use crate::pytorch::PytorchFault;
use crate::quoted::{Dims, Quoted};
use crate::signed::SignatureFault;

/// `Result` with [`WeightsError`].
pub type Result<T, E = WeightsError> = std::result::Result<T, E>;

/// Why files of a model could not be read, written or found.
///
/// `Display` prints the fact with its numbers, then a line `  in ...` with the place. No variant has a `source`: the
/// message of the operating system is part of the fact.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum WeightsError {
    #[error("cannot {action}: {error}\n  in `{}`", .path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
    #[error("a model directory is needed, but this is a file\n  in `{}`", .path.display())]
    NotADirectory { path: PathBuf },
    #[error("a regular file is needed, but this is something else\n  in `{}`", .path.display())]
    NotAFile { path: PathBuf },
    #[error("the file has {bytes} bytes, but at most {limit} are read\n  in `{}`", .path.display())]
    FileTooLarge { path: PathBuf, bytes: u64, limit: u64 },
    /// `other` is an unsupported weight file found there.
    #[error(
        "none of `model.safetensors`, `pytorch_model.bin` and their `.index.json` exists\n  in `{}`", .dir.display()
    )]
    NoWeights { dir: PathBuf, other: Option<&'static str> },
    #[error("{fault}\n  in `{}`", .file.display())]
    Header { file: PathBuf, fault: HeaderFault },
    #[error("{fault}\n  in `{}`", .file.display())]
    Index { file: PathBuf, fault: IndexFault },
    #[error("{fault}\n  in `{}`", .file.display())]
    Pytorch { file: PathBuf, fault: PytorchFault },
    #[error("{fault}\n  in `{}`", .file.display())]
    Gguf { file: PathBuf, fault: GgufFault },
    #[error("{fault}\n  in `{}`", .file.display())]
    Infq { file: PathBuf, fault: InfqFault },

    #[error("tensor `{}` is missing\n  in `{}`", Quoted(.tensor), .file.display())]
    MissingTensor { tensor: String, file: PathBuf },
    #[error("tensor `{}` is not part of this model\n  in `{}`", Quoted(.tensor), .file.display())]
    UnexpectedTensor { tensor: String, file: PathBuf },
    #[error(
        "`{}` is {}, but this config needs {}\n  in `{}` ({dtype})",
        Quoted(.tensor), Dims(.found), Dims(.needed), .file.display()
    )]
    Shape { tensor: String, found: Vec<usize>, needed: Vec<usize>, dtype: StoredDtype, file: PathBuf },
    #[error(
        "tensor `{}` is {dtype}, but weights are read from F32, F16 and BF16\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    Dtype { tensor: String, dtype: StoredDtype, file: PathBuf },
    #[error(
        "tensor `{}` is {dtype}, but blocks of four-bit floats and their scales are U8\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    BlockDtype { tensor: String, dtype: StoredDtype, file: PathBuf },
    /// `index` is flat, row-major.
    #[error(
        "tensor `{}` is {scale} at element {index}, an exponent that makes a weight infinite\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    BlockScale { tensor: String, index: usize, scale: u8, file: PathBuf },
    /// Caller error: the length of the buffer does not match the tensor.
    #[error(
        "tensor `{}` has {elements} elements, but the buffer for it has {given}\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    BufferLength { tensor: String, elements: usize, given: usize, file: PathBuf },
    /// Caller error.
    #[error(
        "tensor `{}` has {bytes} bytes, but the buffer for it has {given}\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    BufferBytes { tensor: String, bytes: u64, given: usize, file: PathBuf },
    /// Caller error.
    #[error(
        "tensor `{}` has {elements} elements, but {count} from {first} on are to be read\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    Range { tensor: String, elements: usize, first: usize, count: usize, file: PathBuf },
    #[error("tensor `{}` ends at byte {needs}, but the file now has {has}\n  in `{}`", Quoted(.tensor), .file.display())]
    Truncated { tensor: String, needs: u64, has: u64, file: PathBuf },
    /// `index` is flat, row-major.
    #[error("tensor `{}` is {value} at element {index}\n  in `{}` ({dtype})", Quoted(.tensor), .file.display())]
    NonFinite { tensor: String, index: usize, value: f32, dtype: Dtype, file: PathBuf },

    #[error(
        "tensor `{}` is {value} at element {index}, which is infinite in {dtype}\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    Overflow { tensor: String, index: usize, value: f32, dtype: Dtype, file: PathBuf },
    #[error(
        "tensor `{}` was declared with {declared} elements, but {given} were given\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    Written { tensor: String, declared: usize, given: usize, file: PathBuf },
    #[error(
        "tensor `{}` was declared with {declared} bytes, but {given} were given\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    WrittenBytes { tensor: String, declared: u64, given: u64, file: PathBuf },
    #[error(
        "tensor `{}` is {dtype}, but values are written as F32, F16 and BF16\n  in `{}`",
        Quoted(.tensor), .file.display()
    )]
    WriteDtype { tensor: String, dtype: StoredDtype, file: PathBuf },
    #[error(
        "tensor `{}` was given where `{}` was declared\n  in `{}`",
        Quoted(.given), Quoted(.declared), .file.display()
    )]
    WriteOrder { given: String, declared: String, file: PathBuf },
    #[error("the directory to be written exists and is not empty\n  in `{}`", .path.display())]
    DestinationNotEmpty { path: PathBuf },
    #[error("`{}` is not a plain file name\n  in `{}`", Quoted(.name), .dir.display())]
    FileName { name: String, dir: PathBuf },

    #[error("not a JSON object: {}\n  in `{}`", Quoted(.message), .file.display())]
    ConfigJson { file: PathBuf, message: String },
    #[error("the file begins with a byte order mark (the bytes ef bb bf), which JSON does not allow\n  in `{}`", .file.display())]
    ByteOrderMark { file: PathBuf },
    #[error("the key `{}` is missing\n  in `{}`", Quoted(.key), .file.display())]
    ConfigMissingKey { file: PathBuf, key: String },
    #[error("`{}` is {}, but {needed} is needed\n  in `{}`", Quoted(.key), Quoted(.value), .file.display())]
    ConfigBadType { file: PathBuf, key: String, value: String, needed: &'static str },
    #[error("`{}` is {}, but only {supported} is supported\n  in `{}`", Quoted(.key), Quoted(.value), .file.display())]
    ConfigUnsupported { file: PathBuf, key: String, value: String, supported: String },

    #[error("{fault}\n  in `{}`", .place.display())]
    Adapter { place: PathBuf, fault: AdapterFault },

    #[error("{fault}\n  in `{}`", .dir.display())]
    Signed { dir: PathBuf, fault: SignatureFault },

    /// `hub_id` is true if `model` has the form of a Hugging Face id.
    #[error("model `{}` was not found\n  in {}", Quoted(.model), places(.tried))]
    NotFound { model: String, tried: Vec<PathBuf>, hub_id: bool },
}

impl WeightsError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::NotADirectory { .. } => {
                "give the directory that holds `config.json` and the weights, or a GGUF file".into()
            }
            Self::NoWeights { other: Some(other), .. } => format!(
                "`{other}` is not read; it can be converted with transformers: load it and \
                 `save_pretrained` it"
            )
            .into(),
            Self::NoWeights { other: None, .. } => {
                "the directory may belong to another kind of model, or its download is not complete".into()
            }
            Self::Header { fault, .. } => header_hint(fault)?.into(),
            Self::Pytorch { fault, .. } => fault.hint()?.into(),
            Self::Gguf { fault, .. } => fault.hint()?.into(),
            Self::Infq { fault, .. } => fault.hint()?,
            Self::Signed { fault, .. } => fault.hint().into(),
            Self::Adapter { fault, .. } => fault.hint()?.into(),
            Self::Index { fault: IndexFault::MissingShard { shard, .. }, .. } => {
                format!("the download is not complete: get `{}` too", Quoted(shard)).into()
            }
            Self::Index { fault: IndexFault::NotInShard { .. } | IndexFault::Unlisted { .. }, .. } => {
                "index and shards are not from one model; download them again".into()
            }
            Self::MissingTensor { .. } | Self::UnexpectedTensor { .. } | Self::Shape { .. } => {
                "config and weights are not from one model, or `architectures` names another one".into()
            }
            Self::Dtype { .. } => {
                "use the weights in their F32, F16 or BF16 form, before quantisation".into()
            }
            Self::Truncated { .. } => "the file changed while it was being read".into(),
            Self::NonFinite { .. } | Self::BlockScale { .. } => {
                "the weights are damaged, or the training that made them diverged".into()
            }
            Self::Overflow { .. } => "write it as F32 or BF16".into(),
            Self::ByteOrderMark { .. } => "save the file as UTF-8 without a byte order mark".into(),
            Self::DestinationNotEmpty { .. } => "choose a new directory, or remove this one first".into(),
            Self::NotFound { model, hub_id: true, .. } => {
                hint![Command::Pull.of(model), " downloads it; or give a model directory"]
            }
            Self::NotFound { hub_id: false, .. } => "the path does not exist; check its spelling".into(),
            _ => return None,
        })
    }

    /// For `map_err`: an [`WeightsError::Io`] at `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { action, path: path.to_owned(), error }
    }
}

fn header_hint(fault: &HeaderFault) -> Option<&'static str> {
    Some(match fault {
        HeaderFault::TooShort { .. }
        | HeaderFault::LengthBeyondFile { .. }
        | HeaderFault::BeyondEnd { .. } => "the file is incomplete: download it again",
        HeaderFault::LengthLimit { .. } | HeaderFault::NotObject { .. } | HeaderFault::NotUtf8 { .. } => {
            "this is not a safetensors file: perhaps a git LFS pointer, or another format under its name"
        }
        HeaderFault::Trailing { .. } => "data that no tensor owns is refused: it may hide another file",
        _ => return None,
    })
}

fn places(tried: &[PathBuf]) -> String {
    let quoted: Vec<_> = tried.iter().map(|path| format!("`{}`", path.display())).collect();
    quoted.join("\n  in ")
}
