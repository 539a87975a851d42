//! The clocks: elapsed time, processor time of the process, and the time of day.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::ClockFn;

/// A monotonic clock. Clones share the same start.
#[derive(Clone)]
pub struct Clock {
    read: ClockFn,
    processor: fn() -> Option<u64>,
}

/// A monotonic clock as a function: nanoseconds since this call.
#[expect(clippy::disallowed_methods, reason = "the default clock")]
pub fn monotonic_clock() -> ClockFn {
    let start = Instant::now();
    Arc::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// What a piece of work took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// Nanoseconds of elapsed time.
    pub ns: u64,
    /// Nanoseconds of processor time, summed over the threads of the process; `None` if the clock cannot tell.
    pub processor_ns: Option<u64>,
}

impl Clock {
    /// A clock that counts from now.
    pub fn start() -> Self {
        Self { read: monotonic_clock(), processor: processor_ns }
    }

    /// A clock that reads `read`, nanoseconds that never decrease, and has no processor time. Tests use it to control the time.
    pub fn scripted(read: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), processor: || None }
    }

    /// A clock that advances by `step_ns` at every reading, from 0 on.
    pub fn ticking(step_ns: u64) -> Self {
        let next = std::sync::atomic::AtomicU64::new(0);
        Self::scripted(move || next.fetch_add(step_ns, std::sync::atomic::Ordering::Relaxed))
    }

    /// Nanoseconds since the clock was started.
    pub fn now_ns(&self) -> u64 {
        (self.read)()
    }

    /// Nanoseconds since the reading `earlier_ns`.
    pub fn elapsed_ns(&self, earlier_ns: u64) -> u64 {
        self.now_ns().saturating_sub(earlier_ns)
    }

    /// Seconds since the reading `earlier_ns`.
    pub fn elapsed_s(&self, earlier_ns: u64) -> f64 {
        self.elapsed_ns(earlier_ns) as f64 * 1e-9
    }

    /// Sleeps until this reading.
    pub fn sleep_until(&self, ns: u64) {
        while let Some(left) = ns.checked_sub(self.now_ns()).filter(|&left| left > 0) {
            std::thread::sleep(Duration::from_nanos(left));
        }
    }

    /// Runs `work`. Returns its result and the nanoseconds it took.
    pub fn time<R>(&self, work: impl FnOnce() -> R) -> (R, u64) {
        let begin = self.now_ns();
        let result = work();
        (result, self.elapsed_ns(begin))
    }

    /// Runs `work`. Returns its result, and the elapsed and processor time that it took.
    pub fn time_both<R>(&self, work: impl FnOnce() -> R) -> (R, Elapsed) {
        let before = (self.processor)();
        let (result, ns) = self.time(work);
        let processor_ns = (self.processor)().zip(before).map(|(after, before)| after.saturating_sub(before));
        (result, Elapsed { ns, processor_ns })
    }

    /// The clock in the form that the engine takes.
    pub fn as_fn(&self) -> ClockFn {
        Arc::clone(&self.read)
    }
}

/// Processor time that all threads of this process have used, in nanoseconds (`CLOCK_PROCESS_CPUTIME_ID`).
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a clock of measurements")]
fn processor_ns() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// Systems other than Unix have no such clock.
#[cfg(not(unix))]
fn processor_ns() -> Option<u64> {
    None
}

/// The date and time of day. Only for labelling runs; it is never subtracted.
#[expect(clippy::disallowed_methods, reason = "a clock of measurements")]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now_ns", &self.now_ns()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_runs_backwards() {
        let clock = Clock::start();
        let readings: Vec<u64> = (0..1000).map(|_| clock.now_ns()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn the_function_and_clones_share_the_start() {
        let clock = Clock::start();
        let read = clock.as_fn();
        let (first, second, third) = (clock.now_ns(), read(), clock.clone().now_ns());
        assert!(first <= second && second <= third);
    }

    #[test]
    fn elapsed_is_the_difference_of_readings() {
        let clock = Clock::ticking(100);
        assert_eq!(clock.now_ns(), 0);
        assert_eq!(clock.elapsed_ns(40), 60);
        assert_eq!(clock.elapsed_s(0), 200.0 * 1e-9);
        assert_eq!(clock.elapsed_ns(u64::MAX), 0);
        assert_eq!(clock.time(|| "done"), ("done", 100));
        assert_eq!(clock.time_both(|| 7), (7, Elapsed { ns: 100, processor_ns: None }));
    }

    #[cfg(unix)]
    #[test]
    fn processor_time_is_that_of_all_threads() {
        let spin = || {
            let begin = processor_ns().unwrap();
            while processor_ns().unwrap() < begin + 1_000_000 {}
        };
        let ((), own) = Clock::start().time_both(spin);
        assert!(own.processor_ns >= Some(1_000_000), "{own:?}");
        // Threads that have ended count too.
        let ((), other) = Clock::start().time_both(|| std::thread::scope(|scope| drop(scope.spawn(spin))));
        assert!(other.processor_ns >= Some(1_000_000), "{other:?}");
    }
}
