//! `rerank`: documents in the order of their relevance to a query.

use redline_engine::{ItemError, Label, Ranked, RerankOutcome, RerankRequest};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::Strings;
use crate::json::parts::with_parts;
use crate::json::version::SchemaVersion;
use crate::jsonl::judge::{self, JudgeKeys, JudgeMeta};
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// A request to rerank, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "RerankLine")]
pub struct RerankLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// The query.
    pub query: Option<String>,
    /// The documents.
    #[serde(alias = "document")]
    pub documents: Strings,
    /// What the model writes for a relevant document.
    pub yes: Option<String>,
    /// What the model writes for an irrelevant document.
    pub no: Option<String>,
    /// Maximum number of ranked documents to return.
    pub top_n: Option<usize>,
    /// The smallest relevance of documents to return.
    pub threshold: Option<f32>,
    /// How the texts are put and labels are scored.
    #[serde(skip)]
    pub judge: JudgeKeys,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
}

with_parts! {
    RerankLine { judge: JudgeKeys, options: RequestOptions }
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

/// Builds a request. Absent keys take their values from `defaults`, whose documents and salt are not used; an empty query there
/// counts as absent.
pub fn request(line: RerankLine, defaults: &RerankRequest) -> Result<RerankRequest, ApiError> {
    let default_query = (!defaults.query.is_empty()).then(|| defaults.query.clone());
    let label = |text: Option<String>, default: &Label| text.map_or_else(|| default.clone(), Label::Text);
    Ok(RerankRequest {
        query: line.query.or(default_query).ok_or(ApiError::NoQuery)?,
        documents: line.documents.0,
        yes: label(line.yes, &defaults.yes),
        no: label(line.no, &defaults.no),
        top_n: line.top_n.or(defaults.top_n),
        threshold: line.threshold.or(defaults.threshold),
        options: line.judge.options(line.options, &defaults.options),
    })
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: RerankOutcome) -> Reranking {
    let result = |result| match result {
        Ok(Ranked { index, relevance, prompt_tokens, truncated, .. }) => RerankResult {
            index,
            relevance: Some(Finite(relevance)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { index, message }) => {
            RerankResult { index, error: Some(message), ..RerankResult::default() }
        }
    };
    Reranking {
        object: "rerank".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        results: outcome.results.into_iter().map(result).collect(),
        usage: cost::usage(outcome.cost.usage),
        meta: judge::meta(model, outcome.label_token_ids, outcome.end_token_ids, outcome.cost),
        receipt: receipt::attached(outcome.receipt),
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{AdapterChoice, JudgeOptions, LabelEnd, LongLabels, Truncate};

    use super::*;

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let text = |text: &str| Label::Text(text.to_owned());
        let flags = RerankRequest {
            yes: text("Y"),
            no: text("N"),
            top_n: Some(3),
            threshold: Some(0.5),
            options: JudgeOptions { timeout_s: Some(2.0), item_errors: true, ..JudgeOptions::default() },
            ..RerankRequest::new("q".to_owned(), Vec::new())
        };
        let line =
            |json: &str| format!("{:#?}", request(serde_json::from_str(json).unwrap(), &flags).unwrap());
        let bare = RerankRequest { documents: vec!["d".to_owned()], ..flags.clone() };
        assert_eq!(line(r#"{"documents":"d"}"#), format!("{bare:#?}"));
        let keys = RerankRequest {
            yes: text("true"),
            no: text("false"),
            top_n: Some(1),
            threshold: Some(0.25),
            options: JudgeOptions {
                receipt: None,
                template: Some("{query}{document}".to_owned()),
                add_special_tokens: true,
                long_labels: LongLabels::Mean,
                label_end: LabelEnd::Always,
                end: Some(text(".")),
                calibrate: Some("N/A".to_owned()),
                truncate: Some(Truncate::Right),
                max_text_tokens: None,
                item_errors: false,
                cache_salt: "tenant".to_owned(),
                adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
                queueing: redline_engine::Queueing::default(),
                timeout_s: Some(3.0),
            },
            ..RerankRequest::new("r".to_owned(), vec!["d".to_owned(), "e".to_owned()])
        };
        let json = r#"{"query":"r","documents":["d","e"],"yes":"true","no":"false","top_n":1,"threshold":0.25,
            "template":"{query}{document}","length":"mean","label_end":"always","end":".","calibrate":"N/A","truncate":"right",
            "item_errors":false,"cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }

    #[test]
    fn a_query_comes_from_the_line_or_the_defaults() {
        let line = |json: &str| serde_json::from_str::<RerankLine>(json).unwrap();
        let without = RerankRequest::new(String::new(), Vec::new());
        assert!(matches!(request(line(r#"{"documents":["d"]}"#), &without), Err(ApiError::NoQuery)));
        assert_eq!(request(line(r#"{"query":"","documents":["d"]}"#), &without).unwrap().query, "");
    }

    #[test]
    fn one_document_may_be_given_alone() {
        let rerank: RerankLine = serde_json::from_str(r#"{"id":1,"document":"d","query":"q"}"#).unwrap();
        assert_eq!((rerank.documents.0, rerank.query.as_deref()), (vec!["d".to_owned()], Some("q")));
    }
}
