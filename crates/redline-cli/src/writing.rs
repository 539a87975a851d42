//! Work that writes a directory: it shows its progress, and signals cancel it.

use std::path::Path;
use std::process::ExitCode;

use redline_models::{ModelError, Progress};

use crate::interrupt::Interrupt;
use crate::message::{self, Failure};
use crate::output;
use crate::progress::Bar;

/// Receives the progress of the work; an error ends it.
pub(crate) type Watch<'a> = &'a mut (dyn FnMut(Progress) -> Result<(), ModelError> + Send);

/// Runs work that writes the directory `out`, and prints the directory. Cancelled work writes nothing.
pub(crate) fn directory(
    bar: &Bar,
    out: &Path,
    work: impl FnOnce(Watch<'_>) -> Result<Result<(), ModelError>, Failure>,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::with_termination()?;
    let written = interrupt.during(|cancel| {
        work(&mut |progress| {
            bar.show(progress.done, progress.total);
            if cancel.is_cancelled() { Err(ModelError::Cancelled) } else { Ok(()) }
        })
    });
    bar.clear();
    match written? {
        Ok(()) => {
            output::line(&out.display().to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(ModelError::Cancelled) => {
            message::say(format_args!("cancelled: nothing is written\n"));
            Ok(ExitCode::from(interrupt.code()))
        }
        Err(error) => Err(Failure::advised(&error, error.hint())),
    }
}
