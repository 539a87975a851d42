//! Receipts: made beside an outcome, and verified by running their request again.

use std::sync::Arc;

use redline_kernels::op::kv::KvFormat;
use redline_models::block::dense::Classifier;
use redline_weights::Checksum;

use super::Engine;
use super::identity::Origin;
use crate::answer::outcome::{
    DiffuseOutcome, EncodeOutcome, FinishReason, GenerateOutcome, ItemScore, ScoreOutcome,
};
use crate::answer::ticket::{Answer, Completion, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::identity::ModelIdentity;
use crate::mode::encode::EncodeText;
use crate::mode::score::prompts::{LabelLists, Tokens};
use crate::receipt::{
    ClassifierText, Receipt, ReceiptAdapter, ReceiptAnswer, ReceiptDifference, ReceiptRequest, Recorder,
};
use crate::request::{
    AdapterChoice, DiffuseRequest, EmbedRequest, GenerateRequest, JudgeOptions, Label, Prompt, Queueing,
    ReceiptOptions, ScoreRequest, Tokenization,
};

/// A receipt that lacks what its request will give.
pub(super) struct Draft {
    origin: Arc<Origin>,
    kv_format: KvFormat,
    choices: Vec<AdapterChoice>,
    request: ReceiptRequest,
    recorder: Arc<Recorder>,
}

/// The function that completes an outcome, if there is a draft, and what takes the digests.
type Completing<O> = (Option<Completion<O>>, Option<Arc<Recorder>>);

impl Draft {
    fn receipt(self, model: ModelIdentity, answer: Vec<ReceiptAnswer>) -> Box<Receipt> {
        let Self { choices, request, recorder, .. } = self;
        let recorded = recorder.recorded();
        let (rows, layers) = recorded.layers(recorder.layers());
        let adapter = |(AdapterChoice { name, scale }, checksum): (AdapterChoice, &Checksum)| {
            ReceiptAdapter { name, scale, checksum: checksum.to_string() }
        };
        let adapters = choices.into_iter().zip(&recorded.adapters).map(adapter).collect();
        Box::new(Receipt { model, adapters, request, rows, layers, answer })
    }

    /// Completes an outcome with its receipt, if `answer_of` says what was answered, and hands it on. While the identity of the model is
    /// not known, a thread of its own computes it, so that nothing else waits for that.
    fn complete<O: Send + 'static>(
        self,
        outcome: Result<O, EngineError>,
        answer_of: impl FnOnce(&O, &ReceiptRequest) -> Option<Vec<ReceiptAnswer>>,
        attach: fn(&mut O, Box<Receipt>),
        hand_on: Answer<O>,
    ) {
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return hand_on(Err(error)),
        };
        let Some(answer) = answer_of(&outcome, &self.request) else { return hand_on(Ok(outcome)) };
        if let Some(model) = self.origin.known().cloned() {
            attach(&mut outcome, self.receipt(model, answer));
            return hand_on(Ok(outcome));
        }
        let work = move || {
            let model = self.origin.identity(self.kv_format).cloned();
            hand_on(model.map(|model| {
                attach(&mut outcome, self.receipt(model, answer));
                outcome
            }));
        };
        // If the system refuses a thread, the answer is that the engine stopped.
        let _ = std::thread::Builder::new().name("redline-identity".to_owned()).spawn(work);
    }
}

/// Completes outcomes, if there is a draft, by what `answer_of` says was answered.
fn completing<O: Send + 'static>(
    draft: Option<Draft>,
    answer_of: fn(&O, &ReceiptRequest) -> Option<Vec<ReceiptAnswer>>,
    attach: fn(&mut O, Box<Receipt>),
) -> Completing<O> {
    let Some(draft) = draft else { return (None, None) };
    let recorder = draft.recorder.clone();
    let complete: Completion<O> =
        Box::new(move |outcome, hand_on| draft.complete(outcome, answer_of, attach, hand_on));
    (Some(complete), Some(recorder))
}

