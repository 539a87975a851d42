//! Connections that are used again, answers that are read while they arrive, and server-sent events.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::answer::{HttpAnswer, line};
use crate::{HttpClient, is_closed, malformed};

/// A connection to a server, which is kept open between requests. It is opened by the first request, or before it by
/// [`connect`](Self::connect).
#[derive(Debug)]
pub struct HttpConnection {
    client: HttpClient,
    patience: Duration,
    stream: Option<BufReader<TcpStream>>,
}

/// An answer whose body is read while it arrives. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct ArrivingAnswer<'a> {
    /// Status and headers; the body is empty.
    pub head: HttpAnswer,
    connection: &'a mut HttpConnection,
    stream: Option<BufReader<TcpStream>>,
    rest: Rest,
}

/// What is left of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// So many bytes.
    Bytes(u64),
    /// So many bytes of a chunk, and further chunks.
    Chunk(u64),
    /// Everything up to the end of the connection.
    All,
    /// Nothing.
    Nothing,
}

impl HttpClient {
    /// A connection that waits at most `patience` until it is open, and then for each further byte of an answer.
    pub fn open(&self, patience: Duration) -> HttpConnection {
        HttpConnection { client: self.clone(), patience, stream: None }
    }
}

impl HttpConnection {
    /// Opens the connection, unless it is open.
    pub fn connect(&mut self) -> io::Result<()> {
        if self.stream.is_none() {
            self.stream = Some(self.connected()?);
        }
        Ok(())
    }

    fn connected(&self) -> io::Result<BufReader<TcpStream>> {
        let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.client.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(self.patience))?;
                    stream.set_write_timeout(Some(self.patience))?;
                    return Ok(BufReader::new(stream));
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Sends a request, and reads status and headers of the answer. If the server has closed the connection after an earlier
    /// answer, the request is sent once more on a new one.
    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<ArrivingAnswer<'_>> {
        let bytes = self.client.message(method, path, body, "keep-alive");
        let kept = self.stream.take();
        let answered = match kept {
            Some(stream) => asked(stream, &bytes)?,
            None => None,
        };
        let mut stream = match answered {
            Some(stream) => stream,
            None => asked(self.connected()?, &bytes)?
                .ok_or_else(|| malformed("the connection ended before the answer"))?,
        };
        let head = HttpAnswer::head(&mut stream)?;
        let rest = if head.is_chunked() {
            Rest::Chunk(0)
        } else if let Some(length) = head.header("content-length") {
            Rest::Bytes(length.parse().map_err(|_| malformed(format!("a length of `{length}`")))?)
        } else {
            Rest::All
        };
        let mut answer = ArrivingAnswer { head, connection: self, stream: Some(stream), rest };
        if answer.rest == Rest::Bytes(0) {
            answer.finish();
        }
        Ok(answer)
    }

    /// Sends a request, and reads the whole answer.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<HttpAnswer> {
        let mut answer = self.send(method, path, body)?;
        let mut bytes = Vec::new();
        while answer.read(&mut bytes)? > 0 {}
        Ok(HttpAnswer { body: bytes, ..answer.head.clone() })
    }
}

