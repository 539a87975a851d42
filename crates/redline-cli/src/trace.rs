//! Writes the file of `--precision-trace`.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use redline_engine::{Observation, TraceLog};
use redline_wire::{Finite, TraceLine};

use crate::report::{self, Failure};

/// The open file and the number of passes so far; `None` after a write failed.
type Writing = Option<(BufWriter<File>, u64)>;

/// Returns a log that writes each pass to the file. The previous content stays until the first pass.
pub(crate) fn writer(path: &Path) -> Result<TraceLog, Failure> {
    let file = OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
        let fact = format!("{error}\n  in `{}`", path.display());
        Failure::usage(fact, "`--precision-trace FILE` names a file that can be written")
    })?;
    let (writing, path) = (Mutex::new(Some((BufWriter::new(file), 0))), path.to_owned());
    Ok(Arc::new(move |observations| {
        let Ok(mut writing) = writing.lock() else { return };
        if let Err(error) = write(&mut writing, observations) {
            *writing = None;
            report::say(format_args!("warning: the trace ends here: {error}\n  in `{}`\n", path.display()));
        }
    }))
}

fn write(writing: &mut Writing, observations: &[Observation]) -> std::io::Result<()> {
    let Some((file, pass)) = writing else { return Ok(()) };
    if *pass == 0 && file.get_ref().metadata()?.is_file() {
        file.get_ref().set_len(0)?;
    }
    for observation in observations {
        let Observation { layer, rows, min, max, mean, rms, non_finite, digest } = *observation;
        let line = TraceLine {
            pass: *pass,
            layer,
            rows,
            min: Finite(min),
            max: Finite(max),
            mean: Finite(mean),
            rms: Finite(rms),
            non_finite,
            digest: format!("{digest:016x}"),
        };
        serde_json::to_writer(&mut *file, &line)?;
        file.write_all(b"\n")?;
    }
    *pass += 1;
    // Flush, so that a reader always finds whole passes, also after a crash.
    file.flush()
}