/// Completes generations that were not cut short.
pub(super) fn completing_generation(draft: Option<Draft>) -> Completing<GenerateOutcome> {
    let answer_of = |outcome: &GenerateOutcome, _: &ReceiptRequest| {
        let others = outcome.others.iter().map(|one| (&one.token_ids, &one.text));
        let all = std::iter::once((&outcome.token_ids, &outcome.text)).chain(others);
        let tokens = |(ids, text): (&Vec<u32>, &String)| ReceiptAnswer::Tokens {
            ids: ids.clone(),
            text: text.clone(),
        };
        (!outcome.cancelled).then(|| all.map(tokens).collect())
    };
    completing(draft, answer_of, |outcome, receipt| outcome.receipt = Some(receipt))
}

/// Completes canvases that were not cut short.
pub(super) fn completing_canvas(draft: Option<Draft>) -> Completing<DiffuseOutcome> {
    let answer_of = |outcome: &DiffuseOutcome, _: &ReceiptRequest| {
        let tokens = || ReceiptAnswer::Tokens { ids: outcome.canvas.clone(), text: outcome.text.clone() };
        (outcome.finish_reason != FinishReason::Cancelled).then(|| vec![tokens()])
    };
    completing(draft, answer_of, |outcome, receipt| outcome.receipt = Some(receipt))
}

/// The function that gets the outcome, with the receipt if there is one; and what takes the digests. Items with numbers that are none have
/// no answer that could be confirmed.
pub(super) fn scores_with_receipt(
    draft: Option<Draft>,
    answer: Answer<ScoreOutcome>,
) -> (Answer<ScoreOutcome>, Option<Arc<Recorder>>) {
    let answer_of = |outcome: &ScoreOutcome, request: &ReceiptRequest| {
        let values = |item: &ItemScore| ReceiptAnswer::Values(item.scores.clone());
        let answer: Vec<_> = outcome.items.iter().flatten().map(values).collect();
        (answer.len() == request.prompts()).then_some(answer)
    };
    completed(completing(draft, answer_of, |outcome, receipt| outcome.receipt = Some(receipt)), answer)
}

/// As [`scores_with_receipt`]. Embeddings are answers by their digests, the outputs of classifiers by their values.
pub(super) fn states_with_receipt(
    draft: Option<Draft>,
    answer: Answer<EncodeOutcome>,
) -> (Answer<EncodeOutcome>, Option<Arc<Recorder>>) {
    let answer_of = |outcome: &EncodeOutcome, request: &ReceiptRequest| {
        let is_vector = matches!(request, ReceiptRequest::Embed(_));
        let values = outcome.texts.iter().map(|text| &text.values);
        let answer = values.map(|values| {
            if is_vector { ReceiptAnswer::vector(values) } else { ReceiptAnswer::Values(values.clone()) }
        });
        Some(answer.collect())
    };
    completed(completing(draft, answer_of, |outcome, receipt| outcome.receipt = Some(receipt)), answer)
}

/// The function that gets the outcome after it was completed.
fn completed<O: 'static>(
    (complete, recorder): Completing<O>,
    answer: Answer<O>,
) -> (Answer<O>, Option<Arc<Recorder>>) {
    match complete {
        Some(complete) => (Box::new(move |outcome| complete(outcome, answer)), recorder),
        None => (answer, None),
    }
}

/// Ids as requests give them.
pub(super) fn signed(ids: &[u32]) -> Vec<i64> {
    ids.iter().map(|&id| i64::from(id)).collect()
}

/// A score request in terms of token ids, with the items whose prompts are sound.
pub(super) fn score_in_ids(
    request: &ScoreRequest,
    prompts: &[Result<Tokens, crate::answer::outcome::ItemError>],
    labels: &LabelLists,
    samples: Option<(usize, u64)>,
) -> ReceiptRequest {
    let sound = prompts.iter().enumerate().filter_map(|(item, prompt)| Some((item, prompt.as_ref().ok()?)));
    let in_ids = |labels: Vec<Vec<u32>>| -> Vec<Label> {
        labels.iter().map(|label| Label::Ids(signed(label))).collect()
    };
    let of_items = sound.clone().map(|(item, _)| in_ids(labels.without_end(labels.of(item))));
    let item_labels = labels.of_item.is_some().then(|| of_items.collect());
    ReceiptRequest::Score(Box::new(ScoreRequest {
        query: Prompt::Ids(Vec::new()),
        items: sound.map(|(_, prompt)| Prompt::Ids(signed(&prompt.ids.to_vec()))).collect(),
        labels: if item_labels.is_some() { Vec::new() } else { in_ids(labels.without_end(0)) },
        item_labels,
        long_labels: request.long_labels,
        label_end: (labels.end_tokens > 0).then(|| Label::Ids(signed(labels.end()))),
        softmax: request.softmax,
        item_first: false,
        full_logprobs: request.full_logprobs,
        tokenization: Tokenization::Concat,
        truncate: None,
        item_errors: false,
        return_token_ids: false,
        return_reading: request.return_reading,
        mc_samples: samples.map(|(samples, _)| samples),
        seed: samples.map(|(_, seed)| seed),
        cache_salt: String::new(),
        adapters: Vec::new(),
        timeout_s: None,
        queueing: Queueing::default(),
        receipt: None,
    }))
}

