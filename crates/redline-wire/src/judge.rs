//! `classify` and `rerank`: requests and answers.

use redline_settings::{LabelEnd, LongLabels, Truncate};
use serde::{Deserialize, Serialize};

use crate::adapter::AdapterNames;
use crate::cost::CostMeta;
use crate::finite::Finite;
use crate::id::RequestId;
use crate::input::{LabelIds, Strings};
use crate::named;
use crate::receipt::{ReceiptChoice, ReceiptDocument};
use crate::schema::SchemaVersion;
use crate::usage::Usage;

/// A request to classify, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifyLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// A text, or several.
    #[serde(alias = "texts")]
    pub text: Strings,
    /// The classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<String>>,
    /// The smallest probability that the best class must have to be the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// The text into which each text is put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// How a class of several tokens is scored.
    #[serde(default, alias = "length", skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub long_labels: Option<LongLabels>,
    /// Whether the end of a class is scored with it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub label_end: Option<LabelEnd>,
    /// What the model writes after a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// A text without content, by which the probabilities are calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrate: Option<String>,
    /// Which end of a text is cut if its prompt exceeds the context. If absent or `null`, such a text is an error.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub truncate: Option<Truncate>,
    /// Report a text's error in its place instead of failing the whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_errors: Option<bool>,
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

/// A request to rerank, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RerankLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// The query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The documents.
    #[serde(alias = "document")]
    pub documents: Strings,
    /// What the model writes for a relevant document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yes: Option<String>,
    /// What the model writes for an irrelevant document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no: Option<String>,
    /// Maximum number of ranked documents to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_n: Option<usize>,
    /// The smallest relevance of documents to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f32>,
    /// The text into which query and document are put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// How a label of several tokens is scored.
    #[serde(default, alias = "length", skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub long_labels: Option<LongLabels>,
    /// Whether the end of a label is scored with it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub label_end: Option<LabelEnd>,
    /// What the model writes after yes and no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// A document without content, by which the probabilities are calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrate: Option<String>,
    /// Which end of a document is cut if its prompt exceeds the context. If absent or `null`, such a document is an error.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub truncate: Option<Truncate>,
    /// Report a document's error in its place instead of failing the whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_errors: Option<bool>,
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

