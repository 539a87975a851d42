//! Receipts as JSON, and their verification.

pub mod document;

use redline_engine::{
    Cancel, ClassifierText, DiffuseRequest, EmbedRequest, Engine, EngineError, GRAMMAR_VERSION,
    GenerateRequest, Grammar, GrammarKind, Label, ModelIdentity, Penalties, Prompt, PromptLogprobs, Receipt,
    ReceiptAdapter, ReceiptAnswer, ReceiptDifference, ReceiptLayer, ReceiptOptions, ReceiptRequest, Sampling,
    ScoreRequest, Sha256Digest,
};

use crate::json::finite::Finite;
use crate::json::input::LabelIds;
use crate::json::version::SchemaVersion;
use crate::receipt::document::{
    ReceiptAdapterEntry, ReceiptAnswerEntry, ReceiptChoice, ReceiptDiffusion, ReceiptDigests,
    ReceiptDocument, ReceiptEmbedding, ReceiptGeneration, ReceiptGrammar, ReceiptLayerEntry, ReceiptModel,
    ReceiptPrompt, ReceiptSampling, ReceiptScoring, ReceiptSettings, ReceiptVerdict,
};

/// The version that receipts carry.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a request asks for.
pub fn options(choice: Option<ReceiptChoice>) -> Option<ReceiptOptions> {
    choice
        .and_then(ReceiptChoice::layers)
        .map(|layers| ReceiptOptions { layers, ..ReceiptOptions::default() })
}

/// The JSON document of a receipt.
pub fn document(receipt: Receipt) -> ReceiptDocument {
    let Receipt { model, adapters, request, rows, layers, answer } = receipt;
    let (prompts, request) = parts_of(request);
    let adapter = |ReceiptAdapter { name, scale, checksum }| ReceiptAdapterEntry {
        name,
        scale: Finite(scale),
        checksum,
    };
    let layer = |ReceiptLayer { layer, sha256 }| ReceiptLayerEntry { layer, sha256 };
    let mut document = ReceiptDocument {
        object: "receipt".to_owned(),
        schema: SchemaVersion,
        redline: VERSION.to_owned(),
        model: ReceiptModel { weights: model.weights, texts: model.texts },
        adapters: adapters.into_iter().map(adapter).collect(),
        prompts,
        request,
        rows,
        layers: layers.into_iter().map(layer).collect(),
        answer: answer.into_iter().map(entry).collect(),
        digests: ReceiptDigests::default(),
    };
    // Without them, a number that JSON cannot hold fails again where the document is written.
    document.digests = digests(&document).unwrap_or_default();
    document
}

/// The document of a receipt, if there is one.
pub(crate) fn attached(receipt: Option<Box<Receipt>>) -> Option<Box<ReceiptDocument>> {
    receipt.map(|receipt| Box::new(document(*receipt)))
}

/// The outcome of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// A second run gave the same.
    Confirmed,
    /// The receipt is not as receipts are written.
    Malformed(ReceiptDifference),
    /// A part of the receipt was changed after the receipt was made: it does not have its digest.
    Changed(ReceiptDifference),
    /// What was found here differs from what the receipt says.
    Differs(ReceiptDifference),
}

/// The JSON document of a verification.
pub fn verdict(of: Verified) -> ReceiptVerdict {
    let (reason, difference) = match of {
        Verified::Confirmed => (None, None),
        Verified::Malformed(difference) => (Some("malformed"), Some(difference)),
        Verified::Changed(difference) => (Some("changed"), Some(difference)),
        Verified::Differs(difference) => (Some("differs"), Some(difference)),
    };
    let (place, receipt, found) = match difference {
        None => (None, None, None),
        Some(ReceiptDifference { place, receipt, found }) => (Some(place), Some(receipt), Some(found)),
    };
    ReceiptVerdict { confirmed: reason.is_none(), reason, place, receipt, found }
}

