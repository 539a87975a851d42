//! JSON Lines: one request per line in, one document per line out, in the order of the input.
//!
//! An answer repeats the `id` of its request. Every line that is not blank gets exactly one line of output, so a file of answers
//! can be continued after an interruption (`target`).

mod lines;
mod target;

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use redline_api::json::id::request_id;
use redline_api::json::whole::WholeNumbers;
use redline_api::jsonl::fault::LineFault;
use redline_api::pump::{self, Events, Pump, Received};
use serde::de::DeserializeOwned;

use self::lines::Line;
use self::target::Progress;
use crate::interrupt::Interrupt;
use crate::message::{self, FAILED, Failure, INTERRUPTED};
use crate::{json, output};

pub(crate) use self::lines::{BYTE_ORDER_MARK, Lines, open};
pub(crate) use self::target::TargetFlags;

/// How a file of requests was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of lines answered with an error, also in the file that was continued.
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

/// Where the outcome of a request is sent.
pub(crate) type Done<O> = pump::Done<O, WorkEvent>;

/// Maximum number of pending requests.
const WINDOW: usize = 64;

/// What the work waits for besides outcomes.
pub(crate) enum WorkEvent {
    /// A line that is not blank.
    Line(Line),
    /// The end of the input, with the error that caused it, if any.
    End(Option<io::Error>),
    /// Ctrl-C: begin no further request.
    Interrupt,
}

/// A request that has not been answered yet.
struct Pending<C> {
    /// The number of its line.
    line: u64,
    /// Length of its line in bytes, as far as it was stored.
    bytes: usize,
    /// The JSON text of its `id`, if it has one.
    id: Option<String>,
    /// The context of its answer, or the error if it could not be begun.
    context: Result<C, Failure>,
}

/// The work on a file of requests.
struct Work<'a, A: Answers> {
    answers: &'a mut A,
    pump: Pump<Pending<A::Context>, A::Outcome, WorkEvent>,
    /// Whether more lines may come.
    has_more: bool,
    /// The error that ended the input early, if any.
    read_error: Option<io::Error>,
    tally: Tally,
}

impl<A: Answers> Work<'_, A> {
    /// Waits for an outcome or an input. Returns whether one came.
    fn receive(&mut self, longest: Duration) -> bool {
        let Some(received) = self.pump.receive(longest) else { return false };
        match received {
            Received::Event(WorkEvent::Line(line)) if !self.tally.stopped => self.begin(line),
            Received::Outcome | Received::Event(WorkEvent::Line(_)) => {}
            Received::Event(WorkEvent::End(error)) => (self.has_more, self.read_error) = (false, error),
            Received::Event(WorkEvent::Interrupt) => self.tally.stopped = true,
        }
        true
    }

    /// Begins the request of a line.
    fn begin(&mut self, Line { number, bytes: raw }: Line) {
        let bytes = raw.as_ref().map_or(0, Vec::len);
        let id = raw.as_deref().ok().and_then(request_id);
        let parsed = raw.map_err(Failure::from).and_then(|raw| parse(&raw));
        let context = parsed.and_then(|request| self.answers.begin(request, self.pump.next_done()));
        let was_begun = context.is_ok();
        self.pump.push(Pending { line: number, bytes, id, context }, was_begun);
    }

    /// Whether all requests are answered and no further one is begun.
    fn is_over(&self) -> bool {
        self.pump.is_empty() && (!self.has_more || self.tally.stopped)
    }

    /// The answer to the first pending request, if it can be answered.
    fn answer(&mut self) -> Result<Option<Written>, Failure> {
        let Some((Pending { line, bytes, id, context }, outcome)) = self.pump.pop() else { return Ok(None) };
        let Answer { json, stop } = self.answer_to(line, context, outcome)?;
        Ok(Some(Written { json: with_id(json, id.as_deref()), stop, bytes }))
    }

    fn answer_to(
        &mut self,
        line: u64,
        context: Result<A::Context, Failure>,
        outcome: Option<A::Outcome>,
    ) -> Result<Answer, Failure> {
        let answer = match (context, outcome) {
            (Ok(context), Some(outcome)) => self.answers.answer(context, outcome),
            (Ok(_), None) => unreachable!("a request that was begun has an outcome when its turn comes"),
            (Err(refused), _) => Err(refused),
        };
        match answer {
            Ok(answer) => {
                // Pending requests are still answered.
                self.tally.stopped |= answer.stop;
                Ok(answer)
            }
            Err(
                Failure::Usage(message)
                | Failure::Failed(message)
                | Failure::Invalid(message)
                | Failure::Incorrect(message),
            ) => {
                self.tally.faults += 1;
                let json = output::json(&LineFault::new(line, message.fact, message.hint))?;
                Ok(Answer { json, stop: false })
            }
            Err(end @ (Failure::Stopped(_) | Failure::Closed)) => Err(end),
        }
    }
}

