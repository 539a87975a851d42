//! Encoding: the states of a text become one vector, and that an embedding or a number for each class.
//!
//! A text of an encoder runs in one pass, as a canvas; one of a decoder runs like a prompt. Means are summed in f64, positions
//! ascending, so they do not depend on the pieces in which rows are read.

use std::collections::VecDeque;
use std::sync::Arc;

use redline_kernels::Exec;
use redline_models::block::pooled::Classifier;
use redline_models::sentence::SentenceRules;
use redline_settings::Pooling;

use crate::answer::outcome::{EncodeOutcome, Encoded, PrefixCacheCounts, RequestCost, TokenCounts};
use crate::answer::ticket::Answer;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening, Origin};
use crate::task::{Cached, Ended, Ran, RowOutput, RowPlace, Task};

/// A checked request.
pub(crate) struct EncodeJob {
    pub(crate) texts: Vec<EncodeText>,
    /// `None`: the states of all tokens are the answer, as they are.
    pub(crate) pooling: Option<Pooling>,
    /// The id that the last token of [`Pooling::Last`] does not have.
    pub(crate) padding: Option<u32>,
    pub(crate) finish: Finish,
    /// Whether rows see later rows.
    pub(crate) sees_both_sides: bool,
    pub(crate) cache_salt: String,
    /// The caller's name for a text, in messages.
    pub(crate) noun: &'static str,
    pub(crate) kernel_path: String,
}

/// A text, or a pair of texts.
pub(crate) struct EncodeText {
    /// Its number in the request.
    pub(crate) index: usize,
    /// At least one token.
    pub(crate) ids: Vec<u32>,
    /// The position of the first token that is of the second type.
    pub(crate) second_text: Option<usize>,
    pub(crate) truncated: bool,
}

/// What becomes of a pooled vector.
pub(crate) enum Finish {
    /// An embedding.
    Embedding {
        /// The model's own rules, of which the layers apply.
        rules: Option<Arc<SentenceRules>>,
        /// Number of values that are kept.
        dimensions: usize,
        /// Whether it is divided by its length.
        normalise: bool,
    },
    /// A number for each class.
    Classes(Arc<Classifier>),
}

impl Finish {
    fn apply(&self, exec: Exec<'_>, pooled: &[f32]) -> Vec<f32> {
        match self {
            Self::Classes(classifier) => classifier.layers.apply(exec, pooled),
            Self::Embedding { rules, dimensions, normalise } => {
                let mut values = match rules {
                    Some(rules) => rules.layers.apply(exec, pooled),
                    None => pooled.to_vec(),
                };
                values.truncate(*dimensions);
                if *normalise { normalised(&values) } else { values }
            }
        }
    }
}

/// A vector divided by its length, which is taken to be at least 1e-12, as in PyTorch.
fn normalised(values: &[f32]) -> Vec<f32> {
    let squares: f64 = values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = squares.sqrt().max(1e-12);
    values.iter().map(|x| (f64::from(*x) / length) as f32).collect()
}

/// What is known of a text so far.
#[derive(Default)]
struct TextState {
    /// Sum of the states that were read.
    sums: Vec<f64>,
    /// Number of states that were read.
    rows: usize,
    values: Option<Vec<f32>>,
}

/// A running request.
pub(crate) struct EncodeTask {
    job: EncodeJob,
    reply: Answer<EncodeOutcome>,
    /// Texts that are not open yet.
    waiting: VecDeque<usize>,
    /// The text of every sequence.
    opened: Vec<usize>,
    texts: Vec<TextState>,
    left: usize,
    cached: Option<PrefixCacheCounts>,
    progress: Progress,
}

impl EncodeTask {
    pub(crate) fn new(job: EncodeJob, reply: Answer<EncodeOutcome>) -> Self {
        Self {
            waiting: (0..job.texts.len()).collect(),
            opened: Vec::new(),
            texts: job.texts.iter().map(|_| TextState::default()).collect(),
            left: job.texts.len(),
            cached: None,
            progress: Progress::default(),
            job,
            reply,
        }
    }

    /// Positions whose states are read.
    fn wanted(&self, text: usize) -> std::ops::Range<usize> {
        let ids = &self.job.texts[text].ids;
        match self.job.pooling {
            Some(Pooling::First) => 0..1,
            Some(Pooling::Mean) | None => 0..ids.len(),
            Some(Pooling::Last) => {
                // As in the reference, the first token of a text that is nothing but padding.
                let last = ids.iter().rposition(|id| Some(*id) != self.job.padding).unwrap_or(0);
                last..last + 1
            }
        }
    }

    /// Takes the state of the next wanted position of a text.
    fn add(&mut self, exec: Exec<'_>, text: usize, state: &[f32]) {
        let wanted = self.wanted(text).len();
        let TextState { sums, rows, values } = &mut self.texts[text];
        *rows += 1;
        if self.job.pooling.is_none() {
            values.get_or_insert_default().extend_from_slice(state);
            return;
        }
        if wanted == 1 {
            *values = Some(self.job.finish.apply(exec, state));
            return;
        }
        sums.resize(state.len(), 0.0);
        sums.iter_mut().zip(state).for_each(|(sum, x)| *sum += f64::from(*x));
        if *rows == wanted {
            let mean: Vec<f32> = sums.iter().map(|sum| (sum / wanted as f64) as f32).collect();
            *values = Some(self.job.finish.apply(exec, &mean));
            *sums = Vec::new();
        }
    }
}

