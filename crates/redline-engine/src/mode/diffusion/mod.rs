//! Generation by filling masks: a canvas of a prompt and masks, run pass after pass.

mod counts;
mod draw;
mod prediction;
mod schedule;

use std::ops::Range;

use redline_kernels::Rows;

pub(crate) use self::counts::divisor;
pub(crate) use self::prediction::{Prediction, Predictor};
pub(crate) use self::schedule::{Pass, Rules, Schedule};
use crate::answer::outcome::{DiffuseOutcome, DiffusionPass, DiffusionProgress, FilledMask, FinishReason};
use crate::answer::ticket::Reply;
use crate::answer::transcript::Transcript;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::task::logits::Logits;
use crate::task::sequence::{CanvasRows, Done, Next, Opening};
use crate::task::{Cached, Ended, Ran, RowOutput, RowPlace, Task};

/// A checked request.
pub(crate) struct DiffuseJob {
    /// The prompt, followed by masks; at least one mask.
    pub(crate) canvas: Vec<u32>,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    pub(crate) mask: u32,
    /// Tokens that end the text if they fill a mask.
    pub(crate) end_ids: Vec<u32>,
    pub(crate) rules: Rules,
    pub(crate) predictor: Predictor,
    /// Scale of classifier-free guidance; 0: none.
    pub(crate) cfg_scale: f32,
    pub(crate) kernel_path: String,
}

/// Index of the sequence with the prompt. Guidance moves away from the other sequence, whose prompt is masked.
const CONDITIONED: u32 = 0;

/// A canvas being filled.
pub(crate) struct DiffuseTask {
    job: DiffuseJob,
    schedule: Schedule,
    reply: Reply<DiffuseOutcome, DiffusionProgress>,
    transcript: Transcript,
    /// Positions that were masks at first.
    fillable: Vec<bool>,
    /// Number of opened sequences.
    opened: u32,
    /// Number of sequences that have not been run in this pass.
    outstanding: u32,
    pass: Option<Pass>,
    /// `(row, index in the pass's masks)`, ascending.
    rows: Vec<(usize, usize)>,
    predictions: Vec<Option<Prediction>>,
    /// Logits of rows of one sequence, until the other sequence's arrive.
    partner: Vec<(u32, usize, Vec<f32>)>,
    /// The first position that is not final, or the end of the text.
    frontier: usize,
    end: Option<usize>,
    passes: Vec<DiffusionPass>,
    finished: bool,
}

impl DiffuseTask {
    pub(crate) fn new(
        job: DiffuseJob,
        transcript: Transcript,
        reply: Reply<DiffuseOutcome, DiffusionProgress>,
    ) -> Self {
        let fillable: Vec<bool> = job.canvas.iter().map(|&id| id == job.mask).collect();
        let frontier = fillable.iter().position(|&fillable| fillable).unwrap_or(fillable.len());
        let mut task = Self {
            schedule: Schedule::new(job.rules.clone()),
            reply,
            transcript,
            fillable,
            opened: 0,
            outstanding: 0,
            pass: None,
            rows: Vec::new(),
            predictions: Vec::new(),
            partner: Vec::new(),
            frontier,
            end: None,
            passes: Vec::new(),
            finished: false,
            job,
        };
        task.turn();
        task
    }

    /// Number of sequences: the canvas, and with guidance a copy whose prompt is masked.
    fn sequences(&self) -> u32 {
        if self.job.cfg_scale > 0.0 { 2 } else { 1 }
    }

    /// Starts the next pass, if there is one.
    fn turn(&mut self) {
        let (canvas, mask) = (&self.job.canvas, self.job.mask);
        self.pass = self.schedule.next(canvas.len(), &|p| canvas[p] == mask);
        self.finished |= self.pass.is_none();
        let Some(pass) = &self.pass else { return };
        let shifted = self.job.rules.shifted;
        let row = |p: usize| if shifted { p.saturating_sub(1).max(pass.rows.start) } else { p };
        self.rows = pass.masks.iter().enumerate().map(|(place, &p)| (row(p), place)).collect();
        self.predictions = vec![None; pass.masks.len()];
        self.outstanding = self.sequences();
    }

