//! Requests to encoders, and to decoders that embed: invalid requests are refused here.

use std::sync::Arc;

use redline_models::block::dense::Classifier;
use redline_models::sentence::{SentenceRules, SparseRules};
use redline_settings::{Setting, Truncate, VectorForm, hint};

use super::prompt::Limits;
use super::receipt::{signed, states_with_receipt, texts_in_ids};
use super::{Engine, checked_timeout};
use crate::answer::outcome::EncodeOutcome;
use crate::answer::ticket::{Answer, EmbedTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::mode::encode::{EncodeJob, EncodeTask, EncodeText, Finish, Reading};
use crate::receipt::ReceiptRequest;
use crate::request::{EmbedRequest, JudgeOptions, Prompt};

/// The token for the unknown in the vocabulary of models that weigh a text's own tokens.
const UNKNOWN: &str = "<unk>";

impl Engine {
    /// Makes a vector of each text.
    pub fn embed(&self, request: EmbedRequest) -> Result<EncodeOutcome, EngineError> {
        self.submit_embed(request, &Cancel::new())?.wait()
    }

    /// Starts to embed texts. Other requests may be submitted before this one is finished.
    pub fn submit_embed(&self, request: EmbedRequest, cancel: &Cancel) -> Result<EmbedTicket, EngineError> {
        let timeout_s = checked_timeout(request.timeout_s)?;
        let job = self.embed_job(&request)?;
        let draft =
            self.receipt_draft(request.receipt.as_ref(), &request.adapters, || embed_in_ids(&request, &job))?;
        let EmbedRequest { adapters, queueing, .. } = request;
        Ticket::begin(cancel, |reply, cancels| {
            let answer: Answer<EncodeOutcome> = Box::new(|outcome| reply.finish(outcome));
            let (answer, recorder) = states_with_receipt(draft, answer);
            self.run(EncodeTask::new(job, answer), cancels, timeout_s, queueing, &adapters, recorder)
        })
    }

    fn embed_job(&self, request: &EmbedRequest) -> Result<EncodeJob, EngineError> {
        let rules = self.sentence.as_ref();
        if self.info.classes.is_some() {
            let fact = format!("`{}` was trained to classify, not to embed", self.info.architecture);
            return Err(EngineError::request(fact, "take an embedding model such as bge-small-en-v1.5"));
        }
        self.check_encodes()?;
        let reading = self.embed_reading(request)?;
        let is_multi_vector = request.form == VectorForm::MultiVector;
        let prompt = if is_multi_vector { "" } else { self.task_prompt(request.prompt_name.as_deref())? };
        let limits = self.encode_limits();
        let lower_case = rules.is_some_and(|rules| rules.lower_case);
        let texts = request.texts.iter().enumerate().map(|(index, text)| {
            let place = ("text", index);
            match text {
                _ if request.form == VectorForm::MultiVector => {
                    self.token_vector_text(place, text, request.prompt_name.as_deref(), request.truncate)
                }
                Prompt::Ids(ids) => {
                    let ids = limits.ids_of("texts", format_args!("text {index}"), ids)?;
                    self.fitted(place, ids, (0, 0), request.truncate)
                }
                Prompt::Text(text) | Prompt::Formatted(text) => {
                    let text = format!("{prompt}{text}");
                    let text = if lower_case { text.to_lowercase() } else { text };
                    self.encode_text(place, &text, request.truncate)
                }
            }
        });
        Ok(EncodeJob {
            texts: texts.collect::<Result<_, EngineError>>()?,
            reading,
            sees_both_sides: !self.info.objective.is_causal(),
            cache_salt: request.cache_salt.clone(),
            noun: "text",
            kernel_path: self.info.kernel_path.clone(),
        })
    }

    /// How the rows of texts are read for an answer of the form that is asked for.
    fn embed_reading(&self, request: &EmbedRequest) -> Result<Reading, EngineError> {
        let EmbedRequest { form, pooling, normalise, dimensions, receipt, .. } = request;
        let is_dense = *form == VectorForm::Dense;
        if !is_dense
            && (pooling.is_some() || *normalise == Some(true) || dimensions.is_some() || receipt.is_some())
        {
            let fact = "only dense vectors have a pooling, a length, a number of dimensions or a receipt";
            return Err(EngineError::request(fact, "leave these out, or ask for dense vectors"));
        }
        match form {
            VectorForm::States => Ok(Reading::States),
            VectorForm::Sparse => self.sparse_reading(),
            VectorForm::MultiVector => self.token_vector_rules().map(Reading::TokenVectors),
            VectorForm::Dense => self.dense_reading(request),
        }
    }

    fn sparse_reading(&self) -> Result<Reading, EngineError> {
        match self.sentence.as_ref().and_then(|rules| rules.sparse.as_ref()) {
            Some(SparseRules::Logits(pooling)) => Ok(Reading::Logits(*pooling)),
            Some(SparseRules::Tokens { layers, weightless }) => {
                let unknown = self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.id(UNKNOWN));
                let weightless = weightless.iter().copied().chain(unknown).collect();
                Ok(Reading::Tokens { layers: layers.clone(), weightless })
            }
            None => {
                let fact = format!(
                    "`{}` makes no sparse vectors: it has neither the head of a model that fills masks nor a layer that weighs tokens",
                    self.info.name
                );
                Err(EngineError::request(fact, "take a model such as splade-v3 or bge-m3"))
            }
        }
    }

    fn dense_reading(&self, request: &EmbedRequest) -> Result<Reading, EngineError> {
        let EmbedRequest { pooling, normalise, dimensions, .. } = request;
        let own_rules = self.sentence.as_ref().and_then(|rules| rules.dense.as_ref());
        let pooling = match (pooling, own_rules) {
            (Some(pooling), _) => *pooling,
            (None, Some(dense)) => dense.pooling,
            (None, None) => {
                let what = match self.sentence.as_deref() {
                    Some(SentenceRules { multi_vector: Some(_), .. }) => "it makes a vector for each token",
                    Some(_) => "it makes sparse vectors",
                    None => "it has no `modules.json`",
                };
                let fact = format!(
                    "`{}` does not say how the states of a text become its embedding: {what}",
                    self.info.name
                );
                let hint =
                    hint!["give ", Setting::Pooling.to("mean"), " (bge: `cls`, Qwen3-Embedding: `last`)"];
                return Err(EngineError::request(fact, hint));
            }
        };
        let own = self.info.embedding_width;
        let dimensions = dimensions.unwrap_or(own);
        if !(1..=own).contains(&dimensions) {
            let fact = format!("{dimensions} dimensions, but an embedding of this model has {own}");
            return Err(EngineError::field("dimensions", fact, format!("give from 1 to {own}")));
        }
        let normalise = normalise.unwrap_or_else(|| own_rules.is_none_or(|dense| dense.normalise));
        let finish = Finish::Embedding { rules: self.sentence.clone(), dimensions, normalise };
        Ok(Reading::Pooled { pooling, padding: None, finish })
    }

    /// The text that is put before every text of a task.
    pub fn task_prompt(&self, name: Option<&str>) -> Result<&str, EngineError> {
        let Some(rules) = &self.sentence else {
            return match name {
                None => Ok(""),
                Some(name) => Err(EngineError::field(
                    "prompt_name",
                    format!("there is no prompt `{name}`: this model has none"),
                    "leave it out, and put what the model expects before each text",
                )),
            };
        };
        let Some(name) = name.or(rules.default_prompt.as_deref()) else { return Ok("") };
        rules.prompts.get(name).map(String::as_str).ok_or_else(|| {
            let known: Vec<String> = rules.prompts.keys().map(|name| format!("`{name}`")).collect();
            let hint = if known.is_empty() {
                "leave it out: this model has no prompts".to_owned()
            } else {
                format!("this model has {}", known.join(", "))
            };
            EngineError::field("prompt_name", format!("there is no prompt `{name}`"), hint)
        })
    }

    /// Refuses models that fill masks.
    fn check_encodes(&self) -> Result<(), EngineError> {
        if !self.info.objective.fills_masks() {
            return Ok(());
        }
        let fact = format!("`{}` fills masks and embeds no texts", self.info.architecture);
        Err(EngineError::request(fact, "take an embedding model such as bge-small-en-v1.5"))
    }

    /// The limits for texts.
    pub(super) fn encode_limits(&self) -> Limits<'_> {
        let limits = self.limits();
        let most = self.sentence.as_ref().and_then(|rules| rules.max_tokens).unwrap_or(usize::MAX);
        Limits { context: limits.context.min(most), ..limits }
    }

    /// One text with its special tokens. As in the reference, these are put around a text even if it begins with them.
    pub(super) fn encode_text(
        &self,
        place: (&str, usize),
        text: &str,
        truncate: Option<Truncate>,
    ) -> Result<EncodeText, EngineError> {
        let limits = self.encode_limits();
        let ids = limits.tokenizer()?.encode(text, true)?;
        let around = limits.special_ends(&ids);
        self.fitted(place, ids, around, truncate)
    }

    /// One prompt as it is written. With `add_special_tokens`, special tokens are put around it, and those that it begins with stand
    /// once.
    pub(super) fn encode_prompt(
        &self,
        place: (&str, usize),
        prompt: &str,
        add_special_tokens: bool,
    ) -> Result<EncodeText, EngineError> {
        self.fitted(place, self.encode_limits().text(prompt, add_special_tokens)?, (0, 0), None)
    }

    /// One text that is given as ids, special ones included.
    pub(super) fn encode_ids(&self, place: (&str, usize), ids: Vec<u32>) -> Result<EncodeText, EngineError> {
        self.fitted(place, ids, (0, 0), None)
    }

    /// Ids that fit the context and the memory budget. The first and the last ones, as many as `around` says, are never cut.
    fn fitted(
        &self,
        (noun, index): (&str, usize),
        ids: Vec<u32>,
        around: (usize, usize),
        truncate: Option<Truncate>,
    ) -> Result<EncodeText, EngineError> {
        let (ids, truncated) = fitting(&self.encode_limits(), (noun, index), ids, around, truncate)?;
        self.check_fits((noun, index), ids.len())?;
        Ok(EncodeText { index, ids, second_text: None, keys: None, with_vectors: Vec::new(), truncated })
    }

    /// Refuses a text that would never fit the memory budget.
    pub(super) fn check_fits(&self, (noun, index): (&str, usize), tokens: usize) -> Result<(), EngineError> {
        let what = format_args!("{noun} {index}");
        if self.info.objective.is_causal() {
            self.check_room(what, &[tokens], 1)
        } else {
            self.check_canvas(what, tokens, 1, 0)
        }
    }

    /// Starts to run texts, or pairs of texts, through a classifier.
    pub(super) fn run_classifier(
        &self,
        texts: Vec<EncodeText>,
        classifier: Arc<Classifier>,
        noun: &'static str,
        cancels: Vec<Cancel>,
        options: JudgeOptions,
        answer: Answer<EncodeOutcome>,
    ) -> Result<(), EngineError> {
        let reading = Reading::Pooled {
            pooling: classifier.pooling,
            padding: classifier.padding,
            finish: Finish::Classes(classifier),
        };
        self.run_texts(texts, reading, noun, cancels, options, answer)
    }

    /// Starts to run texts that are judged.
    pub(super) fn run_texts(
        &self,
        texts: Vec<EncodeText>,
        reading: Reading,
        noun: &'static str,
        cancels: Vec<Cancel>,
        options: JudgeOptions,
        answer: Answer<EncodeOutcome>,
    ) -> Result<(), EngineError> {
        let timeout_s = checked_timeout(options.timeout_s)?;
        let job = EncodeJob {
            texts,
            reading,
            sees_both_sides: !self.info.objective.is_causal(),
            cache_salt: options.cache_salt,
            noun,
            kernel_path: self.info.kernel_path.clone(),
        };
        let in_ids = || texts_in_ids(&job.texts);
        let draft = self.receipt_draft(options.receipt.as_ref(), &options.adapters, in_ids)?;
        let (answer, recorder) = states_with_receipt(draft, answer);
        let task = EncodeTask::new(job, answer);
        self.run(task, cancels, timeout_s, options.queueing, &options.adapters, recorder)
    }
}

