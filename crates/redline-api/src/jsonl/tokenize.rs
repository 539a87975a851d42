//! `tokenize`: the tokens of a text.

use redline_tokenizer::{Encoder, Encoding, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::json::id::RequestId;
use crate::json::version::SchemaVersion;

/// One line of `tokenize --jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizeLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// The text.
    pub text: String,
}

/// The answer to one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIds {
    /// The token ids.
    pub ids: Vec<u32>,
    /// The byte range of the text for each id, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<Vec<[usize; 2]>>,
}

/// The answer for one text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokenized {
    /// Always `tokenization`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name, or the tokenizer's file.
    pub model: String,
    /// The ids and, on request, their byte ranges.
    #[serde(flatten)]
    pub tokens: TokenIds,
    /// Number of ids.
    pub count: usize,
    /// The tokens as written in the vocabulary.
    #[serde(rename = "tokens")]
    pub written: Vec<String>,
    /// Further details.
    pub meta: TokenizedMeta,
}

/// Details of a tokenization besides the tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizedMeta {
    /// The encoder: `native`, or `library` for Hugging Face's `tokenizers` crate.
    pub encoder: String,
    /// Why the native encoder was not used.
    pub fallback: Option<String>,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_documented_shape() {
        let mut answer = Tokenized {
            object: "tokenization".to_owned(),
            schema: SchemaVersion,
            model: "m".to_owned(),
            tokens: TokenIds { ids: vec![5, 6], offsets: Some(vec![[0, 1], [1, 4]]) },
            count: 2,
            written: vec!["a".to_owned(), "Ġb".to_owned()],
            meta: TokenizedMeta { encoder: "native".to_owned(), fallback: None },
        };
        let json = r#"{"object":"tokenization","schema":1,"model":"m","ids":[5,6],"offsets":[[0,1],[1,4]],"count":2,"tokens":["a","Ġb"],"meta":{"encoder":"native","fallback":null}}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), json);
        assert_eq!(serde_json::from_str::<Tokenized>(json).unwrap(), answer);
        answer.tokens.offsets = None;
        assert!(!serde_json::to_string(&answer).unwrap().contains("offsets"));
    }

    #[test]
    fn a_line_is_a_text_and_nothing_else() {
        let parse = |json| serde_json::from_str::<TokenizeLine>(json);
        assert_eq!(parse(r#"{"text":"a\u00e9"}"#).unwrap().text, "aé");
        let fault = |json| parse(json).unwrap_err().to_string();
        assert!(fault("{}").contains("missing field `text`"));
        assert!(fault(r#"{"text":1}"#).contains("expected a string"));
        assert!(fault(r#"{"text":"a","txt":"b"}"#).contains("unknown field `txt`"));
    }
}
