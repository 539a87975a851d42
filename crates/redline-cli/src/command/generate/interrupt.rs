//! Ctrl-C: ends a generation in good order, and anything else at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redline_engine::Cancel;

use crate::report::{Failure, INTERRUPTED};

/// What Ctrl-C does from now on.
pub(super) struct Interrupt {
    cancel: Cancel,
    generating: Arc<AtomicBool>,
}

impl Interrupt {
    /// The first Ctrl-C during a generation cancels it; a second one, or one at any other time, ends the process.
    pub(super) fn install() -> Result<Self, Failure> {
        let cancel = Cancel::new();
        let generating = Arc::new(AtomicBool::new(false));
        let (shared, busy) = (cancel.clone(), Arc::clone(&generating));
        let handler = move || {
            if shared.is_cancelled() || !busy.load(Ordering::SeqCst) {
                process::exit(i32::from(INTERRUPTED));
            }
            shared.cancel();
        };
        ctrlc::set_handler(handler)
            .map_err(|error| Failure::failed(format!("no Ctrl-C handler: {error}"), None))?;
        Ok(Self { cancel, generating })
    }

    /// Generates, so that Ctrl-C cancels.
    pub(super) fn during<T>(&self, generate: impl FnOnce(&Cancel) -> T) -> T {
        self.generating.store(true, Ordering::SeqCst);
        let result = generate(&self.cancel);
        self.generating.store(false, Ordering::SeqCst);
        result
    }
}
