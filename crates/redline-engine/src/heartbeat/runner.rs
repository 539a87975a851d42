//! The engine's thread: receives requests through a bounded inbox, and runs heartbeats while there are any.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Simd, Stopwatch, Team};
use redline_models::Model;
use redline_models::kv::KvCache;
use redline_models::profile::Profile;
use redline_models::step::Arena;
use redline_models::trace::Observations;

use crate::answer::outcome::EngineUse;
use crate::error::{EngineError, message};
use crate::gauges::{Gauges, PageCounters, RequestGauges};
use crate::heartbeat::core::{Arrival, Core, ObserveJob};
use crate::heartbeat::machine::ModelMachine;
use crate::heartbeat::places::{Place, Places};
use crate::heartbeat::team_size::TeamSize;
use crate::memory::cache::{Cache, WindowId};
use crate::memory::pages::disk::{DiskArchive, PageEvents};
use crate::memory::pages::{PageArchive, PageEvent, PageIndex, Unsaved};
use crate::mode::perplexity::EvaluateJob;
use crate::options::{ClockFn, PrefixDir, TraceLog};
use crate::plan::OUTPUT_ROWS;
use crate::plan::{Buckets, Counters, PlanEntry, PlanEnvironment, PlanOptions, Plans};
use crate::profile::{ProfileEvent, ProfileLog};
use crate::scheduler::{CostModel, PassLimits, Scheduler, WeightReads};
use crate::stages::StageLog;
use crate::turns::{Seat, Turn, Turns};

/// Maximum number of open sequences.
const OPEN: usize = 256;
/// How often requests that wait for pages are looked at while nothing runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A message to the engine's thread.
pub(crate) enum Job {
    /// A request.
    Run(Arrival),
    /// A request that cannot begin, and why.
    Fail(Arrival, EngineError),
    /// A pass over a window.
    Evaluate(EvaluateJob),
    /// The keys and values of a window are no longer needed.
    Release(WindowId),
    /// Make a plan for every bucket.
    Precompile(Sender<Result<Vec<PlanEntry>, EngineError>>),
    /// Report the resources that requests hold.
    Use(Sender<EngineUse>),
    /// Run steps and report their activations.
    Observe(ObserveJob),
    /// What other threads did with pages that outlive the process.
    Page(PageEvent),
    /// Run nothing until the other end is dropped.
    Hold(Receiver<()>),
}

/// The sending end of the inbox, with the places for requests.
#[derive(Clone)]
pub(crate) struct Inbox {
    jobs: Arc<Sender<Job>>,
    places: Places,
}

/// The sending end for those whom the thread does not wait for when it ends.
struct WeakInbox(Weak<Sender<Job>>);

impl Inbox {
    /// Creates an inbox for up to `places` requests at a time.
    pub(crate) fn new(places: usize) -> (Self, Receiver<Job>) {
        // The channel is bounded by the places, because a request takes one before it is sent.
        let (jobs, inbox) = channel();
        (Self { jobs: Arc::new(jobs), places: Places::new(places) }, inbox)
    }

    fn weak(&self) -> WeakInbox {
        WeakInbox(Arc::downgrade(&self.jobs))
    }

    /// Takes a place for a request, or fails if none is free.
    pub(crate) fn place(&self) -> Result<Place, EngineError> {
        self.places.take()
    }

    /// Number of free places.
    pub(crate) fn free(&self) -> usize {
        self.places.free()
    }

    /// Requests that wait and run.
    pub(crate) fn gauges(&self) -> RequestGauges {
        self.places.gauges()
    }

    pub(crate) fn send(&self, job: Job) -> Result<(), EngineError> {
        self.jobs.send(job).map_err(|_| EngineError::Stopped)
    }
}

/// Pages that outlive the process.
pub(crate) struct Saving {
    pub(crate) dir: PrefixDir,
    /// What all keys and values are computed with, beside adapters.
    pub(crate) identity: String,
    pub(crate) counters: Arc<PageCounters>,
    pub(crate) index: Arc<PageIndex>,
}

impl Saving {
    /// Opens the directory. `None`, with an event in the log, if that fails.
    fn start(self, page_bytes: usize, clock: ClockFn, inbox: WeakInbox) -> Option<(Unsaved, DiskArchive)> {
        let Self { dir, identity, counters, index } = self;
        let send = move |event| {
            // Events are dropped once the engine has ended.
            if let Some(jobs) = inbox.0.upgrade() {
                let _ = jobs.send(Job::Page(event));
            }
        };
        let events: PageEvents = Arc::new(send);
        let archive = DiskArchive::start(&dir, page_bytes, (&counters, &index), clock, &events)?;
        Some((Unsaved::new(identity, index), archive))
    }
}

