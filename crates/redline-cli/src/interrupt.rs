//! Ctrl-C: ends work that can be cancelled in good order, and anything else at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redline_engine::Cancel;

use crate::report::{Failure, INTERRUPTED};

/// What Ctrl-C does from now on.
pub(crate) struct Interrupt {
    cancel: Cancel,
    working: Arc<AtomicBool>,
}

impl Interrupt {
    /// The first Ctrl-C during such work cancels it; a second one, or one at any other time, ends the process.
    pub(crate) fn install() -> Result<Self, Failure> {
        let cancel = Cancel::new();
        let working = Arc::new(AtomicBool::new(false));
        let (shared, busy) = (cancel.clone(), Arc::clone(&working));
        let handler = move || {
            if shared.is_cancelled() || !busy.load(Ordering::SeqCst) {
                process::exit(i32::from(INTERRUPTED));
            }
            shared.cancel();
        };
        ctrlc::set_handler(handler)
            .map_err(|error| Failure::failed(format!("no Ctrl-C handler: {error}"), None))?;
        Ok(Self { cancel, working })
    }

    /// Works, so that Ctrl-C cancels.
    pub(crate) fn during<T>(&self, work: impl FnOnce(&Cancel) -> T) -> T {
        self.working.store(true, Ordering::SeqCst);
        let result = work(&self.cancel);
        self.working.store(false, Ordering::SeqCst);
        result
    }
}
