//! Progress indicators for work that takes over a second, on a terminal only.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::message;

/// Time before an indicator appears.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two updates.
const TICK: Duration = Duration::from_millis(120);

/// A progress bar, shown after one second.
pub(crate) struct Bar {
    bar: ProgressBar,
    template: &'static str,
    on_terminal: bool,
}

impl Bar {
    /// A bar with the label `what`.
    pub(crate) fn new(what: String) -> Self {
        let template = "{msg} {wide_bar} {percent}% {eta}";
        let on_terminal = io::stderr().is_terminal();
        Self { bar: ProgressBar::hidden().with_message(what), template, on_terminal }
    }

    /// A bar whose positions are bytes, with their rate.
    pub(crate) fn of_bytes(what: String) -> Self {
        let template = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";
        Self { template, ..Self::new(what) }
    }

    /// Moves it to `done` of `total`.
    pub(crate) fn show(&self, done: u64, total: u64) {
        if self.bar.is_hidden() && self.on_terminal && self.bar.elapsed() > PATIENCE {
            if let Ok(style) = ProgressStyle::with_template(self.template) {
                self.bar.set_style(style);
            }
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Like [`Self::show`], for work that was done before: it does not count for the rate.
    pub(crate) fn start_at(&self, done: u64, total: u64) {
        self.show(done, total);
        self.bar.reset_eta();
    }

    /// Prints a line where there is no terminal, and so no bar.
    pub(crate) fn line(&self, text: &str) {
        if !self.on_terminal {
            message::say(format_args!("{text}\n"));
        }
    }

    /// Prints a line, above the bar if there is one.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| message::note(text));
    }

    /// Changes the label.
    pub(crate) fn name(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
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
    quiet: bool,
}

impl Cases {
    /// Starts with no finished case. If `quiet`, nothing is shown.
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, quiet }
    }

    /// Adds a finished case.
    pub(crate) fn done(&self, case: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(case.to_owned()),
            None if self.quiet => {}
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