    /// The rows to run in sequence `index`.
    fn canvas_rows(&self, index: u32) -> CanvasRows {
        let rows = self.pass.as_ref().map_or(0..0, |pass| pass.rows.clone());
        let shown = |p: usize| {
            if index == CONDITIONED || self.fillable[p] { self.job.canvas[p] } else { self.job.mask }
        };
        CanvasRows { from: rows.start, wanted: self.wanted(&rows), tokens: rows.map(shown).collect() }
    }

    /// The rows among `rows` whose logits are wanted.
    fn wanted(&self, rows: &Range<usize>) -> Vec<usize> {
        if !self.job.rules.savings {
            return rows.clone().collect();
        }
        let mut wanted: Vec<usize> = self.rows.iter().map(|(row, _)| *row).collect();
        wanted.dedup();
        wanted
    }

    /// Predicts masks from logits; row r of `values` is at `positions[r]`.
    fn predict(&mut self, logits: Logits<'_>, values: Rows<'_>, positions: &[usize]) {
        let Some(pass) = &self.pass else { return };
        let exec = logits.exec;
        let places = |row: usize| {
            let first = self.rows.partition_point(|(r, _)| *r < row);
            self.rows[first..].iter().take_while(move |(r, _)| *r == row).map(|(_, place)| *place)
        };
        // Two masks may share a row: the first two of a canvas or block, if rows are shifted.
        for nth in 0..2 {
            let some: Vec<Option<usize>> = positions.iter().map(|&row| places(row).nth(nth)).collect();
            let mut first = 0;
            for run in some.chunk_by(|a, b| a.is_some() == b.is_some()) {
                let rows = first..first + run.len();
                first = rows.end;
                let run: Vec<usize> = run.iter().copied().flatten().collect();
                if run.is_empty() {
                    continue;
                }
                let masks: Vec<usize> = run.iter().map(|&place| pass.masks[place]).collect();
                let predictions = self.job.predictor.all(exec, values.some(rows), pass.step, &masks);
                for (place, prediction) in run.into_iter().zip(predictions) {
                    self.predictions[place] = prediction;
                }
            }
        }
    }

    /// Predicts from the logits c and u with and without the prompt: `u + (scale + 1) (c - u)`.
    fn predict_guided(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        let scale = self.job.cfg_scale + 1.0;
        let (mut positions, mut values) = (Vec::new(), Vec::new());
        for (r, place) in places.iter().enumerate() {
            // Without savings, rows come that predict no mask.
            if self.rows.binary_search_by_key(&place.position, |(row, _)| *row).is_err() {
                continue;
            }
            let row = logits.rows.row(r);
            let known = |(index, position, _): &(u32, usize, Vec<f32>)| {
                *position == place.position && *index != place.index
            };
            let Some(at) = self.partner.iter().position(known) else {
                self.partner.push((place.index, place.position, row.to_vec()));
                continue;
            };
            let (_, position, other) = self.partner.swap_remove(at);
            let both = other.iter().zip(row).map(|(&other, &own)| {
                let (c, u) = if place.index == CONDITIONED { (own, other) } else { (other, own) };
                u + scale * (c - u)
            });
            values.extend(both);
            positions.push(position);
        }
        let width = logits.rows.width();
        self.predict(logits, Rows::new(&values, positions.len(), width, width), &positions);
    }

    /// Fills masks after the pass has been run.
    fn fill(&mut self) -> Result<(), EngineError> {
        let Some(pass) = self.pass.take() else { return Ok(()) };
        let numbers = self.predictions.iter().zip(&pass.masks);
        let predictions = numbers
            .map(|(prediction, p)| prediction.ok_or_else(|| EngineError::NonFinite(format!("position {p}"))));
        let predictions = predictions.collect::<Result<Vec<Prediction>, _>>()?;
        let mut filled = Vec::new();
        for position in self.schedule.filled(&pass, &predictions) {
            let Ok(place) = pass.masks.binary_search(&position) else { continue };
            let Prediction { token, confidence } = predictions[place];
            // A mask whose prediction is the mask token stays unfilled.
            if token != self.job.mask {
                self.job.canvas[position] = token;
                filled.push(FilledMask { position, token, confidence });
            }
        }
        let outputs = self.wanted(&pass.rows).len();
        let passed = DiffusionPass { step: pass.step, rows: pass.rows, outputs, filled };
        self.passes.push(passed.clone());
        self.reply.progress(DiffusionProgress::Pass(passed));
        Ok(())
    }

