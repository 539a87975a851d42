//! Progress indicators for work that takes over a second, on a terminal only.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::message;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time before an indicator appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two updates.
const TICK: Duration = Duration::from_millis(120);

/// A progress bar, shown after one second.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar with the label `what`.
    pub(crate) fn new(what: String) -> Self {
        Self(ProgressBar::hidden().with_message(what))
    }

    /// Moves it to `done` of `total`.
    pub(crate) fn show(&self, done: u64, total: u64) {
        if self.0.is_hidden() && io::stderr().is_terminal() && self.0.elapsed() > PATIENCE {
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}") {
                self.0.set_style(style);
            }
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// Changes the label.
    pub(crate) fn name(&self, what: String) {
        self.0.set_message(what);
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Does the work, and shows the label `what` after one second.
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

/// Lists the cases of a measurement as they finish: one line each, or on a terminal one line that is updated.
pub(crate) struct Cases {
    bar: Option<ProgressBar>,
}

impl Cases {
    /// Starts with no finished case.
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar }
    }

    /// Adds a finished case.
    pub(crate) fn done(&self, case: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(case.to_owned()),
            None => message::say(format_args!("{case}\n")),
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
