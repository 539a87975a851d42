//! What other threads read about a running engine: gauges, totals, times, and its pulse. The engine's thread writes them with a
//! few relaxed stores per heartbeat, so that a reader never waits for it, nor it for a reader.

mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use self::histogram::{Histogram, HistogramCounts};
use crate::plan::PlanCounters;

/// Seconds until the first token.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0,
];
/// Seconds of a token.
const TOKEN: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
/// Seconds of a request.
const REQUEST: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 160.0, 320.0];

/// What the tokens of a pass belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassKind {
    /// Prompts only.
    Prompt,
    /// The newest tokens of sequences that generate.
    Generating,
    /// Both.
    Mixed,
    /// At least one canvas, whose masks are filled or scored.
    Canvas,
    /// A window of a text whose perplexity is measured.
    Window,
}

impl PassKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Prompt, Self::Generating, Self::Mixed, Self::Canvas, Self::Window];

    /// The kind in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Generating => "generating",
            Self::Mixed => "mixed",
            Self::Canvas => "canvas",
            Self::Window => "window",
        }
    }
}

/// How a request left the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It was finished.
    Finished,
    /// Its caller cancelled it.
    Cancelled,
    /// Its time limit passed.
    Late,
    /// It waited for its first pass for longer than it may.
    Expired,
    /// An error ended it.
    Failed,
}

impl RequestEnd {
    /// All ends.
    pub const ALL: [Self; 5] = [Self::Finished, Self::Cancelled, Self::Late, Self::Expired, Self::Failed];

    /// The end in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Late => "late",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }
}

/// Whether the engine's thread works, and whether it makes progress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulse {
    /// What the thread does.
    pub state: PulseState,
    /// Changes whenever the thread ends a heartbeat and, within a pass, whenever it begins a piece of work. A thread that is working
    /// and whose number does not change for seconds is frozen.
    pub beats: u64,
    /// How long the current pass is expected to take, in seconds; 0 if that is unknown.
    pub pass_s: f64,
}

/// What the engine's thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PulseState {
    /// It waits for requests.
    Idle,
    /// It has work.
    Working,
    /// It has ended: nothing will be answered any more.
    Stopped,
}

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
struct Gauge(AtomicU64);

impl Gauge {
    fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    /// Only the thread that writes the number may call this.
    fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes of a kind.
#[derive(Debug, Default)]
struct PassSums {
    count: Gauge,
    nanoseconds: Gauge,
    rows: Gauge,
}

/// The gauges of an engine: written by its thread, read by any.
#[derive(Debug)]
pub(crate) struct Gauges {
    idle: AtomicBool,
    stopped: AtomicBool,
    beats: Gauge,
    /// Pieces of work of the team.
    works: Arc<AtomicU64>,
    pass_ns: Gauge,
    sequences: Gauge,
    pages: Gauge,
    pages_allocated: Gauge,
    kept_tokens: Gauge,
    prompt_tokens: Gauge,
    cached_tokens: Gauge,
    generated_tokens: Gauge,
    items: Gauge,
    preemptions: Gauge,
    evictions: Gauge,
    drafted: Gauge,
    accepted: Gauge,
    passes: [PassSums; PassKind::ALL.len()],
    ends: [Gauge; RequestEnd::ALL.len()],
    pub(crate) times: Times,
}

/// Durations of requests.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) queue: Histogram,
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) per_token: Histogram,
    pub(crate) prompt: Histogram,
    pub(crate) generation: Histogram,
    pub(crate) request: Histogram,
}