/// Answer to a classification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classification {
    /// Always `classification`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// The classes, in the order of the probabilities.
    pub classes: Vec<String>,
    /// One result per text, in the order of the request.
    pub results: Vec<ClassResult>,
    /// Token counts.
    pub usage: Usage,
    /// Further details.
    pub meta: JudgeMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// The classes of one text. If the text failed, all fields but `index` and `error` are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassResult {
    /// The text's index in the request, from 0.
    pub index: usize,
    /// The most probable class, the first one on a tie; `null` if its probability is below the threshold.
    pub class: Option<String>,
    /// The probability of each class; they sum to one.
    pub probabilities: Option<Vec<Finite<f32>>>,
    /// The probability of the best class minus that of the second.
    pub margin: Option<Finite<f32>>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: Option<usize>,
    /// Whether the text was cut to fit the context.
    pub truncated: Option<bool>,
    /// The error message, if the text failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answer to a reranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reranking {
    /// Always `rerank`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// The most relevant documents first, ties in request order; then the documents that failed.
    pub results: Vec<RerankResult>,
    /// Token counts, summed over all documents.
    pub usage: Usage,
    /// Further details.
    pub meta: JudgeMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// One document. If it failed, all fields but `index` and `error` are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RerankResult {
    /// The document's index in the request, from 0.
    pub index: usize,
    /// The probability of the yes label against the no label.
    pub relevance: Option<Finite<f32>>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: Option<usize>,
    /// Whether the document was cut to fit the context.
    pub truncated: Option<bool>,
    /// The error message, if the document failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Details of an answer besides the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeMeta {
    /// The token ids of the classes in order, or of the yes and no labels.
    pub label_token_ids: Vec<LabelIds>,
    /// The token ids that were scored after every label, if the end of labels was scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub end_token_ids: Vec<u32>,
    /// The cost of the request.
    #[serde(flatten)]
    pub cost: CostMeta,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> JudgeMeta {
        JudgeMeta {
            label_token_ids: vec![LabelIds(vec![5]), LabelIds(vec![6, 7])],
            end_token_ids: vec![2],
            cost: CostMeta {
                cache_miss_count: 0,
                computed_tokens: 4,
                shared_prefix_tokens: 2,
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
    fn a_classification_has_the_documented_shape() {
        let found = ClassResult {
            class: Some("b".to_owned()),
            probabilities: Some(vec![Finite(0.25), Finite(0.75)]),
            margin: Some(Finite(0.5)),
            prompt_tokens: Some(9),
            truncated: Some(true),
            ..ClassResult::default()
        };
        let failed = ClassResult { index: 1, error: Some("too long".to_owned()), ..ClassResult::default() };
        let answer = Classification {
            receipt: None,
            object: "classification".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            classes: vec!["a".to_owned(), "b".to_owned()],
            results: vec![found, failed],
            usage: Usage::new(9, 0, 0),
            meta: meta(),
        };
        let json = serde_json::to_string(&answer).unwrap();
        let expect = concat!(
            r#"{"object":"classification","schema":1,"model":"demo","classes":["a","b"],"results":[{"index":0,"class":"b","#,
            r#""probabilities":[0.25,0.75],"margin":0.5,"prompt_tokens":9,"truncated":true},{"index":1,"class":null,"#,
            r#""probabilities":null,"margin":null,"prompt_tokens":null,"truncated":null,"error":"too long"}],"usage":{"#,
        );
        assert!(json.starts_with(expect), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["meta"]["label_token_ids"], serde_json::json!([5, [6, 7]]));
        assert_eq!(value["meta"]["end_token_ids"], serde_json::json!([2]));
        assert!(value["meta"]["prefix_cache"].is_null());
        assert_eq!(serde_json::from_str::<Classification>(&json).unwrap(), answer);
    }

    #[test]
    fn a_reranking_has_the_documented_shape() {
        let ranked = RerankResult {
            index: 2,
            relevance: Some(Finite(0.75)),
            prompt_tokens: Some(9),
            truncated: Some(false),
            error: None,
        };
        let failed = RerankResult { error: Some("too long".to_owned()), ..RerankResult::default() };
        let answer = Reranking {
            receipt: None,
            object: "rerank".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            results: vec![ranked, failed],
            usage: Usage::new(9, 0, 4),
            meta: meta(),
        };
        let json = serde_json::to_string(&answer).unwrap();
        let expect = concat!(
            r#"{"object":"rerank","schema":1,"model":"demo","results":[{"index":2,"relevance":0.75,"prompt_tokens":9,"truncated":false},"#,
            r#"{"index":0,"relevance":null,"prompt_tokens":null,"truncated":null,"error":"too long"}],"usage":{"#,
        );
        assert!(json.starts_with(expect), "{json}");
        assert_eq!(serde_json::from_str::<Reranking>(&json).unwrap(), answer);
    }

    #[test]
    fn a_line_has_one_text_or_several_and_no_other_keys() {
        let line = |json: &str| serde_json::from_str::<ClassifyLine>(json).map_err(|error| error.to_string());
        assert_eq!(line(r#"{"text":"a"}"#).unwrap().text.0, ["a"]);
        assert_eq!(line(r#"{"id":[7],"texts":["a","b"],"length":"bytes"}"#).unwrap().text.0, ["a", "b"]);
        let error = line(r#"{"text":"a","label_end":"sometimes"}"#).unwrap_err();
        assert!(error.contains("`auto`, `always`, `never`"), "{error}");
        assert!(line(r#"{"text":"a","klasses":[]}"#).unwrap_err().contains("unknown field `klasses`"));
        assert!(line("{}").unwrap_err().contains("missing field `text`"));
        let rerank: RerankLine = serde_json::from_str(r#"{"id":1,"document":"d","query":"q"}"#).unwrap();
        assert_eq!((rerank.documents.0, rerank.query.as_deref()), (vec!["d".to_owned()], Some("q")));
    }

    #[test]
    fn a_relevance_that_is_no_number_is_not_printed() {
        let result = RerankResult { relevance: Some(Finite(f32::NAN)), ..RerankResult::default() };
        assert!(serde_json::to_string(&result).is_err());
    }
}
