//! Aligned buffers.

use std::alloc::Layout;
use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use super::count_down;
#[cfg(target_os = "linux")]
use super::mapping::Mapping;
#[cfg(target_os = "linux")]
use super::range::{self, Piece};
use super::{ALIGN, OutOfMemory, Pages, count_up};

mod sealed {
    /// Types for which every bit pattern is valid, zero included.
    pub trait Plain: Copy + Send + Sync + 'static {}
    impl Plain for u8 {}
    impl Plain for u16 {}
    impl Plain for u32 {}
    impl Plain for f32 {}
}
pub use sealed::Plain;

/// Some consecutive bytes of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileBytes<'a> {
    /// The file, open for reading.
    pub file: &'a File,
    /// The first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: usize,
}

/// An array, aligned to 64 bytes, on huge pages unless it is small.
pub struct Buffer<T: Plain> {
    start: NonNull<T>,
    len: usize,
    place: Place,
    owns: PhantomData<T>,
}

/// Where a buffer lies.
enum Place {
    /// In memory of the allocator; nowhere if the buffer is empty.
    Heap,
    /// In a mapping of its own, which the counters include or not.
    #[cfg(target_os = "linux")]
    Own { _mapping: Mapping, counted: bool },
    /// In a range with others.
    #[cfg(target_os = "linux")]
    Shared { _piece: Piece },
}

/// Buffers of at least this many bytes share ranges on huge pages, up to [`range::LARGEST`].
#[cfg(target_os = "linux")]
const SHARE_FROM: usize = 8 << 10;
/// Buffers of at least this many bytes get a mapping of their own if they do not share one.
#[cfg(target_os = "linux")]
const MAP_FROM: usize = 1 << 20;

// SAFETY: a buffer owns its memory; `T` is plain data.
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: as above; shared access reads, or through `as_mut_ptr_shared` writes elements that no other thread uses.
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        Self::zeroed_on(len, Pages::Huge)
    }

    /// `len` zeros on the given kind of pages. Below 8 KiB of huge pages, and below 1 MiB of small ones, the allocator decides.
    pub fn zeroed_on(len: usize, pages: Pages) -> Result<Self, OutOfMemory> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(OutOfMemory { bytes: usize::MAX })?;
        if bytes == 0 {
            return Ok(Self { start: NonNull::dangling(), len, place: Place::Heap, owns: PhantomData });
        }
        if let Some((start, place)) = place_on(pages, bytes)? {
            count_up(bytes);
            return Ok(Self { start: start.cast(), len, place, owns: PhantomData });
        }
        let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| OutOfMemory { bytes })?;
        // SAFETY: the layout has a size above zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(OutOfMemory { bytes })?;
        Ok(Self { start: start.cast(), len, place: Place::Heap, owns: PhantomData })
    }

    /// The values copied into a new buffer.
    pub fn from_slice(values: &[T]) -> Result<Self, OutOfMemory> {
        let mut buffer = Self::zeroed(values.len())?;
        buffer.copy_from_slice(values);
        Ok(buffer)
    }

    /// The contents of some stretches of files, one after the other, mapped instead of copied: the memory is that of the
    /// system's file cache, on ordinary pages, and is not counted. Writing to the buffer changes no file. `None` if the system
    /// cannot map them, in particular if a stretch does not begin and end where its pages do (the last one may end anywhere).
    ///
    /// If another process changes a file, the buffer changes. If it shortens a file, reading the buffer ends this process by a
    /// signal.
    #[cfg(target_os = "linux")]
    pub fn over(stretches: &[FileBytes<'_>]) -> Option<Self> {
        use std::os::fd::AsRawFd;
        // SAFETY: reads a constant of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let whole = stretches.iter().try_fold(0usize, |sum, stretch| sum.checked_add(stretch.bytes))?;
        let (_, before) = stretches.split_last()?;
        let starts = stretches.iter().all(|stretch| stretch.offset % page as u64 == 0 && stretch.bytes > 0);
        if !starts || before.iter().any(|stretch| stretch.bytes % page != 0) || whole % size_of::<T>() != 0 {
            return None;
        }
        let map = |at: *mut u8, bytes: usize, flags: i32, file: i32, offset: i64| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a private mapping, at an address of the kernel's choice or within one that was made for it.
            let found =
                unsafe { libc::mmap(at.cast(), bytes, access, libc::MAP_PRIVATE | flags, file, offset) };
            if found == libc::MAP_FAILED { None } else { NonNull::new(found.cast::<u8>()) }
        };
        let base = map(std::ptr::null_mut(), whole, libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)?;
        // From here on, the mapping is undone when the buffer is dropped.
        // SAFETY: made above for this buffer.
        let place = Place::Own { _mapping: unsafe { Mapping::owning(base, whole) }, counted: false };
        let len = whole / size_of::<T>();
        let buffer = Self { start: base.cast(), len, place, owns: PhantomData };
        let mut at = 0;
        for FileBytes { file, offset, bytes } in stretches {
            // SAFETY: the stretches together are as long as the mapping.
            let place = unsafe { base.as_ptr().add(at) };
            map(place, *bytes, libc::MAP_FIXED, file.as_raw_fd(), i64::try_from(*offset).ok()?)?;
            at += bytes;
        }
        // SAFETY: advice cannot change contents. Where the kernel does not know it, pages are read when they are needed.
        unsafe { libc::madvise(base.as_ptr().cast(), whole, libc::MADV_POPULATE_READ) };
        Some(buffer)
    }

    /// Files are mapped on Linux only.
    #[cfg(not(target_os = "linux"))]
    pub fn over(_stretches: &[FileBytes<'_>]) -> Option<Self> {
        None
    }

    /// The address, for writing disjoint elements from several threads, while no other thread uses these and no reference covers them.
    pub fn as_mut_ptr_shared(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// The contents as bytes, in the machine's order.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: plain data without padding that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes()) }
    }

    /// The contents as bytes; any bytes are a value of a plain type.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.bytes()) }
    }

    /// Bytes of the contents.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

