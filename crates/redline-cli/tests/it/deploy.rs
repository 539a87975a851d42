//! The server as a service: its socket, its readiness, the question for it, and the files in `deploy/`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};

use redline_client::HttpAnswer;

use crate::harness::{command, redline};

const UNIT: &str = include_str!("../../../../deploy/systemd/redline.service");
const CONTAINER: &str = include_str!("../../../../deploy/container/Dockerfile");

/// A running server, and its first line. It is ended when it is dropped.
struct Service(Child);

impl Service {
    fn start(flags: &[&str], notify: Option<&std::path::Path>) -> (Self, String) {
        let mut command =
            command(&[&["serve", "--model", "demo", "--quiet", "--threads", "1"], flags].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(path) = notify {
            command.env("NOTIFY_SOCKET", path);
        }
        let mut child = command.spawn().expect("the binary starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        (Self(child), first.trim_end().to_owned())
    }

    /// Asks it to end, and waits.
    fn end(mut self) {
        let ended = Command::new("kill").arg(self.0.id().to_string()).status().unwrap();
        assert!(ended.success() && self.0.wait().unwrap().success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_socket_is_served_and_systemd_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, notify) = (folder.path().join("s"), folder.path().join("notify"));
    let supervisor = UnixDatagram::bind(&notify).unwrap();
    let (service, first) = Service::start(&["--unix-socket", socket.to_str().unwrap()], Some(&notify));
    assert_eq!(first, format!("listening on unix:{}", socket.display()));
    let mut message = [0; 64];
    let length = supervisor.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1\n");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: redline\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(HttpAnswer::read(&mut BufReader::new(stream)).unwrap().status, 200);
    service.end();
    assert!(!socket.exists());
}

#[test]
fn health_is_readiness() {
    let (service, first) = Service::start(&["--port", "0"], None);
    let url = first.strip_prefix("listening on ").unwrap();
    let run = redline(&["health", url]).ok();
    assert_eq!(run.out, "ready\n");
    let elsewhere = format!("{url}/elsewhere");
    redline(&["health", &elsewhere]).failed(&["status 404", "/elsewhere/ready"]);
    service.end();
    redline(&["health", url]).failed(&["no answer", url]);
    // A server that says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    redline(&["health", &url, "--timeout", "0.2"]).failed(&["no answer", &url]);
}

#[test]
fn a_certificate_that_cannot_be_used_is_reported_at_once() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../redline-hub/tests/it/https/");
    let (certificate, key) = (format!("{here}server.pem"), format!("{here}authority.pem"));
    let flags = ["serve", "--model", "demo", "--port", "0"];
    let run = redline(&[&flags[..], &["--tls-cert", &certificate, "--tls-key", &key]].concat());
    run.failed(&["authority.pem", "`--tls-cert` and `--tls-key` take"]);
}

/// The value of a line `NAME VALUE` or `NAME=VALUE`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let of_line = |line: &'a str| line.strip_prefix(name)?.strip_prefix(['=', ' ']);
    text.lines().find_map(of_line).unwrap_or_else(|| panic!("no `{name}`"))
}

#[test]
fn what_the_files_of_services_call_is_there() {
    let help = redline(&["serve", "--help-all"]).ok().out;
    let flags_are_known = |words: &[&str]| {
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(&format!("{flag} ")), "{flag}");
        }
    };
    let start: Vec<&str> = value(UNIT, "ExecStart").split(' ').collect();
    assert_eq!(start[..2], ["/usr/local/bin/redline", "serve"]);
    flags_are_known(&start);
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap();
    assert_eq!(list(value(CONTAINER, "ENTRYPOINT")), ["/redline"]);
    let words = list(value(CONTAINER, "CMD"));
    assert_eq!(words[0], "serve");
    flags_are_known(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let (_, check) = value(CONTAINER, "HEALTHCHECK").split_once("CMD ").unwrap();
    assert_eq!(list(check), ["/redline", "health"]);
    let all = redline(&["--help"]).ok().out;
    for name in ["REDLINE_MODEL", "REDLINE_FORMAT"] {
        assert!(all.contains(name) && UNIT.contains(&format!("#   {name}=")), "{name}");
    }
    assert!(value(CONTAINER, "ENV").starts_with("REDLINE_MODEL="));
}
