//! Reranking: orders documents by the probability that the model would write yes after query and document.

use redline_settings::{Setting, hint};

use super::template::{Frame, Shared};
use super::{Judgement, label_after, scored, some_label};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::outcome::{ItemError, ScoreOutcome, Taken};
use crate::request::{Label, LongLabels, Truncate};
use crate::ticket::RerankTicket;

/// Placeholder of the query.
const QUERY: &str = "{query}";
/// Placeholder of the document.
const DOCUMENT: &str = "{document}";

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

/// A ranked document.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The document's index in the request.
    pub index: usize,
    /// The probability of yes against no: a softmax over the two.
    pub relevance: f32,
    /// Number of tokens in its prompt.
    pub prompt_tokens: usize,
    /// Whether the document was cut to fit the context.
    pub truncated: bool,
}

/// Answer to `rerank`.
#[derive(Clone, Debug)]
pub struct RerankOutcome {
    /// The most relevant documents first, equals by index; then failed documents, by index.
    pub results: Vec<Result<Ranked, ItemError>>,
    /// The tokens of yes and of no.
    pub label_token_ids: Vec<Vec<u32>>,
    /// Resources used, for all documents.
    pub taken: Taken,
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

    /// Refuses requests that are invalid for every model. [`Engine::rerank`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        self.frame().map(drop)
    }

    /// Yes and no, adapted to the template.
    fn labels(&self) -> Vec<Label> {
        [&self.yes, &self.no].map(|label| label_after(self.template.as_deref(), label)).into()
    }

    fn frame(&self) -> Result<Frame, EngineError> {
        if self.top_n == Some(0) {
            let hint = hint!["give ", Setting::TopN, " at least 1, or leave it out for all"];
            return Err(EngineError::request("0 documents were asked for", hint));
        }
        some_label("the label for yes", &self.yes)?;
        some_label("the label for no", &self.no)?;
        let labels = self.labels();
        if labels[0] == labels[1] {
            let fact = "yes and no are the same label: every document would be relevant by 0.5";
            return Err(EngineError::request(fact, "give two labels that differ"));
        }
        let template = self.template.as_deref().unwrap_or(Self::TEMPLATE);
        Frame::new(template, DOCUMENT, &[Shared { name: QUERY, required: true, text: &self.query }])
    }

    fn judgement(self) -> Result<Judgement, EngineError> {
        Ok(Judgement {
            noun: "document",
            frame: self.frame()?,
            labels: self.labels(),
            texts: self.documents,
            long_labels: self.long_labels,
            truncate: self.truncate,
            item_errors: self.item_errors,
            cache_salt: self.cache_salt,
            timeout_s: self.timeout_s,
        })
    }
}

/// The ranked documents, from their scores and from whether each was cut.
fn ranked(outcome: ScoreOutcome, cut: Vec<bool>, top_n: usize) -> RerankOutcome {
    let (mut ranked, mut failed) = (Vec::new(), Vec::new());
    for (index, document) in scored(outcome.items, cut).enumerate() {
        match document {
            Ok((item, truncated)) => {
                let relevance = item.scores.first().copied().unwrap_or(0.0);
                ranked.push(Ranked { index, relevance, prompt_tokens: item.prompt_tokens, truncated });
            }
            Err(error) => failed.push(Err(error)),
        }
    }
    // The sort is stable: equals stay in the order of their indices.
    ranked.sort_by(|a, b| b.relevance.total_cmp(&a.relevance));
    ranked.truncate(top_n);
    let results = ranked.into_iter().map(Ok).chain(failed).collect();
    RerankOutcome { results, label_token_ids: outcome.label_token_ids, taken: outcome.taken }
}

impl Engine {
    /// Ranks the documents by relevance to the query.
    pub fn rerank(&self, request: RerankRequest) -> Result<RerankOutcome, EngineError> {
        self.submit_rerank(request, &Cancel::new())?.wait()
    }

    /// Starts to rerank. Other requests may be submitted before this one is finished.
    pub fn submit_rerank(
        &self,
        request: RerankRequest,
        cancel: &Cancel,
    ) -> Result<RerankTicket, EngineError> {
        let top_n = request.top_n.unwrap_or(usize::MAX);
        request.judgement()?.submit(self, cancel, move |scores, cut| ranked(scores, cut, top_n))
    }
}
