//! A sign of life for work that takes over a second, on a terminal only.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// How long work may take before it is mentioned.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the sign moves.
const TICK: Duration = Duration::from_millis(120);

/// Does the work, and says `what` it is once that took over a second.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, waiting) = mpsc::channel::<()>();
    let what = what.to_owned();
    let sign = thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(what);
            bar.enable_steady_tick(TICK);
            let _ = waiting.recv();
            bar.finish_and_clear();
        }
    });
    let result = work();
    drop(done);
    let _ = sign.join();
    result
}
