//! Ranges of addresses on huge pages that buffers share.
//!
//! A buffer of some hundred kilobytes fills no huge page of its own. On ordinary pages, it is read slower than a large buffer: the
//! processor looks up an address for every 4 KiB, and stops to fetch ahead there. So buffers follow each other in a range.
//! Its addresses are used once; a page returns to the system when the last buffer on it is dropped, and all of them with the range.

use std::ops;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::mapping::Mapping;
use super::{ALIGN, HUGE_PAGE, Pages};

/// Number of bytes of a range. They are reserved, but take memory only when they are written.
const RANGE: usize = 256 << 20;
/// The largest buffer that shares a range.
pub(super) const LARGEST: usize = 32 << 20;

/// Addresses that were asked to be on huge pages.
struct Range {
    /// Undone with the range.
    _mapping: Mapping,
    /// The first huge page in it.
    start: NonNull<u8>,
    /// For each huge page, the number of its buffers, and one more while others may follow.
    holders: Box<[AtomicU32]>,
}

// SAFETY: the addresses never change; who reads or writes them is decided by the owners of the pieces.
unsafe impl Send for Range {}
// SAFETY: as above.
unsafe impl Sync for Range {}

/// Part of a range, which belongs to one buffer.
pub(super) struct Piece {
    range: Arc<Range>,
    pages: ops::Range<usize>,
}

/// The range that new buffers come from.
struct Open {
    range: Arc<Range>,
    /// Number of bytes that have been given to buffers.
    used: usize,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// Zeros for a buffer of up to [`LARGEST`] bytes; `None` if the system has no addresses for another range.
pub(super) fn take(bytes: usize) -> Option<(NonNull<u8>, Piece)> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(taken) = open.as_mut().and_then(|open| open.take(bytes)) {
        return Some(taken);
    }
    // The rest of the range before, if any, stays unused.
    open.insert(Open { range: Arc::new(Range::new(RANGE)?), used: 0 }).take(bytes)
}

impl Open {
    /// `None` if the range has not as many bytes left.
    fn take(&mut self, bytes: usize) -> Option<(NonNull<u8>, Piece)> {
        let (first, range) = (self.used, &self.range);
        let end = first.checked_add(bytes)?;
        if end > range.bytes() {
            return None;
        }
        let pages = first / HUGE_PAGE..end.div_ceil(HUGE_PAGE);
        for page in pages.clone() {
            range.holders[page].fetch_add(1, Relaxed);
        }
        self.used = end.next_multiple_of(ALIGN);
        // No buffer follows on the pages before.
        range.release(first / HUGE_PAGE..self.used / HUGE_PAGE);
        // SAFETY: the range holds `end` bytes from its start on.
        let start = unsafe { range.start.add(first) };
        Some((start, Piece { range: Arc::clone(range), pages }))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.range.release(self.used / HUGE_PAGE..self.range.holders.len());
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.range.release(self.pages.clone());
    }
}

impl Range {
    fn new(bytes: usize) -> Option<Self> {
        let (mapping, start) = Mapping::zeros(bytes, Pages::Huge)?;
        let holders = (0..bytes / HUGE_PAGE).map(|_| AtomicU32::new(1)).collect();
        Some(Self { _mapping: mapping, start, holders })
    }

    fn bytes(&self) -> usize {
        self.holders.len() * HUGE_PAGE
    }

    /// Ends one holding of each of some pages, and returns those without any other to the system.
    fn release(&self, pages: ops::Range<usize>) {
        let mut free = pages.start..pages.start;
        for page in pages {
            if self.holders[page].fetch_sub(1, AcqRel) == 1 {
                free.end = page + 1;
            } else {
                self.give_back(free);
                free = page + 1..page + 1;
            }
        }
        self.give_back(free);
    }

    fn give_back(&self, pages: ops::Range<usize>) {
        if !pages.is_empty() {
            // SAFETY: whole pages of the range, which nothing refers to any more.
            unsafe {
                let first = self.start.add(pages.start * HUGE_PAGE);
                libc::madvise(first.as_ptr().cast(), pages.len() * HUGE_PAGE, libc::MADV_DONTNEED);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each page has memory.
    fn resident(range: &Range) -> Vec<bool> {
        // SAFETY: reads a constant of the system.
        let of_page = HUGE_PAGE / usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        let mut pages = vec![0u8; range.holders.len() * of_page];
        // SAFETY: the range is mapped, and the array has a byte for each of its ordinary pages.
        let status = unsafe { libc::mincore(range.start.as_ptr().cast(), range.bytes(), pages.as_mut_ptr()) };
        assert_eq!(status, 0);
        pages.chunks(of_page).map(|page| page.iter().any(|page| page & 1 == 1)).collect()
    }

    fn write((start, piece): (NonNull<u8>, Piece), bytes: usize) -> Piece {
        // SAFETY: the piece has as many bytes.
        let values = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) };
        assert!(start.as_ptr() as usize % ALIGN == 0 && values.iter().all(|&byte| byte == 0));
        values.fill(1);
        piece
    }

    #[test]
    fn a_page_returns_to_the_system_with_its_last_buffer() {
        let range = Arc::new(Range::new(4 * HUGE_PAGE).unwrap());
        let mut open = Open { range: Arc::clone(&range), used: 0 };
        let mut take = |bytes| write(open.take(bytes).unwrap(), bytes);
        // The second begins on the first page and ends on the third.
        let (first, second, third) = (take(1000), take(2 * HUGE_PAGE - 500), take(10));
        assert_eq!(resident(&range), [true, true, true, false]);
        drop(first);
        assert_eq!(resident(&range), [true, true, true, false]);
        drop(second);
        // More buffers may follow on the third.
        assert_eq!(resident(&range), [false, false, true, false]);
        let fourth = take(HUGE_PAGE);
        drop(third);
        assert_eq!(resident(&range), [false, false, true, true]);
        assert!(open.take(HUGE_PAGE).is_none());
        drop(open);
        assert_eq!(resident(&range), [false, false, true, true]);
        drop(fourth);
        assert_eq!(resident(&range), [false; 4]);
        assert_eq!(Arc::strong_count(&range), 1);
    }

    #[test]
    fn buffers_follow_each_other_at_cache_lines() {
        let mut open = Open { range: Arc::new(Range::new(HUGE_PAGE).unwrap()), used: 0 };
        let first = open.take(65).unwrap();
        let second = open.take(HUGE_PAGE - 128).unwrap();
        assert_eq!(second.0.as_ptr() as usize - first.0.as_ptr() as usize, 128);
        assert!(open.take(1).is_none());
        assert!(open.take(usize::MAX).is_none());
    }
}
