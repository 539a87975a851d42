//! Requests to rerank, as Cohere, Jina and vLLM have them (`documents`), and as TEI has them (`texts`).

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cases::{case, case_if_given, cases, given, not_true};
use crate::limits::MAX_DOCUMENTS;
use crate::shape;
use crate::{AdapterNames, Finite, ReceiptChoice, ReceiptDocument, TruncationDirection, Usage};

/// Asks for the order of documents.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields)]
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
    /// The adapters, applied one after the other.
    pub adapter: Option<AdapterNames>,
    /// The end at which they are cut; the right one if absent. In TEI's form.
    pub truncation_direction: Option<TruncationDirection>,
    /// Whether scores are log-odds instead of probabilities, in TEI's form.
    pub raw_scores: Option<bool>,
    /// Longer documents are cut to so many tokens, in Cohere's form.
    #[schemars(range(min = 1))]
    pub max_tokens_per_doc: Option<usize>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    pub receipt: Option<ReceiptChoice>,
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
    let of_cohere = ["top_n", "return_documents", "max_tokens_per_doc", "documents"];
    let of_tei = ["return_text", "truncate", "truncation_direction", "texts"];
    cases(schema, [case([("documents", given())], &of_tei), case([("texts", given())], &of_cohere)]);
    let probabilities = case_if_given([("raw_scores", not_true())]);
    cases(schema, [probabilities, case([("texts", given())], &of_cohere)]);
}
