//! JSON Lines: one request per line in, one document per line out, in the order of the input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use redline_wire::LineFault;
use serde::de::DeserializeOwned;

use crate::output;
use crate::report::{self, Failure};

/// What became of a file of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Lines answered with an error.
    pub(crate) faults: u64,
    /// Whether an answer asked to stop before the end of the input.
    pub(crate) stopped: bool,
}

/// The answer to a line.
pub(crate) struct Answer {
    /// A JSON document on one line.
    pub(crate) json: String,
    /// Read no further.
    pub(crate) stop: bool,
}

/// Opens a file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if report::is_stdin(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).map_err(|error| Failure::reading(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Answers every line that is not blank. A line that cannot be answered gets an error object in its place; only input
/// that cannot be read and output that cannot be written end the work.
pub(crate) fn answer_all<T: DeserializeOwned>(
    path: &Path,
    input: &mut dyn BufRead,
    write: &mut dyn FnMut(&str) -> Result<(), Failure>,
    answer: &mut dyn FnMut(T) -> Result<Answer, Failure>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut raw = Vec::new();
    for number in 1.. {
        raw.clear();
        if input.read_until(b'\n', &mut raw).map_err(|error| Failure::reading(path, &error))? == 0 {
            break;
        }
        if raw.trim_ascii().is_empty() {
            continue;
        }
        let answered = match parse(&raw).and_then(&mut *answer) {
            Ok(answered) => answered,
            Err(Failure::Usage(message) | Failure::Failed(message) | Failure::Incorrect(message)) => {
                tally.faults += 1;
                let fault = LineFault::new(number, message.fact, message.hint);
                Answer { json: output::json(&fault)?, stop: false }
            }
            Err(closed @ Failure::Closed) => return Err(closed),
        };
        write(&answered.json)?;
        if answered.stop {
            tally.stopped = true;
            break;
        }
    }
    Ok(tally)
}

fn parse<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(raw.trim_ascii_end()).map_err(|error| {
        // Every request is its own first line: only the column says something.
        let fact = error.to_string().replace(" at line 1 column ", " at column ");
        Failure::failed(
            fact,
            Some("each line is one JSON object; `--help` of the command lists its keys".to_owned()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: &[u8]) -> (Vec<String>, Tally) {
        let mut lines = Vec::new();
        let mut write = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        let mut answer = |n: i64| match n {
            13 => Err(Failure::failed("13 is unlucky", None)),
            n => Ok(Answer { json: (n * 2).to_string(), stop: n == 99 }),
        };
        let tally = answer_all(Path::new("test"), &mut &*input, &mut write, &mut answer).unwrap();
        (lines, tally)
    }

    #[test]
    fn answers_come_in_order_and_a_bad_line_loses_nothing_else() {
        let (lines, tally) = run(b"1\n13\n\nx\n\xff\n4");
        assert_eq!(lines.len(), 5);
        assert_eq!((&*lines[0], &*lines[4]), ("2", "8"));
        assert_eq!(lines[1], r#"{"object":"error","line":2,"message":"13 is unlucky","hint":null}"#);
        assert!(lines[2].contains(r#""line":4,"#) && lines[2].contains("at column 1"), "{}", lines[2]);
        assert!(lines[3].contains(r#""line":5,"#), "{}", lines[3]);
        assert_eq!(tally, Tally { faults: 3, stopped: false });
    }

    #[test]
    fn an_empty_input_has_no_answers() {
        assert_eq!(run(b""), (vec![], Tally::default()));
        assert_eq!(run(b"\n  \n"), (vec![], Tally::default()));
    }

    #[test]
    fn an_answer_may_end_the_work() {
        let (lines, tally) = run(b"1\r\n99\r\n3\r\n");
        assert_eq!(lines, ["2", "198"]);
        assert!(tally.stopped);
    }
}
