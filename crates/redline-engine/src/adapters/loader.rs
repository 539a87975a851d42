//! The thread that reads evicted adapters again for the requests that wait for them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use redline_settings::{Setting, hint};

use super::resident::SequenceAdapters;
use super::store::{Resolved, Store};
use crate::error::EngineError;
use crate::heartbeat::core::Arrival;
use crate::heartbeat::runner::{Inbox, Job};
use crate::request::AdapterChoice;

/// Hands requests to the engine's thread once their adapters are in memory.
pub(crate) struct AdapterLoader {
    store: Arc<Store>,
    inbox: Inbox,
    waiting: Option<Sender<(Arrival, Vec<AdapterChoice>)>>,
    thread: Option<JoinHandle<()>>,
}

impl AdapterLoader {
    /// Starts the thread.
    pub(crate) fn start(store: Arc<Store>, inbox: Inbox) -> Result<Self, EngineError> {
        let (waiting, arrivals) = channel();
        let (of_thread, to) = (store.clone(), inbox.clone());
        let thread = std::thread::Builder::new()
            .name("redline-adapters".into())
            .spawn(move || run(&of_thread, &to, &arrivals))
            .map_err(|e| EngineError::Threads { threads: 1, reason: e.to_string() })?;
        Ok(Self { store, inbox, waiting: Some(waiting), thread: Some(thread) })
    }

    /// The adapters that a request names, read again if they were evicted.
    pub(crate) fn resolve(&self, choices: &[AdapterChoice]) -> Result<SequenceAdapters, EngineError> {
        resolve(&self.store, choices)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Hands on a request, at once if its adapters are in memory.
    pub(crate) fn submit(&self, arrival: Arrival, choices: &[AdapterChoice]) -> Result<(), EngineError> {
        match self.store.resolve(choices)? {
            Resolved::Ready(adapters) => self.inbox.send(Job::Run(Arrival { adapters, ..arrival })),
            Resolved::Evicted(_) => {
                let waiting = self.waiting.as_ref().ok_or(EngineError::Stopped)?;
                waiting.send((arrival, choices.to_vec())).map_err(|_| EngineError::Stopped)
            }
        }
    }
}

impl Drop for AdapterLoader {
    fn drop(&mut self) {
        self.waiting = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(store: &Store, inbox: &Inbox, arrivals: &Receiver<(Arrival, Vec<AdapterChoice>)>) {
    redline_kernels::set_default_float_environment();
    while let Ok((arrival, choices)) = arrivals.recv() {
        let job = match resolve(store, &choices) {
            Ok(adapters) => Job::Run(Arrival { adapters, ..arrival }),
            Err(error) => Job::Fail(arrival, error),
        };
        if inbox.send(job).is_err() {
            return;
        }
    }
}

/// Reads adapters until all are in memory. With each round another one is, unless the memory for adapters holds fewer than the
/// request combines.
pub(crate) fn resolve(store: &Store, choices: &[AdapterChoice]) -> Result<SequenceAdapters, EngineError> {
    for _ in 0..=2 * choices.len() {
        match store.resolve(choices)? {
            Resolved::Ready(adapters) => return Ok(adapters),
            Resolved::Evicted(name) => store.restore(&name, choices)?,
        }
    }
    let fact = format!("the memory for adapters does not hold the {} that are combined", choices.len());
    Err(EngineError::request(fact, hint!["give more ", Setting::AdapterMemory]))
}