/// Texts for a classifier.
pub(super) fn texts_in_ids(texts: &[EncodeText]) -> ReceiptRequest {
    let text = |text: &EncodeText| ClassifierText { ids: text.ids.clone(), second_text: text.second_text };
    ReceiptRequest::Classifier(texts.iter().map(text).collect())
}

impl Engine {
    /// A draft of the receipt that a request with these adapters asks for, if it does. `request` gives the request in terms of ids.
    pub(super) fn receipt_draft(
        &self,
        options: Option<&ReceiptOptions>,
        choices: &[AdapterChoice],
        request: impl FnOnce() -> ReceiptRequest,
    ) -> Result<Option<Draft>, EngineError> {
        let Some(ReceiptOptions { layers, most_rows }) = options else { return Ok(None) };
        let count = self.info.layers;
        let mut layers = layers.clone().unwrap_or_else(|| (0..count).collect());
        layers.sort_unstable();
        layers.dedup();
        if let Some(layer) = layers.last().filter(|&&layer| layer >= count) {
            let fact = format!("a receipt of layer {layer} was asked for, but the model has {count}, from 0");
            let hint =
                format!("give layers from 0 to {}, or leave them out for all", count.saturating_sub(1));
            return Err(EngineError::field("receipt", fact, hint));
        }
        let request = request();
        let (tokens, most) = (request.tokens(), Receipt::MAX_TOKENS);
        if tokens > most {
            let fact = format!("a receipt of {tokens} prompt tokens was asked for, more than {most}");
            return Err(EngineError::field("receipt", fact, "divide the items among several requests"));
        }
        let (origin, kv_format) = (self.origin.clone(), self.info.kv_format);
        let recorder = Arc::new(Recorder::new(layers, *most_rows));
        Ok(Some(Draft { origin, kv_format, choices: choices.to_vec(), request, recorder }))
    }

    /// Runs the request of a receipt again and compares what it gives with what the receipt says: first the model and the adapters, then
    /// layer by layer, then the answer. Returns the first difference; `None` if the receipt is confirmed.
    ///
    /// # Errors
    /// The request cannot be run, or was cancelled.
    pub fn verify(
        &self,
        receipt: &Receipt,
        cancel: &Cancel,
    ) -> Result<Option<ReceiptDifference>, EngineError> {
        let model = self.identity()?;
        let of_model = [
            ("model.weights", &receipt.model.weights, &model.weights),
            ("model.texts", &receipt.model.texts, &model.texts),
        ];
        if let Some((place, said, found)) = of_model.into_iter().find(|(_, said, found)| said != found) {
            return Ok(Some(ReceiptDifference::new(place, said, found)));
        }
        let adapters = match self.adapters_of(receipt) {
            Ok(adapters) => adapters,
            Err(difference) => return Ok(Some(difference)),
        };
        let count = self.info.layers;
        if let Some(at) = receipt.layers.iter().position(|layer| layer.layer >= count) {
            let place = format!("layers[{at}].layer");
            let found = format!("{count} layers, from 0");
            return Ok(Some(ReceiptDifference::new(place, receipt.layers[at].layer, found)));
        }
        let layers = receipt.layers.iter().map(|layer| layer.layer).collect();
        let options = ReceiptOptions { layers: Some(layers), most_rows: Some(receipt.rows) };
        let more = || ReceiptDifference::new("rows", receipt.rows, format!("more than {}", receipt.rows));
        match self.run_again(&receipt.request, adapters, options, cancel) {
            Ok(Some(now)) => Ok(receipt.difference(&now)),
            Ok(None) | Err(EngineError::Cancelled) if !cancel.is_cancelled() => Ok(Some(more())),
            Ok(None) => Err(EngineError::Cancelled),
            Err(error) => Err(error),
        }
    }