impl Default for Gauges {
    fn default() -> Self {
        Self {
            idle: AtomicBool::new(true),
            stopped: AtomicBool::new(false),
            beats: Gauge::default(),
            works: Arc::default(),
            pass_ns: Gauge::default(),
            sequences: Gauge::default(),
            pages: Gauge::default(),
            pages_allocated: Gauge::default(),
            kept_tokens: Gauge::default(),
            prompt_tokens: Gauge::default(),
            cached_tokens: Gauge::default(),
            generated_tokens: Gauge::default(),
            items: Gauge::default(),
            preemptions: Gauge::default(),
            evictions: Gauge::default(),
            drafted: Gauge::default(),
            accepted: Gauge::default(),
            passes: Default::default(),
            ends: Default::default(),
            times: Times {
                queue: Histogram::new(REQUEST),
                first_token: Histogram::new(FIRST_TOKEN),
                between_tokens: Histogram::new(TOKEN),
                per_token: Histogram::new(TOKEN),
                prompt: Histogram::new(REQUEST),
                generation: Histogram::new(REQUEST),
                request: Histogram::new(REQUEST),
            },
        }
    }
}

/// Pages on disk, counted by the threads that read and write them.
#[derive(Debug, Default)]
pub(crate) struct PageCounters {
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) not_written: AtomicU64,
}

impl PageCounters {
    /// The gauges, if so many pages exist.
    pub(crate) fn gauges(&self, pages: usize) -> PageGauges {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageGauges {
            pages: pages as u64,
            read: of(&self.read),
            written: of(&self.written),
            removed: of(&self.removed),
            damaged: of(&self.damaged),
            not_written: of(&self.not_written),
        }
    }
}

/// Pages of keys and values on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageGauges {
    /// Pages that exist, as far as this process knows.
    pub pages: u64,
    /// Pages that were read, in total.
    pub read: u64,
    /// Pages that were written, in total.
    pub written: u64,
    /// Pages that were removed to make room for others, in total.
    pub removed: u64,
    /// Files that were not valid pages, in total.
    pub damaged: u64,
    /// Pages that could not be written, in total.
    pub not_written: u64,
}

/// What the cache and the scheduler hold between two passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) sequences: usize,
    pub(crate) pages: usize,
    pub(crate) pages_allocated: usize,
    pub(crate) kept_tokens: usize,
    pub(crate) preemptions: u64,
    pub(crate) evictions: u64,
    /// Drafts that were run, and those that were right.
    pub(crate) drafts: (u64, u64),
}

/// Tokens and items of a request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Prompt tokens that were run or taken from the prefix cache.
    pub(crate) prompt_tokens: usize,
    /// Those of them that were taken from the prefix cache.
    pub(crate) cached_tokens: usize,
    /// Tokens that were chosen.
    pub(crate) generated_tokens: usize,
    /// Items that were scored.
    pub(crate) items: usize,
}

impl Gauges {
    /// The counter of the team's work.
    pub(crate) fn works(&self) -> Arc<AtomicU64> {
        self.works.clone()
    }

    /// The thread waits for requests, or has one.
    pub(crate) fn set_idle(&self, idle: bool) {
        self.beats.add(1);
        self.idle.store(idle, Ordering::Relaxed);
    }

    /// The thread has ended.
    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// A heartbeat has ended.
    pub(crate) fn beat(&self, holdings: Holdings) {
        self.sequences.set(holdings.sequences);
        self.pages.set(holdings.pages);
        self.pages_allocated.set(holdings.pages_allocated);
        self.kept_tokens.set(holdings.kept_tokens);
        self.preemptions.set(holdings.preemptions as usize);
        self.evictions.set(holdings.evictions as usize);
        self.drafted.set(holdings.drafts.0 as usize);
        self.accepted.set(holdings.drafts.1 as usize);
        self.pass_ns.set(0);
        self.beats.add(1);
    }

    /// A pass begins that is expected to take this time.
    pub(crate) fn expect(&self, seconds: Option<f64>) {
        self.pass_ns.set(seconds.map_or(0, |seconds| (seconds * 1e9) as usize));
    }

    /// A pass has been run.
    pub(crate) fn passed(&self, kind: PassKind, rows: usize, nanoseconds: u64) {
        let sums = &self.passes[kind as usize];
        sums.count.add(1);
        sums.nanoseconds.add(nanoseconds);
        sums.rows.add(rows as u64);
    }