impl Task for EncodeTask {
    fn salt(&self) -> String {
        self.job.cache_salt.clone()
    }

    fn longest(&self) -> usize {
        self.job.texts.iter().map(|text| text.ids.len()).max().unwrap_or(0)
    }

    fn has_canvases(&self) -> bool {
        self.job.sees_both_sides
    }

    fn output(&self) -> RowOutput<()> {
        RowOutput::State
    }

    fn prompts(&self, most: usize) -> Vec<Vec<u32>> {
        if self.job.sees_both_sides {
            return Vec::new();
        }
        self.job.texts.iter().take(most).map(|text| text.ids.clone()).collect()
    }

    fn start(&mut self, cached: Cached<'_>) {
        if !self.job.sees_both_sides && cached(&self.job.cache_salt, &[]).is_some() {
            self.cached = Some(PrefixCacheCounts::default());
        }
    }

    fn open(&mut self) -> Option<Opening> {
        let index = self.waiting.pop_front()?;
        self.opened.push(index);
        let wanted = self.wanted(index);
        let EncodeText { ids, second_text, .. } = &self.job.texts[index];
        let opening = Opening {
            tokens: ids.clone(),
            rank: index as u32,
            second_text: *second_text,
            ..Opening::default()
        };
        Some(if self.job.sees_both_sides {
            Opening { canvas: Some(wanted.collect()), ..opening }
        } else {
            Opening { wanted: wanted.start, shares: true, ..opening }
        })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        for (r, place) in places.iter().enumerate() {
            let text = self.opened[place.index as usize];
            // A prompt is read from its first wanted row to its end.
            if self.wanted(text).contains(&place.position) {
                self.add(logits.exec, text, logits.rows.row(r));
            }
        }
    }

    fn advance(&mut self, done: &[Done], _elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        let mut updates = Vec::with_capacity(done.len());
        for done in done {
            let text = self.opened[done.index as usize];
            if let Some(counts) = &mut self.cached {
                let is_kept = done.origin == Origin::Kept;
                counts.count(if is_kept { done.reused } else { 0 });
            }
            self.left -= 1;
            self.progress.items += 1;
            self.progress.prompt_tokens += self.job.texts[text].ids.len();
            let next = if self.job.sees_both_sides { Next::Drop } else { Next::Store };
            updates.push((done.index, next));
        }
        Ok(updates)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn finished(&self) -> bool {
        self.left == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let Self { job, texts, cached, progress, reply, .. } = *self;
        reply(outcome.and_then(|ran| outcome_of(job, texts, cached, progress, &ran)));
    }
}

fn outcome_of(
    job: EncodeJob,
    texts: Vec<TextState>,
    prefix_cache: Option<PrefixCacheCounts>,
    progress: Progress,
    ran: &Ran,
) -> Result<EncodeOutcome, EngineError> {
    match ran.ended {
        Some(Ended::Cancelled) => return Err(EngineError::Cancelled),
        Some(Ended::Late) => return Err(EngineError::Late { seconds: ran.seconds, tokens: None }),
        None => {}
    }
    let vectors = |text: &EncodeText| if job.pooling.is_none() { text.ids.len() } else { 1 };
    let values_of =
        |(text, state): (&EncodeText, &TextState)| Some(state.values.as_ref()?.len() / vectors(text));
    let dimensions = job.texts.iter().zip(&texts).find_map(values_of).unwrap_or(0);
    let noun = job.noun;
    let mut encoded = Vec::with_capacity(texts.len());
    for (text, state) in job.texts.iter().zip(texts) {
        let values = state.values.unwrap_or_default();
        if values.len() != dimensions * vectors(text) || values.iter().any(|value| !value.is_finite()) {
            return Err(EngineError::NonFinite(format!("{noun} {}", text.index)));
        }
        encoded.push(Encoded { values, prompt_tokens: text.ids.len(), truncated: text.truncated });
    }
    let cached_tokens = prefix_cache.map_or(0, |counts| counts.cached_tokens);
    let usage = TokenCounts { prompt_tokens: progress.prompt_tokens, completion_tokens: 0, cached_tokens };
    let cost = RequestCost {
        usage,
        computed_tokens: ran.computed_tokens,
        shared_prefix_tokens: 0,
        prefix_cache,
        plan_misses: ran.plan_misses,
        queue_s: ran.queue_s,
        compute_s: ran.seconds,
        peak_memory_bytes: ran.peak_memory_bytes,
        kernel_path: job.kernel_path,
    };
    Ok(EncodeOutcome { texts: encoded, cost, receipt: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_divided_by_its_length() {
        assert_eq!(normalised(&[3.0, 0.0, -4.0]), [0.6, 0.0, -0.8]);
        // The squares exceed an f32.
        assert_eq!(normalised(&[1e30, 0.0]), [1.0, 0.0]);
        assert_eq!(normalised(&[0.0; 2]), [0.0; 2]);
    }
}
