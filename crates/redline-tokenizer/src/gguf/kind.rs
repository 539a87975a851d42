//! The kinds of tokens.

/// The kind of a token, as SentencePiece numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    /// The text of the token is not found in texts.
    Unused,
    Byte,
}