    /// A request made progress.
    pub(crate) fn advanced(&self, before: Progress, now: Progress) {
        let grown = |gauge: &Gauge, before: usize, now: usize| {
            if now > before {
                gauge.add((now - before) as u64);
            }
        };
        grown(&self.prompt_tokens, before.prompt_tokens, now.prompt_tokens);
        grown(&self.cached_tokens, before.cached_tokens, now.cached_tokens);
        grown(&self.generated_tokens, before.generated_tokens, now.generated_tokens);
        grown(&self.items, before.items, now.items);
    }

    /// A request has ended.
    pub(crate) fn ended(&self, end: RequestEnd) {
        self.ends[end as usize].add(1);
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let state = match (self.stopped.load(Ordering::Relaxed), self.idle.load(Ordering::Relaxed)) {
            (true, _) => PulseState::Stopped,
            (false, true) => PulseState::Idle,
            (false, false) => PulseState::Working,
        };
        let beats = self.beats.get().wrapping_add(self.works.load(Ordering::Relaxed));
        Pulse { state, beats, pass_s: self.pass_ns.get() as f64 * 1e-9 }
    }

    /// A snapshot without the facts of the engine's other parts.
    pub(crate) fn read(&self) -> EngineGauges {
        let passes = PassKind::ALL.map(|kind| {
            let sums = &self.passes[kind as usize];
            PassTotals {
                kind,
                count: sums.count.get(),
                seconds: sums.nanoseconds.get() as f64 * 1e-9,
                rows: sums.rows.get(),
            }
        });
        EngineGauges {
            requests: RequestGauges::default(),
            sequences: self.sequences.get(),
            pages: self.pages.get(),
            pages_allocated: self.pages_allocated.get(),
            pages_limit: None,
            page_tokens: 0,
            page_bytes: 0,
            kept_tokens: self.kept_tokens.get(),
            prompt_tokens: self.prompt_tokens.get(),
            cached_tokens: self.cached_tokens.get(),
            generated_tokens: self.generated_tokens.get(),
            items: self.items.get(),
            preemptions: self.preemptions.get(),
            evictions: self.evictions.get(),
            drafted: self.drafted.get(),
            accepted: self.accepted.get(),
            passes,
            ends: RequestEnd::ALL.map(|end| (end, self.ends[end as usize].get())),
            plans: PlanCounters::default(),
            adapters: None,
            disk_pages: None,
            queue_s: self.times.queue.read(),
            first_token_s: self.times.first_token.read(),
            between_tokens_s: self.times.between_tokens.read(),
            per_token_s: self.times.per_token.read(),
            prompt_s: self.times.prompt.read(),
            generation_s: self.times.generation.read(),
            request_s: self.times.request.read(),
        }
    }
}

/// Gauges and totals of an engine. Each number is exact, but they are not all read at the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineGauges {
    /// Requests that wait and run now.
    pub requests: RequestGauges,
    /// Sequences of running requests that have keys and values.
    pub sequences: u64,
    /// Pages of keys and values that are in use, those of the prefix cache included.
    pub pages: u64,
    /// Pages of keys and values in memory, in use or free.
    pub pages_allocated: u64,
    /// Maximum number of pages; `None` without a memory limit.
    pub pages_limit: Option<u64>,
    /// Tokens of a page.
    pub page_tokens: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Tokens whose keys and values the prefix cache keeps.
    pub kept_tokens: u64,
    /// Prompt tokens that were run or taken from the prefix cache, in total.
    pub prompt_tokens: u64,
    /// Those of them that were taken from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens that were chosen, in total.
    pub generated_tokens: u64,
    /// Items that were scored, in total.
    pub items: u64,
    /// Sequences that were preempted, in total.
    pub preemptions: u64,
    /// Sequences that the prefix cache evicted, in total.
    pub evictions: u64,
    /// Drafts of tokens that were run, in total.
    pub drafted: u64,
    /// Those of them that were right.
    pub accepted: u64,
    /// Passes by kind.
    pub passes: [PassTotals; PassKind::ALL.len()],
    /// Requests that left the engine, by how they ended.
    pub ends: [(RequestEnd, u64); RequestEnd::ALL.len()],
    /// Use of plans.
    pub plans: PlanCounters,
    /// Adapters; `None` if requests cannot use any.
    pub adapters: Option<AdapterGauges>,
    /// Pages of keys and values on disk; `None` if none are kept there.
    pub disk_pages: Option<PageGauges>,
    /// Seconds from the arrival of requests to their first passes.
    pub queue_s: HistogramCounts,
    /// Seconds from the arrival of requests to their first tokens.
    pub first_token_s: HistogramCounts,
    /// Seconds between a token and the one before it.
    pub between_tokens_s: HistogramCounts,
    /// Mean seconds per token after the first, of every generation of two tokens or more.
    pub per_token_s: HistogramCounts,
    /// Seconds from first passes to first tokens.
    pub prompt_s: HistogramCounts,
    /// Seconds from first tokens to the ends of requests.
    pub generation_s: HistogramCounts,
    /// Seconds from the arrival of requests to their ends.
    pub request_s: HistogramCounts,
}

