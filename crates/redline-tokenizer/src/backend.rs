//! Selects the encoder: the native one, or the `tokenizers` crate for forms that the native one does not cover.

use crate::{
    AddedToken, Beginning, TokenizerError, encoding::EncodedText, library::Library, native::Native,
    source::Source,
};

/// The encoder that turns text into ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoder {
    /// Redline's own encoder.
    #[default]
    Native,
    /// Hugging Face's `tokenizers` crate.
    Library,
}

/// Encodes text without adding ids around it.
pub(crate) enum Backend {
    Native(Box<Native>),
    Library {
        library: Box<Library>,
        /// Why the native encoder was not used, if it was requested.
        reason: Option<String>,
    },
}

impl Backend {
    /// The requested encoder, or the library if the native encoder does not cover the form.
    pub(crate) fn new(wanted: Encoder, source: Source<'_>) -> Result<Self, TokenizerError> {
        // The library reads every part first, so that both encoders reject the same input.
        let parts = Library::parts(source)?;
        let reason = match wanted {
            Encoder::Library => None,
            Encoder::Native => match Native::new(source) {
                Ok(native) => return Ok(Self::Native(Box::new(native))),
                Err(reason) => Some(reason),
            },
        };
        let library = Box::new(Library::new(source, parts)?);
        Ok(Self::Library { library, reason })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Native(native) => native.encode(text),
            Self::Library { library, .. } => library.encode(text),
        }
    }

    /// The ids of the longest prefix of a text that no continuation can change.
    pub(crate) fn begin(&self, text: &str) -> Result<Beginning, TokenizerError> {
        match self {
            Self::Native(native) => native.begin(text),
            Self::Library { .. } => Ok(Beginning::default()),
        }
    }

    /// The ids of a text that begins with the text of `beginning`.
    pub(crate) fn encode_after(&self, beginning: &Beginning, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Native(native) => native.encode_from(text, beginning.bytes, beginning.ids.clone()),
            Self::Library { library, .. } => library.encode(text),
        }
    }

    /// The form of an added token that the decoder receives: as the normaliser leaves it.
    pub(crate) fn decoded_form(&self, token: &AddedToken, id: u32) -> Option<String> {
        match self {
            Self::Native(native) => native.decoded_form(token),
            Self::Library { library, .. } => library.decoded_form(id),
        }
    }

    pub(crate) fn encode_with_offsets(&self, text: &str) -> Result<EncodedText, TokenizerError> {
        match self {
            Self::Native(native) => native.encode_with_offsets(text),
            Self::Library { library, .. } => library.encode_with_offsets(text),
        }
    }
}
