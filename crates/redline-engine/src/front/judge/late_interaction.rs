//! Reranking by late interaction: query and document become vectors of their tokens, which are compared.

use redline_models::sentence::{DOCUMENT, QUERY};
use redline_settings::hint;

use super::order::{in_order, without_labels};
use super::{cross_encoder, encoded};
use crate::answer::outcome::{EncodeOutcome, Encoded, Ranked};
use crate::answer::ticket::{RerankTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::front::multi_vector::max_sim;
use crate::mode::encode::Reading;
use crate::request::{Prompt, RerankRequest};

const NOUN: &str = "document";

/// Refuses what only models that write yes or no can use, and what has no answer.
fn check(request: &RerankRequest) -> Result<(), EngineError> {
    request.check_count()?;
    let own = || hint!["leave it out: late interaction compares the vectors of tokens, and has no prompt"];
    let refuse =
        |name: &str| Err(EngineError::request(format!("`{name}` is for models that write yes or no"), own()));
    if request.options.template.is_some() {
        return refuse("template");
    }
    cross_encoder::check_words(request, &refuse)?;
    if request.threshold.is_some_and(f32::is_nan) {
        return Err(EngineError::request("the threshold is no number", "give a similarity"));
    }
    if request.options.receipt.is_some() {
        let fact = "there are no receipts of late interaction";
        return Err(EngineError::field("receipt", fact, "leave it out"));
    }
    Ok(())
}

/// Starts to rerank by late interaction.
pub(super) fn submit(
    engine: &Engine,
    mut request: RerankRequest,
    cancel: &Cancel,
) -> Result<RerankTicket, EngineError> {
    check(&request)?;
    let rules = engine.token_vector_rules()?;
    let options = request.options;
    let text = |place: (&str, usize), text: &str, task| {
        engine.token_vector_text(place, &Prompt::Text(text.to_owned()), Some(task), options.truncate)
    };
    let query = text((QUERY, 0), &request.query, QUERY)?;
    let read = |index: usize, document: &str| text((NOUN, index), document, DOCUMENT);
    let (documents, failed) = encoded::all(engine, &mut request.documents, &options, None, read)?;
    let failed = failed.into_iter().map(Err).collect();
    let indices: Vec<usize> = documents.iter().map(|text| text.index).collect();
    let texts = std::iter::once(query).chain(documents).collect();
    let (top_n, threshold) =
        (request.top_n.unwrap_or(usize::MAX), request.threshold.unwrap_or(f32::NEG_INFINITY));
    let is_mean = rules.mean;
    Ticket::begin(cancel, |reply, cancels| {
        let answer = move |outcome: Result<EncodeOutcome, EngineError>| {
            let outcome = outcome.map(|EncodeOutcome { mut texts, cost, receipt, form: _ }| {
                let documents = texts.split_off(1.min(texts.len()));
                let ranked = texts.first().into_iter().flat_map(|query| {
                    indices.iter().zip(&documents).map(move |(&index, document)| {
                        let sum = max_sim(query, document);
                        let relevance = if is_mean { sum / query.vectors.max(1) as f32 } else { sum };
                        let &Encoded { prompt_tokens, truncated, .. } = document;
                        Ranked { index, relevance, log_odds: relevance, prompt_tokens, truncated }
                    })
                });
                without_labels(in_order(ranked.collect(), failed, top_n, threshold), cost, receipt)
            });
            reply.finish(outcome);
        };
        engine.run_texts(texts, Reading::TokenVectors(rules), NOUN, cancels, options, Box::new(answer))
    })
}