/// A request to embed in terms of token ids.
fn embed_in_ids(request: &EmbedRequest, job: &EncodeJob) -> ReceiptRequest {
    let (pooling, dimensions, normalise) = match &job.reading {
        Reading::Pooled { pooling, finish: Finish::Embedding { dimensions, normalise, .. }, .. } => {
            (Some(*pooling), Some(*dimensions), Some(*normalise))
        }
        _ => (request.pooling, request.dimensions, request.normalise),
    };
    ReceiptRequest::Embed(Box::new(EmbedRequest {
        pooling,
        normalise,
        dimensions,
        ..EmbedRequest::new(job.texts.iter().map(|text| Prompt::Ids(signed(&text.ids))).collect())
    }))
}

/// A text that fits the context, and whether it was cut. The first and the last ids, as many as `around` says, are never cut.
pub(super) fn fitting(
    limits: &Limits<'_>,
    (noun, index): (&str, usize),
    mut ids: Vec<u32>,
    (front, back): (usize, usize),
    truncate: Option<Truncate>,
) -> Result<(Vec<u32>, bool), EngineError> {
    limits.check_ids(&format!("{noun} {index}"), &ids)?;
    let (have, context) = (ids.len(), limits.context);
    if have == 0 {
        let fact = format!("{noun} {index} has 0 tokens");
        return Err(EngineError::request(fact, "give at least one token"));
    }
    if have <= context {
        return Ok((ids, false));
    }
    let Some(end) = truncate else {
        let fact = format!("{noun} {index}: {have} tokens exceed the maximum of {context}");
        let cut = Setting::Truncate.to("left|right");
        return Err(EngineError::request(fact, hint!["shorten it, or choose an end to cut with ", cut]));
    };
    let surplus = have - context;
    if front + back >= context {
        let fact = format!(
            "{noun} {index}: {} tokens that stay leave no room for others in the maximum of {context}",
            front + back
        );
        return Err(EngineError::request(fact, "shorten what stands around the text"));
    }
    match end {
        Truncate::Left => drop(ids.drain(front..front + surplus)),
        Truncate::Right => drop(ids.drain(have - back - surplus..have - back)),
    }
    Ok((ids, true))
}

