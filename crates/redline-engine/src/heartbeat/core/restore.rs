//! Pages that outlive the process: requests wait for those that they can use, and finished requests leave theirs.
//!
//! A request whose prompts begin with full pages that memory does not hold waits outside of the scheduler while they are
//! read, one prompt after another. Each page joins the kept sequences as it arrives, so that a request that waits holds nothing, and
//! nothing it waits for takes room from running requests. If sequences have states, pages join with the state after them. What is missing,
//! damaged, evicted meanwhile or late is computed.

use std::collections::{HashSet, VecDeque};

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_weights::PageKey;

use super::{Arrival, Core, seconds_between};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::heartbeat::machine::Machine;
use crate::memory::pages::{PageArchive, PageEvent};

/// Maximum number of times that states of a request are looked for again.
const MAX_STATES: usize = 8;
/// Maximum number of prompts of a request whose pages are looked for.
const MAX_PROMPTS: usize = 64;
/// Maximum seconds that requests wait for the next page. Those that wait longer begin without it.
const MAX_PAGE_S: f64 = 0.25;
/// Maximum seconds that a request waits for all its pages, and for those of earlier requests. It begins with what has arrived.
const MAX_WAIT_S: f64 = 2.0;
/// Maximum number of pages that are copied to be saved in one heartbeat.
const MAX_SAVED: usize = 2;
/// Maximum seconds that shutdown spends on saving pages.
const SHUTDOWN_S: f64 = 5.0;

/// A request that has arrived.
pub(super) struct Arrived {
    pub(super) arrival: Arrival,
    /// Number of requests that arrived before it.
    pub(super) number: u64,
    /// Number of times that states were looked for again.
    pub(super) states: usize,
}

/// Pages of a prompt that memory does not hold.
struct MissingPages {
    tokens: Vec<u32>,
    /// The first of the pages, and their number.
    first: usize,
    pages: usize,
    /// Their keys, and those of the state after them.
    keys: Vec<PageKey>,
}

impl MissingPages {
    /// What the page with this index among the keys belongs to: the number of tokens up to its end, and which page of the state after them
    /// it is.
    fn place(&self, index: usize) -> (usize, Option<usize>) {
        let of_state = index.checked_sub(self.pages);
        let end = if of_state.is_some() { self.first + self.pages } else { self.first + index + 1 };
        (end * PAGE_TOKENS, of_state)
    }
}

/// The request whose pages are read.
struct Reading {
    waiting: Arrived,
    /// The pages that are read, and the number of those that have arrived.
    pages: MissingPages,
    arrived: usize,
    /// Those of the prompts whose turn has not come.
    later: VecDeque<MissingPages>,
    /// When the last page arrived.
    last: u64,
}

/// The pages that outlive the process, and the requests that wait for some.
pub(crate) struct Restores {
    archive: Option<Box<dyn PageArchive>>,
    queue: VecDeque<Arrived>,
    reading: Option<Reading>,
    /// Number of jobs so far.
    jobs: u64,
    /// The job that takes too long. No request waits until it ends.
    stalled: Option<u64>,
    /// Memory for a page to save.
    spare: Option<Vec<u8>>,
}

impl Restores {
    pub(super) fn new(archive: Option<Box<dyn PageArchive>>) -> Self {
        Self { archive, queue: VecDeque::new(), reading: None, jobs: 0, stalled: None, spare: None }
    }

    /// Number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.reading.is_some())
    }
}

impl Arrived {
    /// The namespace of its keys and values.
    fn namespace(&self) -> String {
        self.arrival.adapters.namespace(&self.arrival.task.salt())
    }

    /// Whether the request itself was cancelled or is late.
    fn is_over(&self, now: u64) -> bool {
        let Arrival { cancels, timeout_s, queueing, .. } = &self.arrival;
        let elapsed = seconds_between(self.arrival.at, now);
        let limits = [*timeout_s, queueing.longest_wait_s];
        cancels.iter().any(Cancel::is_cancelled) || limits.into_iter().flatten().any(|most| elapsed > most)
    }

    /// Whether the request waits no longer for pages.
    fn must_begin(&self, now: u64) -> bool {
        self.is_over(now) || seconds_between(self.arrival.at, now) > MAX_WAIT_S
    }
}

