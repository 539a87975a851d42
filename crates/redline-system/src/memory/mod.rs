//! Memory: aligned buffers (on huge pages if available) and the counting allocator.
//!
//! All uses of `mmap`, `madvise` and `GlobalAlloc` in the project are in this folder. Both sources of memory update the same
//! counters, so the peak that the engine reports is measured, not estimated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

mod buffer;
#[cfg(target_os = "linux")]
mod mapping;
#[cfg(target_os = "linux")]
mod range;

pub use self::buffer::{Buffer, FileBytes, Plain};
use crate::threads::may_pause;

#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;
const ALIGN: usize = 64;

static CURRENT: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static COUNTING: AtomicBool = AtomicBool::new(false);

fn count_up(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    let now = CURRENT.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    PEAK.fetch_max(now, Relaxed);
}

fn count_down(bytes: usize) {
    CURRENT.fetch_sub(bytes as u64, Relaxed);
}

/// Bytes currently allocated: by buffers, and by everything else if [`CountingAllocator`] is installed.
pub fn current_bytes() -> u64 {
    CURRENT.load(Relaxed)
}

/// Number of allocations so far, by any thread; `None` if the counting allocator is not installed.
pub fn allocations() -> Option<u64> {
    COUNTING.load(Relaxed).then(|| ALLOCATIONS.load(Relaxed))
}

/// Largest value of [`current_bytes`] since [`reset_peak`]; `None` if the counting allocator is not installed.
pub fn peak_bytes() -> Option<u64> {
    COUNTING.load(Relaxed).then(|| PEAK.load(Relaxed))
}

/// Resets [`peak_bytes`] to the current value.
pub fn reset_peak() {
    PEAK.store(CURRENT.load(Relaxed), Relaxed);
}

/// Counters of meters: the low half counts active ones, the high half all that were started.
#[derive(Debug)]
struct Meters(AtomicU64);

static METERS: Meters = Meters(AtomicU64::new(0));

/// Measures the peak memory of one piece of work, such as a request. The counters belong to the whole process, so the peak is
/// available only if no other meter was active at the same time, in any thread or engine.
#[derive(Debug)]
pub struct PeakMeter {
    meters: &'static Meters,
    number: u64,
    first: bool,
}

impl Meters {
    const STEP: u64 = 1 << 32;

    fn begin(&'static self) -> PeakMeter {
        let before = self.0.fetch_add(Self::STEP + 1, SeqCst);
        let number = before.wrapping_add(Self::STEP) / Self::STEP;
        PeakMeter { meters: self, number, first: before % Self::STEP == 0 }
    }
}

impl PeakMeter {
    /// Starts to measure; dropping the meter ends the measurement.
    pub fn begin() -> Self {
        let meter = METERS.begin();
        if meter.first {
            reset_peak();
        }
        meter
    }

    /// Whether no other meter ran since this one began.
    fn is_alone(&self) -> bool {
        self.first && self.meters.0.load(SeqCst) / Meters::STEP == self.number
    }

    /// Peak of allocated bytes in the process since the meter started; `None` if allocations are not counted or another meter
    /// was active meanwhile.
    pub fn peak_bytes(&self) -> Option<u64> {
        if self.is_alone() { peak_bytes() } else { None }
    }
}

impl Drop for PeakMeter {
    fn drop(&mut self) {
        self.meters.0.fetch_sub(1, SeqCst);
    }
}

/// The system allocator with counters, where threads may give way to others (`threads/pace.rs`). A binary installs it with
/// `#[global_allocator]`. If the system refuses memory, the process ends with a message and the exit code 1, not with a backtrace.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: every call goes to the system allocator with the arguments unchanged.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        may_pause();
        let p = unsafe { System.alloc(layout) };
        if p.is_null() {
            refused(layout.size());
        }
        COUNTING.store(true, Relaxed);
        count_up(layout.size());
        p
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        may_pause();
        let p = unsafe { System.alloc_zeroed(layout) };
        if p.is_null() {
            refused(layout.size());
        }
        count_up(layout.size());
        p
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        may_pause();
        unsafe { System.dealloc(p, layout) };
        count_down(layout.size());
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        may_pause();
        let q = unsafe { System.realloc(p, layout, new_size) };
        if q.is_null() {
            refused(new_size);
        }
        count_up(new_size);
        count_down(layout.size());
        q
    }
}

/// Ends the process without allocating anything.
#[cold]
fn refused(bytes: usize) -> ! {
    let mut text = [0; 200];
    let mut rest = &mut text[..];
    let fact = OutOfMemory { bytes };
    let _ =
        write!(rest, "error: {fact}\n\nhint: let the process have more, or give it less to do at a time\n");
    #[cfg(unix)]
    {
        let unused = rest.len();
        // SAFETY: the bytes belong to `text`; neither call allocates.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len() - unused);
            libc::_exit(1)
        }
    }
    #[cfg(not(unix))]
    std::process::abort()
}

/// The operating system refused memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The requested number of bytes.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system refused {} bytes of memory", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

/// The kind of pages that a large buffer requests. The system may provide others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pages {
    /// Huge ones.
    Huge,
    /// The ordinary ones.
    Small,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_meters_that_ran_alone_measure() {
        static METERS: Meters = Meters(AtomicU64::new(0));
        let alone = |meter: &PeakMeter| meter.is_alone();
        let first = METERS.begin();
        assert!(alone(&first));
        drop(first);
        // Two meters overlap: neither measures, even after the other has ended.
        let (second, third) = (METERS.begin(), METERS.begin());
        assert!(!alone(&second) && !alone(&third));
        drop(second);
        assert!(!alone(&third));
        let fourth = METERS.begin();
        drop(third);
        assert!(!alone(&fourth));
        drop(fourth);
        assert!(alone(&METERS.begin()));
    }
}
