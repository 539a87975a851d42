//! `classify` and `rerank`: answers.

use serde::{Deserialize, Serialize};

use crate::cost::CostMeta;
use crate::finite::Finite;
use crate::input::LabelIds;
use crate::schema::SchemaVersion;
use crate::usage::Usage;

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
}

/// The classes of one text. If the text failed, all fields but `index` and `error` are `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassResult {
    /// The text's index in the request, from 0.
    pub index: usize,
    /// The most probable class; the first one on a tie.
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
    fn a_relevance_that_is_no_number_is_not_printed() {
        let result = RerankResult { relevance: Some(Finite(f32::NAN)), ..RerankResult::default() };
        assert!(serde_json::to_string(&result).is_err());
    }
}
