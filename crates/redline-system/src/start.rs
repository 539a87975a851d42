//! What a process inherits from its parent: whether standard output is open, and whether hang-ups are ignored.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was open when the process began. If it was not, the Rust runtime opens `/dev/null` in its place, so that
/// all that is written to it is lost without an error. Always true where the system cannot tell: outside Linux.
pub fn stdout_was_open() -> bool {
    !STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether the process ignores the signal that the end of its terminal sends (SIGHUP), as `nohup` arranges. False where there are no
/// signals.
pub fn ignores_hangup() -> bool {
    #[cfg(unix)]
    {
        // SAFETY: zeros are a valid `sigaction`, into which the call writes the current one; it changes nothing.
        let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let read = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut current) } == 0;
        read && current.sa_sigaction == libc::SIG_IGN
    }
    #[cfg(not(unix))]
    false
}

#[cfg(target_os = "linux")]
extern "C" fn look() {
    // SAFETY: the call reads the flags of a descriptor, and fails if there is no such descriptor.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
}

// SAFETY: this section holds functions that the loader calls once, before `main` and before the runtime starts. This one needs
// nothing of the runtime.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look;
