//! A limited number of places for requests that wait or run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::EngineError;
use crate::gauges::RequestGauges;

/// The places of an engine.
#[derive(Clone)]
pub(crate) struct Places {
    occupied: Arc<Occupied>,
    all: usize,
}

/// The places that are taken.
#[derive(Default)]
struct Occupied {
    all: AtomicUsize,
    running: AtomicUsize,
    /// Requests that wait and that run with each adapter.
    by_adapter: Mutex<BTreeMap<String, (usize, usize)>>,
}

impl Occupied {
    fn by_adapter(&self) -> MutexGuard<'_, BTreeMap<String, (usize, usize)>> {
        self.by_adapter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place; dropping it frees the place.
pub(crate) struct Place {
    occupied: Arc<Occupied>,
    /// Whether the request has had a pass.
    running: bool,
    /// The adapters of the request, each once.
    adapters: BTreeSet<String>,
}

impl Place {
    /// Names the adapters of the request, before it runs.
    pub(crate) fn using<'a>(mut self, adapters: impl Iterator<Item = &'a str>) -> Self {
        self.adapters.extend(adapters.map(str::to_owned));
        if !self.adapters.is_empty() {
            let mut all = self.occupied.by_adapter();
            for name in &self.adapters {
                all.entry(name.clone()).or_default().0 += 1;
            }
        }
        self
    }

    /// The request has its first pass.
    pub(crate) fn begin(&mut self) {
        if std::mem::replace(&mut self.running, true) {
            return;
        }
        self.occupied.running.fetch_add(1, Ordering::Relaxed);
        if !self.adapters.is_empty() {
            let mut all = self.occupied.by_adapter();
            for name in &self.adapters {
                if let Some((waiting, running)) = all.get_mut(name) {
                    (*waiting, *running) = (waiting.saturating_sub(1), *running + 1);
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.running {
            self.occupied.running.fetch_sub(1, Ordering::Relaxed);
        }
        self.occupied.all.fetch_sub(1, Ordering::Relaxed);
        if !self.adapters.is_empty() {
            let mut all = self.occupied.by_adapter();
            for name in &self.adapters {
                if let Some((waiting, running)) = all.get_mut(name) {
                    let count = if self.running { running } else { waiting };
                    *count = count.saturating_sub(1);
                }
            }
            all.retain(|_, counts| *counts != (0, 0));
        }
    }
}

impl Places {
    /// Creates `all` places, which are free.
    pub(crate) fn new(all: usize) -> Self {
        Self { occupied: Arc::default(), all }
    }

    /// Takes a place, or fails if none is free.
    pub(crate) fn take(&self) -> Result<Place, EngineError> {
        let free = |occupied: usize| (occupied < self.all).then_some(occupied + 1);
        match self.occupied.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => {
                let occupied = self.occupied.clone();
                Ok(Place { occupied, running: false, adapters: BTreeSet::new() })
            }
            Err(requests) => Err(EngineError::QueueFull { requests }),
        }
    }

    /// Number of free places.
    pub(crate) fn free(&self) -> usize {
        self.all.saturating_sub(self.occupied.all.load(Ordering::Relaxed))
    }

    /// Requests that wait and run.
    pub(crate) fn gauges(&self) -> RequestGauges {
        let running = self.occupied.running.load(Ordering::Relaxed);
        let waiting = self.occupied.all.load(Ordering::Relaxed).saturating_sub(running);
        let by_adapter = self.occupied.by_adapter();
        let by_adapter =
            by_adapter.iter().map(|(name, &(waiting, running))| (name.clone(), waiting, running));
        RequestGauges { waiting, running, limit: self.all, by_adapter: by_adapter.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_a_request_that_waits_until_it_runs_and_free_afterwards() {
        let places = Places::new(2);
        let mut first = places.take().unwrap().using(["a", "b", "a"].into_iter());
        let second = places.take().unwrap().using(["a"].into_iter());
        assert!(places.take().is_err() && places.free() == 0);
        let named = |name: &str, waiting, running| (name.to_owned(), waiting, running);
        let gauges = |waiting, running, by_adapter| RequestGauges { waiting, running, limit: 2, by_adapter };
        assert_eq!(places.gauges(), gauges(2, 0, vec![named("a", 2, 0), named("b", 1, 0)]));
        first.begin();
        first.begin();
        assert_eq!(places.gauges(), gauges(1, 1, vec![named("a", 1, 1), named("b", 0, 1)]));
        drop(first);
        assert_eq!(places.gauges(), gauges(1, 0, vec![named("a", 1, 0)]));
        drop(second);
        assert_eq!((places.gauges(), places.free()), (gauges(0, 0, vec![]), 2));
    }
}
