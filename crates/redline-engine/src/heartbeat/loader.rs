//! The threads that read adapters: new ones, and evicted ones for the requests that wait for them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::adapters::resident::SequenceAdapters;
use crate::adapters::{AdapterInfo, Resolved, Store};
use crate::error::EngineError;
use crate::gauges::AdapterGauges;
use crate::heartbeat::core::Arrival;
use crate::heartbeat::runner::{Inbox, Job};
use crate::request::AdapterChoice;

/// Work for the threads.
enum Load {
    /// A request of whose adapters some were evicted.
    Waiting(Arrival, Vec<AdapterChoice>),
    /// An adapter to publish under a name.
    Publish { name: String, dir: PathBuf, expected: Option<u64>, reply: Sender<Published> },
}

type Published = Result<AdapterInfo, EngineError>;

/// Hands requests to the engine's thread once their adapters are in memory.
pub(crate) struct AdapterLoader {
    store: Arc<Store>,
    inbox: Inbox,
    work: Option<Sender<Load>>,
    /// Number of adapters and of requests with adapters that are being read, or wait to be.
    loading: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl AdapterLoader {
    /// Starts `threads` threads, bound to these logical CPUs unless there are none.
    pub(crate) fn start(
        store: Arc<Store>,
        inbox: Inbox,
        threads: usize,
        cpus: &[u32],
    ) -> Result<Self, EngineError> {
        let (work, loads) = channel();
        let loads = Arc::new(Mutex::new(loads));
        let (loading, handles) = (Arc::new(AtomicUsize::new(0)), Vec::with_capacity(threads));
        let mut loader = Self { store, inbox, work: Some(work), loading, threads: handles };
        for index in 0..threads {
            let (store, inbox, loads) = (loader.store.clone(), loader.inbox.clone(), loads.clone());
            let (cpus, loading) = (cpus.to_vec(), loader.loading.clone());
            let thread = std::thread::Builder::new()
                .name(format!("redline-adapters-{index}"))
                .spawn(move || {
                    // It works without being bound, too.
                    if !cpus.is_empty() {
                        let _ = redline_kernels::bind_to_cpus(&cpus);
                    }
                    run(&store, &inbox, &loads, &loading);
                })
                .map_err(|e| EngineError::Threads { threads, reason: e.to_string() })?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// The adapters that a request names, read again if they were evicted.
    pub(crate) fn resolve(&self, choices: &[AdapterChoice]) -> Result<SequenceAdapters, EngineError> {
        self.store.resolve_all(choices)
    }

    /// Counts of adapters.
    pub(crate) fn gauges(&self) -> AdapterGauges {
        AdapterGauges { loading: self.loading.load(Ordering::Relaxed), ..self.store.gauges() }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Publishes an adapter; see [`Store::load`].
    pub(crate) fn load(&self, name: &str, dir: &Path, expected: Option<u64>) -> Published {
        let (reply, published) = channel();
        self.send(Load::Publish { name: name.to_owned(), dir: dir.to_owned(), expected, reply })?;
        published.recv().map_err(|_| EngineError::Stopped)?
    }

    /// Hands on a request, at once if its adapters are in memory.
    pub(crate) fn submit(&self, arrival: Arrival, choices: &[AdapterChoice]) -> Result<(), EngineError> {
        match self.store.resolve(choices, &[])? {
            Resolved::Ready(adapters) => self.inbox.send(Job::Run(Arrival { adapters, ..arrival })),
            Resolved::Evicted(_) => self.send(Load::Waiting(arrival, choices.to_vec())),
        }
    }

    fn send(&self, load: Load) -> Result<(), EngineError> {
        let work = self.work.as_ref().ok_or(EngineError::Stopped)?;
        self.loading.fetch_add(1, Ordering::Relaxed);
        work.send(load).map_err(|_| {
            self.loading.fetch_sub(1, Ordering::Relaxed);
            EngineError::Stopped
        })
    }
}

impl Drop for AdapterLoader {
    fn drop(&mut self) {
        self.work = None;
        for thread in self.threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn run(store: &Store, inbox: &Inbox, loads: &Mutex<Receiver<Load>>, loading: &AtomicUsize) {
    redline_kernels::set_default_float_environment();
    let next = || loads.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(load) = next() {
        let job = match load {
            Load::Publish { name, dir, expected, reply } => {
                let published = store.load(&name, &dir, expected);
                loading.fetch_sub(1, Ordering::Relaxed);
                // The caller may be gone, which is no error.
                let _ = reply.send(published);
                continue;
            }
            Load::Waiting(arrival, choices) => match store.resolve_all(&choices) {
                Ok(adapters) => Job::Run(Arrival { adapters, ..arrival }),
                Err(error) => Job::Fail(arrival, error),
            },
        };
        loading.fetch_sub(1, Ordering::Relaxed);
        if inbox.send(job).is_err() {
            return;
        }
    }
}