/// Verifies a receipt with a loaded model: its parts have their digests, and a second run of its request gives the same.
///
/// # Errors
/// The request cannot be run, or was cancelled.
pub fn verify(engine: &Engine, document: ReceiptDocument, cancel: &Cancel) -> Result<Verified, EngineError> {
    match changed(&document) {
        Ok(None) => {}
        Ok(Some(changed)) => return Ok(Verified::Changed(changed)),
        Err(malformed) => return Ok(Verified::Malformed(malformed)),
    }
    if document.redline != VERSION {
        let difference = ReceiptDifference::new("redline", &document.redline, VERSION);
        return Ok(Verified::Differs(difference));
    }
    let receipt = match receipt(document) {
        Ok(receipt) => receipt,
        Err(malformed) => return Ok(Verified::Malformed(malformed)),
    };
    Ok(engine.verify(&receipt, cancel)?.map_or(Verified::Confirmed, Verified::Differs))
}

/// The digests of the parts of a document; `None` if it has a number that JSON cannot hold.
fn digests(document: &ReceiptDocument) -> Option<ReceiptDigests> {
    document.digests(|json| Sha256Digest::of(json).to_string()).ok()
}

/// The first part that does not have its digest. It is an error if the document is not as receipts are written.
fn changed(document: &ReceiptDocument) -> Result<Option<ReceiptDifference>, ReceiptDifference> {
    if document.object != "receipt" {
        return Err(ReceiptDifference::new("object", &document.object, "receipt"));
    }
    let said = &document.digests;
    let Some(found) = digests(document) else {
        return Err(ReceiptDifference::new("request", "a number beyond the range of f32", "finite numbers"));
    };
    if said.prompts.len() != found.prompts.len() {
        let (said, found) = (said.prompts.len(), found.prompts.len());
        return Err(ReceiptDifference::new(
            "digests.prompts",
            format!("{said} digests"),
            format!("{found}, one for each prompt"),
        ));
    }
    let prompts = said.prompts.iter().zip(&found.prompts).enumerate();
    let mut prompts = prompts.filter(|(_, (said, found))| said != found);
    if let Some((index, (said, found))) = prompts.next() {
        return Ok(Some(ReceiptDifference::new(format!("prompts[{index}]"), said, found)));
    }
    let others = [
        ("request", &said.request, &found.request),
        ("adapters", &said.adapters, &found.adapters),
        ("layers", &said.layers, &found.layers),
    ];
    let changed = others.into_iter().find(|(_, said, found)| said != found);
    Ok(changed.map(|(place, said, found)| ReceiptDifference::new(place, said, found)))
}

/// The receipt that a document holds.
fn receipt(document: ReceiptDocument) -> Result<Receipt, ReceiptDifference> {
    let ReceiptDocument { model, adapters, prompts, request, rows, layers, answer, .. } = document;
    let unsorted = layers.windows(2).position(|pair| pair[0].layer >= pair[1].layer);
    if let Some(at) = unsorted {
        let place = format!("layers[{}].layer", at + 1);
        let found = format!("more than {}, the one before it", layers[at].layer);
        return Err(ReceiptDifference::new(&place, layers[at + 1].layer, &found));
    }
    let request = request_of(prompts, request)?;
    let adapter =
        |ReceiptAdapterEntry { name, scale, checksum }| ReceiptAdapter { name, scale: scale.0, checksum };
    let answers = answer.into_iter().enumerate().map(|(index, entry)| answer_of(index, entry));
    Ok(Receipt {
        model: ModelIdentity { weights: model.weights, texts: model.texts },
        adapters: adapters.into_iter().map(adapter).collect(),
        request,
        rows,
        layers: layers.into_iter().map(|it| ReceiptLayer { layer: it.layer, sha256: it.sha256 }).collect(),
        answer: answers.collect::<Result<_, _>>()?,
    })
}

