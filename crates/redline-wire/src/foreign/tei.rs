//! `/predict`, `/embed` and `/info`, as Text Embeddings Inference has them.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::limits::MAX_TEXTS;
use crate::named::{self, names};
use crate::shape::{self, list_of, one_of, schemas, text};
use crate::{Entries, Finite, Pooling, Prompts};

/// Asks for the class of texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictBody {
    /// The texts.
    pub inputs: PredictInputs,
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// Whether scores are log-probabilities.
    pub raw_scores: Option<bool>,
}

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbedBody {
    /// A text, texts, the token ids of one text, or those of several.
    #[schemars(with = "shape::PromptsUpTo<MAX_TEXTS>")]
    pub inputs: Prompts,
    /// Whether vectors are divided by their length, to length 1; yes if absent.
    pub normalize: Option<bool>,
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
}

/// The end at which texts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(remote = "TruncationDirection")]
pub enum TruncationDirection {
    /// The beginning.
    #[serde(alias = "left")]
    Left,
    /// The end.
    #[serde(alias = "right")]
    Right,
}

names!(TruncationDirection);

/// The texts of a request: one, or a batch. The two texts of a pair are parts of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictInputs {
    /// One text, as its parts.
    Single(Vec<String>),
    /// A batch.
    Batch(Vec<Vec<String>>),
}

impl<'de> Deserialize<'de> for PredictInputs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = PredictInputs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a pair of strings, or a list of lists of one or two strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<PredictInputs, E> {
                Ok(PredictInputs::Single(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PredictInputs, A::Error> {
                let (mut single, mut batch) = (Vec::new(), Vec::new());
                while let Some(part) = seq.next_element::<TextOrParts>()? {
                    match part {
                        TextOrParts::Text(text) => single.push(text),
                        TextOrParts::Parts(parts) => batch.push(parts),
                    }
                    if single.len() > 2 || (!single.is_empty() && !batch.is_empty()) {
                        return Err(A::Error::custom(
                            "the list is neither a pair of strings nor a batch of lists",
                        ));
                    }
                }
                Ok(if single.is_empty() {
                    PredictInputs::Batch(batch)
                } else {
                    PredictInputs::Single(single)
                })
            }
        }
        from.deserialize_any(Forms)
    }
}

/// An element of a list of inputs.
enum TextOrParts {
    Text(String),
    Parts(Vec<String>),
}

impl<'de> Deserialize<'de> for TextOrParts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = TextOrParts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a list of one or two strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<TextOrParts, E> {
                Ok(TextOrParts::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TextOrParts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                    if parts.len() > 2 {
                        break;
                    }
                }
                match parts.len() {
                    1 | 2 => Ok(TextOrParts::Parts(parts)),
                    count => Err(A::Error::invalid_length(count, &self)),
                }
            }
        }
        from.deserialize_any(Forms)
    }
}

/// Answer of `/predict`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Predictions {
    /// To one text: its classes, the most probable one first.
    Single(Vec<PredictedClass>),
    /// To a batch.
    Batch(Vec<Vec<PredictedClass>>),
}

/// A class of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PredictedClass {
    /// Its probability among the classes, or the logarithm of that.
    pub score: Finite<f32>,
    /// The class.
    pub label: String,
}

/// What the server runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiInfo {
    /// The model's name.
    pub model_id: String,
    /// The revision of the model; not known.
    pub model_sha: Option<String>,
    /// Tier and formats in short.
    pub model_dtype: String,
    /// What the model is used for.
    pub model_type: TeiModelType,
    /// Maximum number of prompts that wait or run.
    pub max_concurrent_requests: usize,
    /// Longest sequence in tokens.
    pub max_input_length: usize,
    /// Maximum number of tokens in a pass.
    pub max_batch_tokens: usize,
    /// Maximum number of texts in a request.
    pub max_client_batch_size: usize,
    /// Whether texts that are too long are cut without being asked: they are not.
    pub auto_truncate: bool,
    /// How text is generated: `autoregressive` or `diffusion`; `null`: the model generates none.
    pub generation: Option<&'static str>,
    /// The version of the server.
    pub version: &'static str,
}

/// What a model is used for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeiModelType {
    /// It classifies.
    Classifier(TeiClasses),
    /// It ranks documents.
    Reranker(TeiClasses),
    /// It embeds texts.
    Embedding(TeiEmbedding),
}

/// How a model embeds texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiEmbedding {
    /// How the states of a text become one vector.
    pub pooling: TeiPooling,
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeiPooling {
    /// The state of the first token.
    Cls,
    /// The mean of all states.
    Mean,
    /// The state of the last token.
    LastToken,
}

/// The classes of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiClasses {
    /// The class of each index.
    pub id2label: Entries<String>,
    /// The index of each class.
    pub label2id: Entries<usize>,
}

schemas! {
    TruncationDirection: |_g| one_of(&["Left", "Right", "left", "right"]);
    PredictInputs: |_g| {
        let texts = list_of(text(), [1, 2]);
        json!({ "anyOf": [text(), texts, list_of(texts.clone(), [1, MAX_TEXTS])] })
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_take_every_documented_form() {
        let list = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let check = |json: &str, expect: PredictInputs| {
            assert_eq!(serde_json::from_str::<PredictInputs>(json).unwrap(), expect, "{json}");
        };
        check(r#""a""#, PredictInputs::Single(list(&["a"])));
        check(r#"["a"]"#, PredictInputs::Single(list(&["a"])));
        check(r#"["a","b"]"#, PredictInputs::Single(list(&["a", "b"])));
        check(r#"[["a"],["a","b"]]"#, PredictInputs::Batch(vec![list(&["a"]), list(&["a", "b"])]));
        check("[]", PredictInputs::Batch(Vec::new()));
        for json in
            [r#"["a","b","c"]"#, r#"["a",["b"]]"#, r#"[["a"],"b"]"#, "[[]]", r#"[["a","b","c"]]"#, "7"]
        {
            assert!(serde_json::from_str::<PredictInputs>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_request_to_embed_has_texts_or_token_ids() {
        let body = |json: &str| serde_json::from_str::<EmbedBody>(json).map_err(|error| error.to_string());
        for (json, count) in
            [(r#""a""#, 1), (r#"["a"]"#, 1), (r#"["a","b"]"#, 2), ("[1,2]", 1), ("[[1],[2]]", 2), ("[]", 0)]
        {
            assert_eq!(body(&format!(r#"{{"inputs":{json}}}"#)).unwrap().inputs.0.len(), count, "{json}");
        }
        let full = r#"{"inputs":"a","normalize":false,"truncate":true,"truncation_direction":"Left","prompt_name":"query","dimensions":4,
            "pooling":"cls"}"#;
        assert_eq!(body(full).unwrap().pooling, Some(Pooling::First));
        assert!(body(r#"{"inputs":[["a","b"]]}"#).unwrap_err().contains("expected i64"));
        assert!(body(r#"{"inputs":"a","input":"b"}"#).unwrap_err().contains("unknown field `input`"));
        let pooling = |of: TeiPooling| serde_json::to_string(&of).unwrap();
        assert_eq!([TeiPooling::Cls, TeiPooling::LastToken].map(pooling), [r#""cls""#, r#""last_token""#]);
    }
}
