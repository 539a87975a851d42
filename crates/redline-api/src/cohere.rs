//! Requests to rerank, as Cohere, Jina and vLLM have them (`documents`), and as TEI has them (`texts`).

use redline_engine::{Ranked, RerankOutcome, RerankRequest};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::{case, case_if_given, cases, given, not_true};
use crate::json::fields::{count, refused, salt, timeout};
use crate::json::finite::Finite;
use crate::json::limits::MAX_DOCUMENTS;
use crate::json::parts::with_parts;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;
use crate::tei::truncation::{TruncationDirection, end_of};

/// Asks for the order of documents.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "RerankBody")]
pub struct RerankBody {
    /// The model's name.
    pub model: Option<String>,
    /// The query.
    pub query: String,
    /// The documents: Cohere's form.
    #[schemars(length(min = 1, max = MAX_DOCUMENTS))]
    pub documents: Option<Vec<DocumentBody>>,
    /// The documents: TEI's form, which is answered by a plain list.
    #[schemars(length(min = 1, max = MAX_DOCUMENTS))]
    pub texts: Option<Vec<String>>,
    /// Maximum number of results; 0: all.
    pub top_n: Option<usize>,
    /// Whether results repeat their documents.
    pub return_documents: Option<bool>,
    /// As `return_documents`, in TEI's form.
    pub return_text: Option<bool>,
    /// Whether documents that are too long are cut at their end, in TEI's form.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent. In TEI's form.
    pub truncation_direction: Option<TruncationDirection>,
    /// Whether scores are log-odds instead of probabilities, in TEI's form.
    pub raw_scores: Option<bool>,
    /// Longer documents are cut to so many tokens, in Cohere's form.
    #[schemars(range(min = 1))]
    pub max_tokens_per_doc: Option<usize>,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub options: RequestOptions,
}

with_parts! {
    RerankBody { options: RequestOptions }
}

/// A document: a string, or an object with a text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "a document is neither a string nor an object with a `text`")]
pub enum DocumentBody {
    /// The text alone.
    Text(String),
    /// The text in an object.
    Object {
        /// The text.
        text: String,
    },
}

impl DocumentBody {
    /// Its text.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

/// Answer in Cohere's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankedDocuments {
    /// Identifies the answer.
    pub id: String,
    /// The model's name.
    pub model: String,
    /// The most relevant document first.
    pub results: Vec<RankedDocument>,
    /// Token counts.
    pub usage: Usage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// A ranked document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RankedDocument {
    /// Its index in the request.
    pub index: usize,
    /// Its relevance, from 0 to 1.
    pub relevance_score: Finite<f32>,
    /// The document, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentBody>,
}

/// A ranked document in TEI's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiRank {
    /// Its index in the request.
    pub index: usize,
    /// Its relevance, from 0 to 1, or the log-odds of that.
    pub score: Finite<f32>,
    /// The document, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Cohere's form, or TEI's.
fn request_cases(schema: &mut Schema) {
    let of_cohere = ["top_n", "return_documents", "max_tokens_per_doc", "documents", "receipt"];
    let of_tei = ["return_text", "truncate", "truncation_direction", "texts"];
    cases(schema, [case([("documents", given())], &of_tei), case([("texts", given())], &of_cohere)]);
    let probabilities = case_if_given([("raw_scores", not_true())]);
    cases(schema, [probabilities, case([("texts", given())], &of_cohere)]);
}

/// The form of the answer, with the documents that it repeats.
#[derive(Clone, Debug)]
pub struct RerankForm {
    tei: bool,
    log_odds: bool,
    repeated: Option<Vec<String>>,
}

/// An answer in one of the forms.
#[derive(Clone, Debug)]
pub enum RerankAnswer {
    /// Cohere's.
    Documents(RankedDocuments),
    /// TEI's.
    List(Vec<TeiRank>),
}

/// Builds the engine's request.
pub fn request(body: RerankBody) -> Result<(RerankRequest, RerankForm), ApiError> {
    let (tei, param, documents) = match (body.documents, body.texts) {
        (Some(documents), None) => {
            (false, "documents", documents.into_iter().map(DocumentBody::into_text).collect())
        }
        (None, Some(texts)) => (true, "texts", texts),
        (None, None) => {
            let fact = "neither `documents` nor `texts` is given";
            return Err(refused("documents", fact, "give one of them"));
        }
        (Some(_), Some(_)) => {
            let fact = "both `documents` and `texts` are given";
            return Err(refused("texts", fact, "give one of them"));
        }
    };
    count(param, documents.len(), 1..=MAX_DOCUMENTS)?;
    let foreign = if tei {
        let keys = body.return_documents.map(|_| "return_documents").or(body.top_n.map(|_| "top_n"));
        let keys = keys.or(body.max_tokens_per_doc.map(|_| "max_tokens_per_doc"));
        keys.or(body.options.receipt.as_ref().map(|_| "receipt"))
    } else {
        let keys = body.return_text.map(|_| "return_text").or(body.truncate.map(|_| "truncate"));
        let keys = keys.or(body.raw_scores.filter(|&raw| raw).map(|_| "raw_scores"));
        keys.or(body.truncation_direction.map(|_| "truncation_direction"))
    };
    if let Some(key) = foreign {
        let fact = format!("`{key}` is given with `{param}`");
        return Err(refused(key, fact, "it belongs to the other form of the request"));
    }
    let repeats = body.return_documents.or(body.return_text).unwrap_or(false);
    let form = RerankForm {
        tei,
        log_odds: body.raw_scores.unwrap_or(false),
        repeated: repeats.then(|| documents.clone()),
    };
    let mut request = RerankRequest::new(body.query, documents);
    request.top_n = body.top_n.filter(|&n| n > 0);
    if body.truncate == Some(true) {
        request.options.truncate = Some(end_of(body.truncation_direction));
    }
    if body.max_tokens_per_doc == Some(0) {
        return Err(refused("max_tokens_per_doc", "`max_tokens_per_doc` is 0", "give at least 1"));
    }
    request.options.max_text_tokens = body.max_tokens_per_doc;
    request.options.cache_salt = salt(body.options.cache_salt)?;
    request.options.timeout_s = timeout(body.options.timeout_s)?;
    request.options.receipt = receipt::options(body.options.receipt);
    Ok((request, form))
}

/// Builds the answer.
pub fn answer(head: AnswerHead, form: RerankForm, outcome: RerankOutcome) -> RerankAnswer {
    let repeated = |index: usize| form.repeated.as_ref().and_then(|all| all.get(index).cloned());
    let ranked = outcome.results.into_iter().flatten();
    if form.tei {
        let rank = |Ranked { index, relevance, log_odds, .. }| TeiRank {
            index,
            score: Finite(if form.log_odds { log_odds } else { relevance }),
            text: repeated(index),
        };
        return RerankAnswer::List(ranked.map(rank).collect());
    }
    let document = |Ranked { index, relevance, .. }| RankedDocument {
        index,
        relevance_score: Finite(relevance),
        document: repeated(index).map(|text| DocumentBody::Object { text }),
    };
    RerankAnswer::Documents(RankedDocuments {
        id: head.id,
        model: head.model,
        results: ranked.map(document).collect(),
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    })
}