fn entry(answer: ReceiptAnswer) -> ReceiptAnswerEntry {
    let plain = ReceiptAnswerEntry::default();
    match answer {
        ReceiptAnswer::Tokens { ids, text } => {
            ReceiptAnswerEntry { token_ids: Some(ids), text: Some(text), ..plain }
        }
        ReceiptAnswer::Values(values) => {
            ReceiptAnswerEntry { values: Some(values.into_iter().map(Finite).collect()), ..plain }
        }
        ReceiptAnswer::Vector(sha256) => ReceiptAnswerEntry { sha256: Some(sha256), ..plain },
    }
}

fn answer_of(index: usize, entry: ReceiptAnswerEntry) -> Result<ReceiptAnswer, ReceiptDifference> {
    match entry {
        ReceiptAnswerEntry { token_ids: Some(ids), text: Some(text), values: None, sha256: None } => {
            Ok(ReceiptAnswer::Tokens { ids, text })
        }
        ReceiptAnswerEntry { token_ids: None, text: None, values: Some(values), sha256: None } => {
            Ok(ReceiptAnswer::Values(values.into_iter().map(|value| value.0).collect()))
        }
        ReceiptAnswerEntry { token_ids: None, text: None, values: None, sha256: Some(sha256) } => {
            Ok(ReceiptAnswer::Vector(sha256))
        }
        _ => {
            let found = "`token_ids` with `text`, or `values`, or `sha256`";
            Err(ReceiptDifference::new(format!("answer[{index}]"), "other keys", found))
        }
    }
}

fn sampling(of: Sampling) -> ReceiptSampling {
    let Sampling { temperature, top_k, top_p, min_p, typical_p, seed } = of;
    ReceiptSampling {
        temperature: Finite(temperature),
        top_k,
        top_p: Finite(top_p),
        min_p: Finite(min_p),
        typical_p: Finite(typical_p),
        seed,
    }
}

fn sampling_of(of: ReceiptSampling) -> Sampling {
    let ReceiptSampling { temperature, top_k, top_p, min_p, typical_p, seed } = of;
    Sampling {
        temperature: temperature.0,
        top_k,
        top_p: top_p.0,
        min_p: min_p.0,
        typical_p: typical_p.0,
        seed,
    }
}

/// The prompts of a request, and what else it asks.
fn parts_of(request: ReceiptRequest) -> (Vec<ReceiptPrompt>, ReceiptSettings) {
    match request {
        ReceiptRequest::Generate(request) => {
            let settings = ReceiptSettings::Generate(generation(&request));
            (vec![prompt(request.prompt)], settings)
        }
        ReceiptRequest::Diffuse(request) => {
            let settings = ReceiptSettings::Diffuse(canvas(&request));
            (vec![prompt(request.prompt)], settings)
        }
        ReceiptRequest::Score(request) => {
            let settings = ReceiptSettings::Score(scoring(&request));
            (request.items.into_iter().map(prompt).collect(), settings)
        }
        ReceiptRequest::Embed(request) => {
            let EmbedRequest { texts, pooling, normalise, dimensions, .. } = *request;
            let settings = ReceiptEmbedding { pooling, normalize: normalise, dimensions };
            (texts.into_iter().map(prompt).collect(), ReceiptSettings::Embed(settings))
        }
        ReceiptRequest::Classifier(texts) => {
            let text = |ClassifierText { ids, second_text }| ReceiptPrompt { token_ids: ids, second_text };
            (texts.into_iter().map(text).collect(), ReceiptSettings::Classifier)
        }
    }
}

/// A prompt of ids, as those of receipts are.
fn prompt(of: Prompt) -> ReceiptPrompt {
    let ids = match of {
        Prompt::Ids(ids) => ids,
        Prompt::Text(_) | Prompt::Formatted(_) => Vec::new(),
    };
    ReceiptPrompt { token_ids: ids.into_iter().map(|id| id as u32).collect(), second_text: None }
}

fn ids_of(prompt: ReceiptPrompt) -> Prompt {
    Prompt::Ids(prompt.token_ids.into_iter().map(i64::from).collect())
}

