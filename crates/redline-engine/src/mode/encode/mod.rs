//! Encoding: what a model makes of whole texts.
//!
//! A text of an encoder runs in one pass, as a canvas; one of a decoder runs like a prompt.

mod reading;

use std::collections::VecDeque;

use crate::answer::outcome::{EncodeOutcome, Encoded, PrefixCacheCounts, RequestCost, TokenCounts};
use crate::answer::ticket::Answer;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening, Origin};
use crate::task::{Cached, Ended, Ran, RowOutput, RowPlace, Task};

use reading::TextState;
pub(crate) use reading::{Finish, Reading};

/// A checked request.
pub(crate) struct EncodeJob {
    pub(crate) texts: Vec<EncodeText>,
    pub(crate) reading: Reading,
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
    /// The number of its first tokens, which all see, if they see no others.
    pub(crate) keys: Option<usize>,
    /// The positions whose states become vectors, ascending, where those of single tokens do.
    pub(crate) with_vectors: Vec<usize>,
    pub(crate) truncated: bool,
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

    /// Positions whose rows are read.
    fn wanted(&self, text: usize) -> std::ops::Range<usize> {
        self.job.reading.wanted(&self.job.texts[text].ids)
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
        self.job.reading.output()
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
        let EncodeText { ids, second_text, keys, .. } = &self.job.texts[index];
        let opening = Opening {
            tokens: ids.clone(),
            rank: index as u32,
            second_text: *second_text,
            keys: *keys,
            ..Opening::default()
        };
        Some(if self.job.sees_both_sides {
            Opening { canvas: Some(wanted.collect()), ..opening }
        } else {
            Opening { wanted: wanted.start, shares: true, ..opening }
        })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        let mut begin = 0;
        for places in places.chunk_by(|a, b| a.index == b.index) {
            let text = self.opened[places[0].index as usize];
            let wanted = self.wanted(text);
            // A prompt is read from its first wanted row to its end.
            let first = places.partition_point(|place| place.position < wanted.start);
            let end = places.partition_point(|place| place.position < wanted.end);
            let positions: Vec<usize> = places[first..end].iter().map(|place| place.position).collect();
            let EncodeJob { reading, texts, .. } = &self.job;
            let rows = logits.some(begin + first..begin + end);
            reading.add(&mut self.texts[text], &texts[text], &positions, rows);
            begin += places.len();
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
    let noun = job.noun;
    let mut encoded = Vec::with_capacity(texts.len());
    for (text, state) in job.texts.iter().zip(texts) {
        let (values, indices) = state.finished();
        let values = values.filter(|values| values.iter().all(|value| value.is_finite()));
        let Some(values) = values else {
            return Err(EngineError::NonFinite(format!("{noun} {}", text.index)));
        };
        let EncodeText { ids, with_vectors, truncated, .. } = text;
        let (vectors, truncated) = (job.reading.vectors(ids.len(), with_vectors.len()), *truncated);
        encoded.push(Encoded { values, indices, vectors, prompt_tokens: ids.len(), truncated });
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
    Ok(EncodeOutcome { form: job.reading.form(), texts: encoded, cost, receipt: None })
}