/// Writes a request and waits for the first byte of its answer; `None` if the server closed the connection before it.
fn asked(mut stream: BufReader<TcpStream>, bytes: &[u8]) -> io::Result<Option<BufReader<TcpStream>>> {
    // A server may refuse a long request before it has read all of it. Its answer is still there.
    match stream.get_mut().write_all(bytes) {
        Err(error) if !is_closed(&error) => return Err(error),
        _ => {}
    }
    match stream.fill_buf() {
        Ok([]) => Ok(None),
        Err(error) if is_closed(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(Some(stream)),
    }
}

impl ArrivingAnswer<'_> {
    /// Waits for the next bytes of the body and appends them, at most those of one chunk. Returns their number; 0 at the end.
    pub fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let Some(mut stream) = self.stream.take() else { return Ok(0) };
        if self.rest == Rest::Chunk(0) {
            self.rest = next_chunk(&mut stream)?;
        }
        let most = match self.rest {
            Rest::Bytes(left) | Rest::Chunk(left) => left,
            Rest::All => u64::MAX,
            Rest::Nothing => 0,
        };
        let arrived = if most == 0 { &[][..] } else { stream.fill_buf()? };
        let taken = arrived.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        into.extend_from_slice(&arrived[..taken]);
        stream.consume(taken);
        let left = most - taken as u64;
        self.rest = match self.rest {
            Rest::Bytes(_) | Rest::Chunk(_) if taken == 0 && most > 0 => {
                return Err(malformed(format!("the body ended {most} bytes early")));
            }
            Rest::Chunk(_) if left == 0 => {
                ended(&mut stream)?;
                Rest::Chunk(0)
            }
            Rest::Chunk(_) => Rest::Chunk(left),
            Rest::Bytes(_) if left == 0 => Rest::Nothing,
            Rest::Bytes(_) => Rest::Bytes(left),
            Rest::All if taken == 0 => return Ok(0),
            rest => rest,
        };
        self.stream = Some(stream);
        if self.rest == Rest::Nothing {
            self.finish();
        }
        Ok(taken)
    }

    /// Gives the connection back, unless the server ends it.
    fn finish(&mut self) {
        let ends = self.head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        self.connection.stream = self.stream.take().filter(|_| !ends);
    }
}

/// Reads the size of the next chunk, and behind the last one the end of the body.
fn next_chunk(stream: &mut BufReader<TcpStream>) -> io::Result<Rest> {
    let size = line(stream)?;
    let digits = size.split(';').next().unwrap_or_default().trim();
    match u64::from_str_radix(digits, 16) {
        Ok(0) => {
            // Trailers end with an empty line, as a head does.
            while !line(stream)?.is_empty() {}
            Ok(Rest::Nothing)
        }
        Ok(size) => Ok(Rest::Chunk(size)),
        Err(_) => Err(malformed(format!("a chunk of `{size}`"))),
    }
}

/// Reads the end of a chunk.
fn ended(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    if line(stream)?.is_empty() { Ok(()) } else { Err(malformed("a chunk is longer than its size")) }
}

/// A server-sent event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamedEvent<'a> {
    /// Its name, if it has one.
    pub name: Option<&'a str>,
    /// Its data.
    pub data: &'a str,
}

/// Reads server-sent events (HTML Living Standard, 9.2.6) from bytes that arrive in pieces.
#[derive(Clone, Debug, Default)]
pub struct EventReader {
    line: Vec<u8>,
    name: Option<String>,
    /// The data of the event so far; `None` before its first line of data.
    data: Option<String>,
    /// Whether the last byte was a carriage return, so that a line feed belongs to the same line end.
    after_return: bool,
}

impl EventReader {
    /// Takes the next bytes, and calls `event` with every event that they complete.
    pub fn push(&mut self, piece: &[u8], mut event: impl FnMut(StreamedEvent<'_>)) {
        for &byte in piece {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => self.end_of_line(&mut event),
                _ => self.line.push(byte),
            }
        }
    }

