//! State of the engine's thread, and its heartbeat.

mod evaluate;
mod line;
mod observe;
mod record;
mod restore;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redline_models::adapter::Adapters;
use redline_models::model::Batch;
use redline_models::row_digests::RowDigests;
use redline_system::memory::PeakMeter;

use self::line::Line;
pub(crate) use self::observe::ObserveJob;
use self::restore::{Arrived, Restores};
use crate::adapters::resident::SequenceAdapters;
use crate::answer::outcome::EngineUse;
use crate::cancel::Cancel;
use crate::error::{EngineError, message};
use crate::gauges::{Gauges, Holdings, Progress, RequestEnd};
use crate::heartbeat::machine::{Machine, Outputs};
use crate::heartbeat::places::Place;
use crate::memory::cache::Cache;
use crate::memory::pages::PageArchive;
use crate::mode::perplexity::EvaluateJob;
use crate::options::ClockFn;
use crate::plan::OUTPUT_ROWS;
use crate::profile::{ProfileEvent, ProfileLog, ProfiledPass};
use crate::receipt::Recorder;
use crate::request::Queueing;
use crate::scheduler::{Openings, Piece, Scheduler, Step, Stuck};
use crate::stages::{Stage, StageLog, StageTime};
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening};
use crate::task::{Ended, Ran, RowOutput, RowPlace, Task};

/// A request as it reaches the engine's thread.
pub(crate) struct Arrival {
    pub(crate) task: Box<dyn Task + Send>,
    /// When it was submitted, in nanoseconds on the engine's clock.
    pub(crate) at: u64,
    /// Any of these cancels the request.
    pub(crate) cancels: Vec<Cancel>,
    /// Time limit in seconds, counted from then.
    pub(crate) timeout_s: Option<f64>,
    pub(crate) queueing: Queueing,
    pub(crate) place: Place,
    pub(crate) adapters: SequenceAdapters,
    /// Takes digests for its receipt.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// A running request.
struct Running {
    task: Box<dyn Task + Send>,
    place: Place,
    cancels: Vec<Cancel>,
    timeout_s: Option<f64>,
    /// How long it may wait for its first pass, in seconds.
    longest_wait_s: Option<f64>,
    /// Whose request it is.
    tenant: String,
    adapters: Adapters,
    recorder: Option<Arc<Recorder>>,
    /// Number of requests that arrived before it.
    number: u64,
    arrived: u64,
    tokens: TokenTimes,
    /// Seconds from arrival to the first pass.
    queue_s: Option<f64>,
    /// Nanoseconds of choosing tokens; measured for canvases only.
    sampling_ns: u64,
    computed_tokens: usize,
    /// Number of plans that were missing for passes of this request.
    plan_misses: u64,
    /// Measures the memory used while it runs.
    memory: PeakMeter,
}

/// The progress of a request, and the times of its new tokens.
#[derive(Default)]
struct TokenTimes {
    progress: Progress,
    /// Times of the first and of the last heartbeat with new tokens.
    first: Option<u64>,
    last: u64,
    /// Number of heartbeats with new tokens.
    beats: u64,
}

impl Running {
    /// Notes how far the request has come.
    fn note_progress(&mut self, now: u64, gauges: &Gauges) {
        let (before, progress) = (self.tokens.progress, self.task.progress());
        gauges.advanced(before, progress);
        let new = progress.generated_tokens.saturating_sub(before.generated_tokens);
        if new > 0 {
            if self.tokens.first.is_none() {
                self.tokens.first = Some(now);
                let elapsed = seconds_between(self.arrived, now);
                gauges.times.first_token.add(elapsed);
                gauges.times.prompt.add(elapsed - self.queue_s.unwrap_or(0.0));
            } else if !self.task.has_canvases() {
                gauges.times.between_tokens.add_times(seconds_between(self.tokens.last, now), new as u64);
            }
            (self.tokens.last, self.tokens.beats) = (now, self.tokens.beats + 1);
        }
        self.tokens.progress = progress;
    }

    /// Notes that the request is finished.
    fn note_end(&self, now: u64, gauges: &Gauges) {
        gauges.times.request.add(seconds_between(self.arrived, now));
        let TokenTimes { first: Some(first), last, beats, .. } = self.tokens else { return };
        gauges.times.generation.add(seconds_between(first, now));
        if beats > 1 && !self.task.has_canvases() {
            gauges.times.per_token.add(seconds_between(first, last) / (beats - 1) as f64);
        }
    }

