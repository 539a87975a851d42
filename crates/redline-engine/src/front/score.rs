//! Score requests: invalid requests are refused here.

use redline_models::spec::{Mask, Output};
use redline_settings::{Setting, hint};

use super::receipt::{Draft, score_in_ids, scores_with_receipt};
use super::{Engine, checked_timeout};
use crate::answer::outcome::{ItemError, ScoreOutcome};
use crate::answer::ticket::{Answer, ScoreTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::prompt::{LABEL_TOKENS, Limits};
use crate::mode::score::prompts::LabelLists;
use crate::mode::score::{MaskedScoreTask, Maskings, Masks, ScoreJob, ScoreTask};
use crate::plan::Buckets;
use crate::request::ScoreRequest;

/// Maximum number of label tokens in a request, summed over all ways to mask the labels; each takes some hundred bytes.
const MAX_COVERED: usize = 1 << 21;
/// Maximum number of label tokens in a request, summed over its items. Each takes up to a hundred bytes until the answer is
/// written: its score, its log-probability, and the text of both.
const MAX_SCORED: usize = 1 << 23;

impl Engine {
    /// Computes the probability of each label after query and item.
    pub fn score(&self, request: ScoreRequest) -> Result<ScoreOutcome, EngineError> {
        self.submit_score(request, &Cancel::new())?.wait()
    }

    /// Starts a score request. Other requests may be submitted before this one is finished.
    pub fn submit_score(&self, request: ScoreRequest, cancel: &Cancel) -> Result<ScoreTicket, EngineError> {
        Ticket::begin(cancel, |reply, cancels| {
            self.run_score(request, cancels, Box::new(|outcome| reply.finish(outcome)))
        })
    }

    /// Starts a score request.
    pub(crate) fn run_score(
        &self,
        request: ScoreRequest,
        cancels: Vec<Cancel>,
        answer: Answer<ScoreOutcome>,
    ) -> Result<(), EngineError> {
        let timeout_s = checked_timeout(request.timeout_s)?;
        let (adapters, queueing) = (request.adapters.clone(), request.queueing.clone());
        match (self.info.objective.output, self.info.objective.mask) {
            (Output::Tokens, Mask::Causal) => {
                self.check_unsampled(&request)?;
                let (labels, label_tail) = self.labels(&request)?;
                // The page on which an item diverges from the shared prefix is its own, and so is the page on which a label
                // diverges from its item.
                let spare = if label_tail > 0 { 2 } else { 1 };
                let fits = |index: usize, tokens: usize| {
                    self.check_room(format_args!("item {index}"), &[tokens + label_tail], spare)
                };
                let (job, draft) = self.score_job(request, labels, label_tail, None, &fits)?;
                let (answer, recorder) = scores_with_receipt(draft, answer);
                let task = ScoreTask::new(job, answer);
                self.run(task, cancels, timeout_s, queueing, &adapters, recorder)
            }
            (Output::Tokens, Mask::Bidirectional) => {
                let masks = self.masks(&request)?;
                let (labels, label_tail) = self.labels(&request)?;
                check_masked(&labels, masks)?;
                let fits = |index: usize, tokens: usize| {
                    self.check_canvas(format_args!("item {index} with its labels"), tokens + label_tail, 1, 0)
                };
                let samples = Some((masks.samples, masks.seed));
                let (job, draft) = self.score_job(request, labels, label_tail, samples, &fits)?;
                let (answer, recorder) = scores_with_receipt(draft, answer);
                let task = MaskedScoreTask::new(job, masks, answer);
                self.run(task, cancels, timeout_s, queueing, &adapters, recorder)
            }
            (Output::States, _) => Err(self.only_encodes()),
        }
    }

    /// The most tokens that any of these labels stores after a prompt. The last token of a label is predicted from those before
    /// it and not stored, unless the model fills masks: then all of them are.
    pub(crate) fn label_tail<'a>(&self, labels: impl IntoIterator<Item = &'a Vec<u32>>) -> usize {
        let longest = labels.into_iter().map(Vec::len).max().unwrap_or(0);
        if self.info.objective.fills_masks() { longest } else { longest.saturating_sub(1) }
    }

    /// The limits for prompts and labels. A canvas must fit one pass.
    pub(crate) fn score_limits(&self) -> Limits<'_> {
        let limits = self.limits();
        let pass = if self.info.objective.fills_masks() { Buckets::MAX_TOKENS } else { usize::MAX };
        Limits { context: limits.context.min(pass), ..limits }
    }

    /// The labels, and the most tokens that any of them stores after a prompt; prompts must leave room for them.
    fn labels(&self, request: &ScoreRequest) -> Result<(LabelLists, usize), EngineError> {
        let limits = self.score_limits();
        let labels = limits.label_lists(request)?;
        check_scored(&labels, request.items.len())?;
        let label_tail = self.label_tail(labels.all());
        if label_tail < limits.context {
            return Ok((labels, label_tail));
        }
        let tokens = labels.longest();
        let fact = format!("a label of {tokens} tokens leaves nothing of the context of {}", limits.context);
        Err(EngineError::request(fact, hint!["take shorter labels, or give more ", Setting::MaxContext]))
    }

    /// Checks the request and builds its job, and the draft of its receipt if it asks for one. `samples` are the number of maskings and
    /// their seed, for models that fill masks. `fits` refuses a prompt, given its index and tokens, that could never run.
    fn score_job(
        &self,
        request: ScoreRequest,
        labels: LabelLists,
        label_tail: usize,
        samples: Option<(usize, u64)>,
        fits: &dyn Fn(usize, usize) -> Result<(), EngineError>,
    ) -> Result<(ScoreJob, Option<Draft>), EngineError> {
        let limits = self.score_limits();
        let mut prompts = Limits { context: limits.context - label_tail, ..limits }.items(&request)?;
        for (index, prompt) in prompts.iter_mut().enumerate() {
            let Ok(tokens) = prompt else { continue };
            match fits(index, tokens.ids.len()) {
                Err(error) if request.item_errors => {
                    *prompt = Err(ItemError { index, message: error.to_string() });
                }
                other => other?,
            }
        }
        let in_ids = || score_in_ids(&request, &prompts, &labels, samples);
        let draft = self.receipt_draft(request.receipt.as_ref(), &request.adapters, in_ids)?;
        let job = ScoreJob {
            prompts,
            labels,
            softmax: request.softmax,
            full_logprobs: request.full_logprobs,
            return_token_ids: request.return_token_ids,
            return_reading: request.return_reading,
            item_errors: request.item_errors,
            cache_salt: request.cache_salt,
            kernel_path: self.info.kernel_path.clone(),
        };
        Ok((job, draft))
    }

    /// Refuses a number of samples if the model scores labels without sampling.
    fn check_unsampled(&self, request: &ScoreRequest) -> Result<(), EngineError> {
        let given = [("mc_samples", request.mc_samples.is_some()), ("seed", request.seed.is_some())];
        let Some((name, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
        let fact = format!(
            "`{name}` is for models that fill masks, and `{}` predicts the token that follows",
            self.info.architecture
        );
        Err(EngineError::request(fact, "leave it out: its scores are exact"))
    }

    /// How the tokens of labels are masked.
    fn masks(&self, request: &ScoreRequest) -> Result<Masks, EngineError> {
        let shifted = self.info.objective.shift > 0;
        let (samples, most) =
            (request.mc_samples.unwrap_or(ScoreRequest::SAMPLES), ScoreRequest::MAX_SAMPLES);
        if !(1..=most).contains(&samples) {
            let hint = format!("give from 1 to {most}; {} is usual", ScoreRequest::SAMPLES);
            return Err(EngineError::request(format!("`mc_samples` is {samples}"), hint));
        }
        Ok(Masks { id: self.mask_id()?, shifted, samples, seed: request.seed.unwrap_or(0) })
    }
}

/// Refuses more scores than memory holds for one request.
fn check_scored(labels: &LabelLists, items: usize) -> Result<(), EngineError> {
    let of_list: Vec<usize> =
        labels.lists.iter().map(|labels| labels.iter().map(Vec::len).sum::<usize>()).collect();
    let tokens = match &labels.of_item {
        Some(of_item) => of_item.iter().map(|&list| of_list[list]).fold(0, usize::saturating_add),
        None => of_list.iter().sum::<usize>().saturating_mul(items),
    };
    if tokens <= MAX_SCORED {
        return Ok(());
    }
    let fact = format!("{items} items with their labels are {tokens} label tokens, more than {MAX_SCORED}");
    Err(EngineError::request(fact, "divide the items, or the labels, among several requests"))
}

/// Refuses a label that contains the mask token or is too long with its end, and labels that have too many maskings in total.
fn check_masked(labels: &LabelLists, masks: Masks) -> Result<(), EngineError> {
    // A masking is a set of tokens, with one bit for each.
    if labels.longest() > LABEL_TOKENS {
        let fact = format!("a label is {} tokens with its end", labels.longest());
        let hint =
            format!("a label of a model that fills masks has at most {LABEL_TOKENS} tokens with its end");
        return Err(EngineError::request(fact, hint));
    }
    if let Some(label) = labels.all().find(|label| label.contains(&masks.id)) {
        let fact = format!("the label {label:?} contains the mask token, {}", masks.id);
        return Err(EngineError::request(fact, "a label is text: leave masks out of it"));
    }
    let tokens = |label: &Vec<u32>| label.len() * Maskings::most(label.len(), masks.samples);
    let tokens: usize = labels.all().map(tokens).sum();
    if tokens > MAX_COVERED {
        let fact = format!("labels covered in all their ways are {tokens} tokens, more than {MAX_COVERED}");
        return Err(EngineError::request(
            fact,
            hint!["give fewer ", Setting::McSamples, ", or fewer labels"],
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_with_its_end_is_no_longer_than_a_set_of_masks() {
        let checked = |tokens: usize| {
            let (lists, divisors) = (vec![vec![vec![5; tokens]]], vec![vec![1.0]]);
            let labels = LabelLists { lists, divisors, end_tokens: 1, of_item: None };
            check_masked(&labels, Masks { id: 9, shifted: false, samples: 1, seed: 0 })
        };
        assert!(checked(LABEL_TOKENS).is_ok());
        assert_eq!(checked(LABEL_TOKENS + 1).unwrap_err().to_string(), "a label is 65 tokens with its end");
    }
}
