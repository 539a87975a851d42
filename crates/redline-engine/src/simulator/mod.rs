//! The engine without a model: random requests, budgets and moments, replayed from a seed.
//!
//! What runs is the engine's own heartbeat: scheduler, cache, requests. Only the model is replaced, by one that stores
//! the token itself where keys and values would be, and whose logits are a digest of all tokens that it finds through a
//! sequence's pages. So a page that was shared wrongly, overwritten, mixed up or lost gives another answer than the
//! same request alone, which is computed here without any cache.

mod machine;
mod request;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::Team;
use redline_models::kv::KvCache;

use self::machine::Digests;
pub(crate) use self::machine::Ledger;
use self::request::Asked;
use crate::cache::Cache;
use crate::core::Core;
use crate::runner::Inbox;
use crate::scheduler::{CostModel, PassLimits, Scheduler};

/// Heartbeats after which requests that still run are taken for stuck.
const PATIENCE: u64 = 50_000;

/// What a schedule came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were cancelled, or whose time was over.
    pub ended: u64,
    /// Requests for which there was no place.
    pub refused: u64,
    /// Heartbeats.
    pub beats: u64,
    /// Times that a sequence gave way to another.
    pub preemptions: u64,
    /// Prompt tokens that came from earlier requests.
    pub cached_tokens: u64,
}

impl Report {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            ended: self.ended + other.ended,
            refused: self.refused + other.refused,
            beats: self.beats + other.beats,
            preemptions: self.preemptions + other.preemptions,
            cached_tokens: self.cached_tokens + other.cached_tokens,
        }
    }
}

/// Random numbers (SplitMix64, Steele et al. 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Runs the schedule of a seed. The error says what went wrong; the seed alone brings it back.
pub fn simulate(seed: u64) -> Result<Report, String> {
    let run = catch_unwind(AssertUnwindSafe(|| Schedule::new(seed)?.run()));
    let outcome = run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    outcome.map_err(|fact| format!("seed {seed}: {fact}"))
}

struct Schedule {
    random: Random,
    core: Core<Digests>,
    inbox: Inbox,
    /// Most requests at a time.
    places: usize,
    clock: Arc<AtomicU64>,
    pages: usize,
    running: Vec<Asked>,
    report: Report,
}

impl Schedule {
    fn new(seed: u64) -> Result<Self, String> {
        let mut random = Random(seed);
        let clock = Arc::new(AtomicU64::new(0));
        let pages = 3 + random.below(10);
        let rows = random.of(&[1, 2, 7, 16, 64, 512]);
        let open = random.of(&[1, 3, 10, 256]);
        let stall_s = random.of(&[None, None, Some(0.0), Some(1e-4)]);
        let cache = Cache::new(KvCache::over(Ledger::default(), pages), !random.once_in(4));
        let scheduler = Scheduler::new(PassLimits { rows, open, stall_s }, CostModel::new(0.5));
        let team = Team::new(1).map_err(|e| e.to_string())?;
        let machine = Digests::new(team, clock.clone());
        let now = clock.clone();
        let core = Core::new(machine, cache, scheduler, Arc::new(move || now.load(Ordering::Relaxed)));
        let places = 1 + random.below(8);
        let inbox = Inbox::new(places).0;
        Ok(Self { random, core, inbox, places, clock, pages, running: Vec::new(), report: Report::default() })
    }

    fn run(mut self) -> Result<Report, String> {
        let mut to_come = 1 + self.random.below(20);
        while to_come > 0 || !self.running.is_empty() {
            while to_come > 0 && (self.running.is_empty() || self.random.once_in(3)) {
                to_come -= 1;
                self.ask()?;
            }
            if self.random.once_in(40) && !self.running.is_empty() {
                let one = self.random.below(self.running.len());
                self.running[one].cancel();
            }
            if !self.core.is_idle() {
                let _ = self.core.tick();
            }
            self.clock.fetch_add(1 + self.random.below(1000) as u64, Ordering::Relaxed);
            self.report.beats += 1;
            self.hear()?;
            if self.report.beats > PATIENCE {
                return Err(format!("{} requests run on and on", self.running.len()));
            }
        }
        self.finish()
    }

    /// One more request.
    fn ask(&mut self) -> Result<(), String> {
        // A request for nothing is answered at once.
        self.hear()?;
        let place = match (self.inbox.place(), self.running.len() < self.places) {
            (Ok(place), true) => place,
            (Err(_), false) => {
                self.report.refused += 1;
                return Ok(());
            }
            (place, _) => {
                let have = self.running.len();
                return Err(format!("a place was given: {}, with {have} of {}", place.is_ok(), self.places));
            }
        };
        let (asked, arrival) = request::ask(&mut self.random, self.pages, place);
        self.core.arrive(arrival);
        self.running.push(asked);
        Ok(())
    }

    /// Compares the answers that have come.
    fn hear(&mut self) -> Result<(), String> {
        let mut still = Vec::new();
        for asked in self.running.drain(..) {
            match asked.answer()? {
                Some(heard) => {
                    self.report.answered += u64::from(!heard.ended);
                    self.report.ended += u64::from(heard.ended);
                    self.report.cached_tokens += heard.cached_tokens;
                }
                None if asked.is_cancelled() => {
                    return Err("a request was cancelled and not answered before the next pass".into());
                }
                None => still.push(asked),
            }
        }
        self.running = still;
        Ok(())
    }

    /// Nothing runs any more: what is kept is all there is, and goes.
    fn finish(mut self) -> Result<Report, String> {
        self.report.preemptions = self.core.preemptions();
        let mut cache = self.core.into_cache();
        let kept = cache.kept();
        if cache.kv.sequences() != kept {
            return Err(format!("{} sequences for {kept} that are kept", cache.kv.sequences()));
        }
        cache.forget();
        match cache.kv.pages_in_use() {
            0 => Ok(self.report),
            pages => Err(format!("{pages} pages that nobody owns")),
        }
    }
}
