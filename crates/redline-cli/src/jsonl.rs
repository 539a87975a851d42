//! JSON Lines: one request per line in, one document per line out, in the order of the input.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};

use redline_engine::{EngineError, Event, Ticket};
use redline_wire::LineFault;
use serde::de::DeserializeOwned;

use crate::interrupt::Interrupt;
use crate::message::{self, FAILED, Failure, INTERRUPTED};
use crate::output;

/// How a file of requests was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of lines answered with an error.
    pub(crate) faults: u64,
    /// Whether an answer or an interrupt stopped the work before the end of the input.
    pub(crate) stopped: bool,
}

impl Tally {
    /// The exit code of the command.
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
    /// A JSON document without line breaks.
    pub(crate) json: String,
    /// Whether to stop: no further request is begun.
    pub(crate) stop: bool,
}

/// A command that answers requests.
pub(crate) trait Answers {
    /// A parsed line.
    type Request: DeserializeOwned;
    /// What the answer needs to know of the request.
    type Context;
    /// The result of running a request.
    type Outcome: Send + 'static;

    /// Begins a request. Its outcome is sent to `done`.
    fn begin(&mut self, request: Self::Request, done: Done<Self::Outcome>) -> Result<Self::Context, Failure>;

    /// Builds the answer from the outcome.
    fn answer(&mut self, context: Self::Context, outcome: Self::Outcome) -> Result<Answer, Failure>;
}

/// Where the outcome of a request is sent, from any thread.
pub(crate) struct Done<O> {
    /// The number of the request: 0 for the first one.
    request: u64,
    messages: Sender<Message<O>>,
}

impl<O: Send + 'static> Done<O> {
    /// Sends the outcome.
    pub(crate) fn with(self, outcome: O) {
        // Nobody receives it if the work has ended with an error in the meantime.
        let _ = self.messages.send(Message::Done(self.request, outcome));
    }
}

impl<O: Send + 'static> Done<Result<O, EngineError>> {
    /// Sends the outcome of a ticket as soon as it arrives.
    pub(crate) fn with_outcome_of<P: 'static>(self, ticket: Ticket<O, P>) {
        let mut done = Some(self);
        ticket.send_to(move |event| {
            if let Event::Done(outcome) = event
                && let Some(done) = done.take()
            {
                done.with(outcome);
            }
        });
    }
}

/// A source of lines.
pub(crate) type Input = Box<dyn BufRead + Send>;

/// Opens a file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    if message::is_stdin(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::reading(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Maximum number of pending requests.
const WINDOW: usize = 64;
/// Maximum length of a line in bytes. It is also the length of the pending lines, taken together, above which no further line is
/// read.
const LONGEST_LINE: usize = 64 << 20;

/// A line of the input.
struct Line {
    /// Its number, from 1 on.
    number: u64,
    /// Its bytes; `None` if it is too long.
    bytes: Option<Vec<u8>>,
}

/// An event that the work waits for.
enum Message<O> {
    /// A line that is not blank.
    Line(Line),
    /// The end of the input, with the error that caused it, if any.
    End(Option<io::Error>),
    /// The outcome of a request.
    Done(u64, O),
    /// Ctrl-C: begin no further request.
    Interrupt,
}

/// A request that has not been answered yet.
struct Pending<A: Answers> {
    /// The number of its line.
    line: u64,
    /// Length of the line in bytes, as far as it was stored.
    bytes: usize,
    /// The context of its answer, or the error if it could not be begun.
    context: Result<A::Context, Failure>,
    /// The outcome, once it has arrived.
    outcome: Option<A::Outcome>,
}

impl<A: Answers> Pending<A> {
    /// Whether the request can be answered.
    fn is_ready(&self) -> bool {
        self.context.is_err() || self.outcome.is_some()
    }
}

/// The work on a file of requests.
struct Work<'a, A: Answers> {
    answers: &'a mut A,
    /// Requests in the order of their lines.
    pending: VecDeque<Pending<A>>,
    /// The number of the first pending request.
    first: u64,
    /// Where outcomes are sent.
    messages: Sender<Message<A::Outcome>>,
    /// Whether more lines may come.
    has_more: bool,
    /// The error that ended the input early, if any.
    read_error: Option<io::Error>,
    tally: Tally,
}

