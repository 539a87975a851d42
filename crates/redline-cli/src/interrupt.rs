//! Handles Ctrl-C: work that can be cancelled ends in good order, anything else ends at once.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redline_engine::Cancel;

use crate::message::{Failure, INTERRUPTED};

/// A function that is called when the work is cancelled.
type Listener = Box<dyn Fn() + Send>;

/// The state that the Ctrl-C handler shares with the commands.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    cancel: Arc<Mutex<Cancel>>,
    working: Arc<AtomicBool>,
    listener: Arc<Mutex<Option<Listener>>>,
}

impl Interrupt {
    /// Installs the handler. The first Ctrl-C during cancellable work cancels it; a second one, or one at any other
    /// time, ends the process.
    pub(crate) fn install() -> Result<Self, Failure> {
        let installed = Self::default();
        let interrupt = installed.clone();
        let handler = move || {
            if interrupt.current().is_cancelled() || !interrupt.working.load(Ordering::SeqCst) {
                process::exit(i32::from(INTERRUPTED));
            }
            interrupt.cancel();
        };
        ctrlc::set_handler(handler)
            .map_err(|error| Failure::failed(format!("no Ctrl-C handler: {error}"), None))?;
        Ok(installed)
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
