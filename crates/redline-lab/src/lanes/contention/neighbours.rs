//! Busy neighbours: threads that want a core all the time, as other processes on the machine do.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Rounds of arithmetic between two looks at whether to stop: some microseconds.
const ROUNDS: u64 = 10_000;

/// Threads that compute until this is dropped.
pub(super) struct Neighbours {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts so many threads.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let mut neighbours =
            Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::with_capacity(count) };
        for index in 0..count {
            let stop = Arc::clone(&neighbours.stop);
            let thread = Builder::new().name(format!("neighbour-{index}")).spawn(move || compute(&stop))?;
            neighbours.threads.push(thread);
        }
        Ok(neighbours)
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Arithmetic does not panic.
            let _ = thread.join();
        }
    }
}

fn compute(stop: &AtomicBool) {
    let mut x = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..ROUNDS {
            x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
    }
}
