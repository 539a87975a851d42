//! Server-sent events.

use std::io::{self, BufRead as _, BufReader, Cursor};
use std::net::TcpStream;

use crate::answer::{HttpAnswer, chunk, line};

/// An answer whose events are read one after the other. Dropping it closes the connection.
#[derive(Debug)]
pub struct EventReader {
    /// Status and headers.
    pub head: HttpAnswer,
    stream: BufReader<TcpStream>,
    /// Bytes of chunks that were not read yet.
    pending: Vec<u8>,
    ended: bool,
}

impl EventReader {
    pub(crate) fn open(mut stream: BufReader<TcpStream>) -> io::Result<Self> {
        let head = HttpAnswer::head(&mut stream)?;
        let ended = !head.chunked();
        Ok(Self { head, stream, pending: Vec::new(), ended })
    }

    /// The data of the next event; `None` at the end of the answer.
    pub fn next_event(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.pending.drain(..end + 2).collect();
                let data = data(&event)?;
                if !data.is_empty() {
                    return Ok(Some(data));
                }
                continue;
            }
            if self.ended {
                return Ok(None);
            }
            match chunk(&mut self.stream)? {
                Some(bytes) => self.pending.extend(bytes),
                None => self.ended = true,
            }
        }
    }

    /// All further events.
    pub fn rest(mut self) -> io::Result<Vec<String>> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event()? {
            events.push(event);
        }
        Ok(events)
    }
}

/// The data of an event; empty for a comment.
fn data(event: &[u8]) -> io::Result<String> {
    let mut lines = Cursor::new(event);
    let mut data = Vec::new();
    while !lines.fill_buf()?.is_empty() {
        if let Some(text) = line(&mut lines)?.strip_prefix("data:") {
            data.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
        }
    }
    Ok(data.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_data_and_a_comment_none() {
        assert_eq!(data(b"data: a\n\n").unwrap(), "a");
        assert_eq!(data(b"event: x\ndata:a\ndata:  b\n\n").unwrap(), "a\n b");
        assert_eq!(data(b": ping\n\n").unwrap(), "");
    }
}