    /// Reports the text before the first remaining mask.
    fn show(&mut self) -> Result<(), EngineError> {
        let mut text = String::new();
        while self.end.is_none()
            && let Some(&id) = self.job.canvas.get(self.frontier)
            && id != self.job.mask
            && !self.transcript.stopped()
        {
            if self.fillable[self.frontier] && self.job.end_ids.contains(&id) {
                self.end = Some(self.frontier);
            } else {
                text.push_str(self.transcript.push(id)?);
                self.frontier += 1;
            }
        }
        self.say(text);
        Ok(())
    }

    fn say(&self, text: String) {
        if !text.is_empty() {
            self.reply.progress(DiffusionProgress::Text(text));
        }
    }

    /// Whether the text is final, independent of the remaining masks.
    fn is_final(&self) -> bool {
        self.job.rules.savings && (self.end.is_some() || self.transcript.stopped())
    }
}

impl Task for DiffuseTask {
    fn longest(&self) -> usize {
        self.job.canvas.len()
    }

    fn has_canvases(&self) -> bool {
        true
    }

    fn output(&self) -> RowOutput<()> {
        RowOutput::Vocabulary
    }

    fn start(&mut self, _cached: Cached<'_>) {
        self.reply.progress(DiffusionProgress::Canvas(self.job.canvas.clone()));
    }

    fn open(&mut self) -> Option<Opening> {
        if self.opened == self.sequences() {
            return None;
        }
        let CanvasRows { tokens, wanted, .. } = self.canvas_rows(self.opened);
        self.opened += 1;
        Some(Opening { tokens, canvas: Some(wanted), ..Opening::default() })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        if self.sequences() == 2 {
            return self.predict_guided(places, logits);
        }
        let positions: Vec<usize> = places.iter().map(|place| place.position).collect();
        self.predict(logits, logits.rows, &positions);
    }

    fn advance(&mut self, done: &[Done], _elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        self.outstanding = self.outstanding.saturating_sub(done.len() as u32);
        if self.outstanding > 0 {
            return Ok(Vec::new());
        }
        self.fill()?;
        self.show()?;
        self.finished = self.is_final();
        if !self.finished {
            self.turn();
        }
        let next = |index| if self.finished { Next::Drop } else { Next::RunCanvas(self.canvas_rows(index)) };
        Ok((0..self.sequences()).map(|index| (index, next(index))).collect())
    }

    fn progress(&self) -> Progress {
        Progress {
            prompt_tokens: if self.passes.is_empty() { 0 } else { self.job.prompt_tokens },
            generated_tokens: self.passes.iter().map(|pass| pass.filled.len()).sum(),
            ..Progress::default()
        }
    }

    fn finished(&self) -> bool {
        self.finished
    }

    fn answer(mut self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let outcome = outcome.and_then(|ran| self.outcome(&ran));
        self.reply.finish(outcome);
    }
}