    /// The published adapters with the checksums of a receipt's, whatever their names are.
    fn adapters_of(&self, receipt: &Receipt) -> Result<Vec<AdapterChoice>, ReceiptDifference> {
        let published = self.adapter_checksums();
        let choice = |(index, adapter): (usize, &ReceiptAdapter)| {
            let is_it = |(_, checksum): &&(String, Checksum)| checksum.to_string() == adapter.checksum;
            match published.iter().find(is_it) {
                Some((name, _)) => Ok(AdapterChoice { name: name.clone(), scale: adapter.scale }),
                None => {
                    let place = format!("adapters[{index}].checksum");
                    let said = format!("{} (`{}`)", adapter.checksum, adapter.name);
                    let loaded: Vec<String> =
                        published.iter().map(|(name, sum)| format!("{sum} (`{name}`)")).collect();
                    let found =
                        if loaded.is_empty() { "no adapter is loaded".to_owned() } else { loaded.join(", ") };
                    Err(ReceiptDifference::new(place, said, found))
                }
            }
        };
        receipt.adapters.iter().enumerate().map(choice).collect()
    }

    /// Runs a request, and returns its receipt unless it was cut short.
    fn run_again(
        &self,
        request: &ReceiptRequest,
        adapters: Vec<AdapterChoice>,
        options: ReceiptOptions,
        cancel: &Cancel,
    ) -> Result<Option<Box<Receipt>>, EngineError> {
        let receipt = Some(options);
        Ok(match request {
            ReceiptRequest::Generate(request) => {
                let request = GenerateRequest { adapters, receipt, ..(**request).clone() };
                self.submit_generate(request, cancel)?.outcome_only().wait()?.receipt
            }
            ReceiptRequest::Diffuse(request) => {
                let request = DiffuseRequest { adapters, receipt, ..(**request).clone() };
                self.submit_diffuse(request, cancel)?.outcome_only().wait()?.receipt
            }
            ReceiptRequest::Score(request) => {
                let request = ScoreRequest { adapters, receipt, ..(**request).clone() };
                self.submit_score(request, cancel)?.wait()?.receipt
            }
            ReceiptRequest::Embed(request) => {
                let request = EmbedRequest { adapters, receipt, ..(**request).clone() };
                self.submit_embed(request, cancel)?.wait()?.receipt
            }
            ReceiptRequest::Classifier(texts) => {
                let Some(classifier) = self.classifier.clone() else {
                    let fact = format!("`{}` has no classifier, of which the receipt is", self.info.name);
                    return Err(EngineError::request(fact, "take the model of the receipt"));
                };
                let options = JudgeOptions { adapters, receipt, ..JudgeOptions::default() };
                self.classify_ids(texts, classifier, options, cancel)?.receipt
            }
        })
    }

    /// Puts texts through the classifier.
    fn classify_ids(
        &self,
        texts: &[ClassifierText],
        classifier: Arc<Classifier>,
        options: JudgeOptions,
        cancel: &Cancel,
    ) -> Result<EncodeOutcome, EngineError> {
        const NOUN: &str = "text";
        let read = |(index, ClassifierText { ids, second_text }): (usize, &ClassifierText)| {
            let text = self.encode_ids((NOUN, index), ids.clone())?;
            let has_types = self.info.token_types.is_some_and(|types| types > 1);
            if let Some(second) = second_text.filter(|&second| !has_types || second > ids.len()) {
                let fact = format!("text {index} has a second text from token {second} on");
                let hint = "give a position within the text, to a model with several token types";
                return Err(EngineError::request(fact, hint));
            }
            Ok(EncodeText { second_text: *second_text, ..text })
        };
        let texts = texts.iter().enumerate().map(read).collect::<Result<Vec<_>, EngineError>>()?;
        let ticket: Ticket<EncodeOutcome> = Ticket::begin(cancel, |reply, cancels| {
            let answer = Box::new(|outcome| reply.finish(outcome));
            self.run_classifier(texts, classifier, NOUN, cancels, options, answer)
        })?;
        ticket.wait()
    }
}