/// Answers every line that is not blank, in order. Up to `WINDOW` requests are pending at a time, and each answer is written as
/// soon as all earlier ones have been. A line that cannot be answered gets an error object in its place. No further request is
/// begun after a read error, an interrupt, or an answer that says to stop. A write error and the end of the engine's thread end the
/// work at once.
pub(crate) fn answer_all<A: Answers>(
    mut lines: Lines,
    target: &TargetFlags,
    answers: &mut A,
    interrupt: Option<&Interrupt>,
) -> Result<Tally, Failure> {
    let (mut target, earlier_faults) = target.open(&mut lines)?;
    let mut progress = Progress::new(&lines, target.is_file());
    // A file that may be continued gets no answer that an interruption cut short, and none after it.
    let mut cut_short = false;
    let tally = answer_to(lines, answers, interrupt, &mut |written| {
        cut_short |= written.stop && target.is_file();
        if !cut_short {
            target.write(&written.json)?;
            progress.answered(written.bytes as u64);
        }
        Ok(())
    });
    progress.clear();
    let tally = tally.map(|tally| Tally { faults: tally.faults + earlier_faults, ..tally });
    if let (Ok(Tally { faults: faults @ 1.., .. }), true) = (&tally, target.is_file()) {
        message::note(&format!("{faults} of the lines that were answered got an error instead"));
    }
    tally
}

/// The answer to a line, ready to be written.
struct Written {
    json: String,
    stop: bool,
    /// Length of the line in bytes, as far as it was stored.
    bytes: usize,
}

/// As [`answer_all`], with answers written by `write`.
fn answer_to<A: Answers>(
    lines: Lines,
    answers: &mut A,
    interrupt: Option<&Interrupt>,
    write: &mut dyn FnMut(Written) -> Result<(), Failure>,
) -> Result<Tally, Failure> {
    let path = lines.path.clone();
    let pump = Pump::default();
    if let Some(interrupt) = interrupt {
        let events = pump.events();
        interrupt.listen(move || {
            events.send(WorkEvent::Interrupt);
        });
    }
    let (permits, _) = spawn_reader(lines, pump.events())?;
    let mut work = Work { answers, pump, has_more: true, read_error: None, tally: Tally::default() };
    while !work.is_over() {
        if !work.pump.is_ready() {
            work.receive(Duration::MAX);
        }
        // Begin the requests of all lines that have arrived before answering, so that as many as possible run together.
        while work.receive(Duration::ZERO) {}
        if let Some(answer) = work.answer()? {
            let bytes = answer.bytes;
            match write(answer) {
                // A reader that left must not turn lines that failed into a success.
                Err(Failure::Closed) if work.tally.faults > 0 => return Ok(work.tally),
                written => written?,
            }
            // The send fails if the input has ended, and the reader thread with it.
            let _ = permits.send(bytes);
        }
    }
    // The lines before the read error have been answered.
    work.read_error.map_or(Ok(work.tally), |error| Err(Failure::reading(&path, &error)))
}

/// Starts a thread that reads lines, one for each permit. The first `WINDOW` permits are granted here; the caller sends one for
/// each answer, with the length of the line, so that no more than `WINDOW` requests of limited length are pending. The thread ends
/// with the input or with the work.
fn spawn_reader<O: Send + 'static>(
    mut lines: Lines,
    events: Events<O, WorkEvent>,
) -> Result<(Sender<usize>, JoinHandle<()>), Failure> {
    let (grant, permits): (_, Receiver<usize>) = channel();
    for _ in 0..WINDOW {
        let _ = grant.send(0);
    }
    let read = move || {
        let (mut free, mut pending_bytes) = (0, 0);
        loop {
            while free == 0 || pending_bytes >= lines.longest {
                let Ok(bytes) = permits.recv() else { return };
                free += 1;
                pending_bytes -= bytes;
            }
            free -= 1;
            let input = match lines.next() {
                Ok(Some(line)) => {
                    pending_bytes += line.bytes.as_ref().map_or(0, Vec::len);
                    WorkEvent::Line(line)
                }
                Ok(None) => WorkEvent::End(None),
                Err(error) => WorkEvent::End(Some(error)),
            };
            let is_last = matches!(input, WorkEvent::End(_));
            if !events.send(input) || is_last {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("redline-lines".to_owned()).spawn(read);
    let thread =
        started.map_err(|error| Failure::failed(format!("no thread to read lines: {error}"), None))?;
    Ok((grant, thread))
}

/// Puts the `id` of a request in front of the other keys of its answer.
fn with_id(json: String, id: Option<&str>) -> String {
    match (id, json.strip_prefix('{')) {
        (Some(id), Some(keys)) => format!("{{\"id\":{id},{keys}"),
        _ => json,
    }
}

/// Parses a line. The error names the column.
fn parse<T: DeserializeOwned>(raw: &[u8]) -> Result<T, Failure> {
    let (raw, text) = (raw.trim_ascii_end(), raw.trim_ascii());
    let refused = |fact: String| {
        let hint = "each line is one JSON object; `--help` of the command lists its keys";
        Failure::failed(fact, Some(hint.to_owned()))
    };
    let not_an_object = || {
        let begin = String::from_utf8_lossy(text).chars().next().unwrap_or_default();
        let column = raw.len() - text.len() + 1;
        refused(format!("the line is not a JSON object: it begins with `{begin}` at column {column}"))
    };
    // A list would be read as the values of the keys.
    if text.starts_with(b"[") {
        return Err(not_an_object());
    }
    let mut parser = serde_json::Deserializer::from_slice(raw);
    let read = T::deserialize(WholeNumbers(&mut parser));
    read.and_then(|line| parser.end().map(|()| line)).map_err(|error| {
        if text.starts_with(b"{") {
            refused(format!("{} at column {}", json::explained(&error), error.column()))
        } else {
            not_an_object()
        }
    })
}

#[cfg(test)]
mod tests;