impl<M: Machine> Core<M> {
    /// Takes in a request: at once, or when the pages that it can use were read.
    pub(crate) fn arrive(&mut self, arrival: Arrival) {
        let waiting = Arrived { arrival, number: self.line.arrive(), states: 0 };
        let Restores { archive, stalled, reading, .. } = &self.restores;
        let can_wait = archive.is_some() && stalled.is_none();
        let is_free = reading.is_none();
        let missing = if can_wait { self.missing(&waiting) } else { VecDeque::new() };
        if missing.is_empty() || is_free {
            self.read(waiting, missing);
        } else {
            self.restores.queue.push_back(waiting);
        }
    }

    /// Returns whether requests wait for pages.
    pub(crate) fn waits_for_pages(&self) -> bool {
        self.restores.waiting() > 0
    }

    /// The pages that a request can use and memory does not hold, by prompt. No page is named twice. If sequences have states, those of one
    /// prompt; when they have come, memory holds more of the others.
    fn missing(&mut self, waiting: &Arrived) -> VecDeque<MissingPages> {
        let (task, namespace) = (&waiting.arrival.task, waiting.namespace());
        let (mut missing, mut named) = (VecDeque::new(), HashSet::new());
        for mut tokens in task.prompts(MAX_PROMPTS) {
            // The last token is always run.
            let pages = tokens.len().saturating_sub(1) / PAGE_TOKENS;
            tokens.truncate(pages * PAGE_TOKENS);
            let matching = |tokens: &[u32]| self.cache.matching(&namespace, tokens).unwrap_or(0);
            let matched = matching(&tokens);
            let mut held = matched / PAGE_TOKENS;
            // With a window or a state, a kept sequence may be continued at its end, but not at a page before it.
            loop {
                let before = matching(&tokens[..held * PAGE_TOKENS]);
                if before == held * PAGE_TOKENS {
                    break;
                }
                held = before / PAGE_TOKENS;
            }
            let Some(unsaved) = self.cache.unsaved().filter(|_| held < pages) else { continue };
            let mut keys = unsaved.keys(&namespace, &tokens);
            keys.truncate(held + unsaved.readable(&keys[held..]));
            let usable = unsaved.usable(&keys, held).filter(|(end, _)| end * PAGE_TOKENS > matched);
            let Some((end, state)) = usable else { continue };
            keys.truncate(end);
            let first = held + keys[held..].iter().take_while(|key| named.contains(*key)).count();
            if first < end {
                named.extend(keys[first..].iter().copied());
                let mut keys = keys.split_off(first);
                keys.extend(state);
                missing.push_back(MissingPages { tokens, first, pages: end - first, keys });
                if self.cache.has_states() {
                    break;
                }
            }
        }
        missing
    }

    /// Reads the pages of the next request, unless some are being read.
    fn read_next(&mut self) {
        while self.restores.reading.is_none()
            && let Some(waiting) = self.restores.queue.pop_front()
        {
            if waiting.must_begin((self.clock)()) {
                self.admit(waiting);
            } else {
                // Memory may hold what an earlier request has waited for.
                let missing = self.missing(&waiting);
                self.read(waiting, missing);
            }
        }
    }

    /// Begins to read the first of these pages. A request without any is admitted.
    fn read(&mut self, waiting: Arrived, mut missing: VecDeque<MissingPages>) {
        self.cache.stop_importing();
        let (Some(archive), Some(pages)) = (&mut self.restores.archive, missing.pop_front()) else {
            return self.admit(waiting);
        };
        self.restores.jobs += 1;
        archive.read(self.restores.jobs, pages.keys.clone());
        let last = (self.clock)();
        self.restores.reading = Some(Reading { waiting, pages, arrived: 0, later: missing, last });
    }

    /// Notes what other threads did with pages.
    pub(crate) fn page_event(&mut self, event: PageEvent) {
        match event {
            PageEvent::Read { job, key, page } => {
                if job == self.restores.jobs {
                    self.keep_page(key, &page);
                }
                if let Some(archive) = &mut self.restores.archive {
                    archive.give_back(page);
                }
            }
            PageEvent::Finished { job } => {
                self.restores.stalled = self.restores.stalled.filter(|stalled| *stalled != job);
                if job == self.restores.jobs
                    && let Some(Reading { mut waiting, mut later, .. }) = self.restores.reading.take()
                {
                    if self.cache.has_states() && waiting.states < MAX_STATES {
                        waiting.states += 1;
                        later = self.missing(&waiting);
                    }
                    self.read(waiting, later);
                    self.read_next();
                }
            }
            PageEvent::Written { key } => {
                if let Some(unsaved) = self.cache.unsaved() {
                    unsaved.settled(key);
                }
            }
        }
        if self.is_idle() {
            self.save_some();
        }
    }

