//! Why a signature is refused.

use crate::quoted::Quoted;

/// The list of digests.
pub(super) const LIST: &str = "SHA256SUMS";
/// The signature of the list.
pub(super) const SIGNATURE: &str = "SHA256SUMS.minisig";

/// Why the signature of a model directory does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each message says what its fields are
pub enum SignatureFault {
    #[error("there is no `{LIST}`")]
    NoList,
    #[error("there is no `{SIGNATURE}`")]
    NoSignature,
    #[error("`{SIGNATURE}` is not a signature of `{LIST}` by this key: {}", Quoted(.message))]
    Signature { message: String },
    #[error("line {line} of `{LIST}` is not a digest of 64 hexadecimal digits, two spaces and a file name")]
    Line { line: usize },
    #[error("`{}` is listed twice in `{LIST}`", Quoted(.name))]
    Twice { name: String },
    #[error("`{}` is not listed in `{LIST}`", Quoted(.name))]
    Unlisted { name: String },
    #[error("`{}` is listed in `{LIST}`, but missing", Quoted(.name))]
    Missing { name: String },
    #[error("`{}` has the digest {found}, but {listed} is signed", Quoted(.name))]
    Digest { name: String, found: String, listed: String },
}

impl SignatureFault {
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::NoList | Self::NoSignature | Self::Line { .. } | Self::Twice { .. } => {
                "a model is signed by `sha256sum -- * > SHA256SUMS` and `minisign -Sm SHA256SUMS` in its directory"
            }
            Self::Signature { .. } => "another key signed it, or the list was changed afterwards",
            Self::Unlisted { .. } | Self::Missing { .. } | Self::Digest { .. } => {
                "the directory was changed after it was signed: get it again from its publisher"
            }
        }
    }
}
