//! Answers: status, headers and body.

use std::io::{self, BufRead, Read as _};

use crate::malformed;

/// Longest line of a head.
const MAX_LINE: u64 = 1 << 16;

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body as text; invalid UTF-8 becomes U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads an answer to its end.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut answer = Self::head(from)?;
        if answer.is_chunked() {
            while let Some(chunk) = chunk(from)? {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().map_err(|_| malformed(format!("a length of `{length}`")))?;
            answer.body = exactly(from, length)?;
        } else {
            from.read_to_end(&mut answer.body)?;
        }
        Ok(answer)
    }

    /// Reads the status and the headers.
    pub(crate) fn head(from: &mut impl BufRead) -> io::Result<Self> {
        let first = line(from)?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| malformed(format!("no status in `{first}`")))?;
        let mut headers = Vec::new();
        loop {
            let line = line(from)?;
            if line.is_empty() {
                return Ok(Self { status, headers, body: Vec::new() });
            }
            let header = line.split_once(':').ok_or_else(|| malformed(format!("a header `{line}`")))?;
            headers.push((header.0.to_ascii_lowercase(), header.1.trim().to_owned()));
        }
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked"))
    }
}

/// The next chunk of a body; `None` after the last.
fn chunk(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let size = line(from)?;
    let digits = size.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(digits, 16).map_err(|_| malformed(format!("a chunk of `{size}`")))?;
    let chunk = exactly(from, size)?;
    if !line(from)?.is_empty() {
        return Err(malformed("a chunk is longer than its size"));
    }
    Ok((size > 0).then_some(chunk))
}

/// Reads this number of bytes.
fn exactly(from: &mut impl BufRead, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(count as u64).read_to_end(&mut bytes)?;
    if bytes.len() < count {
        return Err(malformed(format!("the body ended after {} of {count} bytes", bytes.len())));
    }
    Ok(bytes)
}

/// The next line, without its end.
pub(crate) fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(malformed("the connection ended within a line"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| malformed("a line is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<HttpAnswer> {
        HttpAnswer::read(&mut text.as_bytes())
    }

    #[test]
    fn a_body_has_a_length_chunks_or_an_end() {
        let body = |text: &str| read(text).map(|answer| (answer.status, answer.text()));
        let head = "HTTP/1.1 200 OK\r\n";
        let expect = (200, "abc".to_owned());
        assert_eq!(body(&format!("{head}Content-Length: 3\r\n\r\nabcdef")).unwrap(), expect);
        assert_eq!(body(&format!("{head}\r\nabc")).unwrap(), expect);
        let chunks = "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(body(&format!("{head}{chunks}")).unwrap(), expect);
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-",
            "HTTP/1.1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
