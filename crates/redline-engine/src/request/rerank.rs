//! Requests to rerank documents.

use super::{JudgeOptions, Label};

/// `rerank`: the relevance of each document to the query, most relevant first.
#[derive(Clone, Debug)]
pub struct RerankRequest {
    /// The query.
    pub query: String,
    /// The documents. May be empty.
    pub documents: Vec<String>,
    /// The answer for a relevant document. With the default template, a text gets a leading space unless it has one; with
    /// another template it is used unchanged.
    pub yes: Label,
    /// The answer for an irrelevant document.
    pub no: Label,
    /// Maximum number of ranked documents to return; `None`: all. Documents that failed are always reported.
    pub top_n: Option<usize>,
    /// The smallest relevance of documents to return; `None`: any.
    pub threshold: Option<f32>,
    /// Further options. The template is a text with `{query}` and `{document}` once each; its default is
    /// [`RerankRequest::TEMPLATE`]. The part before `{document}` is computed once for all documents. A reranker needs the
    /// template of its training: with any other, it still answers, but the order is worthless.
    pub options: JudgeOptions,
}

impl RerankRequest {
    /// The default template, for instruction-tuned models, not for models trained to rerank.
    pub const TEMPLATE: &str = "Does the document answer the query? Reply with yes or no.\n\nQuery: {query}\n\nDocument: {document}\n\nAnswer:";
    /// The default message of a user to a model with a chat template.
    pub const INSTRUCTION: &str = "Does the document answer the query? Reply with yes or no and nothing else.\n\nQuery: {query}\n\nDocument: {document}";

    /// Creates a request with these values. Other fields take their defaults: yes against no, all documents, and the default
    /// options.
    pub fn new(query: String, documents: Vec<String>) -> Self {
        Self {
            query,
            documents,
            yes: Label::Text(" yes".into()),
            no: Label::Text(" no".into()),
            top_n: None,
            threshold: None,
            options: JudgeOptions::default(),
        }
    }
}
