//! `/v1/embeddings`, as OpenAI has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::MAX_TEXTS;
use crate::named::{self, names};
use crate::shape::{self, one_of, schemas};
use crate::{AdapterNames, Finite, Pooling, Prompts, ReceiptChoice, ReceiptDocument, Truncate, Usage};

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingsBody {
    /// The model's name.
    pub model: Option<String>,
    /// A text, texts, the token ids of one text, or those of several.
    #[schemars(with = "shape::PromptsUpTo<MAX_TEXTS>")]
    pub input: Prompts,
    /// How vectors are written.
    pub encoding_format: Option<EncodingFormat>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// Names the end user. Accepted and not used.
    pub user: Option<String>,
    /// Whether vectors are divided by their length, to length 1; `null`: as the model says.
    pub normalize: Option<bool>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// Which end of a text is cut if it exceeds the maximum length; `null`: an error.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Truncate>>")]
    pub truncate: Option<Truncate>,
    /// The adapters, applied one after the other.
    pub adapter: Option<AdapterNames>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    pub receipt: Option<ReceiptChoice>,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "EncodingFormat", rename_all = "lowercase")]
pub enum EncodingFormat {
    /// As a list of numbers.
    #[default]
    Float,
    /// As the bytes of the numbers (`f32`, little-endian) in base64.
    Base64,
}

names!(EncodingFormat);

/// Answer of `/v1/embeddings`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EmbeddingsAnswer {
    /// Always `list`.
    pub object: &'static str,
    /// One entry per text, in the order of the request.
    pub data: Vec<EmbeddedText>,
    /// The model's name.
    pub model: String,
    /// Token counts, summed over all texts.
    pub usage: Usage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// The vector of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EmbeddedText {
    /// Always `embedding`.
    pub object: &'static str,
    /// Its index in the request.
    pub index: usize,
    /// The vector.
    pub embedding: WrittenVector,
}

/// A vector in one of the formats.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum WrittenVector {
    /// A list of numbers.
    Float(Vec<Finite<f32>>),
    /// The bytes of the numbers in base64.
    Base64(String),
}

schemas! {
    EncodingFormat: |_g| one_of(&["float", "base64"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextOrIds;

    #[test]
    fn a_body_takes_every_documented_form_and_no_other_keys() {
        let body = |json: &str| serde_json::from_str::<EmbeddingsBody>(json).map_err(|e| e.to_string());
        let plain = body(r#"{"input":"a"}"#).unwrap();
        assert_eq!(plain.input.0, [TextOrIds::Text("a".to_owned())]);
        assert_eq!(plain.encoding_format.unwrap_or_default(), EncodingFormat::Float);
        let full = r#"{"model":"m","input":[[1,2],[3]],"encoding_format":"base64","dimensions":4,"user":"u","normalize":false,
            "pooling":"last","prompt_name":"query","truncate":"left","adapter":["a"],"cache_salt":"s","timeout_s":2}"#;
        let full = body(full).unwrap();
        assert_eq!(full.input.0, [TextOrIds::Ids(vec![1, 2]), TextOrIds::Ids(vec![3])]);
        assert_eq!(full.encoding_format, Some(EncodingFormat::Base64));
        assert_eq!((full.pooling, full.truncate), (Some(Pooling::Last), Some(Truncate::Left)));
        for (json, expect) in [
            ("{}", "missing field `input`"),
            (r#"{"input":7}"#, "a list of token ids"),
            (r#"{"input":["a",1]}"#, "mixed"),
            (r#"{"input":"a","encoding_format":"Float"}"#, "`float` or `base64`"),
            (r#"{"input":"a","pooling":"max"}"#, "`cls`, `mean`, `last`"),
            (r#"{"input":"a","truncate_prompt_tokens":7}"#, "unknown field `truncate_prompt_tokens`"),
        ] {
            let error = body(json).unwrap_err();
            assert!(error.contains(expect), "{json}: {error}");
        }
    }

    #[test]
    fn a_vector_is_a_list_or_a_string() {
        let written = |vector: WrittenVector| {
            serde_json::to_string(&EmbeddedText { object: "embedding", index: 1, embedding: vector })
        };
        let float = written(WrittenVector::Float(vec![Finite(0.5), Finite(-1.0)])).unwrap();
        assert_eq!(float, r#"{"object":"embedding","index":1,"embedding":[0.5,-1.0]}"#);
        let base64 = written(WrittenVector::Base64("AAAAPw==".to_owned())).unwrap();
        assert_eq!(base64, r#"{"object":"embedding","index":1,"embedding":"AAAAPw=="}"#);
        assert!(written(WrittenVector::Float(vec![Finite(f32::NAN)])).is_err());
    }
}