impl<A: Answers> Work<'_, A> {
    /// Handles a message: begins the request of a line, or records an outcome, the end of the input or an interrupt.
    fn receive(&mut self, message: Message<A::Outcome>) {
        match message {
            Message::Line(_) if self.tally.stopped => {}
            Message::Line(Line { number, bytes: raw }) => {
                let request = self.first + self.pending.len() as u64;
                let done = Done { request, messages: self.messages.clone() };
                let bytes = raw.as_ref().map_or(0, Vec::len);
                let parsed = raw.map_or_else(|| Err(too_long()), |raw| parse(&raw));
                let context = parsed.and_then(|request| self.answers.begin(request, done));
                self.pending.push_back(Pending { line: number, bytes, context, outcome: None });
            }
            Message::End(error) => (self.has_more, self.read_error) = (false, error),
            Message::Done(request, outcome) => {
                let index = request.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
                if let Some(pending) = index.and_then(|index| self.pending.get_mut(index)) {
                    pending.outcome = Some(outcome);
                }
            }
            Message::Interrupt => self.tally.stopped = true,
        }
    }

    /// Whether the first pending request can be answered.
    fn is_ready(&self) -> bool {
        self.pending.front().is_some_and(Pending::is_ready)
    }

    /// Whether all requests are answered and no further one is begun.
    fn is_over(&self) -> bool {
        self.pending.is_empty() && (!self.has_more || self.tally.stopped)
    }

    /// The answer to the first pending request, if it can be answered, and the length of its line in bytes.
    fn answer(&mut self) -> Result<Option<(String, usize)>, Failure> {
        let Some(pending) = self.pending.pop_front_if(|first| first.is_ready()) else { return Ok(None) };
        let Pending { line, bytes, context, outcome } = pending;
        self.first += 1;
        let answer = match (context, outcome) {
            (Ok(context), Some(outcome)) => self.answers.answer(context, outcome),
            (Ok(_), None) => unreachable!("a request is answered only after its outcome has arrived"),
            (Err(refused), _) => Err(refused),
        };
        match answer {
            Ok(Answer { json, stop }) => {
                // Pending requests are still answered.
                self.tally.stopped |= stop;
                Ok(Some((json, bytes)))
            }
            Err(
                Failure::Usage(message)
                | Failure::Failed(message)
                | Failure::Invalid(message)
                | Failure::Incorrect(message),
            ) => {
                self.tally.faults += 1;
                let json = output::json(&LineFault::new(line, message.fact, message.hint))?;
                Ok(Some((json, bytes)))
            }
            Err(closed @ Failure::Closed) => Err(closed),
        }
    }
}

/// Answers every line that is not blank, in order. Up to `WINDOW` requests are pending at a time, and each answer is written as
/// soon as all earlier ones have been. A line that cannot be answered gets an error object in its place. No further request is
/// begun after a read error, an interrupt, or an answer that says to stop; a write error ends the work at once.
pub(crate) fn answer_all<A: Answers>(
    path: &Path,
    input: Input,
    write: &mut dyn FnMut(&str) -> Result<(), Failure>,
    answers: &mut A,
    interrupt: Option<&Interrupt>,
) -> Result<Tally, Failure> {
    let (send, messages) = channel();
    if let Some(interrupt) = interrupt {
        let send = send.clone();
        interrupt.listen(move || {
            let _ = send.send(Message::Interrupt);
        });
    }
    let permits = spawn_reader(input, send.clone(), LONGEST_LINE)?;
    let tally = Tally::default();
    let (pending, has_more) = (VecDeque::new(), true);
    let mut work = Work { answers, pending, first: 0, messages: send, has_more, read_error: None, tally };
    while !work.is_over() {
        if !work.is_ready() {
            match messages.recv() {
                Ok(message) => work.receive(message),
                Err(_) => unreachable!("the work itself holds a sender"),
            }
        }
        // Begin the requests of all lines that have arrived before answering, so that as many as possible run together.
        while let Ok(message) = messages.try_recv() {
            work.receive(message);
        }
        if let Some((answer, bytes)) = work.answer()? {
            write(&answer)?;
            // The send fails if the input has ended, and the reader thread with it.
            let _ = permits.send(bytes);
        }
    }
    // The lines before the read error have been answered.
    work.read_error.map_or(Ok(work.tally), |error| Err(Failure::reading(path, &error)))
}