/// The first text of pairs of texts, encoded once.
pub(super) struct FirstText<'a> {
    engine: &'a Engine,
    limits: Limits<'a>,
    ids: Vec<u32>,
}

impl<'a> FirstText<'a> {
    /// Encodes the first text. The tokenizer must know how two texts are put together.
    pub(super) fn new(engine: &'a Engine, text: &str) -> Result<Self, EngineError> {
        let limits = engine.encode_limits();
        Ok(Self { ids: limits.text(text, false)?, limits, engine })
    }

    /// The pair of this text and another one, of which an end may be cut.
    pub(super) fn pair(
        &self,
        place: (&str, usize),
        second: &str,
        truncate: Option<Truncate>,
    ) -> Result<EncodeText, EngineError> {
        let Some(around) = self.limits.tokenizer()?.pair() else {
            let fact = "the tokenizer has no form for two texts (`pair` in the post-processor)".to_owned();
            return Err(EngineError::request(fact, "take the tokenizer that the model was trained with"));
        };
        let head = [&around.before[..], &self.ids, &around.between].concat();
        let ids = [&head[..], &self.limits.text(second, false)?, &around.after].concat();
        let fixed = (head.len(), around.after.len());
        let text = self.engine.fitted(place, ids, fixed, truncate)?;
        let first = around.before.len() + self.ids.len() + around.first_of_between;
        let has_types = around.has_types && self.engine.info.token_types.is_some_and(|types| types > 1);
        let second_text = has_types.then_some(first);
        Ok(EncodeText { second_text, ..text })
    }
}
