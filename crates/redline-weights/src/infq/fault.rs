//! Faults of an INFQ directory, one variant per rule.

use redline_settings::{Command, Hint, hint};

use crate::checksum::Checksum;
use crate::dtype::StoredDtype;
use crate::quoted::{Dims, Quoted};

/// A violated rule of the INFQ container.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum InfqFault {
    #[error("the manifest is wrong: {}", Quoted(.message))]
    Json { message: String },
    #[error("the manifest's `format` is {}, not \"infq\"", Quoted(.found))]
    Format { found: String },
    #[error("the manifest's `format_version` is {}, but only {supported} is read", Quoted(.found))]
    Version { found: String, supported: u64 },
    #[error("the manifest does not end with its checksum")]
    NoChecksum,
    #[error("the manifest has checksum {found}, but says {declared}")]
    ManifestChecksum { declared: Checksum, found: Checksum },
    #[error("the header has checksum {found}, but `infq.json` says {declared}")]
    HeaderChecksum { declared: Checksum, found: Checksum },
    #[error("tensor `{}` has checksum {found}, but `infq.json` says {declared}", Quoted(.tensor))]
    TensorChecksum { tensor: String, declared: Checksum, found: Checksum },
    #[error("the file has checksum {found}, but `infq.json` says {declared}")]
    FileChecksum { declared: Checksum, found: Checksum },
    #[error("tensor `{}` is in `infq.json`, but not in the file", Quoted(.tensor))]
    MissingTensor { tensor: String },
    #[error("tensor `{}` is in the file, but not in `infq.json`", Quoted(.tensor))]
    UnexpectedTensor { tensor: String },
    #[error(
        "tensor `{}` is {} of {found}, but `infq.json` says {} of {declared}",
        Quoted(.tensor), Dims(.found_shape), Dims(.declared_shape)
    )]
    Differs {
        tensor: String,
        found: StoredDtype,
        found_shape: Vec<usize>,
        declared: StoredDtype,
        declared_shape: Vec<usize>,
    },
    #[error("the file is not listed in `infq.json`")]
    UnlistedFile,
    #[error("`{}` is not a name for a file beside the weights", Quoted(.name))]
    FileName { name: String },
    #[error("tensor `{}` cannot be a part of weight `{}`", Quoted(.tensor), Quoted(.weight))]
    PartName { weight: String, tensor: String },
    #[error("tensor `{}` is a part of two weights", Quoted(.tensor))]
    Twice { tensor: String },
    #[error("tensor `{}` has the unknown dtype `{}`", Quoted(.tensor), Quoted(.dtype))]
    Dtype { tensor: String, dtype: String },
    #[error("weight `{}` is {}, but [out, in] or [n] is needed", Quoted(.weight), Dims(.shape))]
    Rank { weight: String, shape: Vec<usize> },
    #[error("weight `{}` is declared twice", Quoted(.weight))]
    WeightTwice { weight: String },
    #[error("weight `{}` has no encoding", Quoted(.weight))]
    NoEncoding { weight: String },
    #[error("weight `{}` has no parts", Quoted(.weight))]
    NoParts { weight: String },
    #[error(
        "weight `{}` has outlier column {column}, but they must ascend and stay below {columns}",
        Quoted(.weight)
    )]
    OutlierColumn { weight: String, column: u32, columns: usize },
    /// Caller error.
    #[error("tensor `{}` was not declared", Quoted(.tensor))]
    Undeclared { tensor: String },
}

impl InfqFault {
    /// Advice for the user, if there is any.
    pub(crate) fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Json { .. }
            | Self::NoChecksum
            | Self::ManifestChecksum { .. }
            | Self::HeaderChecksum { .. }
            | Self::TensorChecksum { .. } => {
                hint!["the files are damaged: copy them again, or repeat ", Command::Convert]
            }
            Self::FileChecksum { .. } => {
                hint![
                    "it was changed after the conversion: change it in the source and repeat ",
                    Command::Convert
                ]
            }
            Self::UnlistedFile => "what the conversion did not write is not trusted: remove it".into(),
            Self::Format { .. } => "this `infq.json` was written by something else".into(),
            Self::Version { .. } => {
                hint!["it was written by another version of redline: repeat ", Command::Convert]
            }
            Self::MissingTensor { .. } | Self::UnexpectedTensor { .. } | Self::Differs { .. } => {
                "`infq.json` and `model.safetensors` come from two conversions".into()
            }
            _ => return None,
        })
    }
}