/// Passes of a kind, in total.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassTotals {
    /// The kind.
    pub kind: PassKind,
    /// Number of passes.
    pub count: u64,
    /// Time of the passes in seconds.
    pub seconds: f64,
    /// Number of tokens that they ran.
    pub rows: u64,
}

/// Requests that wait and run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestGauges {
    /// Requests that have not had a pass.
    pub waiting: usize,
    /// Requests that have had one.
    pub running: usize,
    /// Maximum number of both together.
    pub limit: usize,
    /// The adapters that these requests use, by name, with the numbers of requests that wait and that run.
    pub by_adapter: Vec<(String, usize, usize)>,
}

/// Adapters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterGauges {
    /// Published adapters in memory.
    pub loaded: usize,
    /// Published adapters that are read again when a request needs them.
    pub evicted: usize,
    /// Adapters that are being read, or wait to be.
    pub loading: usize,
    /// Bytes of the published adapters in memory.
    pub bytes: u64,
    /// Publications in total.
    pub loads: u64,
    /// Publications that failed, in total.
    pub failures: u64,
    /// Evictions in total.
    pub evictions: u64,
    /// Evicted adapters that were read again, in total.
    pub restores: u64,
    /// Maximum number of adapters that a request combines.
    pub most_uses: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pulse_changes_with_heartbeats_and_with_the_work_of_a_pass() {
        let gauges = Gauges::default();
        assert_eq!(gauges.pulse().state, PulseState::Idle);
        gauges.set_idle(false);
        let first = gauges.pulse();
        assert_eq!(first.state, PulseState::Working);
        gauges.expect(Some(1.5));
        assert_eq!((gauges.pulse().beats, gauges.pulse().pass_s), (first.beats, 1.5));
        gauges.works().store(1, Ordering::Relaxed);
        assert_ne!(gauges.pulse().beats, first.beats);
        let within = gauges.pulse().beats;
        gauges.beat(Holdings::default());
        assert!(gauges.pulse().beats != within && gauges.pulse().pass_s == 0.0);
        gauges.set_stopped();
        assert_eq!(gauges.pulse().state, PulseState::Stopped);
    }

    #[test]
    fn kinds_and_ends_are_counted_in_their_places() {
        let gauges = Gauges::default();
        for (n, kind) in PassKind::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| gauges.passed(kind, 2, 500_000_000));
        }
        for (n, end) in RequestEnd::ALL.into_iter().enumerate() {
            (0..=n).for_each(|_| gauges.ended(end));
        }
        let read = gauges.read();
        for (n, totals) in read.passes.iter().enumerate() {
            let count = n as u64 + 1;
            let expect =
                PassTotals { kind: PassKind::ALL[n], count, seconds: count as f64 / 2.0, rows: 2 * count };
            assert_eq!(*totals, expect);
        }
        assert!(
            read.ends
                .iter()
                .enumerate()
                .all(|(n, (end, count))| { (*end, *count) == (RequestEnd::ALL[n], n as u64 + 1) })
        );
    }
}