    /// Lets the task work, and measures the time if it fills canvases: each of their passes chooses the tokens of many rows.
    fn sampling<T>(&mut self, clock: &ClockFn, work: impl FnOnce(&mut dyn Task) -> T) -> T {
        if !self.task.has_canvases() {
            return work(&mut *self.task);
        }
        let start = clock();
        let result = work(&mut *self.task);
        self.sampling_ns += clock().saturating_sub(start);
        result
    }
}

/// A row of the batch whose values are wanted.
struct Wanted {
    /// What is made of it; labels are those of a request.
    output: RowOutput<u64>,
    task: u64,
    place: RowPlace,
    /// Its index among the wanted rows of the batch.
    index: usize,
    normalise: bool,
    /// Whether the row belongs to a canvas.
    of_canvas: bool,
}

/// Groups rows whose values are evaluated together: over the same labels or over the vocabulary, at most [`OUTPUT_ROWS`] each.
fn grouped(rows: &[Wanted]) -> Vec<&[Wanted]> {
    rows.chunk_by(|a, b| a.output == b.output).flat_map(|some| some.chunks(OUTPUT_ROWS)).collect()
}

/// The requests that take part in a pass, in ascending order.
fn tasks_of(pieces: &[Piece]) -> Vec<u64> {
    let mut tasks: Vec<u64> = pieces.iter().map(|piece| piece.key.task).collect();
    tasks.sort_unstable();
    tasks.dedup();
    tasks
}

/// The sequences that requests have not opened yet.
struct Unopened<'a>(&'a mut BTreeMap<u64, Running>);

impl Openings for Unopened<'_> {
    fn next_rank(&self, task: u64) -> Option<u32> {
        self.0.get(&task)?.task.next_rank()
    }

    fn open(&mut self, task: u64) -> Option<Opening> {
        self.0.get_mut(&task)?.task.open()
    }
}

/// The engine's state: machine, cache, scheduler and running requests.
pub(crate) struct Core<M: Machine> {
    machine: M,
    cache: Cache<M::Pages>,
    scheduler: Scheduler,
    tasks: BTreeMap<u64, Running>,
    /// The rows of the head for each request that needs logits of some labels only.
    labels: BTreeMap<u64, M::Labels>,
    /// The order of requests, by which they are numbered here and in the scheduler.
    line: Line,
    /// Passes over windows that are waiting to run.
    evaluations: VecDeque<EvaluateJob>,
    clock: ClockFn,
    /// Receives events of requests and passes.
    profile: Option<ProfileLog>,
    /// Receives the time of every pass.
    stages: Option<StageLog>,
    /// What other threads read.
    gauges: Arc<Gauges>,
    /// Pages that outlive the process, and the requests that wait for them.
    restores: Restores,
    batch: Batch,
}

