//! Pages that outlive the process, without a disk: they arrive when the schedule says so, and some are lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline_weights::PageKey;

use super::Random;
use crate::memory::pages::{PageArchive, PageEvent, PageIndex};

/// Number of pages that may wait to be written.
const BUFFERS: usize = 3;

/// The pages, and what the engine asked for.
#[derive(Debug)]
struct State {
    pages: BTreeMap<PageKey, Vec<u8>>,
    /// The job whose pages are wanted.
    wanted: u64,
    /// The pages that are still to be read, by job.
    reads: VecDeque<(u64, VecDeque<PageKey>)>,
    writes: VecDeque<(PageKey, Vec<u8>)>,
    /// Number of pages that may still be handed over.
    free: usize,
    /// Number of pages that were read and that the engine has not given back.
    lent: usize,
    slow: u64,
}

/// What the engine sees of the pages.
pub(super) struct Archive(Arc<Mutex<State>>);

/// The disk of a schedule.
pub(super) struct FakeDisk {
    state: Arc<Mutex<State>>,
    pub(super) index: Arc<PageIndex>,
    /// Number of pages that were read.
    pub(super) read: u64,
    /// Number of events until something is read again.
    pause: usize,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PageArchive for Archive {
    fn read(&mut self, job: u64, keys: Vec<PageKey>) {
        let mut state = lock(&self.0);
        state.wanted = job;
        state.reads.push_back((job, keys.into()));
    }

    fn stop_reading(&mut self, slow: bool) {
        let mut state = lock(&self.0);
        state.wanted = 0;
        state.slow += u64::from(slow);
    }

    fn give_back(&mut self, _page: Vec<u8>) {
        lock(&self.0).lent -= 1;
    }

    fn take_buffer(&mut self, _wait: bool) -> Option<Vec<u8>> {
        let mut state = lock(&self.0);
        state.free = state.free.checked_sub(1)?;
        Some(Vec::new())
    }

    fn write(&mut self, key: PageKey, page: Vec<u8>) {
        lock(&self.0).writes.push_back((key, page));
    }
}

impl FakeDisk {
    /// A disk with the pages of an earlier one.
    pub(super) fn new(pages: BTreeMap<PageKey, Vec<u8>>) -> Self {
        let index = Arc::<PageIndex>::default();
        for &key in pages.keys() {
            index.add(key);
        }
        let state = State {
            pages,
            wanted: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            free: BUFFERS,
            lent: 0,
            slow: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), index, read: 0, pause: 0 }
    }

    /// The pages.
    pub(super) fn pages(&self) -> BTreeMap<PageKey, Vec<u8>> {
        lock(&self.state).pages.clone()
    }

    pub(super) fn archive(&self) -> Archive {
        Archive(self.state.clone())
    }

    /// Number of times that requests did not wait any longer.
    pub(super) fn slow(&self) -> u64 {
        lock(&self.state).slow
    }

    /// The next event, sometimes.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<PageEvent> {
        let mut state = lock(&self.state);
        if random.once_in(2) {
            let write = state.writes.pop_front();
            if let Some((key, page)) = write {
                // Some are not written.
                if !random.once_in(8) {
                    state.pages.insert(key, page);
                    self.index.add(key);
                }
                state.free += 1;
                return Some(PageEvent::Written { key });
            }
        }
        if random.once_in(20) {
            // Another process removes a page.
            let at = random.below(state.pages.len());
            let gone = state.pages.keys().nth(at).copied();
            gone.map(|key| state.pages.remove(&key));
        }
        if random.once_in(200) {
            self.pause = random.below(300);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let wanted = state.wanted;
        let (job, keys) = state.reads.front_mut()?;
        let job = *job;
        // A page may be on its way when no more are wanted.
        let key = keys.pop_front().filter(|_| job == wanted || random.once_in(2));
        let page = key.and_then(|key| {
            let page = state.pages.get(&key).cloned();
            if page.is_none() {
                self.index.remove(key);
            }
            Some((key, page?))
        });
        match page {
            Some((key, page)) => {
                state.lent += 1;
                self.read += 1;
                Some(PageEvent::Read { job, key, page })
            }
            None => {
                state.reads.pop_front();
                Some(PageEvent::Finished { job })
            }
        }
    }

    /// Whether a request waits for the next event.
    pub(super) fn is_paused(&self) -> bool {
        self.pause > 0
    }

    /// Checks that the engine has given back what it took.
    pub(super) fn finish(&self) -> Result<(), String> {
        let state = lock(&self.state);
        match state.lent {
            0 => Ok(()),
            lent => Err(format!("{lent} pages that were read and not given back")),
        }
    }
}
