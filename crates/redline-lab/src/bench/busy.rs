//! Threads that are busy beside a measurement.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Threads that work until this value is dropped.
pub(crate) struct BusyThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyThreads {
    /// Starts `count` threads, each of which calls `work`, which takes some microseconds at most, again and again.
    pub(crate) fn start(count: usize, work: fn()) -> io::Result<Self> {
        let mut busy = Self { stop: Arc::default(), threads: Vec::with_capacity(count) };
        for index in 0..count {
            let stop = Arc::clone(&busy.stop);
            let until_stopped = move || {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            };
            busy.threads.push(Builder::new().name(format!("busy-{index}")).spawn(until_stopped)?);
        }
        Ok(busy)
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in `work` has been reported; the measurement is over.
            let _ = thread.join();
        }
    }
}
