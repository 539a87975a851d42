//! A stretch of addresses that belongs to this process until it is dropped.

use std::ptr::NonNull;

use super::{HUGE_PAGE, Pages};

/// A mapping, undone when it is dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the addresses never change; who reads or writes them is decided by the owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes` zeros on the given kind of pages, with the address of the first one, which begins a huge page. `None` if the system refuses.
    pub(super) fn zeros(bytes: usize, pages: Pages) -> Option<(Self, NonNull<u8>)> {
        let whole = bytes.checked_add(HUGE_PAGE)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which changes none that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), whole, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: made above for this owner.
        let mapping = unsafe { Self::owning(NonNull::new(base.cast())?, whole) };
        let advice = match pages {
            Pages::Huge => libc::MADV_HUGEPAGE,
            Pages::Small => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: at most a huge page is skipped; advice cannot change contents. Its failure only costs speed.
        let start = unsafe {
            let start = mapping.base.add(mapping.base.align_offset(HUGE_PAGE));
            libc::madvise(start.as_ptr().cast(), bytes, advice);
            start
        };
        Some((mapping, start))
    }

    /// Takes over a mapping.
    ///
    /// # Safety
    /// It is `bytes` long, and nothing else undoes it.
    pub(super) unsafe fn owning(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