impl DiffuseTask {
    /// Builds the outcome, and releases the text that was held back.
    fn outcome(&mut self, ran: &Ran) -> Result<DiffuseOutcome, EngineError> {
        let filled: usize = self.passes.iter().map(|pass| pass.filled.len()).sum();
        if ran.ended == Some(Ended::Late) {
            return Err(EngineError::Late { seconds: ran.seconds, tokens: Some(filled) });
        }
        let rest = self.transcript.finish().to_owned();
        self.say(rest);
        let finish_reason = match ran.ended {
            Some(_) => FinishReason::Cancelled,
            None if self.transcript.stopped() || self.end.is_some() => FinishReason::Stop,
            None => FinishReason::Length,
        };
        let passes = std::mem::take(&mut self.passes);
        let canvas = std::mem::take(&mut self.job.canvas);
        let prompt_tokens = self.job.prompt_tokens;
        let last = self.end.map_or(canvas.len(), |end| end + 1).max(prompt_tokens);
        let compute_s = ran.seconds - ran.queue_s;
        Ok(DiffuseOutcome {
            text: self.transcript.take_text(),
            token_ids: canvas[prompt_tokens..last].to_vec(),
            canvas,
            prompt_tokens,
            prompt_masks: self.fillable[..prompt_tokens].iter().filter(|&&fillable| fillable).count(),
            finish_reason,
            algorithm: self.job.rules.algorithm,
            tokens_per_pass: (!passes.is_empty()).then(|| filled as f64 / passes.len() as f64),
            passes,
            computed_tokens: ran.computed_tokens,
            plan_misses: ran.plan_misses,
            queue_s: ran.queue_s,
            compute_s,
            sampling_s: ran.sampling_s,
            tokens_per_s: (compute_s > 0.0).then(|| filled as f64 / compute_s),
            peak_memory_bytes: ran.peak_memory_bytes,
            kernel_path: std::mem::take(&mut self.job.kernel_path),
            receipt: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use redline_kernels::Simd;

    use super::*;
    use crate::answer::ticket::DiffuseTicket;
    use crate::request::{Algorithm, BlockCache, Sampling};

    const MASK: u32 = 9;

    /// A canvas of two tokens and three masks, of which two passes have filled one and two; and its ticket.
    fn filled() -> (Box<DiffuseTask>, DiffuseTicket) {
        let algorithm = Algorithm::Entropy;
        let rules = Rules {
            algorithm,
            steps: 3,
            eps: 1e-3,
            alg_temp: 0.0,
            seed: 0,
            blocks: std::iter::once(2..5).collect(),
            threshold: None,
            cache: BlockCache::None,
            refresh: None,
            shifted: true,
            savings: true,
        };
        let job = DiffuseJob {
            canvas: vec![1, 2, MASK, MASK, MASK],
            prompt_tokens: 2,
            mask: MASK,
            end_ids: Vec::new(),
            rules,
            predictor: Predictor { algorithm, sampling: Sampling::default(), simd: Simd::best() },
            cfg_scale: 0.0,
            kernel_path: String::new(),
        };
        let (ticket, reply) = DiffuseTicket::new();
        let mut task = DiffuseTask::new(job, Transcript::new(None, Vec::new()), reply);
        let pass = |step: usize, positions: Range<usize>| DiffusionPass {
            step,
            rows: 0..5,
            outputs: 3,
            filled: positions.map(|position| FilledMask { position, token: 4, confidence: 0.5 }).collect(),
        };
        task.passes = vec![pass(0, 2..3), pass(1, 3..5)];
        (Box::new(task), ticket)
    }

    fn ran(ended: Option<Ended>) -> Ran {
        Ran {
            arrived_s: 1.0,
            queue_s: 2.0,
            seconds: 10.0,
            sampling_s: 0.25,
            computed_tokens: 15,
            plan_misses: 3,
            peak_memory_bytes: Some(7),
            ended,
        }
    }

    #[test]
    fn figures_are_of_the_filled_masks_and_of_the_time_after_the_queue() {
        let (task, ticket) = filled();
        task.answer(Ok(ran(None)));
        let outcome = ticket.wait().unwrap();
        assert_eq!((outcome.queue_s, outcome.compute_s), (2.0, 8.0));
        assert_eq!((outcome.tokens_per_s, outcome.tokens_per_pass), (Some(3.0 / 8.0), Some(1.5)));
        assert_eq!((outcome.computed_tokens, outcome.plan_misses), (15, 3));
        assert_eq!(outcome.peak_memory_bytes, Some(7));
    }

    #[test]
    fn a_canvas_that_is_late_has_the_number_of_filled_masks() {
        let (task, ticket) = filled();
        task.answer(Ok(ran(Some(Ended::Late))));
        let Err(EngineError::Late { seconds, tokens }) = ticket.wait() else { panic!("not late") };
        assert_eq!((seconds, tokens), (10.0, Some(3)));
    }
}
