//! The engine without a model: random requests, budgets and times, replayed from a seed.
//!
//! The simulator runs the engine's own heartbeat, scheduler, cache, requests and store of adapters. Only the model and the files of
//! adapters are replaced: the stand-in stores the token itself, marked with its adapters, in place of keys and values, and its
//! logits are a digest of all that it reads through a sequence's pages. So a page that was wrongly shared, overwritten, mixed up or
//! lost changes the answer, and so does a wrong adapter. The expected answer comes from `oracle`, which runs the request alone
//! without any cache, and without the code that it checks.
//!
//! In some schedules, an adversary drafts tokens: right ones, wrong ones, too many, and ones that do not exist. Constraints say which
//! tokens may come next.
//!
//! In some schedules, pages outlive memory, and the process: it runs twice. Pages arrive late, some not at all, and some are lost.
//!
//! Besides the answers, these properties are checked:
//!
//! - Tokens reported as cached, and tokens that were not run, can have come from requests of the same salt and adapters.
//! - A request that was cancelled or is late is answered before the next pass, and no other request ends early.
//! - The number of passes is bounded by the work of the requests (`passes`).
//! - Publications, rollbacks and removals of adapters have the results of `oracle::published`. A request keeps the adapters that
//!   were published when it began. In memory are those of the store, within their limit, and those of requests.
//! - At the end, only kept sequences own pages, and no label heads and no adapters are left.

mod adapters;
mod answer;
mod filling;
mod generation;
mod guides;
mod interpreted;
mod machine;
mod mix;
mod oracle;
mod pages;
mod request;
mod rule;
mod scoring;
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redline_kernels::Team;
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::KvCache;
use redline_models::random::{STEP, mix};
use redline_weights::PageKey;

use self::adapters::{Begin, Library, Used};
use self::answer::Work;
pub(crate) use self::machine::{Digests, Ledger};
use self::mix::Mix;
use self::oracle::cached::Stored;
use self::pages::FakeDisk;
use self::request::{End, Pending, Scene};
use crate::error::message;
use crate::heartbeat::core::Core;
use crate::heartbeat::places::Place;
use crate::heartbeat::runner::Inbox;
use crate::memory::cache::Cache;
use crate::memory::pages::{PageArchive, Unsaved};
use crate::options::ClockFn;
use crate::profile::ProfileEvent;
use crate::request::AdapterChoice;
use crate::scheduler::{CostModel, PassLimits, Scheduler};

/// Combined with a seed, gives that of the numbers that decide on a convolution, a recurrence, drafts and constraints.
const EXTENDED: u64 = 0x9fb2_1c65_1e98_df25;

/// Maximum number of states that a sequence and its ancestors have, and one more for the next.
const MAX_STATES: usize = 5;

/// Maximum number of passes that a request may add to a schedule, given the number of pages.
///
/// A pass runs at least one token. Alone, a request runs `tokens` tokens. Only preempted sequences run tokens twice. A sequence
/// is preempted only for one that is admitted by rule 5 of the scheduler, which happens once per sequence, or for one that
/// needs a new page or writes to a shared one, which happens at most once per new token and once more. Such an event frees the
/// pages that are needed, plus whatever else the last preempted sequence holds. So it costs no more than the tokens of the
/// sequence that it serves, plus all that fits in memory, and a page.
fn passes(work: Work, pages: usize) -> u64 {
    let events = 2 * work.sequences + work.grown;
    (2 * work.tokens + events * (pages + 1) * PAGE_TOKENS) as u64
}

/// Results of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of answered requests.
    pub answered: u64,
    /// Number of cancelled requests.
    pub cancelled: u64,
    /// Number of requests that passed their deadline.
    pub late: u64,
    /// Number of requests that found no free place.
    pub refused: u64,
    /// Number of heartbeats.
    pub beats: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Number of prompt tokens taken from earlier requests.
    pub cached_tokens: u64,
    /// Number of answered requests with adapters.
    pub adapted: u64,
    /// Number of requests whose adapters were refused or could not be read.
    pub unadapted: u64,
    /// Number of generations of adapters.
    pub published: u64,
    /// Number of times that an evicted adapter was read again.
    pub restored: u64,
    /// Number of pages that outlived memory and were read again.
    pub pages_read: u64,
    /// Number of times that requests no longer waited for pages.
    pub slow: u64,
    /// Number of prompt tokens taken from earlier requests, of models with a recurrence.
    pub resumed: u64,
    /// Number of drafts that were run.
    pub drafted: u64,
    /// Number of drafts that were right.
    pub accepted: u64,
    /// The largest share of its bound on heartbeats that any schedule used, in thousandths.
    pub busiest: u64,
}