fn label(of: &Label) -> LabelIds {
    match of {
        Label::Ids(ids) => LabelIds(ids.clone()),
        Label::Text(_) => LabelIds(Vec::new()),
    }
}

fn labels_of(labels: Vec<LabelIds>) -> Vec<Label> {
    labels.into_iter().map(|label| Label::Ids(label.0)).collect()
}

fn generation(request: &GenerateRequest) -> ReceiptGeneration {
    // All fields, so that none is forgotten that will be added.
    let GenerateRequest {
        prompt: _,
        prompt_tokens: _,
        max_new_tokens,
        fit_context: _,
        sampling: chosen,
        penalties: Penalties { repetition, frequency, presence, min_tokens },
        logit_bias,
        n,
        best_of,
        stop,
        stop_ids,
        ignore_eos,
        grammar,
        logprobs,
        prompt_logprobs,
        kv_cache,
        cache_salt: _,
        adapters: _,
        timeout_s: _,
        queueing: _,
        receipt: _,
    } = request;
    ReceiptGeneration {
        max_new_tokens: *max_new_tokens,
        sampling: sampling(*chosen),
        repetition_penalty: Finite(*repetition),
        frequency_penalty: Finite(*frequency),
        presence_penalty: Finite(*presence),
        min_tokens: Some(*min_tokens).filter(|&count| count > 0),
        logit_bias: logit_bias.iter().map(|(id, bias)| (*id, Finite(*bias))).collect(),
        n: *n,
        best_of: *best_of,
        stop: stop.clone(),
        stop_token_ids: stop_ids.clone(),
        ignore_eos: *ignore_eos,
        logprobs: *logprobs,
        prompt_logprobs: prompt_logprobs.map(|of| of.top),
        prompt_logprobs_from: prompt_logprobs.map_or(0, |of| of.from),
        kv_cache: *kv_cache,
        grammar: grammar.as_ref().map(|grammar| ReceiptGrammar {
            kind: grammar.kind.name().to_owned(),
            source: grammar.source.clone(),
            library: GRAMMAR_VERSION.to_owned(),
        }),
    }
}

fn canvas(request: &DiffuseRequest) -> ReceiptDiffusion {
    let DiffuseRequest {
        prompt: _,
        max_new_tokens,
        steps,
        algorithm,
        eps,
        sampling: chosen,
        alg_temp,
        block_length,
        cfg_scale,
        threshold,
        cache,
        refresh,
        stop,
        stop_ids,
        ignore_eos,
        savings,
        timeout_s: _,
        adapters: _,
        queueing: _,
        receipt: _,
    } = request;
    ReceiptDiffusion {
        max_new_tokens: *max_new_tokens,
        steps: *steps,
        algorithm: *algorithm,
        eps: Finite(*eps),
        sampling: sampling(*chosen),
        alg_temp: Finite(*alg_temp),
        block_length: *block_length,
        cfg_scale: Finite(*cfg_scale),
        threshold: threshold.map(Finite),
        cache: *cache,
        refresh: *refresh,
        stop: stop.clone(),
        stop_token_ids: stop_ids.clone(),
        ignore_eos: *ignore_eos,
        savings: *savings,
    }
}

fn scoring(request: &ScoreRequest) -> ReceiptScoring {
    // The other fields say how texts become prompts, or what is returned.
    let ScoreRequest {
        query: _,
        items: _,
        labels,
        item_labels,
        long_labels,
        label_end,
        softmax,
        item_first: _,
        full_logprobs,
        tokenization: _,
        truncate: _,
        item_errors: _,
        return_token_ids: _,
        return_reading,
        mc_samples,
        seed,
        cache_salt: _,
        adapters: _,
        timeout_s: _,
        queueing: _,
        receipt: _,
    } = request;
    let in_ids = |labels: &Vec<Label>| labels.iter().map(label).collect();
    ReceiptScoring {
        label_token_ids: in_ids(labels),
        item_label_token_ids: item_labels.as_ref().map(|lists| lists.iter().map(in_ids).collect()),
        long_labels: *long_labels,
        end_token_ids: label_end.as_ref().map_or_else(Vec::new, |end| label(end).0),
        apply_softmax: *softmax,
        full_logprobs: *full_logprobs,
        reading: *return_reading,
        mc_samples: *mc_samples,
        seed: *seed,
    }
}

