//! Answers that are read as they come: chunks, and server-sent events.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::net::TcpStream;

use crate::answer::{HttpAnswer, Rest};
use crate::malformed;

/// An answer whose body is read as it comes.
#[derive(Debug)]
pub struct HttpStream {
    /// The status and the headers; the body is empty.
    pub head: HttpAnswer,
    from: BufReader<TcpStream>,
    rest: Rest,
    events: Events,
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamedEvent {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its data.
    pub data: String,
}

impl HttpStream {
    /// Reads the head of an answer.
    pub(crate) fn begin(from: TcpStream) -> io::Result<Self> {
        let mut from = BufReader::new(from);
        let head = HttpAnswer::head(&mut from)?;
        let rest = Rest::of(&head)?;
        Ok(Self { head, from, rest, events: Events::default() })
    }

    /// Waits for the next chunk of the body; `None` at its end. A body without chunks comes as one.
    pub fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.rest.next(&mut self.from)
    }

    /// Waits for the next event; `None` at the end of the body. A body that ends within an event is an error.
    pub fn next_event(&mut self) -> io::Result<Option<StreamedEvent>> {
        loop {
            if let Some(event) = self.events.ready.pop_front() {
                return Ok(Some(event));
            }
            match self.next_chunk()? {
                Some(chunk) => self.events.read(&chunk)?,
                None if self.events.line.is_empty() && self.events.data.is_none() => return Ok(None),
                None => return Err(malformed("the answer ended within an event")),
            }
        }
    }

    /// Reads the rest of the body and gives the whole answer, but for what was read before.
    pub fn read_rest(mut self) -> io::Result<HttpAnswer> {
        while let Some(chunk) = self.next_chunk()? {
            self.head.body.extend(chunk);
        }
        Ok(self.head)
    }
}

/// Events that are being read. Chunks may end anywhere.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    name: Option<String>,
    data: Option<String>,
    ready: VecDeque<StreamedEvent>,
}

impl Events {
    fn read(&mut self, chunk: &[u8]) -> io::Result<()> {
        for &byte in chunk {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let mut line = std::mem::take(&mut self.line);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            let line = String::from_utf8(line).map_err(|_| malformed("a line of an event is not UTF-8"))?;
            self.line_ends(&line);
        }
        Ok(())
    }

    /// Takes a line: a field, a comment, or the end of an event.
    fn line_ends(&mut self, line: &str) {
        if line.is_empty() {
            let name = self.name.take();
            if let Some(data) = self.data.take() {
                self.ready.push_back(StreamedEvent { name, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (field, &mut self.data) {
            ("event", _) => self.name = Some(value.to_owned()),
            ("data", Some(data)) => {
                data.push('\n');
                data.push_str(value);
            }
            ("data", none) => *none = Some(value.to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_wherever_chunks_end() {
        let text = ": a comment\n\ndata: {\"a\":\"é\"}\n\nevent: x\r\ndata:1\r\ndata: 2\r\n\r\ndata\n\n";
        let event = |name: Option<&str>, data: &str| StreamedEvent {
            name: name.map(str::to_owned),
            data: data.to_owned(),
        };
        let expect = [event(None, "{\"a\":\"é\"}"), event(Some("x"), "1\n2"), event(None, "")];
        for size in 1..text.len() {
            let mut events = Events::default();
            for chunk in text.as_bytes().chunks(size) {
                events.read(chunk).unwrap();
            }
            assert_eq!(events.ready, expect, "{size}");
            assert!(events.line.is_empty() && events.data.is_none());
        }
        assert!(Events::default().read(b"data: \xff\n").is_err());
    }
}