impl Report {
    /// Combines two reports.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            cancelled: self.cancelled + other.cancelled,
            late: self.late + other.late,
            refused: self.refused + other.refused,
            beats: self.beats + other.beats,
            preemptions: self.preemptions + other.preemptions,
            cached_tokens: self.cached_tokens + other.cached_tokens,
            adapted: self.adapted + other.adapted,
            unadapted: self.unadapted + other.unadapted,
            published: self.published + other.published,
            restored: self.restored + other.restored,
            pages_read: self.pages_read + other.pages_read,
            slow: self.slow + other.slow,
            resumed: self.resumed + other.resumed,
            drafted: self.drafted + other.drafted,
            accepted: self.accepted + other.accepted,
            busiest: self.busiest.max(other.busiest),
        }
    }
}

/// Random numbers (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A random number below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Returns `true` once in `n` times on average.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Runs the schedule of a seed. The error says what went wrong; the seed alone reproduces it.
pub(crate) fn simulate(seed: u64) -> Result<Report, String> {
    let run = catch_unwind(AssertUnwindSafe(|| {
        let (report, survivors) = Schedule::new(seed, None)?.run()?;
        // Where pages outlive the process, it runs once more.
        match survivors {
            Some(survivors) => Ok(report.and(Schedule::new(seed, Some(survivors))?.run()?.0)),
            None => Ok(report),
        }
    }));
    let outcome = run.unwrap_or_else(|panic| Err(format!("panic: {}", message(&*panic))));
    outcome.map_err(|fact| format!("seed {seed}: {fact}"))
}

/// What outlives a process.
struct Survivors {
    pages: BTreeMap<PageKey, Vec<u8>>,
    /// Tokens that its requests may have stored.
    stored: Vec<Stored>,
}

struct Schedule {
    random: Random,
    core: Core<Digests>,
    inbox: Inbox,
    /// Maximum number of concurrent requests.
    places: usize,
    /// Whether some requests are cancelled, which hides requests that would never finish.
    cancels: bool,
    mix: Mix,
    library: Library,
    /// Pages that outlive the process, in some schedules.
    disk: Option<FakeDisk>,
    /// Requests that wait for their adapters.
    waiting: VecDeque<(Place, Vec<AdapterChoice>)>,
    clock: Arc<AtomicU64>,
    /// Number of pages for the tokens of a request, and of all.
    pages: usize,
    room: usize,
    running: Vec<Pending>,
    /// Tokens that each request may have stored, by its number.
    stored: Vec<Stored>,
    /// Tokens that requests of the process before may have stored.
    stored_before: Vec<Stored>,
    /// Number of tokens run for each answered request, by its number.
    computed: Arc<Mutex<BTreeMap<u64, usize>>>,
    /// The clock before the last heartbeat.
    beat: u64,
    /// Maximum number of heartbeats for the requests so far.
    limit: u64,
    report: Report,
}

