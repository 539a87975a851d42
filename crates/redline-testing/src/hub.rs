//! A hub on 127.0.0.1 with the paths and the headers of huggingface.co. A test may change every reply.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The only model of the hub.
pub const ID: &str = "org/name";
/// The commit of its branch `main`.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of the model.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub content: Vec<u8>,
    /// Large files lie in LFS: their hash is a SHA-256, and they come from another host.
    pub lfs: bool,
}

impl File {
    pub fn small(name: &str, content: &[u8]) -> Self {
        Self { name: name.to_owned(), content: content.to_owned(), lfs: false }
    }

    pub fn large(name: &str, content: &[u8]) -> Self {
        Self { lfs: true, ..Self::small(name, content) }
    }

    /// The hash of the content, which names its blob.
    pub fn hash(&self) -> String {
        if self.lfs {
            return hexadecimal(&Sha256::digest(&self.content));
        }
        let mut sha1 = Sha1::new();
        sha1.update(format!("blob {}\0", self.content.len()));
        sha1.update(&self.content);
        hexadecimal(&sha1.finalize())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A request that the hub has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path with the query.
    pub path: String,
    /// The first byte of the requested range.
    pub from: u64,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// Whether it was sent to the host of large files.
    pub to_storage: bool,
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The number of bytes of the body after which the connection is closed.
    pub cut: Option<usize>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let headers = vec![("Content-Length", body.len().to_string())];
        Self { status, headers, body, cut: None }
    }

    /// Adds a header, in place of any with the same name.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }

    fn refused(status: u16, code: &str, message: &str) -> Self {
        Self::new(status, "").with("X-Error-Code", code).with("X-Error-Message", message)
    }
}

pub type Change = dyn Fn(&Request, Reply) -> Reply + Send + Sync;

/// A connection from a client.
pub trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// Turns a connection into one that is encrypted, or returns it.
pub type Accept = dyn Fn(TcpStream) -> Box<dyn Connection> + Send + Sync;

/// A running hub. Its threads end with the process.
pub struct TestHub {
    pub endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

struct Service {
    files: Vec<File>,
    change: Box<Change>,
    requests: Arc<Mutex<Vec<Request>>>,
    scheme: &'static str,
    storage: SocketAddr,
}

impl TestHub {
    pub fn start(files: &[File]) -> Self {
        Self::changed(files, |_, reply| reply)
    }

    /// A hub whose replies are changed by a function.
    pub fn changed(
        files: &[File],
        change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::accepting(
            files,
            Box::new(change),
            "http",
            Arc::new(|stream: TcpStream| -> Box<dyn Connection> { Box::new(stream) }),
        )
    }

    /// A hub with addresses of this scheme, whose connections `accept` turns into such.
    pub fn accepting(files: &[File], change: Box<Change>, scheme: &'static str, accept: Arc<Accept>) -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (hub, storage) = (bind(), bind());
        let address = hub.local_addr().expect("bound");
        let requests = Arc::default();
        let service = Arc::new(Service {
            files: files.to_vec(),
            change,
            requests: Arc::clone(&requests),
            scheme,
            storage: storage.local_addr().expect("bound"),
        });
        for (listener, is_storage) in [(hub, false), (storage, true)] {
            let (service, accept) = (Arc::clone(&service), Arc::clone(&accept));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (service, accept) = (Arc::clone(&service), Arc::clone(&accept));
                    thread::spawn(move || service.serve(accept(stream), is_storage));
                }
            });
        }
        Self { endpoint: format!("{scheme}://{address}"), requests }
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }

    /// The method, the path and the first byte of all requests so far, in order.
    pub fn paths(&self) -> Vec<String> {
        let line = |r: &Request| format!("{} {} {}", r.method, r.path, r.from);
        self.requests().iter().map(line).collect()
    }
}

impl Service {
    /// Answers one request, and closes the connection. A client that leaves is no error.
    fn serve(&self, stream: impl Read + Write, is_storage: bool) {
        let mut stream = BufReader::new(stream);
        let Some(request) = read_request(&mut stream, is_storage) else { return };
        self.requests.lock().expect("no panic").push(request.clone());
        let reply = (self.change)(&request, self.reply(&request));
        let mut head = format!("HTTP/1.1 {} Status\r\nConnection: close\r\n", reply.status);
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let stream = stream.get_mut();
        let mut sent = stream.write_all(format!("{head}\r\n").as_bytes());
        if request.method != "HEAD" {
            let body = &reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
            sent = sent.and_then(|()| stream.write_all(body));
        }
        let _ = sent.and_then(|()| stream.flush());
    }

    fn reply(&self, request: &Request) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        let file = |name: &str| self.files.iter().find(|file| file.name == name);
        if let Some(revision) = path.strip_prefix(&format!("/api/models/{ID}/revision/")) {
            return match revision {
                "main" | "refs%2Fpr%2F1" | COMMIT => self.list(),
                _ => Reply::refused(404, "RevisionNotFound", "Invalid rev id"),
            };
        }
        let resolve = format!("/{ID}/resolve/{COMMIT}/");
        if let Some(file) = path.strip_prefix(&resolve).and_then(file) {
            let reply = if file.lfs {
                let location =
                    format!("{}://{}/blobs/{}?signature=1", self.scheme, self.storage, file.hash());
                let size = file.content.len().to_string();
                let reply = Reply::new(302, "Found").with("Location", location);
                reply.with("X-Linked-Etag", format!("\"{}\"", file.hash())).with("X-Linked-Size", size)
            } else {
                Reply::new(307, "").with("Location", format!("/api/resolve-cache/{}", file.name))
            };
            return reply.with("X-Repo-Commit", COMMIT);
        }
        if let Some(file) = path.strip_prefix("/api/resolve-cache/").and_then(file) {
            let reply = content(&file.content, request.from);
            return reply.with("ETag", format!("\"{}\"", file.hash())).with("X-Repo-Commit", COMMIT);
        }
        let blob = path.strip_prefix("/blobs/").filter(|_| request.to_storage);
        if let Some(file) = blob.and_then(|hash| self.files.iter().find(|file| file.hash() == hash)) {
            // The tag of the storage is not the hash.
            return content(&file.content, request.from).with("ETag", "\"storage-tag\"");
        }
        Reply::refused(401, "RepoNotFound", "Invalid username or password.")
    }

    fn list(&self) -> Reply {
        let siblings: Vec<_> = self
            .files
            .iter()
            .map(|file| {
                let (name, size) = (&file.name, file.content.len());
                let blob = "b".repeat(40);
                if file.lfs {
                    let lfs = json!({"sha256": file.hash(), "size": size, "pointerSize": 134});
                    json!({"rfilename": name, "blobId": blob, "size": size, "lfs": lfs})
                } else {
                    json!({"rfilename": name, "blobId": file.hash(), "size": size})
                }
            })
            .collect();
        Reply::new(200, json!({"id": ID, "sha": COMMIT, "siblings": siblings}).to_string())
    }
}

/// The content from a byte on, as a server with ranges sends it.
fn content(content: &[u8], from: u64) -> Reply {
    let length = content.len();
    match from as usize {
        0 => Reply::new(200, content),
        from if from < length => {
            let range = format!("bytes {from}-{}/{length}", length - 1);
            Reply::new(206, &content[from..]).with("Content-Range", range)
        }
        _ => Reply::new(416, "").with("Content-Range", format!("bytes */{length}")),
    }
}

fn read_request(stream: &mut impl BufRead, to_storage: bool) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, from: 0, authorization: None, to_storage };
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { return Some(request) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "range" => request.from = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()?,
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
}
