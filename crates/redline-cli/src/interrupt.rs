//! Handles Ctrl-C and other signals: work that can be cancelled ends in good order, anything else ends at once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(unix)]
use std::thread;
use std::{io, process};

use redline_engine::Cancel;
#[cfg(unix)]
use redline_system::start::ignores_hangup;
use redline_weights::Disk;

use crate::message::{Failure, INTERRUPTED};

/// The signal of Ctrl-C.
const SIGINT: i32 = 2;
/// The signals that end a process: `kill`, and the end of its terminal.
#[cfg(unix)]
const TERMINATION: [i32; 2] = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// A function that is called when the work is cancelled.
type Listener = Box<dyn Fn() + Send>;

/// The state that the signal handler shares with the commands.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    cancel: Arc<Mutex<Cancel>>,
    working: Arc<AtomicBool>,
    listener: Arc<Mutex<Option<Listener>>>,
    /// The last signal; 0: none.
    signal: Arc<AtomicU8>,
    /// A directory that must not outlive the process.
    directory: Arc<Mutex<Option<PathBuf>>>,
}

impl Interrupt {
    /// Installs the handler. The first Ctrl-C during cancellable work cancels it; a second one, or one at any other
    /// time, ends the process.
    pub(crate) fn install() -> Result<Self, Failure> {
        Self::handling(&[SIGINT])
    }

    /// Like [`Self::install`], for work that must remove its files: the signals that end a process cancel it too. If hang-ups are
    /// ignored, they stay so.
    pub(crate) fn with_termination() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            let count = if ignores_hangup() { 1 } else { 2 };
            Self::handling(&[&[SIGINT][..], &TERMINATION[..count]].concat())
        }
        #[cfg(not(unix))]
        Self::install()
    }

    fn handling(signals: &[i32]) -> Result<Self, Failure> {
        let installed = Self::default();
        let interrupt = installed.clone();
        let handler = move |signal: i32| {
            interrupt.signal.store(u8::try_from(signal).unwrap_or(0), Ordering::SeqCst);
            if interrupt.current().is_cancelled() || !interrupt.working.load(Ordering::SeqCst) {
                interrupt.clean_up();
                process::exit(i32::from(interrupt.code()));
            }
            interrupt.cancel();
        };
        handle(signals, handler)
            .map_err(|error| Failure::failed(format!("no signal handler: {error}"), None))?;
        Ok(installed)
    }

    /// The exit code after the last signal: 128 and its number.
    pub(crate) fn code(&self) -> u8 {
        match self.signal.load(Ordering::SeqCst) {
            0 => INTERRUPTED,
            signal => signal.saturating_add(128),
        }
    }

    /// The flag that Ctrl-C sets.
    fn current(&self) -> Cancel {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prepares for further work after work that was cancelled: Ctrl-C cancels it, too, instead of ending the process.
    pub(crate) fn renew(&self) {
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Cancel::new();
    }

    /// Cancels the work.
    pub(crate) fn cancel(&self) {
        self.current().cancel();
        self.call_listener();
    }

    /// Removes this directory, too, when a signal ends the process.
    pub(crate) fn removes(&self, directory: &Path) {
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory.to_owned());
    }

    fn clean_up(&self) {
        if let Some(directory) = &*self.directory.lock().unwrap_or_else(PoisonError::into_inner) {
            // Best effort: the process ends.
            let _ = Disk::default().remove_dir_all(directory);
        }
    }

    /// Registers a function to call when the work is cancelled. It is called at once if the work already is.
    pub(crate) fn listen(&self, listener: impl Fn() + Send + 'static) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
        if self.current().is_cancelled() {
            self.call_listener();
        }
    }

    fn call_listener(&self) {
        if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
            listener();
        }
    }

    /// Runs cancellable work: during it, Ctrl-C cancels.
    pub(crate) fn during<T>(&self, work: impl FnOnce(&Cancel) -> T) -> T {
        self.working.store(true, Ordering::SeqCst);
        let result = work(&self.current());
        self.working.store(false, Ordering::SeqCst);
        result
    }
}

/// Calls `handler` on a thread of its own for each of these signals.
#[cfg(unix)]
fn handle(signals: &[i32], handler: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(signals)?;
    let wait = move || signals.forever().for_each(handler);
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// Calls `handler` on a thread of its own for each Ctrl-C.
#[cfg(not(unix))]
fn handle(_: &[i32], handler: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    ctrlc::set_handler(move || handler(SIGINT)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_listener_is_called_whether_the_work_is_cancelled_before_or_after() {
        for before in [false, true] {
            let called = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&called);
            let interrupt = Interrupt::default();
            if before {
                interrupt.cancel();
            }
            interrupt.listen(move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(called.load(Ordering::SeqCst), usize::from(before));
            if !before {
                interrupt.cancel();
            }
            assert_eq!(called.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn a_directory_is_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        let interrupt = Interrupt::default();
        interrupt.clean_up();
        assert!(folder.path().exists());
        interrupt.removes(folder.path());
        interrupt.clean_up();
        assert!(!folder.path().exists());
    }

    #[test]
    fn renewed_work_is_not_cancelled() {
        let interrupt = Interrupt::default();
        interrupt.cancel();
        assert!(interrupt.during(Cancel::is_cancelled));
        interrupt.renew();
        assert!(!interrupt.during(Cancel::is_cancelled));
        interrupt.cancel();
        assert!(interrupt.during(Cancel::is_cancelled));
    }

    #[test]
    fn the_work_counts_as_under_way_until_it_returns() {
        let interrupt = Interrupt::default();
        let working = || interrupt.working.load(Ordering::SeqCst);
        assert!(!working());
        assert!(interrupt.during(|_| working()));
        assert!(!working());
    }
}