/// Zeros on the given kind of pages; `None` if the buffer is so small that the allocator decides.
#[cfg(target_os = "linux")]
fn place_on(pages: Pages, bytes: usize) -> Result<Option<(NonNull<u8>, Place)>, OutOfMemory> {
    if pages == Pages::Huge
        && (SHARE_FROM..=range::LARGEST).contains(&bytes)
        && let Some((start, piece)) = range::take(bytes)
    {
        return Ok(Some((start, Place::Shared { _piece: piece })));
    }
    if bytes < MAP_FROM {
        return Ok(None);
    }
    let (mapping, start) = Mapping::zeros(bytes, pages).ok_or(OutOfMemory { bytes })?;
    Ok(Some((start, Place::Own { _mapping: mapping, counted: true })))
}

/// Pages are asked for on Linux only.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps)]
fn place_on(_pages: Pages, _bytes: usize) -> Result<Option<(NonNull<u8>, Place)>, OutOfMemory> {
    Ok(None)
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        let bytes = self.bytes();
        if bytes == 0 {
            return;
        }
        match &self.place {
            #[cfg(target_os = "linux")]
            Place::Own { counted: false, .. } => {}
            #[cfg(target_os = "linux")]
            Place::Own { .. } | Place::Shared { .. } => count_down(bytes),
            Place::Heap => {
                let layout = Layout::from_size_align(bytes, ALIGN).expect("the layout it was made with");
                // SAFETY: allocated in `zeroed` with this layout.
                unsafe { std::alloc::dealloc(self.start.as_ptr().cast(), layout) }
            }
        }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised values that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {} bytes)", self.len, size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::super::current_bytes;
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable() {
        for len in [0usize, 1, 63, 1000, 1 << 14, 1 << 20, (32 << 20) / 4 + 1] {
            let mut b = Buffer::<f32>::zeroed(len).unwrap();
            assert_eq!(b.len(), len);
            assert!(b.iter().all(|&x| x == 0.0));
            if len > 0 {
                assert_eq!(b.as_ptr() as usize % ALIGN, 0);
                b[len - 1] = 2.0;
                assert_eq!(b[len - 1], 2.0);
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_mapped_buffer_counts_until_it_is_dropped() {
        // More than all other tests allocate together. None of it is touched.
        const BYTES: u64 = 1 << 32;
        let before = current_bytes();
        let buffer = Buffer::<u8>::zeroed(BYTES as usize).unwrap();
        let held = current_bytes();
        drop(buffer);
        assert!(held > before + BYTES / 2, "{before} before, {held} with it");
        assert!(current_bytes() < before + BYTES / 2, "{before} before, {} after", current_bytes());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn stretches_of_files_are_one_array_that_can_be_written_without_changing_them() {
        use std::os::unix::fs::FileExt;
        const PAGE: usize = 1 << 16;
        let mut path = std::env::temp_dir();
        path.push(format!("redline-buffer-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let bytes: Vec<u8> = (0..3 * PAGE + 8).map(|i| (i / 8 % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let stretch = |offset: usize, bytes| FileBytes { file: &file, offset: offset as u64, bytes };
        let mut buffer = Buffer::<u32>::over(&[stretch(2 * PAGE, PAGE), stretch(0, 40)]).unwrap();
        assert_eq!(buffer.len(), (PAGE + 40) / 4);
        assert_eq!(buffer.as_bytes(), [&bytes[2 * PAGE..3 * PAGE], &bytes[..40]].concat());
        buffer.fill(7);
        let mut kept = vec![0; bytes.len()];
        file.read_exact_at(&mut kept, 0).unwrap();
        assert_eq!(kept, bytes);
        let refused: [&[FileBytes<'_>]; 6] = [
            &[],
            &[stretch(8, PAGE)],
            &[stretch(0, 40), stretch(PAGE, PAGE)],
            &[stretch(0, PAGE), stretch(PAGE, 0)],
            &[stretch(0, PAGE), stretch(PAGE, 39)],
            &[stretch(0, usize::MAX), stretch(PAGE, PAGE)],
        ];
        assert!(refused.iter().all(|stretches| Buffer::<u32>::over(stretches).is_none()));
    }

    /// The kernel's flags for the mapping at an address; `None` if they are not available.
    #[cfg(target_os = "linux")]
    fn flags(address: usize) -> Option<Vec<String>> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next()?;
            if let Some((from, to)) = first.split_once('-') {
                let number = |text| usize::from_str_radix(text, 16).ok();
                inside = (number(from)?..number(to)?).contains(&address);
            } else if inside && first == "VmFlags:" {
                return Some(words.map(str::to_owned).collect());
            }
        }
        None
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn small_pages_are_asked_for_where_they_are_wanted() {
        // Those in a range, those in a mapping of their own.
        for len in [MAP_FROM, range::LARGEST] {
            let [huge, small] = [Pages::Huge, Pages::Small].map(|pages| {
                let buffer = Buffer::<u32>::zeroed_on(len, pages).unwrap();
                assert!(buffer.len() == len && buffer.iter().all(|&word| word == 0));
                flags(buffer.as_ptr() as usize)
            });
            // A kernel without huge pages records neither flag.
            let (Some(huge), Some(small)) = (huge, small) else { return };
            let has = |flags: &[String], flag: &str| flags.iter().any(|f| f == flag);
            assert!(!has(&small, "hg") && !has(&huge, "nh"));
            assert_eq!(has(&huge, "hg"), has(&small, "nh"));
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(Buffer::<f32>::zeroed(usize::MAX / 2).is_err());
        assert!(Buffer::<u8>::zeroed(1 << 60).is_err());
    }
}