    /// Keeps a page that was read, if it is the next one of the prompt.
    fn keep_page(&mut self, key: PageKey, page: &[u8]) {
        let now = (self.clock)();
        let Some(Reading { waiting, pages, arrived, last, .. }) = &mut self.restores.reading else { return };
        if pages.keys.get(*arrived) != Some(&key) {
            return;
        }
        let (namespace, (end, of_state)) = (waiting.namespace(), pages.place(*arrived));
        let tokens = &pages.tokens[..end];
        let is_taken = match of_state {
            Some(index) => self.cache.import_state(&namespace, tokens, index, page),
            None => self.cache.import(&namespace, tokens, page),
        };
        if is_taken {
            (*arrived, *last) = (*arrived + 1, now);
        } else {
            // The job ends, and what has arrived is used.
            self.stop_reading(false);
        }
    }

    /// Ends the wait of requests that are cancelled or late.
    pub(crate) fn end_waits(&mut self) {
        if self.waits_for_pages() {
            self.admit_waiting((self.clock)(), Arrived::is_over);
        }
    }

    /// Ends the wait of requests that are cancelled or late, and of those whose pages take too long. Pages that have arrived must have been
    /// noted before: those that come while a pass runs are not late.
    pub(crate) fn check_pages(&mut self) {
        if !self.waits_for_pages() {
            return;
        }
        let now = (self.clock)();
        let late = |reading: &mut Reading| {
            !reading.waiting.is_over(now) && seconds_between(reading.last, now) > MAX_PAGE_S
        };
        if let Some(reading) = self.restores.reading.take_if(late) {
            self.restores.stalled = Some(self.restores.jobs);
            self.stop_reading(true);
            let queue = std::mem::take(&mut self.restores.queue);
            for waiting in [reading.waiting].into_iter().chain(queue) {
                self.admit(waiting);
            }
        }
        self.admit_waiting(now, Arrived::must_begin);
    }

    /// Admits the requests that wait and for which this holds now.
    fn admit_waiting(&mut self, now: u64, holds: impl Fn(&Arrived, u64) -> bool) {
        if let Some(reading) = self.restores.reading.take_if(|reading| holds(&reading.waiting, now)) {
            self.stop_reading(false);
            self.admit(reading.waiting);
        }
        while let Some(at) = self.restores.queue.iter().position(|waiting| holds(waiting, now))
            && let Some(waiting) = self.restores.queue.remove(at)
        {
            self.admit(waiting);
        }
        self.read_next();
    }

    fn stop_reading(&mut self, slow: bool) {
        self.cache.stop_importing();
        if let Some(archive) = &mut self.restores.archive {
            archive.stop_reading(slow);
        }
    }

    /// Fails the requests that wait.
    pub(super) fn fail_waiting(&mut self, error: impl Fn() -> EngineError) {
        self.cache.stop_importing();
        let reading = self.restores.reading.take().map(|reading| reading.waiting);
        for waiting in reading.into_iter().chain(std::mem::take(&mut self.restores.queue)) {
            self.refuse(waiting.arrival, error());
        }
    }

    /// Hands over pages of kept sequences to be saved, at most so many, as long as there is memory for them. Returns whether there
    /// may be more.
    fn save(&mut self, most: usize, wait: bool) -> bool {
        let Restores { archive: Some(archive), spare, .. } = &mut self.restores else { return false };
        for _ in 0..most {
            if self.cache.unsaved().is_none_or(|unsaved| unsaved.is_empty()) {
                return false;
            }
            let Some(mut page) = spare.take().or_else(|| archive.take_buffer(wait)) else { return true };
            match self.cache.export_next(&mut page) {
                Some(key) => archive.write(key, page),
                None => {
                    *spare = Some(page);
                    return false;
                }
            }
        }
        true
    }

    /// Lets some pages be saved beside a pass, and more if none runs.
    pub(super) fn save_some(&mut self) {
        self.save(if self.tasks.is_empty() { usize::MAX } else { MAX_SAVED }, false);
    }

    /// Lets all pages be saved, at the end of the engine.
    pub(crate) fn save_all(&mut self) {
        let start = (self.clock)();
        while self.save(1, true) && seconds_between(start, (self.clock)()) < SHUTDOWN_S {}
    }
}
