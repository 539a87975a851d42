//! `embed`: requests and answers.

use redline_settings::{Pooling, Truncate};
use serde::{Deserialize, Serialize};

use crate::adapter::AdapterNames;
use crate::cost::CostMeta;
use crate::finite::Finite;
use crate::id::RequestId;
use crate::input::Strings;
use crate::named;
use crate::receipt::{ReceiptChoice, ReceiptDocument};
use crate::schema::SchemaVersion;
use crate::usage::Usage;

/// A request to embed, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// A text, or several.
    #[serde(alias = "texts")]
    pub text: Strings,
    /// The name of the task whose prompt is put before every text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_name: Option<String>,
    /// How the states of a text become one vector. If absent or `null`, as the model says.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub pooling: Option<Pooling>,
    /// Whether vectors are divided by their length, to length 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
    /// Which end of a text is cut if it exceeds the maximum length. If absent or `null`, such a text is an error.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub truncate: Option<Truncate>,
    /// Only requests with the same salt share entries of the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// The adapters of the request: a name, or a list of names and of objects with `name` and `scale`; `base` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterNames>,
    /// Time limit of the request in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptChoice>,
}

/// Answer to a request to embed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embeddings {
    /// Always `embeddings`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// One vector per text, in the order of the request.
    pub embeddings: Vec<Vec<Finite<f32>>>,
    /// Number of tokens of each text, special ones included.
    pub prompt_tokens: Vec<usize>,
    /// Whether each text was cut to fit the maximum length.
    pub truncated: Vec<bool>,
    /// Token counts, summed over all texts.
    pub usage: Usage,
    /// The cost of the request.
    pub meta: CostMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Embeddings {
        Embeddings {
            receipt: None,
            object: "embeddings".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            embeddings: vec![vec![Finite(0.5), Finite(-0.25)], vec![Finite(0.0), Finite(1.0)]],
            prompt_tokens: vec![3, 9],
            truncated: vec![false, true],
            usage: Usage::new(12, 0, 0),
            meta: CostMeta {
                cache_miss_count: 0,
                computed_tokens: 12,
                shared_prefix_tokens: 0,
                prefix_cache: None,
                queue_s: Finite(0.25),
                compute_s: Finite(0.5),
                peak_memory_bytes: None,
                kernel_path: "scalar/f32".to_owned(),
                threads: 1,
            },
        }
    }

    #[test]
    fn an_answer_has_the_documented_shape() {
        let json = serde_json::to_string(&answer()).unwrap();
        let expect = concat!(
            r#"{"object":"embeddings","schema":1,"model":"demo","embeddings":[[0.5,-0.25],[0.0,1.0]],"#,
            r#""prompt_tokens":[3,9],"truncated":[false,true],"usage":{"#,
        );
        assert!(json.starts_with(expect), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["meta"]["computed_tokens"], 12);
        assert_eq!(serde_json::from_str::<Embeddings>(&json).unwrap(), answer());
    }

    #[test]
    fn a_vector_that_is_no_number_is_not_printed() {
        let mut answer = answer();
        answer.embeddings[1][0] = Finite(f32::NAN);
        assert!(serde_json::to_string(&answer).is_err());
    }

    #[test]
    fn a_line_has_one_text_or_several_and_no_other_keys() {
        let line = |json: &str| serde_json::from_str::<EmbedLine>(json).map_err(|error| error.to_string());
        assert_eq!(line(r#"{"text":"a"}"#).unwrap().text.0, ["a"]);
        let several = line(r#"{"id":7,"texts":["a","b"],"pooling":"cls","truncate":null}"#).unwrap();
        assert_eq!((several.text.0.len(), several.pooling), (2, Some(Pooling::First)));
        let error = line(r#"{"text":"a","pooling":"max"}"#).unwrap_err();
        assert!(error.contains("`cls`, `mean`, `last`"), "{error}");
        assert!(line(r#"{"text":"a","normalise":true}"#).unwrap_err().contains("unknown field `normalise`"));
        assert!(line("{}").unwrap_err().contains("missing field `text`"));
    }
}
