//! A limited number of places for requests that wait or run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::EngineError;

/// The places of an engine.
#[derive(Clone)]
pub(crate) struct Places {
    occupied: Arc<AtomicUsize>,
    all: usize,
}

/// A request's place; dropping it frees the place.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
        match self.occupied.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => Ok(Place(self.occupied.clone())),
            Err(requests) => Err(EngineError::QueueFull { requests }),
        }
    }
}