    fn end_of_line(&mut self, event: &mut impl FnMut(StreamedEvent<'_>)) {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        if line.is_empty() {
            let name = self.name.take();
            if let Some(data) = self.data.take() {
                event(StreamedEvent { name: name.as_deref(), data: &data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
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
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// A server that accepts a connection for every list, and gives its answers in order. Each answer is a list of pieces, which are
    /// written one by one. Returns the requests that it saw.
    fn server(connections: Vec<Vec<Vec<&'static str>>>) -> (HttpClient, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = HttpClient::new(listener.local_addr().unwrap().to_string());
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for answers in connections {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                for pieces in answers {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() > 0 {}
                    let length = head.split_once("Content-Length: ").unwrap().1.split_once('\r').unwrap().0;
                    let mut body = vec![0; length.parse().unwrap()];
                    io::Read::read_exact(&mut stream, &mut body).unwrap();
                    seen.push(head + &String::from_utf8(body).unwrap());
                    for piece in pieces {
                        stream.get_mut().write_all(piece.as_bytes()).unwrap();
                    }
                }
            }
            seen
        });
        (client, thread)
    }

    fn open(client: &HttpClient) -> HttpConnection {
        client.open(Duration::from_secs(20))
    }

    #[test]
    fn a_connection_is_used_again() {
        let (client, thread) = server(vec![vec![
            vec!["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "a", "bc"],
            vec!["HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"],
            vec![
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n",
                "1;x\r\nf\r\n0\r\nA: b\r\n\r\n",
            ],
            vec!["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\ng"],
        ]]);
        let mut connection = open(&client);
        connection.connect().unwrap();
        let mut post = |body: &str| {
            let answer = connection.request("POST", "/x", body.as_bytes()).unwrap();
            (answer.status, answer.text())
        };
        assert_eq!(post("1"), (200, "abc".to_owned()));
        assert_eq!(post("22"), (404, String::new()));
        assert_eq!(post("333"), (200, "def".to_owned()));
        assert_eq!(post(""), (200, "g".to_owned()));
        assert!(connection.stream.is_none(), "the server ends it");
        let seen = thread.join().unwrap();
        assert_eq!(seen.len(), 4);
        assert!(
            seen[1].contains("Connection: keep-alive\r\n") && seen[1].ends_with("\r\n\r\n22"),
            "{seen:?}"
        );
    }

    #[test]
    fn chunks_come_one_by_one() {
        let (client, _thread) = server(vec![vec![vec![
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        ]]]);
        let mut connection = open(&client);
        let mut answer = connection.send("POST", "/", b"").unwrap();
        let (mut body, mut pieces) = (Vec::new(), Vec::new());
        while answer.read(&mut body).unwrap() > 0 {
            pieces.push(String::from_utf8(body.clone()).unwrap());
        }
        assert_eq!(pieces.last().map(String::as_str), Some("abcde"));
        assert!(pieces.iter().any(|piece| piece == "abc"), "{pieces:?}");
        assert_eq!(answer.read(&mut body).unwrap(), 0);
    }

    #[test]
    fn a_request_is_repeated_on_a_new_connection_if_the_server_left() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
        let (client, thread) = server(vec![vec![vec![ok]], vec![vec![ok]]]);
        let mut connection = open(&client);
        for _ in 0..2 {
            assert_eq!(connection.request("POST", "/", b"x").unwrap().text(), "a");
        }
        assert_eq!(thread.join().unwrap().len(), 2);
    }

    #[test]
    fn an_answer_that_is_left_closes_its_connection() {
        let (client, _thread) = server(vec![
            vec![vec!["HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"]],
            vec![vec!["HTTP/1.1 200 OK\r\n\r\nto the end"]],
        ]);
        let mut connection = open(&client);
        drop(connection.send("GET", "/", b"").unwrap());
        assert!(connection.stream.is_none());
        assert_eq!(connection.request("GET", "/", b"").unwrap().text(), "to the end");
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        for piece in [
            "",
            "HTTP/1.1 200 OK\r\nContent-",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        ] {
            let (client, _thread) = server(vec![vec![vec![piece]]]);
            assert!(open(&client).request("POST", "/", b"").is_err(), "{piece:?}");
        }
    }

    #[test]
    fn events_end_with_an_empty_line_wherever_pieces_end() {
        let text = "data: one\n\n: a comment\nid: 3\nevent: x\ndata:two\r\ndata: lines\r\n\r\ndata\r\rdata: \u{e4}\n\ndata: no end\n";
        let expected = [(None, "one"), (Some("x"), "two\nlines"), (None, ""), (None, "\u{e4}")];
        for size in 1..text.len() {
            let (mut reader, mut seen) = (EventReader::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                reader.push(piece, |event| seen.push((event.name.map(str::to_owned), event.data.to_owned())));
            }
            let seen: Vec<_> = seen.iter().map(|(name, data)| (name.as_deref(), data.as_str())).collect();
            assert_eq!(seen, expected, "{size}");
        }
    }
}