/// The request that prompts and settings make.
fn request_of(
    prompts: Vec<ReceiptPrompt>,
    settings: ReceiptSettings,
) -> Result<ReceiptRequest, ReceiptDifference> {
    let is_classifier = matches!(settings, ReceiptSettings::Classifier);
    if let Some(index) = prompts.iter().position(|it| it.second_text.is_some() && !is_classifier) {
        let place = format!("prompts[{index}].second_text");
        return Err(ReceiptDifference::new(&place, "a second text", "none: only classifiers read pairs"));
    }
    let texts = |prompts: Vec<ReceiptPrompt>| prompts.into_iter().map(ids_of).collect::<Vec<_>>();
    Ok(match settings {
        ReceiptSettings::Generate(settings) => {
            ReceiptRequest::Generate(Box::new(generate_of(single(prompts)?, settings)?))
        }
        ReceiptSettings::Diffuse(settings) => {
            ReceiptRequest::Diffuse(Box::new(diffuse_of(single(prompts)?, settings)))
        }
        ReceiptSettings::Score(settings) => {
            let end = settings.end_token_ids;
            ReceiptRequest::Score(Box::new(ScoreRequest {
                item_labels: settings
                    .item_label_token_ids
                    .map(|lists| lists.into_iter().map(labels_of).collect()),
                long_labels: settings.long_labels,
                label_end: (!end.is_empty()).then_some(Label::Ids(end)),
                softmax: settings.apply_softmax,
                full_logprobs: settings.full_logprobs,
                return_reading: settings.reading,
                mc_samples: settings.mc_samples,
                seed: settings.seed,
                ..ScoreRequest::new(
                    Prompt::Ids(Vec::new()),
                    texts(prompts),
                    labels_of(settings.label_token_ids),
                )
            }))
        }
        ReceiptSettings::Embed(ReceiptEmbedding { pooling, normalize, dimensions }) => {
            ReceiptRequest::Embed(Box::new(EmbedRequest {
                pooling,
                normalise: normalize,
                dimensions,
                ..EmbedRequest::new(texts(prompts))
            }))
        }
        ReceiptSettings::Classifier => {
            let text =
                |ReceiptPrompt { token_ids, second_text }| ClassifierText { ids: token_ids, second_text };
            ReceiptRequest::Classifier(prompts.into_iter().map(text).collect())
        }
    })
}

/// The one prompt of a generation or of a canvas.
fn single(mut prompts: Vec<ReceiptPrompt>) -> Result<Prompt, ReceiptDifference> {
    match (prompts.pop(), prompts.len()) {
        (Some(prompt), 0) => Ok(ids_of(prompt)),
        (last, others) => {
            let count = others + usize::from(last.is_some());
            Err(ReceiptDifference::new("prompts", format!("{count} prompts"), "one"))
        }
    }
}

fn generate_of(prompt: Prompt, settings: ReceiptGeneration) -> Result<GenerateRequest, ReceiptDifference> {
    let from = settings.prompt_logprobs_from;
    Ok(GenerateRequest {
        grammar: settings.grammar.map(grammar_of).transpose()?,
        sampling: sampling_of(settings.sampling),
        penalties: Penalties {
            repetition: settings.repetition_penalty.0,
            frequency: settings.frequency_penalty.0,
            presence: settings.presence_penalty.0,
            min_tokens: settings.min_tokens.unwrap_or(0),
        },
        logit_bias: settings.logit_bias.into_iter().map(|(id, bias)| (id, bias.0)).collect(),
        n: settings.n,
        best_of: settings.best_of,
        stop: settings.stop,
        stop_ids: settings.stop_token_ids,
        ignore_eos: settings.ignore_eos,
        logprobs: settings.logprobs,
        prompt_logprobs: settings.prompt_logprobs.map(|top| PromptLogprobs { from, top }),
        kv_cache: settings.kv_cache,
        ..GenerateRequest::new(prompt, settings.max_new_tokens)
    })
}