/// Everything the engine's thread needs to start.
pub(crate) struct Runner {
    pub(crate) model: Model,
    pub(crate) kv_format: KvFormat,
    /// Maximum number of pages of keys and values.
    pub(crate) pages: usize,
    pub(crate) simd: Simd,
    pub(crate) threads: usize,
    pub(crate) adaptive_threads: bool,
    /// The logical CPU that each thread is bound to; `None`: none is.
    pub(crate) cpus: Option<Vec<u32>>,
    pub(crate) devices: usize,
    pub(crate) plans: PlanOptions,
    pub(crate) counters: Arc<Counters>,
    pub(crate) gauges: Arc<Gauges>,
    /// Number of pages up to which those of earlier requests are kept; `None`: they are not.
    pub(crate) most_kept: Option<usize>,
    /// Where they are kept on disk, too.
    pub(crate) saving: Option<Saving>,
    pub(crate) stall_s: Option<f64>,
    pub(crate) trace: Option<TraceLog>,
    /// The log, and the kernel path that it reports.
    pub(crate) profile: Option<(ProfileLog, String)>,
    pub(crate) stages: Option<StageLog>,
    pub(crate) clock: ClockFn,
    /// See [`crate::Options::turns`].
    pub(crate) turns: Option<Turns>,
    /// See [`crate::Options::poison`].
    pub(crate) poison: bool,
}

impl Runner {
    /// Starts the thread, for up to `queue` requests at a time. Returns once the thread is ready or has failed.
    pub(crate) fn start(self, queue: usize) -> Result<(Inbox, JoinHandle<()>), EngineError> {
        let (inbox, jobs) = Inbox::new(queue);
        let (ready, started) = channel();
        let threads = self.threads;
        let failed = |reason: String| EngineError::Threads { threads, reason };
        let weak = inbox.weak();
        let thread =
            std::thread::Builder::new().name("redline-0".into()).spawn(move || self.run(&jobs, weak, &ready));
        let thread = thread.map_err(|e| failed(e.to_string()))?;
        started.recv().map_err(|e| failed(e.to_string()))??;
        Ok((inbox, thread))
    }

    fn run(self, jobs: &Receiver<Job>, inbox: WeakInbox, ready: &Sender<Result<(), EngineError>>) {
        redline_kernels::set_default_float_environment();
        let gauges = self.gauges.clone();
        let _end = End(&gauges);
        let seat = self.turns.as_ref().map(|turns| turns.seat(self.clock.clone()));
        match self.core(inbox) {
            Ok(mut core) => {
                // If the caller is gone, the inbox is closed too.
                let _ = ready.send(Ok(()));
                beat(&mut core, jobs, &gauges, seat.as_ref());
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        }
    }

    fn core(self, inbox: WeakInbox) -> Result<Core<ModelMachine>, EngineError> {
        let Self { model, kv_format, pages, simd, threads, adaptive_threads, devices, .. } = self;
        let Self { cpus, plans, counters, gauges, most_kept, stall_s, trace, profile, stages, .. } = self;
        let Self { saving, clock, poison, .. } = self;
        let trace = trace.map(|log| (log, Observations::of_layers(model.layers())));
        let not_started = |e: std::io::Error| EngineError::Threads { threads, reason: e.to_string() };
        let team = match cpus {
            None => Team::with_devices(threads, devices),
            Some(cpus) => Team::bound(threads, devices, &cpus),
        };
        let mut team = team.map_err(not_started)?;
        team.set_clock(clock.clone());
        team.set_progress(gauges.works());
        let spans = profile.as_ref().map(|(log, kernel_path)| {
            log(&ProfileEvent::Started { kernel_path, threads });
            spans(&model, &mut team, clock.clone())
        });
        let rows = plans.buckets.max_chunk();
        let arena = Arena::new(model.arena_size(rows, OUTPUT_ROWS))?;
        let environment = PlanEnvironment::new(&model, kv_format, simd, threads, devices);
        let plans = Plans::new(plans, environment, counters, clock.clone());
        let page = model.page_shape(kv_format);
        let kv = KvCache::new(&page, pages).poisoned(poison).windowed(model.window());
        let start = |saving: Saving| saving.start(page.bytes(), clock.clone(), inbox);
        let (unsaved, archive) = saving.and_then(start).unzip();
        let cache = Cache::new(kv, most_kept).saving(unsaved);
        let operations = model.operations();
        let output_rows = operations.per_output / operations.per_token.max(1.0);
        let limits = PassLimits { rows, open: OPEN, stall_s };
        let scheduler = Scheduler::new(limits, CostModel::new(output_rows).with_reads(reads(&model)));
        let machine = ModelMachine {
            model,
            arena,
            shared_rows: rows,
            most_rows: rows,
            // With several devices, the assignment of threads is fixed by the options.
            team_size: (adaptive_threads && threads > 1 && devices == 1)
                .then(|| TeamSize::new(threads, output_rows)),
            clock: clock.clone(),
            team,
            simd,
            plans,
            trace,
            spans,
            observer: None,
            poison,
        };
        let core = Core::new(machine, cache, scheduler, clock).with_profile(profile.map(|(log, _)| log));
        let archive = archive.map(|archive| Box::new(archive) as Box<dyn PageArchive>);
        Ok(core.with_stages(stages).with_gauges(gauges).with_archive(archive))
    }
}

/// The weights that a pass reads: with experts more for more rows.
fn reads(model: &Model) -> WeightReads {
    model.experts().map_or(WeightReads::default(), |experts| WeightReads {
        experts: experts.read_bytes(1.0) / model.bytes_per_token() as f64 / experts.share,
        share: experts.share,
    })
}

/// Maximum number of operations per layer, including the layer itself, but without those of experts.
const SPANS_OF_LAYER: usize = 26;
/// Number of operations of an expert.
const SPANS_OF_EXPERT: usize = 5;
/// Maximum number of operations of a pass outside the layers: the head, over the vocabulary and over the labels of each
/// request.
const SPANS_BESIDE: usize = 8 + 4 * (OPEN + Buckets::MAX_TOKENS / OUTPUT_ROWS);
/// Average number of work items per operation and team member; with many sequences, each may be one.
const WORKS_OF_SPAN: usize = 4;

/// Allocates the profile of a pass, and gives the team a stopwatch.
fn spans(model: &Model, team: &mut Team, clock: ClockFn) -> Profile {
    let of_layer = SPANS_OF_LAYER + SPANS_OF_EXPERT * model.most_experts();
    let room = model.layers() * of_layer + SPANS_BESIDE;
    let stopwatch = Arc::new(Stopwatch::new(clock, team.size(), room * WORKS_OF_SPAN));
    team.set_stopwatch(stopwatch.clone());
    Profile::new(stopwatch, room)
}

/// Says that the thread has ended, however it ends.
struct End<'a>(&'a Gauges);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set_stopped();
    }
}

