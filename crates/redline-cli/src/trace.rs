//! Writes the file of `--precision-trace`.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use redline_api::documents::trace::TraceLine;
use redline_api::json::finite::Finite;
use redline_engine::{Observation, TraceLog};

use crate::message;
use crate::message::Failure;

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
            message::say(format_args!("warning: the trace ends here: {error}\n  in `{}`\n", path.display()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_place_and_the_first_pass_replaces_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "of an earlier run\n").unwrap();
        let log = writer(&path).unwrap();
        assert_eq!(read(), "of an earlier run\n");
        let embedding = Observation {
            layer: None,
            rows: 3,
            min: -2.0,
            max: 4.0,
            mean: 0.5,
            rms: 1.5,
            non_finite: 1,
            digest: 0x2a,
        };
        log(&[embedding, Observation { layer: Some(0), ..embedding }]);
        log(&[embedding]);
        let text = read();
        let lines: Vec<TraceLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let line = |pass, layer| TraceLine {
            pass,
            layer,
            rows: 3,
            min: Finite(-2.0),
            max: Finite(4.0),
            mean: Finite(0.5),
            rms: Finite(1.5),
            non_finite: 1,
            digest: "000000000000002a".to_owned(),
        };
        assert_eq!(lines, [line(0, None), line(0, Some(0)), line(1, None)]);
    }
}