fn seconds_between(start: u64, end: u64) -> f64 {
    end.saturating_sub(start) as f64 * 1e-9
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, cache: Cache<M::Pages>, scheduler: Scheduler, clock: ClockFn) -> Self {
        let (tasks, labels) = (BTreeMap::new(), BTreeMap::new());
        Self {
            machine,
            cache,
            scheduler,
            tasks,
            labels,
            line: Line::default(),
            evaluations: VecDeque::new(),
            clock,
            profile: None,
            stages: None,
            gauges: Arc::default(),
            restores: Restores::new(None),
            batch: Batch::default(),
        }
    }

    /// Sets the log that receives events of requests and passes.
    pub(crate) fn with_profile(self, profile: Option<ProfileLog>) -> Self {
        Self { profile, ..self }
    }

    /// Sets the log that receives the time of every pass.
    pub(crate) fn with_stages(self, stages: Option<StageLog>) -> Self {
        Self { stages, ..self }
    }

    /// Sets the gauges that other threads read.
    pub(crate) fn with_gauges(self, gauges: Arc<Gauges>) -> Self {
        Self { gauges, ..self }
    }

    /// Sets where pages outlive the process. The cache names their keys.
    pub(crate) fn with_archive(self, archive: Option<Box<dyn PageArchive>>) -> Self {
        Self { restores: Restores::new(archive), ..self }
    }

    fn log(&self, event: &ProfileEvent<'_>) {
        if let Some(log) = &self.profile {
            log(event);
        }
    }

    /// The machine that runs the passes.
    pub(crate) fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The heartbeat: runs one pass of the requests and one over a window. All messages that have come must have been taken in.
    pub(crate) fn tick(&mut self) {
        self.check_pages();
        self.evaluate_next();
        if !self.tasks.is_empty() {
            self.run_next();
        }
        self.save_some();
        self.publish();
    }

    /// Runs the next pass of the requests.
    fn run_next(&mut self) {
        self.end_some();
        match self.scheduler.next(&mut self.cache, &mut Unopened(&mut self.tasks)) {
            Ok(Step { mut pieces, stored }) => {
                self.advance(stored);
                pieces.retain(|piece| self.scheduler.tokens(piece).is_some());
                if !pieces.is_empty() {
                    self.pass(&pieces);
                }
            }
            Err(stuck) => self.fail(stuck),
        }
    }

    /// Lets other threads see what is held now.
    pub(crate) fn publish(&self) {
        let kv = &self.cache.kv;
        self.gauges.beat(Holdings {
            sequences: kv.sequences().saturating_sub(self.cache.idle()),
            pages: kv.pages_in_use(),
            pages_allocated: kv.allocated(),
            kept_tokens: self.cache.kept_tokens(),
            preemptions: self.scheduler.preemptions(),
            evictions: self.cache.evictions(),
            drafts: self.scheduler.drafts(),
        });
    }

    /// Admits a request, or answers it with an error.
    fn admit(&mut self, Arrived { arrival, number, .. }: Arrived) {
        let Arrival { mut task, at: arrived, cancels, timeout_s, queueing, place, adapters, recorder } =
            arrival;
        let memory = PeakMeter::begin();
        let rows = if task.has_canvases() { task.longest() } else { 0 };
        let prepared = self.machine.reserve(task.longest(), rows);
        let labels = prepared
            .and_then(|()| task.labels().map(|ids| self.machine.labels(ids, &adapters.uses)).transpose());
        let labels = match labels {
            Ok(labels) => labels,
            Err(error) => {
                drop((place, memory));
                self.gauges.ended(RequestEnd::Failed);
                return task.answer(Err(error.into()));
            }
        };
        if let Some(recorder) = &recorder {
            recorder.begin(&adapters.checksums);
        }
        task.start(&|salt, tokens| self.cache.matching(&adapters.namespace(salt), tokens));
        let order = self.line.join(&queueing.tenant, number);
        self.scheduler.arrive(order, &queueing.tenant, adapters.namespace(&task.salt()));
        self.labels.extend(labels.map(|labels| (order, labels)));
        let running = Running {
            task,
            place,
            cancels,
            timeout_s,
            longest_wait_s: queueing.longest_wait_s,
            tenant: queueing.tenant,
            adapters: adapters.uses,
            recorder,
            number,
            arrived,
            tokens: TokenTimes::default(),
            queue_s: None,
            sampling_ns: 0,
            computed_tokens: 0,
            plan_misses: 0,
            memory,
        };
        self.tasks.insert(order, running);
        self.log(&ProfileEvent::Arrived { request: number, at: arrived });
        self.end_if_finished(order);
    }

    /// Answers a request that cannot begin with an error.
    pub(crate) fn refuse(&self, arrival: Arrival, error: EngineError) {
        drop(arrival.place);
        self.gauges.ended(RequestEnd::Failed);
        arrival.task.answer(Err(error));
    }

    /// Returns whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.evaluations.is_empty()
    }

    /// Resources that requests hold.
    pub(crate) fn in_use(&self) -> EngineUse {
        let (kv, kept) = (&self.cache.kv, self.cache.kept());
        EngineUse {
            requests: self.tasks.len() + self.restores.waiting(),
            sequences: kv.sequences(),
            kept,
            pages: kv.pages_in_use(),
            label_heads: self.labels.len(),
        }
    }

    /// Ends the requests that were cancelled, are past their deadline, or have waited too long for their first pass.
    fn end_some(&mut self) {
        let now = (self.clock)();
        let exceeds = |running: &Running, most: Option<f64>| {
            most.is_some_and(|most| seconds_between(running.arrived, now) > most)
        };
        let (mut ended, mut expired) = (Vec::new(), Vec::new());
        for (&number, running) in &self.tasks {
            let exceeded = running.recorder.as_ref().is_some_and(|recorder| recorder.is_exceeded());
            if exceeded || running.cancels.iter().any(Cancel::is_cancelled) {
                ended.push((number, Ended::Cancelled));
            } else if exceeds(running, running.timeout_s) {
                ended.push((number, Ended::Late));
            } else if running.queue_s.is_none() && exceeds(running, running.longest_wait_s) {
                expired.push((number, seconds_between(running.arrived, now)));
            }
        }
        for (number, ended) in ended {
            self.end(number, Some(ended));
        }
        for (number, seconds) in expired {
            self.answer(number, Err(EngineError::Expired { seconds }));
        }
    }

    /// Runs the pieces in one pass, and lets their requests read the logits.
    fn pass(&mut self, pieces: &[Piece]) {
        let (rows, wanted) = self.wanted(pieces);
        let groups = grouped(&wanted);
        if !self.prepare(pieces, &groups) {
            return;
        }
        let start = (self.clock)();
        self.batch.clear();
        for piece in pieces {
            let Some((sequence, tokens)) = self.scheduler.tokens(piece) else { continue };
            let running = self.tasks.get_mut(&piece.key.task);
            let adapters = running.as_ref().map(|running| running.adapters.clone()).unwrap_or_default();
            self.batch.push(sequence, piece.start, tokens, piece.attention, adapters);
            if let Some(second) = self.scheduler.second_text(piece) {
                self.batch.set_second_text(second);
            }
            self.batch.set_drafts(self.scheduler.drafts_of(piece));
            if let Some(running) = running {
                if running.queue_s.is_none() {
                    let queue_s = seconds_between(running.arrived, start);
                    running.queue_s = Some(queue_s);
                    running.place.begin();
                    self.line.begin(piece.key.task, &running.tenant);
                    self.gauges.times.queue.add(queue_s);
                }
                running.computed_tokens += piece.tokens;
            }
        }
        self.gauges.expect(self.scheduler.expected_seconds(pieces));
        let digests = self.digests((&rows, &wanted));
        let ran = self.run(&rows, &groups, digests.as_ref());
        if ran.is_ok() {
            self.log_pass(pieces, rows.len());
            self.record(digests.as_ref(), (&rows, &wanted));
        }
        // Adapters of requests that end now leave memory.
        self.batch.clear();
        if let Err(panic) = ran {
            return self.fail_all_of(pieces, || EngineError::Panicked(panic.clone()));
        }
        let end = (self.clock)();
        let tokens = pieces.iter().map(|piece| piece.tokens).sum();
        self.gauges.passed(self.scheduler.kind(pieces), tokens, end.saturating_sub(start));
        if let Some(log) = &self.stages {
            log(StageTime { stage: Stage::Pass, start, end });
        }
        let done = self.scheduler.ran(pieces, seconds_between(start, end));
        self.advance(done);
    }

    /// Reports to requests which of their sequences have been run to their end, and applies their updates.
    fn advance(&mut self, done: Vec<(u64, Vec<Done>)>) {
        let now = (self.clock)();
        for (number, done) in done {
            let Some(running) = self.tasks.get_mut(&number) else { continue };
            let elapsed = seconds_between(running.arrived, now);
            let advanced = running.sampling(&self.clock, |task| task.advance(&done, elapsed));
            running.note_progress(now, &self.gauges);
            let has_receipt = running.recorder.is_some();
            match advanced {
                Err(error) => self.answer(number, Err(error)),
                Ok(updates) => {
                    for (index, mut next) in updates {
                        if let Next::Extend { drafts, .. } = &mut next
                            && has_receipt
                        {
                            // A receipt is about the rows of the answer only, and drafts may be wrong.
                            drafts.clear();
                        }
                        self.scheduler.update(number, index, next, &mut self.cache);
                    }
                    self.end_if_finished(number);
                }
            }
        }
    }

    /// Prepares the machine for a pass. Returns `false`, and fails the requests of the pass, if a plan may not be made.
    fn prepare(&mut self, pieces: &[Piece], groups: &[&[Wanted]]) -> bool {
        let tokens = pieces.iter().map(|piece| piece.tokens).sum();
        let over_vocabulary = groups.iter().filter(|group| group[0].output == RowOutput::Vocabulary);
        let rows: Vec<usize> = over_vocabulary.map(|group| group.len()).collect();
        match self.machine.prepare(tokens, &rows) {
            Ok(0) => true,
            Ok(missed) => {
                for task in tasks_of(pieces) {
                    if let Some(running) = self.tasks.get_mut(&task) {
                        running.plan_misses += missed;
                    }
                }
                true
            }
            Err(forbidden) => {
                self.fail_all_of(pieces, || forbidden.clone().into());
                false
            }
        }
    }

    /// Runs the batch; requests read the logits of their rows.
    fn run(
        &mut self,
        rows: &[usize],
        groups: &[&[Wanted]],
        digests: Option<&RowDigests>,
    ) -> Result<(), String> {
        let labels = std::mem::take(&mut self.labels);
        let mut tasks = std::mem::take(&mut self.tasks);
        let clock = self.clock.clone();
        let outputs: Vec<_> = groups
            .iter()
            .map(|group| Outputs {
                rows: group.iter().map(|wanted| wanted.index).collect(),
                output: group[0].output.map(|task| labels.get(&task).expect("selected when it was admitted")),
                normalise: group.iter().any(|wanted| wanted.normalise),
            })
            .collect();
        let ran = self.run_guarded(rows, &outputs, digests, &mut |group, logits| {
            let mut rows = BTreeMap::new();
            let mut first = 0;
            for of_task in groups[group].chunk_by(|a, b| a.task == b.task) {
                rows.insert(of_task[0].task, (of_task, first..first + of_task.len()));
                first += of_task.len();
            }
            let places = |rows: &[Wanted]| rows.iter().map(|wanted| wanted.place).collect::<Vec<_>>();
            let readers =
                tasks.iter_mut().filter_map(|(task, running)| Some((running, rows.get(task)?.clone())));
            // A task of canvases, or one alone, divides its own rows.
            let (divided, others): (Vec<_>, Vec<_>) =
                readers.partition(|(running, _)| rows.len() > 1 && !running.task.has_canvases());
            for (running, (rows, range)) in others {
                running.sampling(&clock, |task| task.read(&places(rows), logits.some(range)));
            }
            let divided = divided.into_iter().map(|(running, rows)| (&mut running.task, rows));
            logits.divide(divided, |_, logits, (task, (rows, range))| {
                task.read(&places(rows), logits.some(range));
            });
        });
        drop(outputs);
        (self.labels, self.tasks) = (labels, tasks);
        ran
    }

    /// Runs the batch, of which the logits of `rows` are wanted. A panic is an error of this pass, with its message: what the pass
    /// stored is released with its requests, and the machine can run another.
    fn run_guarded(
        &mut self,
        rows: &[usize],
        outputs: &[Outputs<'_, M::Labels>],
        digests: Option<&RowDigests>,
        read: &mut dyn FnMut(usize, Logits<'_>),
    ) -> Result<(), String> {
        let (machine, kv, batch) = (&mut self.machine, &mut self.cache.kv, &self.batch);
        let run = catch_unwind(AssertUnwindSafe(|| machine.run(kv, (batch, rows), outputs, digests, read)));
        run.map_err(|panic| {
            self.machine.recover();
            message(&*panic)
        })
    }

    /// Fails all requests that took part in a pass.
    fn fail_all_of(&mut self, pieces: &[Piece], error: impl Fn() -> EngineError) {
        for task in tasks_of(pieces) {
            self.answer(task, Err(error()));
        }
    }

    /// Fails all requests, because of a panic outside of a pass.
    pub(crate) fn fail_all(&mut self, panic: &str) {
        let tasks: Vec<u64> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.answer(task, Err(EngineError::Panicked(panic.to_owned())));
        }
        self.fail_waiting(|| EngineError::Panicked(panic.to_owned()));
    }

    /// Reports the last pass to the profile log.
    fn log_pass(&self, pieces: &[Piece], outputs: usize) {
        let (Some(log), Some((profile, bucket))) = (&self.profile, self.machine.profiled(self.batch.rows()))
        else {
            return;
        };
        let number = |task: &u64| Some(self.tasks.get(task)?.number);
        let mut requests: Vec<u64> = tasks_of(pieces).iter().filter_map(number).collect();
        requests.sort_unstable();
        let (tokens, sequences) = (self.batch.rows(), self.batch.parts().len());
        let pass = ProfiledPass { requests: &requests, tokens, sequences, outputs, bucket, profile };
        log(&ProfileEvent::Pass(pass));
    }

    /// The rows of the batch whose values are wanted, ascending; and who wants them: first logits over the vocabulary, then states, for
    /// all requests together, then logits over labels, request by request.
    fn wanted(&self, pieces: &[Piece]) -> (Vec<usize>, Vec<Wanted>) {
        let mut first_row = 0;
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        for piece in pieces {
            let task = piece.key.task;
            if let Some(running) = self.tasks.get(&task) {
                let output = running.task.output().map(|()| task);
                let normalise = running.task.normalises();
                let of_canvas = running.task.has_canvases();
                for position in piece.outputs() {
                    let place = RowPlace { index: piece.key.index, position };
                    all.push(Wanted { output, task, place, index: rows.len(), normalise, of_canvas });
                    rows.push(first_row + position - piece.start);
                }
            }
            first_row += piece.tokens;
        }
        // Pieces are in the order of requests, and the sort keeps that order. Within the canvases of one request, equal
        // positions are adjacent, so that a task that compares two canvases holds few rows.
        all.sort_by_key(|wanted| {
            (wanted.output, wanted.task, if wanted.of_canvas { wanted.place.position } else { 0 })
        });
        (rows, all)
    }

    fn end_if_finished(&mut self, number: u64) {
        if self.tasks.get(&number).is_some_and(|running| running.task.finished()) {
            self.end(number, None);
        }
    }

    /// Ends a request and answers it with the results so far.
    fn end(&mut self, number: u64, ended: Option<Ended>) {
        let now = (self.clock)();
        let Some(running) = self.tasks.get(&number) else { return };
        if ended.is_none() {
            running.note_end(now, &self.gauges);
        }
        let seconds = seconds_between(running.arrived, now);
        let ran = Ran {
            arrived_s: seconds_between(0, running.arrived),
            queue_s: running.queue_s.unwrap_or(seconds),
            seconds,
            sampling_s: running.sampling_ns as f64 * 1e-9,
            computed_tokens: running.computed_tokens,
            plan_misses: running.plan_misses,
            peak_memory_bytes: running.memory.peak_bytes(),
            ended,
        };
        self.scheduler.keep_all(number, &mut self.cache);
        self.answer(number, Ok(ran));
    }

    /// Fails a request that cannot continue even with all the memory there is.
    fn fail(&mut self, Stuck { task, error }: Stuck) {
        let error = error.map_or(EngineError::Stalled, EngineError::from);
        self.answer(task, Err(error));
    }

    fn answer(&mut self, number: u64, outcome: Result<Ran, EngineError>) {
        self.scheduler.leave(number, &mut self.cache);
        self.labels.remove(&number);
        if let Some(running) = self.tasks.remove(&number) {
            let Running { task, place, memory, computed_tokens, number, queue_s, tenant, .. } = running;
            if queue_s.is_none() {
                self.line.leave(&tenant);
            }
            let end = match &outcome {
                Ok(Ran { ended: None, .. }) => RequestEnd::Finished,
                Ok(Ran { ended: Some(Ended::Cancelled), .. }) => RequestEnd::Cancelled,
                Ok(Ran { ended: Some(Ended::Late), .. }) => RequestEnd::Late,
                Err(EngineError::Expired { .. }) => RequestEnd::Expired,
                Err(_) => RequestEnd::Failed,
            };
            self.gauges.ended(end);
            let fault = (end != RequestEnd::Finished).then(|| end.name());
            if self.profile.is_some() {
                let at = (self.clock)();
                self.log(&ProfileEvent::Ended { request: number, at, computed_tokens, fault });
            }
            // When the caller receives the answer, the place is free and the meter has stopped.
            drop((place, memory));
            task.answer(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
