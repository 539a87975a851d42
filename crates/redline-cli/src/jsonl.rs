//! JSON Lines: one request per line in, one document per line out, in the order of the input.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

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

/// Where lines come from.
pub(crate) type Input = Box<dyn BufRead + Send>;

/// Opens a file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    if report::is_stdin(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::reading(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Requests that are under way at a time.
const WINDOW: usize = 64;

/// A line that is not blank, with its number; or why there are no more.
type Line = Result<(u64, Vec<u8>), io::Error>;

/// A request under way: what it waits for, or why it was refused.
struct UnderWay<P> {
    number: u64,
    begun: Result<P, Failure>,
}

/// Answers every line that is not blank: `begin` starts a request, `end` waits for its answer, and as many as there
/// are lines, up to a limit, are under way in between. Nothing waits for lines that have not come: each answer is
/// written as soon as those before it are. A line that cannot be answered gets an error object in its place; only input
/// that cannot be read and output that cannot be written end the work.
pub(crate) fn answer_all<T: DeserializeOwned, P>(
    path: &Path,
    input: Input,
    write: &mut dyn FnMut(&str) -> Result<(), Failure>,
    begin: &mut dyn FnMut(T) -> Result<P, Failure>,
    end: &mut dyn FnMut(P) -> Result<Answer, Failure>,
) -> Result<Tally, Failure> {
    let lines = read_aside(input)?;
    let mut tally = Tally::default();
    let mut under_way = VecDeque::new();
    let mut unread = None;
    loop {
        while under_way.len() < WINDOW && unread.is_none() {
            let line = if under_way.is_empty() {
                lines.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                lines.try_recv()
            };
            match line {
                Ok(Ok((number, raw))) => {
                    under_way.push_back(UnderWay { number, begun: parse(&raw).and_then(&mut *begin) });
                }
                Ok(Err(error)) => unread = Some(error),
                Err(_) => break,
            }
        }
        let Some(UnderWay { number, begun }) = under_way.pop_front() else { break };
        let answered = match begun.and_then(&mut *end) {
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
            return Ok(tally);
        }
    }
    // What came before is answered.
    unread.map_or(Ok(tally), |error| Err(Failure::reading(path, &error)))
}

/// Reads lines on a thread of its own, a few ahead. The thread ends with the input, or when nobody takes lines any more.
fn read_aside(mut input: Input) -> Result<Receiver<Line>, Failure> {
    let (give, lines) = sync_channel(WINDOW);
    let read = move || {
        for number in 1.. {
            let mut raw = Vec::new();
            let line = match input.read_until(b'\n', &mut raw) {
                Ok(0) => return,
                Ok(_) if raw.trim_ascii().is_empty() => continue,
                Ok(_) => Ok((number, raw)),
                Err(error) => Err(error),
            };
            let last = line.is_err();
            if give.send(line).is_err() || last {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("redline-lines".to_owned()).spawn(read);
    started.map_err(|error| Failure::failed(format!("no thread to read lines: {error}"), None))?;
    Ok(lines)
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

    fn run(input: &'static [u8]) -> (Vec<String>, Tally) {
        let mut lines = Vec::new();
        let mut write = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        let mut begin = |n: i64| match n {
            13 => Err(Failure::failed("13 is unlucky", None)),
            n => Ok(n * 2),
        };
        let mut end = |n: i64| match n {
            28 => Err(Failure::failed("14 comes to nothing", None)),
            n => Ok(Answer { json: n.to_string(), stop: n == 198 }),
        };
        let input: Input = Box::new(input);
        let tally = answer_all(Path::new("test"), input, &mut write, &mut begin, &mut end).unwrap();
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
        let (lines, tally) = run(b"14\n1");
        assert!(lines[0].contains("comes to nothing") && lines[1] == "2", "{lines:?}");
        assert_eq!(tally.faults, 1);
    }

    #[test]
    fn more_lines_than_are_under_way_at_a_time() {
        let input: String = (0..1000).map(|n| format!("{}\n", n + 100)).collect();
        let (lines, tally) = run(Box::leak(input.into_boxed_str()).as_bytes());
        assert!(lines.iter().enumerate().all(|(n, line)| *line == (2 * (n + 100)).to_string()));
        assert_eq!((lines.len(), tally), (1000, Tally::default()));
    }

    #[test]
    fn an_answer_does_not_wait_for_the_next_line() {
        // A client that sends a line only after it has got the answer to the one before.
        struct Client(std::sync::mpsc::Receiver<&'static [u8]>, &'static [u8]);
        impl io::Read for Client {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                if self.1.is_empty() {
                    self.1 = self.0.recv().unwrap_or(b"");
                }
                self.1.read(to)
            }
        }
        let (send, receive) = std::sync::mpsc::channel();
        send.send(&b"1\n"[..]).unwrap();
        let mut next = vec![&b"2\n"[..], b"3\n"].into_iter();
        let mut send = Some(send);
        let mut seen = Vec::new();
        let mut write = |line: &str| {
            seen.push(line.to_owned());
            match next.next() {
                Some(line) => send.as_ref().unwrap().send(line).unwrap(),
                None => send = None,
            }
            Ok(())
        };
        let input: Input = Box::new(BufReader::new(Client(receive, b"")));
        let mut begin = |n: i64| Ok(n);
        let mut end = |n: i64| Ok(Answer { json: n.to_string(), stop: false });
        answer_all(Path::new("test"), input, &mut write, &mut begin, &mut end).unwrap();
        assert_eq!(seen, ["1", "2", "3"]);
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