/// Starts a thread that reads lines, one for each permit. The first `WINDOW` permits are granted here; the caller sends one for
/// each answer, with the length of the line, so that no more than `WINDOW` requests of limited length are pending. The thread ends
/// with the input or with the work.
fn spawn_reader<O: Send + 'static>(
    input: Input,
    messages: Sender<Message<O>>,
    longest: usize,
) -> Result<Sender<usize>, Failure> {
    let (grant, permits): (_, Receiver<usize>) = channel();
    for _ in 0..WINDOW {
        let _ = grant.send(0);
    }
    let read = move || {
        let mut lines = Lines { input, longest, number: 0, is_cut: false };
        let (mut free, mut pending_bytes) = (0, 0);
        loop {
            while free == 0 || pending_bytes >= longest {
                let Ok(bytes) = permits.recv() else { return };
                free += 1;
                pending_bytes -= bytes;
            }
            free -= 1;
            let message = match lines.next() {
                Ok(Some(line)) => {
                    pending_bytes += line.bytes.as_ref().map_or(0, Vec::len);
                    Message::Line(line)
                }
                Ok(None) => Message::End(None),
                Err(error) => Message::End(Some(error)),
            };
            let is_last = matches!(message, Message::End(_));
            if messages.send(message).is_err() || is_last {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("redline-lines".to_owned()).spawn(read);
    started.map_err(|error| Failure::failed(format!("no thread to read lines: {error}"), None))?;
    Ok(grant)
}

/// Reads lines of limited length.
struct Lines {
    input: Input,
    /// Maximum length of a line in bytes, without its end.
    longest: usize,
    /// The number of lines begun so far.
    number: u64,
    /// Whether the rest of the last line is still to be skipped.
    is_cut: bool,
}

impl Lines {
    /// The next line that is not blank; `None` at the end. A line is returned as soon as it is known to be too long; the next call
    /// skips the rest of it.
    fn next(&mut self) -> io::Result<Option<Line>> {
        if std::mem::take(&mut self.is_cut) {
            self.input.skip_until(b'\n')?;
        }
        loop {
            self.number += 1;
            let mut raw = Vec::new();
            self.input.by_ref().take(self.longest as u64 + 1).read_until(b'\n', &mut raw)?;
            if raw.is_empty() {
                return Ok(None);
            }
            self.is_cut = raw.len() > self.longest && !raw.ends_with(b"\n");
            if self.is_cut {
                return Ok(Some(Line { number: self.number, bytes: None }));
            }
            if self.number == 1 && raw.starts_with(BYTE_ORDER_MARK) {
                raw.drain(..BYTE_ORDER_MARK.len());
            }
            if !raw.trim_ascii().is_empty() {
                return Ok(Some(Line { number: self.number, bytes: Some(raw) }));
            }
        }
    }
}

/// The UTF-8 byte order mark, which some programs write at the start of a file.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line beyond the limit.
fn too_long() -> Failure {
    let fact = format!("the line is longer than {} MiB", LONGEST_LINE >> 20);
    Failure::failed(fact, Some("give its items in several requests, one on each line".to_owned()))
}

/// Parses a line. The error names the column.
fn parse<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(raw.trim_ascii_end()).map_err(|error| {
        // Each line is parsed as a text of its own, so its number is always 1.
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
        type Context = ();
        type Outcome = i64;
        fn begin(&mut self, n: i64, done: Done<i64>) -> Result<(), Failure> {
            if n == 13 {
                return Err(Failure::failed("13 is unlucky", None));
            }
            done.with(n * 2);
            Ok(())
        }
        fn answer(&mut self, (): (), n: i64) -> Result<Answer, Failure> {
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
        let tally = answer_all(Path::new("test"), Box::new(input), &mut write, &mut Doubles, None).unwrap();
        (lines, tally)
    }

    #[test]
    fn answers_come_in_order_and_a_bad_line_loses_nothing_else() {
        let (lines, tally) = run(b"1\n13\n\nx\n\xff\n4");
        assert_eq!(lines.len(), 5);
        assert_eq!((&*lines[0], &*lines[4]), ("2", "8"));
        assert_eq!(lines[1], r#"{"object":"error","line":2,"message":"13 is unlucky","hint":null}"#);
        assert!(lines[2].contains(r#""line":4,"#) && lines[2].contains("at column 1"), "{}", lines[2]);
        assert!(lines[2].contains(r#""hint":"each line is one JSON object"#), "{}", lines[2]);
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
        // A client that sends each line only after it has received the answer to the previous one.
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
        answer_all(Path::new("test"), input, &mut write, &mut Doubles, None).unwrap();
        assert_eq!(seen, ["2", "4", "6"]);
    }

    #[test]
    fn no_more_than_a_window_is_under_way() {
        /// Counts the pending requests, and their maximum number. Outcomes arrive in pairs, that of the later request first.
        #[derive(Default)]
        struct Counted {
            now: usize,
            most: usize,
            waiting: Option<Done<()>>,
        }
        impl Answers for Counted {
            type Request = i64;
            type Context = ();
            type Outcome = ();
            fn begin(&mut self, _: i64, done: Done<()>) -> Result<(), Failure> {
                self.now += 1;
                self.most = self.most.max(self.now);
                match self.waiting.take() {
                    Some(earlier) => {
                        done.with(());
                        earlier.with(());
                    }
                    None => self.waiting = Some(done),
                }
                Ok(())
            }
            fn answer(&mut self, (): (), (): ()) -> Result<Answer, Failure> {
                self.now -= 1;
                Ok(Answer { json: String::new(), stop: false })
            }
        }
        let mut counted = Counted::default();
        let input: Input = Box::new(&b"1\n".repeat(300).leak()[..]);
        let mut written = 0;
        let mut write = |_: &str| {
            written += 1;
            Ok(())
        };
        answer_all(Path::new("test"), input, &mut write, &mut counted, None).unwrap();
        assert_eq!((counted.now, written), (0, 300));
        assert!((2..=WINDOW).contains(&counted.most), "{} at a time", counted.most);
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_lines() {
        struct Blocked(std::sync::mpsc::Receiver<()>);
        impl io::Read for Blocked {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(0)
            }
        }
        let (hold, blocked) = std::sync::mpsc::channel();
        let input: Input = Box::new(BufReader::new(Blocked(blocked)));
        let interrupt = Interrupt::default();
        let tally = std::thread::scope(|threads| {
            let run =
                || answer_all(Path::new("test"), input, &mut |_| Ok(()), &mut Doubles, Some(&interrupt));
            let work = threads.spawn(run);
            interrupt.cancel();
            work.join().unwrap().unwrap()
        });
        drop(hold);
        assert_eq!(tally, Tally { faults: 0, stopped: true });
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
        let answered = answer_all(Path::new("the input"), input, &mut write, &mut Doubles, None);
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

    /// The lines of an input, of at most eight bytes each; `None` stands for one that is too long.
    fn lines(input: &'static [u8]) -> Vec<(u64, Option<&'static str>)> {
        let mut lines = Lines { input: Box::new(input), longest: 8, number: 0, is_cut: false };
        let next = || lines.next().unwrap();
        let text = |bytes: Vec<u8>| &*String::from_utf8(bytes).unwrap().leak();
        std::iter::from_fn(next).map(|line| (line.number, line.bytes.map(text))).collect()
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_without_being_stored() {
        assert_eq!(lines(b"12345678\n1234567\n"), [(1, Some("12345678\n")), (2, Some("1234567\n"))]);
        assert_eq!(lines(b"123456789\n1\n"), [(1, None), (2, Some("1\n"))]);
        assert_eq!(lines(b"1\n\n123456789123456789\n\n2"), [(1, Some("1\n")), (3, None), (5, Some("2"))]);
        assert_eq!(lines(b"123456789"), [(1, None)]);
        // It is known to be too long before it ends.
        let input: Input = Box::new(BufReader::new(io::repeat(b' ')));
        let endless = Lines { input, longest: 8, number: 0, is_cut: false }.next().unwrap();
        assert!(endless.is_some_and(|line| line.bytes.is_none()));
    }

    #[test]
    fn a_byte_order_mark_is_accepted_at_the_start_only() {
        let (lines, tally) = run(b"\xef\xbb\xbf7\n\xef\xbb\xbf7\n");
        assert_eq!((&*lines[0], tally.faults), ("14", 1));
        assert_eq!(run(b"\xef\xbb\xbf").0, [""; 0]);
    }

    /// Lengths of the lines that are read ahead of any answer, at most eight bytes and one line more, and then after one answer.
    #[test]
    fn the_length_of_pending_lines_is_limited() {
        let read = |answered: Option<usize>| {
            let (send, messages) = channel::<Message<()>>();
            let permits = spawn_reader(Box::new(&b"123\n12345\n1\n"[..]), send, 8).unwrap();
            let length = |message| match message {
                Message::Line(line) => line.bytes.map(|bytes| bytes.len()),
                _ => None,
            };
            let ahead: Vec<Message<()>> = messages.iter().take(2).collect();
            if let Some(bytes) = answered {
                permits.send(bytes).unwrap();
            }
            // Without permits the reader ends.
            drop(permits);
            ahead.into_iter().chain(messages).filter_map(length).collect::<Vec<usize>>()
        };
        assert_eq!(read(None), [4, 6], "ten bytes are pending");
        assert_eq!(read(Some(4)), [4, 6, 2], "six bytes are pending");
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
        // Pending requests are answered, and no further ones are begun.
        assert!(tally.stopped && lines.len() < 2 + WINDOW, "{} lines", lines.len());
    }
}
