//! `embed`: a vector for each text.

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt};
use redline_settings::{Pooling, Truncate, VectorForm};
use serde::{Deserialize, Serialize};

use crate::adapter::adapters;
use crate::cost::{self, CostMeta, Usage};
use crate::json::id::RequestId;
use crate::json::input::Strings;
use crate::json::named;
use crate::json::parts::with_parts;
use crate::json::vector::Vector;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// A request to embed, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "EmbedLine")]
pub struct EmbedLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// A text, or several.
    #[serde(alias = "texts")]
    pub text: Strings,
    /// What represents a text. If absent or `null`, one vector.
    #[serde(default, with = "named::optional")]
    pub form: Option<VectorForm>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
    /// How the states of a text become one vector. If absent or `null`, as the model says.
    #[serde(default, with = "named::optional")]
    pub pooling: Option<Pooling>,
    /// Whether vectors are divided by their length, to length 1.
    pub normalize: Option<bool>,
    /// Number of values of a vector, if it is to be less than the model's own.
    pub dimensions: Option<usize>,
    /// Which end of a text is cut if it exceeds the maximum length. If absent or `null`, such a text is an error.
    #[serde(default, with = "named::optional")]
    pub truncate: Option<Truncate>,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
}

with_parts! {
    EmbedLine { options: RequestOptions }
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
    /// What represents each text, in the order of the request.
    pub embeddings: Vec<Vector>,
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

/// Builds a request. Absent keys take their values from `defaults`, whose texts, salt and queueing are not used.
pub fn request(line: EmbedLine, defaults: &EmbedRequest) -> EmbedRequest {
    EmbedRequest {
        form: line.form.unwrap_or(defaults.form),
        pooling: line.pooling.or(defaults.pooling),
        normalise: line.normalize.or(defaults.normalise),
        dimensions: line.dimensions.or(defaults.dimensions),
        prompt_name: line.prompt_name.or_else(|| defaults.prompt_name.clone()),
        truncate: line.truncate.or(defaults.truncate),
        cache_salt: line.options.cache_salt.unwrap_or_default(),
        adapters: adapters(line.options.adapter, &defaults.adapters),
        timeout_s: line.options.timeout_s.or(defaults.timeout_s),
        receipt: receipt::options(line.options.receipt),
        ..EmbedRequest::new(line.text.0.into_iter().map(Prompt::Text).collect())
    }
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: EncodeOutcome) -> Embeddings {
    let EncodeOutcome { form, texts, cost, receipt } = outcome;
    Embeddings {
        object: "embeddings".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        prompt_tokens: texts.iter().map(|text| text.prompt_tokens).collect(),
        truncated: texts.iter().map(|text| text.truncated).collect(),
        embeddings: texts.into_iter().map(|text| Vector::new(form, text)).collect(),
        usage: cost::usage(cost.usage),
        meta: cost::cost(model, cost),
        receipt: receipt::attached(receipt),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{AdapterChoice, Pooling, Queueing, Truncate};

    use super::*;
    use crate::json::finite::Finite;

    fn answer() -> Embeddings {
        Embeddings {
            receipt: None,
            object: "embeddings".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            embeddings: [[0.5, -0.25], [0.0, 1.0]]
                .map(|vector| Vector::Dense(vector.map(Finite).to_vec()))
                .to_vec(),
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
        answer.embeddings[1] = Vector::Dense(vec![Finite(f32::NAN)]);
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

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let texts =
            |texts: &[&str]| texts.iter().map(|text| Prompt::Text((*text).to_owned())).collect::<Vec<_>>();
        let flags = EmbedRequest {
            form: VectorForm::States,
            pooling: Some(Pooling::Last),
            normalise: Some(true),
            dimensions: Some(8),
            prompt_name: Some("query".to_owned()),
            truncate: Some(Truncate::Left),
            timeout_s: Some(2.0),
            cache_salt: "of no line".to_owned(),
            ..EmbedRequest::new(Vec::new())
        };
        let line = |json: &str| format!("{:#?}", request(serde_json::from_str(json).unwrap(), &flags));
        let bare = EmbedRequest { texts: texts(&["a"]), cache_salt: String::new(), ..flags.clone() };
        assert_eq!(line(r#"{"text":"a"}"#), format!("{bare:#?}"));
        let keys = EmbedRequest {
            receipt: None,
            form: VectorForm::Sparse,
            texts: texts(&["a", "b"]),
            pooling: Some(Pooling::First),
            normalise: Some(false),
            dimensions: Some(4),
            prompt_name: Some("document".to_owned()),
            truncate: Some(Truncate::Right),
            cache_salt: "tenant".to_owned(),
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            queueing: Queueing::default(),
            timeout_s: Some(3.0),
        };
        let json = r#"{"text":["a","b"],"form":"sparse","pooling":"cls","normalize":false,"dimensions":4,"prompt_name":"document","truncate":"right",
            "cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }
}
