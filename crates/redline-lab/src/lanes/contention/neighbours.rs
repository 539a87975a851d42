//! Busy neighbours: threads that compute continuously, as other processes on the machine would.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Rounds of arithmetic between two checks of the stop flag: some microseconds.
const ROUNDS: u64 = 10_000;

/// Threads that compute until this value is dropped.
pub(super) struct Neighbours {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts `count` threads.
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
            // Arithmetic cannot panic.
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
