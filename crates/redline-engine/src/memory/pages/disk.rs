//! Pages on disk: one thread reads them, another one writes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use redline_weights::{Disk, PageError, PageFiles, PageKey, PageWriter};

use super::{PageArchive, PageEvent, PageIndex};
use crate::gauges::PageCounters;
use crate::options::{ClockFn, PrefixDir, PrefixDirEvent};

/// Number of pages that were read and that the engine's thread has not taken.
const READ_AHEAD: usize = 16;
/// Number of pages that wait to be written.
const WRITE_BEHIND: usize = 8;

/// How often the pages of other processes are looked for, and how long the start waits for the first listing.
const LISTED_EVERY: Duration = Duration::from_secs(10);
const FIRST_LISTING: Duration = Duration::from_secs(1);
/// How long shutdown waits for memory for a page, and for the last pages to be written.
const SHUTDOWN_BUFFER: Duration = Duration::from_secs(1);
const SHUTDOWN_WRITES: Duration = Duration::from_secs(5);

/// Number of pages that are in memory while they are read or written.
pub(crate) const PAGES_IN_FLIGHT: u64 = (READ_AHEAD + WRITE_BEHIND) as u64;

/// Receives events.
pub(crate) type PageEvents = Arc<dyn Fn(PageEvent) + Send + Sync>;

/// The pages in a directory.
pub(crate) struct DiskArchive {
    /// The job whose pages are wanted; 0: none.
    wanted: Arc<AtomicU64>,
    reads: Option<Sender<(u64, Vec<PageKey>)>>,
    read: Sender<Vec<u8>>,
    writes: Option<Sender<(PageKey, Vec<u8>)>>,
    written: Receiver<Vec<u8>>,
    options: PrefixDir,
    /// Closed when both threads have ended.
    ended: Receiver<()>,
}

impl DiskArchive {
    /// Opens the directory and starts the threads. `None`, with an event in the log, if that fails.
    pub(crate) fn start(
        options: &PrefixDir,
        page_bytes: usize,
        (counters, index): (&Arc<PageCounters>, &Arc<PageIndex>),
        clock: ClockFn,
        events: &PageEvents,
    ) -> Option<Self> {
        let unusable = |reason: std::io::Error| {
            let (dir, reason) = (options.dir.clone(), reason.to_string());
            (options.log)(&PrefixDirEvent::Unusable { dir, reason });
        };
        let files = PageFiles::open(&options.dir, page_bytes, Disk::default()).map_err(unusable).ok()?;
        let wanted = Arc::<AtomicU64>::default();
        let ((reads, to_read), (read, free)) = (channel(), channel());
        let ((writes, to_write), (written, free_again)) = (channel(), channel());
        // The receiving ends exist.
        for _ in 0..READ_AHEAD {
            let _ = read.send(Vec::new());
        }
        for _ in 0..WRITE_BEHIND {
            let _ = written.send(Vec::new());
        }
        let reader = Reader {
            files: files.clone(),
            wanted: wanted.clone(),
            free,
            index: index.clone(),
            options: options.clone(),
            clock,
            unreadable: LastReason::default(),
            counters: counters.clone(),
            events: events.clone(),
        };
        let writer = Writer {
            options: options.clone(),
            index: index.clone(),
            writer: PageWriter::new(files, options.bytes),
            written,
            failure: LastReason::default(),
            counters: counters.clone(),
            events: events.clone(),
        };
        let ((listed, first), (running, ended)) = (channel(), channel::<()>());
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let is_running = running.clone();
        let read_all = move || {
            let _is_running = is_running;
            reader.run(&to_read, &listed);
        };
        let write_all = move || {
            let _is_running = running;
            writer.run(&to_write);
        };
        named("redline-pages-in").spawn(read_all).map_err(unusable).ok()?;
        named("redline-pages-out").spawn(write_all).map_err(unusable).ok()?;
        // Requests that come before a slow listing has ended compute what they need.
        let _ = first.recv_timeout(FIRST_LISTING);
        let (reads, writes, options) = (Some(reads), Some(writes), options.clone());
        Some(Self { wanted, reads, read, writes, written: free_again, options, ended })
    }
}

impl PageArchive for DiskArchive {
    fn read(&mut self, job: u64, keys: Vec<PageKey>) {
        self.wanted.store(job, Ordering::Relaxed);
        if let Some(reads) = &self.reads {
            // The thread ends only after this end of the channel.
            let _ = reads.send((job, keys));
        }
    }

    fn stop_reading(&mut self, slow: bool) {
        self.wanted.store(0, Ordering::Relaxed);
        if slow {
            (self.options.log)(&PrefixDirEvent::Slow { dir: self.options.dir.clone() });
        }
    }

    fn give_back(&mut self, page: Vec<u8>) {
        let _ = self.read.send(page);
    }

    fn take_buffer(&mut self, wait: bool) -> Option<Vec<u8>> {
        if wait { self.written.recv_timeout(SHUTDOWN_BUFFER).ok() } else { self.written.try_recv().ok() }
    }

    fn write(&mut self, key: PageKey, page: Vec<u8>) {
        if let Some(writes) = &self.writes {
            let _ = writes.send((key, page));
        }
    }
}

