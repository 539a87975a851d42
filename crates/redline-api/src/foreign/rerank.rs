//! `/v1/rerank`: documents by their relevance, in the forms of Cohere and TEI.

use redline_engine::{Ranked, RerankOutcome, RerankRequest, Truncate};
use redline_wire::limits::MAX_DOCUMENTS;
use redline_wire::{
    DocumentBody, Finite, RankedDocument, RankedDocuments, RerankBody, TeiRank, TruncationDirection,
};

use super::AnswerHead;
use super::fields::{count, refused, salt, timeout};
use crate::{ApiError, cost, receipt};

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
        keys.or(body.receipt.as_ref().map(|_| "receipt"))
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
    request.options.cache_salt = salt(body.cache_salt)?;
    request.options.timeout_s = timeout(body.timeout_s)?;
    request.options.receipt = receipt::options(body.receipt);
    Ok((request, form))
}

/// The end at which TEI cuts.
pub(super) fn end_of(direction: Option<TruncationDirection>) -> Truncate {
    match direction {
        Some(TruncationDirection::Left) => Truncate::Left,
        Some(TruncationDirection::Right) | None => Truncate::Right,
    }
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
