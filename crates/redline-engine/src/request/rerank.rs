//! Requests to rerank documents.

use super::{Label, LongLabels, Truncate};

/// `rerank`: the relevance of each document to the query, most relevant first.
#[derive(Clone, Debug)]
pub struct RerankRequest {
    /// The query.
    pub query: String,
    /// The documents. May be empty.
    pub documents: Vec<String>,
    /// Text with `{query}` and `{document}` once each, ending where the answer is to be written; `None`:
    /// [`RerankRequest::TEMPLATE`]. A reranker needs the template of its training: with any other, it still answers, but the
    /// order is worthless. The part before `{document}` is computed once for all documents.
    pub template: Option<String>,
    /// The answer for a relevant document. With the default template, a text gets a leading space unless it has one; with
    /// another template it is used unchanged.
    pub yes: Label,
    /// The answer for an irrelevant document.
    pub no: Label,
    /// How an answer of several tokens is scored.
    pub long_labels: LongLabels,
    /// Maximum number of ranked documents to return; `None`: all. Documents that failed are always reported.
    pub top_n: Option<usize>,
    /// Which end of a document is cut if its prompt exceeds the context (template and query stay whole); `None`: an error.
    pub truncate: Option<Truncate>,
    /// Report a document's error instead of failing the whole request.
    pub item_errors: bool,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
}

impl RerankRequest {
    /// The default template, for instruction-tuned models, not for models trained to rerank.
    pub const TEMPLATE: &str = "Does the document answer the query? Reply with yes or no.\n\nQuery: {query}\n\nDocument: {document}\n\nAnswer:";

    /// Creates a request with these values. Other fields take their defaults: the default template, yes against no, all
    /// documents, and an error in any document fails the request.
    pub fn new(query: String, documents: Vec<String>) -> Self {
        Self {
            query,
            documents,
            template: None,
            yes: Label::Text(" yes".into()),
            no: Label::Text(" no".into()),
            long_labels: LongLabels::Sum,
            top_n: None,
            truncate: None,
            item_errors: false,
            cache_salt: String::new(),
            timeout_s: None,
        }
    }
}
