//! A blocking HTTP/1.1 client for tests and measurements: nothing but the standard library. A request of [`HttpClient`] has a connection of
//! its own; those of an [`HttpConnection`] share one, and their answers can be read while they arrive.
//!
//! It sends what it is given, so that tests can send invalid requests too, and reads answers with a length, in chunks, or up to the end
//! of the connection.

#![forbid(unsafe_code)]

mod answer;
mod stream;

use std::io::{self, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub use answer::HttpAnswer;
pub use stream::{ArrivingAnswer, EventReader, HttpConnection, StreamedEvent};

/// Longest wait for the next byte of an answer. A server that hangs fails a test instead of stopping it.
const PATIENCE: Duration = Duration::from_mins(2);

/// The address of a server, and the headers of every request to it.
#[derive(Clone, Debug)]
pub struct HttpClient {
    address: String,
    headers: Vec<(String, String)>,
}

impl HttpClient {
    /// A client of the server at `HOST:PORT`.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), headers: Vec::new() }
    }

    /// Sends this header with every request.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends `GET`.
    pub fn get(&self, path: &str) -> io::Result<HttpAnswer> {
        self.request("GET", path, b"")
    }

    /// Sends `POST` with a body of JSON.
    pub fn post(&self, path: &str, body: &str) -> io::Result<HttpAnswer> {
        self.request("POST", path, body.as_bytes())
    }

    /// Sends a request with a body, and reads the whole answer.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> io::Result<HttpAnswer> {
        HttpAnswer::read(&mut BufReader::new(self.send(method, path, body)?))
    }

    /// Sends a request and does not read its answer. Dropping the connection closes it.
    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> io::Result<TcpStream> {
        self.send_raw(&self.message(method, path, body, "close"))
    }

    /// The bytes of a request.
    fn message(&self, method: &str, path: &str, body: &[u8], connection: &str) -> Vec<u8> {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: {connection}\r\n", self.address);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let typed = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !body.is_empty() && !typed {
            head.push_str("Content-Type: application/json\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        [head.as_bytes(), body].concat()
    }

    /// Sends these bytes on a new connection.
    pub fn send_raw(&self, bytes: &[u8]) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A server may refuse a long request and close the connection before it has read all of it. Its answer is still there.
        match stream.write_all(bytes) {
            Err(error) if !is_closed(&error) => return Err(error),
            _ => {}
        }
        Ok(stream)
    }

    /// Sends these bytes on a new connection, and reads the answer.
    pub fn raw(&self, bytes: &[u8]) -> io::Result<HttpAnswer> {
        HttpAnswer::read(&mut BufReader::new(self.send_raw(bytes)?))
    }
}

/// Closes a connection in both directions.
pub fn hang_up(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Both)
}

/// Whether the other side closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// An answer that is not HTTP.
fn malformed(fact: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, fact.into())
}