impl Schedule {
    /// The schedule of a seed, after the process that ran it before.
    fn new(seed: u64, before: Option<Survivors>) -> Result<Self, String> {
        let mut random = Random(seed);
        let clock = Arc::new(AtomicU64::new(0));
        let pages = 3 + random.below(10);
        let rows = random.of(&[1, 2, 7, 16, 64, 512]);
        let open = random.of(&[1, 3, 10, 256]);
        let stall_s = random.of(&[None, None, Some(0.0), Some(1e-4)]);
        let most_kept = random.of(&[None, Some(0), Some(pages / 2), Some(usize::MAX)]);
        let (cancels, mix) = (random.once_in(2), Mix::new(&mut random, rows));
        // Other random numbers, so that schedules without these stay what they were.
        let mix = mix.extended(&mut Random(seed ^ EXTENDED));
        // Beside the tokens of a request, its states: those of a sequence and of its ancestors.
        let of_states = mix.model.states.map_or(0, |states| states.pages * MAX_STATES);
        let room = pages + of_states;
        let kv = KvCache::over(Ledger::default(), room).windowed(mix.model.window);
        let kv = kv.with_conv_inputs(mix.model.inputs.into_iter().collect()).with_states(mix.model.states);
        let (pages_before, stored_before) =
            before.map_or_else(Default::default, |survivors| (survivors.pages, survivors.stored));
        let saves = random.once_in(2) && most_kept.is_some();
        let disk = saves.then(|| FakeDisk::new(pages_before));
        let mix = if saves || mix.model.states.is_some() { mix.long() } else { mix };
        let unsaved = disk.as_ref().map(|disk| Unsaved::new("stand-in".into(), disk.index.clone()));
        let archive = disk.as_ref().map(|disk| Box::new(disk.archive()) as Box<dyn PageArchive>);
        let cache = Cache::new(kv, most_kept).saving(unsaved);
        let scheduler = Scheduler::new(PassLimits { rows, open, stall_s }, CostModel::new(0.5));
        let team = Team::new(1).map_err(|e| e.to_string())?;
        let machine = Digests::new(team, clock.clone()).like(mix.model);
        let time = clock.clone();
        let now: ClockFn = Arc::new(move || time.load(Ordering::Relaxed));
        let library = Library::new(&mut random, clock.clone(), now.clone());
        let computed = Arc::new(Mutex::new(BTreeMap::new()));
        let ended = computed.clone();
        let core = Core::new(machine, cache, scheduler, now).with_archive(archive);
        let core = core.with_profile(Some(Arc::new(move |event| {
            if let ProfileEvent::Ended { request, computed_tokens, .. } = event {
                let mut computed = ended.lock().unwrap_or_else(PoisonError::into_inner);
                computed.insert(*request, *computed_tokens);
            }
        })));
        let places = 1 + random.below(8);
        let inbox = Inbox::new(places).0;
        Ok(Self {
            random,
            core,
            inbox,
            places,
            cancels,
            mix,
            library,
            disk,
            waiting: VecDeque::new(),
            clock,
            pages,
            room,
            running: Vec::new(),
            stored: Vec::new(),
            stored_before,
            computed,
            beat: 0,
            limit: 0,
            report: Report::default(),
        })
    }

    fn run(mut self) -> Result<(Report, Option<Survivors>), String> {
        if self.mix.adapters {
            self.library.fill(&mut self.random)?;
        }
        let mut to_come = 1 + self.random.below(24);
        while to_come > 0 || !self.running.is_empty() || !self.waiting.is_empty() {
            if self.mix.adapters && self.random.once_in(20) {
                self.library.change(&mut self.random)?;
            }
            self.restore()?;
            while to_come > 0 && (self.running.is_empty() || self.random.once_in(3)) {
                to_come -= 1;
                self.ask()?;
            }
            if self.cancels && self.random.once_in(40) && !self.running.is_empty() {
                let one = self.random.below(self.running.len());
                self.running[one].cancel();
            }
            self.bring_pages();
            let is_idle = self.core.is_idle();
            if !is_idle || self.core.waits_for_pages() {
                self.beat = self.clock.load(Ordering::Relaxed);
                self.core.tick();
                self.report.beats += u64::from(!is_idle);
            }
            self.pause();
            self.hear()?;
            if self.report.beats > self.limit {
                return Err(format!(
                    "{} requests run for more than {} passes",
                    self.running.len(),
                    self.limit
                ));
            }
        }
        self.finish()
    }

    /// Submits one more request.
    fn ask(&mut self) -> Result<(), String> {
        // An empty request is answered at once.
        self.hear()?;
        let have = self.running.len() + self.waiting.len();
        let place = match (self.inbox.place(), have < self.places) {
            (Ok(place), true) => place,
            (Err(_), false) => {
                self.report.refused += 1;
                return Ok(());
            }
            (place, _) => {
                return Err(format!("a place was given: {}, with {have} of {}", place.is_ok(), self.places));
            }
        };
        if !self.mix.adapters {
            self.admit(place, Used::default());
            return Ok(());
        }
        let choices = Library::choices(&mut self.random);
        match self.library.begin(&choices)? {
            Begin::Ready(used) => self.admit(place, used),
            Begin::Waits => self.waiting.push_back((place, choices)),
            Begin::Refused => self.report.unadapted += 1,
        }
        Ok(())
    }

