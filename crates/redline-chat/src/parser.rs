//! Tells the parts of an answer apart as it is written.

use crate::buffer::{Buffer, Input, Needle, find, held, visible};
use crate::deltas::{Delta, Deltas};
use crate::format::ChatFormat;
use crate::reader::{CallReader, Step};
use crate::tool::Tools;

/// Tells the parts of an answer apart. What was written appears in the parts, in its order; marks and the white space around them do not.
pub struct Parser {
    format: ChatFormat,
    tools: Tools,
    /// Most calls that are reported.
    most: usize,
    buffer: Buffer,
    deltas: Deltas,
    place: Place,
    /// The marks with which calls begin, if calls are looked for.
    openers: Vec<Needle>,
    /// The mark with which an answer begins that is a call as a whole.
    starts: Vec<Needle>,
    /// The marks before and after reasoning.
    reasoning: Option<[Needle; 2]>,
}

impl std::fmt::Debug for Parser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parser").field("format", &self.format).finish_non_exhaustive()
    }
}

enum Place {
    /// At the beginning of an answer, or of the text after reasoning.
    Begin,
    Reasoning,
    Content,
    Calls(Box<dyn CallReader>),
}

impl Parser {
    /// A parser of an answer in a format. `tools` are the tools that it may call; without any, calls are text. `reasons` says that the
    /// prompt ends where the model reasons. Of more than `most` calls, the others are dropped.
    pub fn new(format: ChatFormat, tools: Tools, reasons: bool, most: usize) -> Self {
        let family = format.family().filter(|_| !tools.0.is_empty());
        let needles = |marks: &[&str]| marks.iter().map(|mark| format.needle(mark)).collect();
        Self {
            openers: needles(family.map_or(&[], |family| family.openers)),
            starts: needles(family.map_or(&[], |family| family.starts)),
            reasoning: format
                .reasoning()
                .map(|marks| [&marks.open, &marks.close].map(|mark| format.needle(mark))),
            tools,
            most,
            buffer: Buffer::default(),
            deltas: Deltas::default(),
            place: if reasons { Place::Reasoning } else { Place::Begin },
            format,
        }
    }

    /// Takes what comes next; returns the parts that are new.
    pub fn push(&mut self, input: Input<'_>) -> Vec<Delta> {
        self.buffer.push(input);
        self.read();
        self.take()
    }

    /// The answer has ended; returns the rest.
    pub fn finish(&mut self) -> Vec<Delta> {
        self.buffer.ended = true;
        self.read();
        self.deltas.finish();
        self.take()
    }

    /// Whether the answer reasons.
    pub fn is_reasoning(&self) -> bool {
        match &self.place {
            Place::Reasoning => true,
            Place::Calls(reader) => reader.reasons(),
            Place::Begin | Place::Content => false,
        }
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        self.deltas.calls.min(self.most)
    }

    fn take(&mut self) -> Vec<Delta> {
        let before = self.deltas.calls;
        let mut all = self.deltas.take();
        let new = all.iter().filter(|delta| matches!(delta, Delta::Call(_))).count();
        if before > self.most {
            let mut call = before - new;
            all.retain(|delta| {
                call += usize::from(matches!(delta, Delta::Call(_)));
                call <= self.most || matches!(delta, Delta::Content(_) | Delta::Reasoning(_))
            });
        }
        all
    }

    fn read(&mut self) {
        loop {
            let next = match &mut self.place {
                Place::Begin => self.begin(),
                Place::Reasoning => self.reason(),
                Place::Content => self.content(),
                Place::Calls(reader) => match reader.read(&mut self.buffer, &mut self.deltas, &self.tools) {
                    Step::More => None,
                    Step::Done => {
                        self.buffer.reset();
                        Some(Place::Content)
                    }
                    Step::Failed => {
                        self.give_back();
                        Some(Place::Content)
                    }
                },
            };
            match next {
                Some(place) => self.place = place,
                None => return,
            }
        }
    }

    /// What was read is no call, but text: its first characters, at least.
    fn give_back(&mut self) {
        self.buffer.reset();
        let begins = self.openers.iter().find(|open| open.begins(self.buffer.rest(), true) == Some(true));
        let count = begins.map_or_else(|| first_length(self.buffer.rest()), Needle::len);
        let text = visible(&self.buffer.take(count));
        self.deltas.content(&text);
    }

    fn reader(&self) -> Option<Place> {
        self.format.family().map(|family| Place::Calls((family.reader)(&self.format)))
    }

    /// Finds out with what an answer begins.
    fn begin(&mut self) -> Option<Place> {
        if self.format.has_channels() {
            return self.reader();
        }
        let rest = self.buffer.rest();
        let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if space == rest.len() && !self.buffer.ended {
            return None;
        }
        let begins = |mark: &Needle| mark.begins(&rest[space..], self.buffer.ended);
        if let Some([open, _]) = &self.reasoning {
            match begins(open) {
                None => return None,
                Some(true) => {
                    let length = space + open.len();
                    self.buffer.take(length);
                    return Some(Place::Reasoning);
                }
                Some(false) => {}
            }
        }
        let starts: Vec<_> = self.starts.iter().map(begins).collect();
        if starts.contains(&Some(true)) {
            return self.reader();
        }
        if starts.contains(&None) { None } else { Some(Place::Content) }
    }

    fn reason(&mut self) -> Option<Place> {
        // A call ends the reasoning too, if its mark cannot be a part of a text.
        let close = self.reasoning.iter().map(|[_, close]| close);
        let ends: Vec<&Needle> = close.chain(self.openers.iter().filter(|open| open.is_marker())).collect();
        let found = emit(&mut self.buffer, &ends, |text| self.deltas.reasoning(text));
        let which = found?;
        self.deltas.end_part();
        if which > 0 {
            return self.reader();
        }
        let length = ends.first().map_or(0, |close| close.len());
        self.buffer.take(length);
        Some(Place::Begin)
    }

    fn content(&mut self) -> Option<Place> {
        // Reasoning that was never opened, or closed twice: its mark is no text.
        let close = self.reasoning.iter().map(|[_, close]| close).filter(|close| close.is_marker());
        let all: Vec<&Needle> = self.openers.iter().chain(close).collect();
        let which = emit(&mut self.buffer, &all, |text| self.deltas.content(text))?;
        if which < self.openers.len() {
            return self.reader();
        }
        let length = all[which].len();
        self.buffer.take(length);
        Some(Place::Content)
    }
}

/// Reports what comes before one of these marks, or what cannot be the beginning of one. Returns which comes next, if one does.
fn emit(buffer: &mut Buffer, needles: &[&Needle], mut report: impl FnMut(&str)) -> Option<usize> {
    let rest = buffer.rest();
    let found = find(rest, needles);
    let all = if buffer.ended { rest.len() } else { rest.len() - held(rest, needles) };
    let text = visible(&buffer.take(found.map_or(all, |(at, _)| at)));
    report(&text);
    found.map(|(_, which)| which)
}

/// The length of the first character or marker.
fn first_length(bytes: &[u8]) -> usize {
    let length = crate::buffer::marker_length(bytes);
    length.unwrap_or_else(|| {
        let rest = bytes.iter().skip(1);
        1 + rest.take_while(|byte| **byte & 0xC0 == 0x80).count().min(bytes.len().saturating_sub(1))
    })
}