impl Drop for DiskArchive {
    /// Waits until the pages are written that were handed over, but not for a disk that does not answer.
    fn drop(&mut self) {
        self.stop_reading(false);
        // A reader that waits for memory gets one page of it, and sees that no more are wanted.
        let _ = self.read.send(Vec::new());
        (self.reads, self.writes) = (None, None);
        let _ = self.ended.recv_timeout(SHUTDOWN_WRITES);
    }
}

/// Why something failed the last time, so that a reason is logged once.
#[derive(Default)]
struct LastReason(Option<String>);

impl LastReason {
    /// Logs the event of this reason, unless it was the last one too.
    fn log(
        &mut self,
        options: &PrefixDir,
        error: &std::io::Error,
        event: fn(PathBuf, String) -> PrefixDirEvent,
    ) {
        let reason = error.to_string();
        if self.0.as_ref() != Some(&reason) {
            (options.log)(&event(options.dir.clone(), reason.clone()));
        }
        self.0 = Some(reason);
    }

    /// Notes that it worked.
    fn clear(&mut self) {
        self.0 = None;
    }
}

/// The thread that reads.
struct Reader {
    files: PageFiles,
    wanted: Arc<AtomicU64>,
    /// Memory for pages.
    free: Receiver<Vec<u8>>,
    index: Arc<PageIndex>,
    options: PrefixDir,
    clock: ClockFn,
    /// Why the last page could not be read.
    unreadable: LastReason,
    counters: Arc<PageCounters>,
    events: PageEvents,
}

impl Reader {
    fn run(mut self, jobs: &Receiver<(u64, Vec<PageKey>)>, listed: &Sender<()>) {
        self.list();
        // The caller may have waited for long enough.
        let _ = listed.send(());
        let mut spare = None;
        let mut at = (self.clock)();
        loop {
            let job = jobs.recv_timeout(LISTED_EVERY);
            if let Ok((job, keys)) = job {
                if !self.run_job(job, keys, &mut spare) {
                    return;
                }
            } else if job.is_err_and(|error| error == RecvTimeoutError::Disconnected) {
                return;
            }
            let now = (self.clock)();
            if now.saturating_sub(at) >= LISTED_EVERY.as_nanos() as u64 {
                at = now;
                self.list();
            }
        }
    }

    /// Reads the pages of a job. Returns `false` if the archive was dropped.
    fn run_job(&mut self, job: u64, keys: Vec<PageKey>, spare: &mut Option<Vec<u8>>) -> bool {
        for key in keys {
            let Some(mut page) = spare.take().or_else(|| self.free.recv().ok()) else { return false };
            let is_wanted = self.wanted.load(Ordering::Relaxed) == job;
            if !is_wanted || !self.read(key, &mut page) {
                *spare = Some(page);
                break;
            }
            (self.events)(PageEvent::Read { job, key, page });
        }
        (self.events)(PageEvent::Finished { job });
        true
    }

    /// Lists the pages again if the directory has changed. If it cannot be listed, what is known stays.
    fn list(&mut self) {
        self.index.begin_listing();
        if let Ok(Some(keys)) = self.files.list_changed() {
            self.index.end_listing(keys);
        }
    }

    fn read(&mut self, key: PageKey, page: &mut Vec<u8>) -> bool {
        match self.files.read(key, page) {
            Ok(true) => {
                self.counters.read.fetch_add(1, Ordering::Relaxed);
                self.unreadable.clear();
                return true;
            }
            Ok(false) => {}
            Err(PageError::Damaged { path, reason }) => {
                self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                (self.options.log)(&PrefixDirEvent::Damaged { path, reason });
                // If it cannot be removed, the next request for it finds it damaged again.
                let _ = self.files.remove(key);
            }
            Err(PageError::Unreadable(error)) => {
                let event = |dir, reason| PrefixDirEvent::NotRead { dir, reason };
                self.unreadable.log(&self.options, &error, event);
            }
        }
        self.index.remove(key);
        false
    }
}

/// The thread that writes.
struct Writer {
    options: PrefixDir,
    index: Arc<PageIndex>,
    writer: PageWriter,
    /// Memory of pages that were written.
    written: Sender<Vec<u8>>,
    /// Why the last page could not be written.
    failure: LastReason,
    counters: Arc<PageCounters>,
    events: PageEvents,
}

impl Writer {
    fn run(mut self, pages: &Receiver<(PageKey, Vec<u8>)>) {
        while let Ok((key, page)) = pages.recv() {
            let mut removed = Vec::new();
            let written = self.writer.write(key, &page, &mut removed);
            self.counters.removed.fetch_add(removed.len() as u64, Ordering::Relaxed);
            for key in removed {
                self.index.remove(key);
            }
            match written {
                Ok(new) => {
                    self.failure.clear();
                    self.counters.written.fetch_add(u64::from(new), Ordering::Relaxed);
                    self.index.add(key);
                }
                Err(error) => {
                    self.counters.not_written.fetch_add(1, Ordering::Relaxed);
                    let event = |dir, reason| PrefixDirEvent::NotWritten { dir, reason };
                    self.failure.log(&self.options, &error, event);
                }
            }
            let _ = self.written.send(page);
            (self.events)(PageEvent::Written { key });
        }
    }
}
