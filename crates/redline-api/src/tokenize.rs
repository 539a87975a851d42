//! `tokenize`: encodes text as token ids.

use redline_tokenizer::{Encoder, Encoding, Tokenizer};
use redline_wire::{SchemaVersion, TokenIds, Tokenized, TokenizedMeta};

/// Builds the JSON document of the answer. `name` is the name of the model.
pub fn answer(name: &str, tokenizer: &Tokenizer, tokens: TokenIds) -> Tokenized {
    let written = tokens.ids.iter().map(|&id| tokenizer.token(id).unwrap_or_default()).collect();
    let encoder = match tokenizer.encoder() {
        Encoder::Native => "native",
        Encoder::Library => "library",
    };
    Tokenized {
        object: "tokenization".to_owned(),
        schema: SchemaVersion,
        model: name.to_owned(),
        count: tokens.ids.len(),
        written,
        tokens,
        meta: TokenizedMeta {
            encoder: encoder.to_owned(),
            fallback: tokenizer.fallback().map(str::to_owned),
        },
    }
}

/// Token ids alone.
pub fn without_offsets(ids: Vec<u32>) -> TokenIds {
    TokenIds { ids, offsets: None }
}

/// Token ids with the range of bytes of the text that each covers.
pub fn with_offsets(encoding: Encoding) -> TokenIds {
    let offsets = encoding.offsets.iter().map(|range| [range.start, range.end]).collect();
    TokenIds { ids: encoding.ids, offsets: Some(offsets) }
}