/// Runs heartbeats while there are requests, in turns of its seat. It waits while there are none, and ends when the inbox closes. A panic
/// outside of a pass ends it too, because the state of the cache is then unknown.
fn beat(core: &mut Core<ModelMachine>, jobs: &Receiver<Job>, gauges: &Gauges, seat: Option<&Seat>) {
    let works = gauges.works();
    let mut turn = None;
    loop {
        let job = if core.is_idle() {
            gauges.set_idle(true);
            let job = wait(jobs, core.waits_for_pages());
            gauges.set_idle(false);
            job
        } else {
            jobs.try_recv()
        };
        let done = match job {
            Ok(job) => catch_unwind(AssertUnwindSafe(|| {
                take(core, job);
                core.end_waits();
                core.publish();
            })),
            Err(TryRecvError::Empty) => catch_unwind(AssertUnwindSafe(|| {
                if turn.is_none() {
                    turn = seat.map(|seat| seat.take(&works));
                }
                core.tick();
                if core.is_idle() || turn.as_mut().is_some_and(Turn::is_over) {
                    turn = None;
                }
            })),
            Err(TryRecvError::Disconnected) => {
                // Others run while pages are written.
                drop(turn);
                return core.save_all();
            }
        };
        if let Err(panic) = done {
            return core.fail_all(&message(&*panic));
        }
    }
}

/// Waits for a message; not for long if some requests wait for pages.
fn wait(jobs: &Receiver<Job>, waits_for_pages: bool) -> Result<Job, TryRecvError> {
    if !waits_for_pages {
        return jobs.recv().map_err(|_| TryRecvError::Disconnected);
    }
    jobs.recv_timeout(LOOK_EVERY).map_err(|error| match error {
        RecvTimeoutError::Timeout => TryRecvError::Empty,
        RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
    })
}

/// Takes a message in. Where a reply is sent, the caller may be gone, which is no error.
fn take(core: &mut Core<ModelMachine>, job: Job) {
    match job {
        Job::Run(arrival) => core.arrive(arrival),
        Job::Fail(arrival, error) => core.refuse(arrival, error),
        Job::Evaluate(job) => core.evaluate(job),
        Job::Release(window) => core.release(window),
        Job::Observe(job) => core.observe(job),
        Job::Page(event) => core.page_event(event),
        Job::Hold(until) => drop(until.recv()),
        Job::Use(reply) => drop(reply.send(core.in_use())),
        Job::Precompile(reply) => {
            drop(reply.send(core.machine().precompile().map_err(EngineError::from)));
        }
    }
}
