//! JSON Lines: one request per line in, one document per line out, in the order of the input.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use redline_wire::LineFault;
use serde::de::DeserializeOwned;

use crate::output;
use crate::report::{self, FAILED, Failure, INTERRUPTED};

/// What became of a file of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Lines answered with an error.
    pub(crate) faults: u64,
    /// Whether an answer asked to stop before the end of the input.
    pub(crate) stopped: bool,
}

impl Tally {
    /// Of a command that answered lines.
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self { stopped: true, .. } => ExitCode::from(INTERRUPTED),
            Self { faults: 1.., .. } => ExitCode::from(FAILED),
            Self { .. } => ExitCode::SUCCESS,
        }
    }
}

/// The answer to a line.
pub(crate) struct Answer {
    /// A JSON document on one line.
    pub(crate) json: String,
    /// Begin no further request.
    pub(crate) stop: bool,
}

/// How lines are answered.
pub(crate) trait Answers {
    /// What a line asks.
    type Request: DeserializeOwned;
    /// A request that was begun.
    type UnderWay;

    /// Begins a request.
    fn begin(&mut self, request: Self::Request) -> Result<Self::UnderWay, Failure>;
    /// Whether waiting for it would be over at once.
    fn is_ready(&mut self, under_way: &mut Self::UnderWay) -> bool;
    /// Waits for the answer.
    fn end(&mut self, under_way: Self::UnderWay) -> Result<Answer, Failure>;
    /// Whether somebody asked to stop.
    fn is_cancelled(&self) -> bool {
        false
    }
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

/// How long lines are waited for before the first answer is looked at again, and while there is none to come.
const TURN: Duration = Duration::from_millis(1);
const IDLE_TURN: Duration = Duration::from_millis(50);

/// A line that is not blank, with its number; or why there are no more.
type Line = Result<(u64, Vec<u8>), io::Error>;

/// A request under way, with the number of its line; or why it was refused.
type UnderWay<P> = (u64, Result<P, Failure>);

/// Answers every line that is not blank, in order. As many requests as there are lines, up to a limit, are under way at a
/// time, and an answer is written as soon as those before it are. A line that cannot be answered gets an error
/// object in its place; only input that cannot be read and output that cannot be written end the work.
pub(crate) fn answer_all<A: Answers>(
    path: &Path,
    input: Input,
    write: &mut dyn FnMut(&str) -> Result<(), Failure>,
    answers: &mut A,
) -> Result<Tally, Failure> {
    let lines = read_aside(input)?;
    let mut tally = Tally::default();
    let mut under_way: VecDeque<UnderWay<A::UnderWay>> = VecDeque::new();
    let mut more = true;
    let mut unread = None;
    loop {
        // Lines while there are any, the first answer while there are none.
        while more && !tally.stopped && under_way.len() < WINDOW {
            match lines.recv_timeout(if under_way.is_empty() { IDLE_TURN } else { TURN }) {
                Ok(Ok((number, raw))) => {
                    under_way.push_back((number, parse(&raw).and_then(|request| answers.begin(request))));
                }
                Ok(Err(error)) => (more, unread) = (false, Some(error)),
                Err(RecvTimeoutError::Disconnected) => more = false,
                Err(RecvTimeoutError::Timeout) => match under_way.front_mut() {
                    Some((_, begun)) => {
                        if begun.as_mut().map_or(true, |first| answers.is_ready(first)) {
                            break;
                        }
                    }
                    None => tally.stopped |= answers.is_cancelled(),
                },
            }
        }
        let Some((number, begun)) = under_way.pop_front() else { break };
        let answered = match begun.and_then(|request| answers.end(request)) {
            Ok(answered) => answered,
            Err(
                Failure::Usage(message)
                | Failure::Failed(message)
                | Failure::Invalid(message)
                | Failure::Incorrect(message),
            ) => {
                tally.faults += 1;
                let fault = LineFault::new(number, message.fact, message.hint);
                Answer { json: output::json(&fault)?, stop: false }
            }
            Err(closed @ Failure::Closed) => return Err(closed),
        };
        write(&answered.json)?;
        // What is under way is answered still.
        tally.stopped |= answered.stop;
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

    /// Doubles numbers.
    struct Doubles;

    impl Answers for Doubles {
        type Request = i64;
        type UnderWay = i64;
        fn begin(&mut self, n: i64) -> Result<i64, Failure> {
            if n == 13 { Err(Failure::failed("13 is unlucky", None)) } else { Ok(n * 2) }
        }
        fn is_ready(&mut self, _: &mut i64) -> bool {
            true
        }
        fn end(&mut self, n: i64) -> Result<Answer, Failure> {
            match n {
                28 => Err(Failure::failed("14 comes to nothing", None)),
                n => Ok(Answer { json: n.to_string(), stop: n == 198 }),
            }
        }
    }

    fn run(input: &'static [u8]) -> (Vec<String>, Tally) {
        let mut lines = Vec::new();
        let mut write = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        let tally = answer_all(Path::new("test"), Box::new(input), &mut write, &mut Doubles).unwrap();
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
        let input = (100..1100).map(|n: i64| n.to_string()).collect::<Vec<_>>().join("\n");
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
        answer_all(Path::new("test"), input, &mut write, &mut Doubles).unwrap();
        assert_eq!(seen, ["2", "4", "6"]);
    }

    #[test]
    fn no_more_than_a_window_is_under_way() {
        /// Keeps how many requests are under way, and how many at most were.
        #[derive(Default)]
        struct Counted {
            now: usize,
            most: usize,
        }
        impl Answers for Counted {
            type Request = i64;
            type UnderWay = i64;
            fn begin(&mut self, n: i64) -> Result<i64, Failure> {
                self.now += 1;
                self.most = self.most.max(self.now);
                Ok(n)
            }
            fn is_ready(&mut self, _: &mut i64) -> bool {
                false
            }
            fn end(&mut self, n: i64) -> Result<Answer, Failure> {
                self.now -= 1;
                Ok(Answer { json: n.to_string(), stop: false })
            }
        }
        let mut counted = Counted::default();
        let input: Input = Box::new(&b"1\n".repeat(300).leak()[..]);
        answer_all(Path::new("test"), input, &mut |_| Ok(()), &mut counted).unwrap();
        assert_eq!((counted.now, counted.most), (0, 64));
    }

    #[test]
    fn input_that_breaks_off_is_an_error_after_the_answers_before_it() {
        struct Breaks(&'static [u8]);
        impl io::Read for Breaks {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                match self.0.read(to) {
                    Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
                    read => read,
                }
            }
        }
        let mut lines = Vec::new();
        let mut write = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        let input: Input = Box::new(BufReader::new(Breaks(b"1\n2\n")));
        let answered = answer_all(Path::new("the input"), input, &mut write, &mut Doubles);
        assert!(matches!(answered, Err(Failure::Failed(message)) if message.fact.contains("the input")));
        assert_eq!(lines, ["2", "4"]);
    }

    #[test]
    fn the_code_says_the_worst_that_happened() {
        let code = |faults, stopped| format!("{:?}", Tally { faults, stopped }.code());
        let of = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!([code(0, false), code(1, false)], [of(0), of(FAILED)]);
        assert_eq!([code(0, true), code(1, true)], [of(INTERRUPTED), of(INTERRUPTED)]);
    }

    #[test]
    fn an_empty_input_has_no_answers() {
        assert_eq!(run(b""), (vec![], Tally::default()));
        assert_eq!(run(b"\n  \n"), (vec![], Tally::default()));
    }

    #[test]
    fn an_answer_may_end_the_work() {
        let mut many = b"1\r\n99\r\n".to_vec();
        many.extend(b"3\r\n".repeat(500));
        let (lines, tally) = run(many.leak());
        assert_eq!(lines[..2], ["2", "198"]);
        // What was under way is answered, and no more is begun.
        assert!(tally.stopped && lines.len() < 2 + WINDOW, "{} lines", lines.len());
    }
}
