//! Reranking: orders documents by the probability that the model would write yes after query and document.

use redline_settings::{Setting, hint};

use super::order::in_order;
use super::preset::RerankPreset;
use super::template::{Frame, Shared};
use super::{Judged, Judgement, check_threshold, cross_encoder, label_after, late_interaction, some_label};
use crate::answer::outcome::{Ranked, RerankOutcome};
use crate::answer::ticket::RerankTicket;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::request::{Label, RerankRequest};

/// Placeholder of the query.
const QUERY: &str = "{query}";
/// Placeholder of the document.
const DOCUMENT: &str = "{document}";

impl RerankRequest {
    /// Refuses requests that are invalid for every model. [`Engine::rerank`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        self.frame().map(drop)
    }

    /// Yes and no, adapted to the template.
    fn labels(&self) -> Vec<Label> {
        [&self.yes, &self.no].map(|label| label_after(self.options.template.as_deref(), label)).into()
    }

    /// Refuses a request for no documents.
    pub(super) fn check_count(&self) -> Result<(), EngineError> {
        if self.top_n == Some(0) {
            let hint = hint!["give ", Setting::TopN, " at least 1, or leave it out for all"];
            return Err(EngineError::request("0 documents were asked for", hint));
        }
        Ok(())
    }

    pub(super) fn frame(&self) -> Result<Frame, EngineError> {
        self.check_count()?;
        some_label("the label for yes", &self.yes)?;
        some_label("the label for no", &self.no)?;
        let labels = self.labels();
        if labels[0] == labels[1] {
            let fact = "yes and no are the same label: every document would be relevant by 0.5";
            return Err(EngineError::request(fact, "give two labels that differ"));
        }
        check_threshold(self.threshold)?;
        let template = self.options.template.as_deref().unwrap_or(Self::TEMPLATE);
        Frame::new(template, DOCUMENT, &[Shared { name: QUERY, required: true, text: &self.query }])
    }

    fn judgement(self) -> Result<Judgement, EngineError> {
        let (frame, labels) = (self.frame()?, self.labels());
        Ok(Judgement {
            nouns: ("document", "label"),
            frame,
            texts: self.documents,
            labels,
            options: self.options,
        })
    }
}

/// The ranked documents: at most `top_n`, with a relevance of at least `threshold`.
fn ranked(judged: Judged, top_n: usize, threshold: f32) -> RerankOutcome {
    let (mut ranked, mut failed) = (Vec::new(), Vec::new());
    for (index, document) in judged.texts.into_iter().enumerate() {
        match document {
            Ok((item, truncated)) => {
                let relevance = item.scores.first().copied().unwrap_or(0.0);
                let log_odds = match item.logprobs[..] {
                    [yes, no] => yes - no,
                    _ => 0.0,
                };
                let prompt_tokens = item.prompt_tokens;
                ranked.push(Ranked { index, relevance, log_odds, prompt_tokens, truncated });
            }
            Err(error) => failed.push(Err(error)),
        }
    }
    RerankOutcome {
        results: in_order(ranked, failed, top_n, threshold),
        label_token_ids: judged.label_token_ids,
        end_token_ids: judged.end_token_ids,
        prefix_label: judged.prefix,
        cost: judged.cost,
        receipt: judged.receipt,
    }
}

impl Engine {
    /// Ranks the documents by relevance to the query.
    pub fn rerank(&self, request: RerankRequest) -> Result<RerankOutcome, EngineError> {
        self.submit_rerank(request, &Cancel::new())?.wait()
    }

    /// The form in which the model was trained to rerank, if its files say so. Requests without a template have it.
    pub fn rerank_preset(&self) -> Option<&RerankPreset> {
        self.rerank_preset.as_ref()
    }

    /// Starts to rerank. Other requests may be submitted before this one is finished.
    pub fn submit_rerank(
        &self,
        mut request: RerankRequest,
        cancel: &Cancel,
    ) -> Result<RerankTicket, EngineError> {
        if let Some(preset) = self.rerank_preset() {
            preset.complete(&mut request, self.classifier.is_none());
        }
        if let Some(classifier) = self.classifier.clone() {
            return cross_encoder::submit(self, request, classifier, cancel);
        }
        if self.info.multi_vector.is_some() {
            return late_interaction::submit(self, request, cancel);
        }
        let (top_n, threshold) = (request.top_n.unwrap_or(usize::MAX), request.threshold.unwrap_or(0.0));
        request.judgement()?.submit(self, cancel, move |judged| ranked(judged, top_n, threshold))
    }
}