/// The grammar of a receipt. Another version of the library may allow other tokens, so only its own can confirm it.
fn grammar_of(of: ReceiptGrammar) -> Result<Grammar, ReceiptDifference> {
    let place = |key: &str| format!("request.grammar.{key}");
    if of.library != GRAMMAR_VERSION {
        return Err(ReceiptDifference::new(place("library"), of.library, GRAMMAR_VERSION));
    }
    let kind = GrammarKind::named(&of.kind);
    let kind = kind.ok_or_else(|| ReceiptDifference::new(place("kind"), of.kind, "a kind of grammar"))?;
    Ok(Grammar::new(kind, of.source))
}

fn diffuse_of(prompt: Prompt, settings: ReceiptDiffusion) -> DiffuseRequest {
    DiffuseRequest {
        steps: settings.steps,
        algorithm: settings.algorithm,
        eps: settings.eps.0,
        sampling: sampling_of(settings.sampling),
        alg_temp: settings.alg_temp.0,
        block_length: settings.block_length,
        cfg_scale: settings.cfg_scale.0,
        threshold: settings.threshold.map(|threshold| threshold.0),
        cache: settings.cache,
        refresh: settings.refresh,
        stop: settings.stop,
        stop_ids: settings.stop_token_ids,
        ignore_eos: settings.ignore_eos,
        savings: settings.savings,
        ..DiffuseRequest::new(prompt, settings.max_new_tokens)
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{Algorithm, BlockCache, LongLabels, Pooling};

    use super::*;

    /// Every field of a request that a receipt holds has a value of its own.
    fn requests() -> Vec<ReceiptRequest> {
        let ids = |ids: &[i64]| Prompt::Ids(ids.to_vec());
        let sampling =
            Sampling { temperature: 0.7, top_k: 11, top_p: 0.9, min_p: 0.05, typical_p: 0.8, seed: u64::MAX };
        let label = |ids: &[i64]| Label::Ids(ids.to_vec());
        let generate = GenerateRequest {
            sampling,
            penalties: Penalties { repetition: 1.5, frequency: 0.25, presence: -0.5, min_tokens: 6 },
            logit_bias: vec![(7, -1.5), (9, 2.0)],
            n: 2,
            best_of: Some(3),
            stop: vec!["a".to_owned(), "\n".to_owned()],
            stop_ids: vec![4, 5],
            ignore_eos: true,
            logprobs: Some(6),
            prompt_logprobs: Some(PromptLogprobs { from: 8, top: 2 }),
            kv_cache: false,
            grammar: Some(Grammar::new(GrammarKind::Regex, "a+")),
            ..GenerateRequest::new(ids(&[1, 2, 3]), 17)
        };
        let diffuse = DiffuseRequest {
            steps: Some(4),
            algorithm: Some(Algorithm::Entropy),
            eps: 0.25,
            sampling,
            alg_temp: 0.125,
            block_length: Some(2),
            cfg_scale: 1.25,
            threshold: Some(0.75),
            cache: BlockCache::Dual,
            refresh: Some(3),
            stop: vec!["b".to_owned()],
            stop_ids: vec![6],
            ignore_eos: true,
            savings: false,
            ..DiffuseRequest::new(ids(&[3]), 8)
        };
        let score = ScoreRequest {
            item_labels: Some(vec![vec![label(&[1, 2]), label(&[3])], vec![label(&[4])]]),
            long_labels: LongLabels::Bytes,
            label_end: Some(label(&[9, 8])),
            softmax: true,
            full_logprobs: true,
            return_reading: true,
            mc_samples: Some(5),
            seed: Some(6),
            ..ScoreRequest::new(ids(&[]), vec![ids(&[1]), ids(&[2, 3])], vec![label(&[7]), label(&[8, 9])])
        };
        let embed = EmbedRequest {
            pooling: Some(Pooling::Last),
            normalise: Some(false),
            dimensions: Some(3),
            ..EmbedRequest::new(vec![ids(&[1]), ids(&[2])])
        };
        let pair = |second_text| ClassifierText { ids: vec![1, 2], second_text };
        vec![
            ReceiptRequest::Generate(Box::new(generate)),
            ReceiptRequest::Diffuse(Box::new(diffuse)),
            ReceiptRequest::Score(Box::new(score)),
            ReceiptRequest::Embed(Box::new(embed)),
            ReceiptRequest::Classifier(vec![pair(None), pair(Some(1))]),
        ]
    }

    fn made(request: ReceiptRequest) -> Receipt {
        Receipt {
            model: ModelIdentity { weights: "w".to_owned(), texts: "t".to_owned() },
            adapters: vec![ReceiptAdapter { name: "a".to_owned(), scale: 0.1, checksum: "c".to_owned() }],
            request,
            rows: 3,
            layers: [0, 5].map(|layer| ReceiptLayer { layer, sha256: format!("l{layer}") }).to_vec(),
            answer: vec![
                ReceiptAnswer::Tokens { ids: vec![3, 4], text: "x\"".to_owned() },
                ReceiptAnswer::Values(vec![0.1, -0.0]),
                ReceiptAnswer::Vector("v".to_owned()),
            ],
        }
    }

    #[test]
    fn nothing_of_a_receipt_is_lost_in_json() {
        for request in requests() {
            let made = made(request);
            let json = serde_json::to_string(&document(made.clone())).unwrap();
            let read: ReceiptDocument = serde_json::from_str(&json).unwrap();
            assert_eq!(changed(&read), Ok(None), "{json}");
            assert_eq!(format!("{:?}", receipt(read).unwrap()), format!("{made:?}"));
        }
    }

    #[test]
    fn what_was_changed_is_told_before_anything_runs() {
        let of = |index: usize| document(made(requests().remove(index)));
        let place = |document: &ReceiptDocument| changed(document).unwrap().map(|it| it.place);
        let mut one = of(2);
        one.prompts[1].token_ids[0] += 1;
        assert_eq!(place(&one).unwrap(), "prompts[1]");
        let mut one = of(4);
        one.prompts[0].second_text = Some(1);
        assert_eq!(place(&one).unwrap(), "prompts[0]");
        let mut one = of(2);
        one.prompts.pop();
        assert_eq!(changed(&one).unwrap_err().place, "digests.prompts");
        let mut one = of(2);
        one.layers.remove(0);
        assert_eq!(place(&one).unwrap(), "layers");
        let mut one = of(0);
        one.adapters[0].scale = Finite(0.2);
        assert_eq!(place(&one).unwrap(), "adapters");
        let mut one = of(1);
        one.object = "answer".to_owned();
        assert_eq!(changed(&one).unwrap_err().place, "object");
        let mut one = of(0);
        let ReceiptSettings::Generate(settings) = &mut one.request else { panic!() };
        settings.sampling.temperature = Finite(f32::INFINITY);
        assert_eq!(changed(&one).unwrap_err().place, "request");
        // These have no digests.
        let refused = |document: ReceiptDocument| receipt(document).unwrap_err().place;
        let mut one = of(0);
        one.layers.reverse();
        assert_eq!(refused(one), "layers[1].layer");
        let mut one = of(0);
        one.answer[1].text = Some("both".to_owned());
        assert_eq!(refused(one), "answer[1]");
        let mut one = of(0);
        one.prompts.push(one.prompts[0].clone());
        assert_eq!(refused(one), "prompts");
        let mut one = of(3);
        one.prompts[1].second_text = Some(1);
        assert_eq!(refused(one), "prompts[1].second_text");
    }
}
