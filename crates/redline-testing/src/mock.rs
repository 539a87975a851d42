//! A server whose answers and delays are known: what a client measures is compared with it. It shares no code with any client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How the server answers.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Sleep before the first token, and between tokens.
    pub first: Duration,
    pub between: Duration,
    /// Tokens of an answer, whatever is asked for; 0: as many as are asked for.
    pub tokens: usize,
    /// Tokens in each chunk of a stream; 0: one.
    pub in_a_chunk: usize,
    /// Fields that are refused with status 400.
    pub unknown: &'static [&'static str],
    /// Of so many requests, one is answered with this status; 0: none.
    pub fails_every: usize,
    /// So many requests before are all answered.
    pub spared: usize,
    pub failure: u16,
    /// Whether a failing stream breaks off after its first token, instead of being answered with a status.
    pub breaks_off: bool,
}

impl Script {
    /// Whether a request fails, or its stream.
    fn fails(&self, number: usize) -> bool {
        self.fails_every > 0 && number > self.spared && number % self.fails_every == 0
    }
}

/// A running server. Its threads end with the process.
pub struct Mock {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    bodies: Vec<String>,
    connections: usize,
    heads: Vec<String>,
    running: usize,
    most_running: usize,
}

impl Mock {
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (script.clone(), shared.clone());
                seen.lock().unwrap().connections += 1;
                thread::spawn(move || serve(stream.unwrap(), &script, &seen));
            }
        });
        Self { address, seen }
    }

    /// The bodies of all requests that were posted, in the order in which they came.
    pub fn bodies(&self) -> Vec<String> {
        self.seen.lock().unwrap().bodies.clone()
    }

    /// The heads of all requests.
    pub fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().heads.clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// The most requests that ran at a time.
    pub fn most_running(&self) -> usize {
        self.seen.lock().unwrap().most_running
    }
}

/// A request, which ends before the last bytes of its answer are sent: the client may send the next one as soon as it has these.
struct Running<'a>(&'a Mutex<Seen>);

impl<'a> Running<'a> {
    fn begin(seen: &'a Mutex<Seen>) -> Self {
        let mut now = seen.lock().unwrap();
        now.running += 1;
        now.most_running = now.most_running.max(now.running);
        Self(seen)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().running -= 1;
    }
}

/// Answers the requests of a connection until it ends.
fn serve(stream: TcpStream, script: &Script, seen: &Mutex<Seen>) {
    stream.set_nodelay(true).unwrap();
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length =
            head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map_or("0", str::trim);
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.heads.push(head.clone());
            if head.starts_with("POST") {
                seen.bodies.push(body.clone());
            }
            seen.bodies.len()
        };
        let kept = if head.starts_with("GET") {
            whole(&mut stream, 200, r#"{"object":"list","data":[{"id":"mock-model"}]}"#)
        } else {
            answer(&mut stream, script, &head, &body, (number, Running::begin(seen)))
        };
        if !kept {
            return;
        }
    }
}

/// Writes a document; whether the connection stays.
fn whole(stream: &mut BufReader<TcpStream>, status: u16, body: &str) -> bool {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.get_mut().write_all((head + body).as_bytes()).is_ok()
}

/// The number after `"name":`.
fn number_of(body: &str, name: &str) -> Option<usize> {
    let (_, rest) = body.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The status and the document with which a request is refused, if it is.
fn refusal(script: &Script, body: &str, number: usize) -> Option<(u16, String)> {
    let unknown = script.unknown.iter().find(|field| body.contains(&format!("\"{field}\":")));
    if let Some(field) = unknown {
        let message = format!("`{field}` is not known, but `stream`, `stream_options` and `ignore_eos` are");
        return Some((400, format!(r#"{{"error":{{"message":"{message}","param":"{field}"}}}}"#)));
    }
    let refused = script.fails(number) && !script.breaks_off;
    refused.then(|| (script.failure, r#"{"error":{"message":"the mock fails"}}"#.to_owned()))
}

fn answer(
    stream: &mut BufReader<TcpStream>,
    script: &Script,
    head: &str,
    body: &str,
    (number, running): (usize, Running<'_>),
) -> bool {
    if let Some((status, document)) = refusal(script, body, number) {
        drop(running);
        return whole(stream, status, &document);
    }
    let fails = script.fails(number);
    let streams = body.contains("\"stream\":true");
    if !streams {
        thread::sleep(script.first);
    }
    if !head.contains("/completions") {
        drop(running);
        return whole(stream, 200, r#"{"scores":[[0.5,0.5]],"usage":{"prompt_tokens":3}}"#);
    }
    let tokens = if script.tokens > 0 { script.tokens } else { number_of(body, "max_tokens").unwrap() };
    // Half as many words again as tokens, so that a client that counts words counts wrong.
    let prompt = body.split_whitespace().count() * 3 / 2;
    let usage = |tokens: usize| {
        format!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{tokens},"prompt_tokens_details":{{"cached_tokens":1}}}}"#
        )
    };
    let is_chat = head.contains("/chat/");
    let text = |from: usize, to: usize| (from..to).map(|token| token.to_string() + " ").collect::<String>();
    if !streams {
        thread::sleep(script.between * (tokens as u32 - 1));
        let choice = if is_chat {
            format!(r#"{{"message":{{"content":"{}"}}}}"#, text(0, tokens))
        } else {
            format!(r#"{{"text":"{}"}}"#, text(0, tokens))
        };
        drop(running);
        return whole(stream, 200, &format!(r#"{{"choices":[{choice}],"usage":{}}}"#, usage(tokens)));
    }
    let each = body.contains("continuous_usage_stats");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
    if stream.get_mut().write_all(head.as_bytes()).is_err() {
        return false;
    }
    let mut send = |data: &str| {
        let event = format!("data: {data}\n\n");
        stream.get_mut().write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).is_ok()
    };
    // The chunk that names the role comes before the first token, and is none.
    if is_chat && !send(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#) {
        return false;
    }
    thread::sleep(script.first);
    let mut sent = 0;
    while sent < tokens {
        if sent > 0 {
            thread::sleep(script.between);
        }
        let next = (sent + script.in_a_chunk.max(1)).min(tokens);
        let choice = if is_chat {
            format!(r#"{{"delta":{{"content":"{}"}}}}"#, text(sent, next))
        } else {
            format!(r#"{{"text":"{}"}}"#, text(sent, next))
        };
        let counted = if each { format!(r#","usage":{}"#, usage(next)) } else { String::new() };
        if !send(&format!(r#"{{"choices":[{choice}]{counted}}}"#)) || fails {
            return false;
        }
        sent = next;
    }
    let finished = send(r#"{"choices":[{"delta":{},"text":"","finish_reason":"length"}]}"#);
    let counted =
        !body.contains("stream_options") || send(&format!(r#"{{"choices":[],"usage":{}}}"#, usage(tokens)));
    drop(running);
    finished && counted && send("[DONE]") && stream.get_mut().write_all(b"0\r\n\r\n").is_ok()
}
