//! What threads share, from the standard library, or with `--cfg loom` from the library that runs tests in every interleaving of
//! their threads (`cargo xtask interleavings`).

#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    sync::{Condvar, Mutex},
    thread::park,
};
#[cfg(not(loom))]
pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    sync::{Condvar, Mutex},
    thread::park,
};

/// The standard library's cell, with the functions of loom's, which find conflicting accesses.
#[cfg(not(loom))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Stands between an access that other threads have to see and one that has to see theirs, all sequentially consistent. Loom takes
/// such accesses for acquire and release, and knows sequential consistency of fences only.
pub(super) fn in_sequence() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