    /// Reads the adapters of the next request that waits for them, sometimes.
    fn restore(&mut self) -> Result<(), String> {
        if !self.running.is_empty() && !self.random.once_in(3) {
            return Ok(());
        }
        let Some((place, choices)) = self.waiting.pop_front() else { return Ok(()) };
        match self.library.restore(&mut self.random, &choices)? {
            Begin::Ready(used) => self.admit(place, used),
            Begin::Waits | Begin::Refused => self.report.unadapted += 1,
        }
        Ok(())
    }

    /// Hands a request to the engine.
    fn admit(&mut self, place: Place, used: Used) {
        let (number, now) = (self.stored.len() as u64, self.clock.load(Ordering::Relaxed));
        let (mut pending, arrival) =
            request::ask(&mut self.random, (self.pages, self.mix), used, place, (number, now));
        pending.preemptions = self.core.preemptions();
        self.core.arrive(arrival);
        pending.alone = self.running.is_empty();
        self.running.iter_mut().for_each(|other| other.alone = false);
        self.limit += passes(pending.work(), self.room);
        self.stored.push(pending.stored());
        self.running.push(pending);
        if self.random.once_in(4) {
            // Its deadline may pass before its first pass.
            self.pause();
        }
    }

    /// Lets some pages arrive, or time pass without any.
    fn bring_pages(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        for _ in 0..self.random.below(4) {
            if let Some(event) = disk.next(&mut self.random) {
                self.core.page_event(event);
            }
        }
        if disk.is_paused() && self.core.waits_for_pages() && self.random.once_in(30) {
            self.clock.fetch_add(300_000_000, Ordering::Relaxed);
        }
    }

    /// Advances the clock.
    fn pause(&mut self) {
        self.clock.fetch_add(1 + self.random.below(1000) as u64, Ordering::Relaxed);
    }

    /// Checks the answers that have arrived.
    fn hear(&mut self) -> Result<(), String> {
        let mut still = Vec::new();
        let computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        for pending in self.running.drain(..) {
            let Some(answer) = pending.hear()? else {
                if pending.is_cancelled() || pending.is_late(self.beat) {
                    return Err(
                        "a request was cancelled or late, and not answered before the next pass".into()
                    );
                }
                still.push(pending);
                continue;
            };
            let computed_tokens = computed.get(&pending.number).copied();
            let scene = Scene {
                beat: self.beat,
                preemptions: self.core.preemptions(),
                computed_tokens: computed_tokens.ok_or("an answer before the request has ended")?,
                stored: &self.stored,
                stored_before: &self.stored_before,
            };
            match pending.judge(&answer, &scene)? {
                End::Answered => {
                    self.report.answered += 1;
                    self.report.adapted += u64::from(pending.adapter_bytes > 0);
                }
                End::Cancelled => self.report.cancelled += 1,
                End::Late => self.report.late += 1,
            }
            self.report.cached_tokens += answer.cached_tokens as u64;
        }
        drop(computed);
        self.running = still;
        self.library.check_memory(self.running.iter().map(|request| request.adapter_bytes).sum())
    }

    /// Called when nothing runs: only kept sequences are left, and are released.
    fn finish(mut self) -> Result<(Report, Option<Survivors>), String> {
        self.report.preemptions = self.core.preemptions();
        (self.report.drafted, self.report.accepted) = self.core.drafts();
        self.report.resumed = if self.mix.model.states.is_some() { self.report.cached_tokens } else { 0 };
        if let Some(disk) = &mut self.disk {
            while let Some(event) = disk.next(&mut self.random) {
                self.core.page_event(event);
            }
            (self.report.pages_read, self.report.slow) = (disk.read, disk.slow());
            disk.finish()?;
        }
        (self.report.published, self.report.restored) = (self.library.published, self.library.restored);
        self.report.busiest = 1000 * self.report.beats / self.limit.max(1);
        let label_heads = self.core.in_use().label_heads;
        if label_heads > 0 {
            return Err(format!("{label_heads} label heads that no request needs"));
        }
        let mut cache = self.core.into_cache();
        let kept = cache.kept();
        if cache.kv.sequences() != kept {
            return Err(format!("{} sequences for {kept} that are kept", cache.kv.sequences()));
        }
        cache.forget();
        match cache.kv.pages_in_use() {
            0 => {}
            pages => return Err(format!("{pages} pages that nobody owns")),
        }
        self.library.finish()?;
        let survivors = self.disk.map(|disk| Survivors { pages: disk.pages(), stored: self.stored });
        Ok((self.report, survivors))
    }
}
