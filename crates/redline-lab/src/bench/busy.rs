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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_as_asked_for_work_until_they_are_dropped() {
        for count in [0, 1, 3] {
            let busy = BusyThreads::start(count, std::hint::spin_loop).unwrap();
            let names: Vec<_> = busy.threads.iter().map(|t| t.thread().name().map(str::to_owned)).collect();
            let expected: Vec<_> = (0..count).map(|index| Some(format!("busy-{index}"))).collect();
            assert_eq!(names, expected);
            let stop = Arc::clone(&busy.stop);
            drop(busy);
            assert!(stop.load(Ordering::Relaxed));
            assert_eq!(Arc::strong_count(&stop), 1, "every thread has ended");
        }
    }
}
