//! Connections over TLS and Unix sockets.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use redline_client::HttpAnswer;
use redline_server::{ServeError, Server, ServerConfig, TlsFiles};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::server::{Running, model, start_with};

/// A certificate for 127.0.0.1 and its authority, made by `make.py` there.
fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../redline-hub/tests/it/https").join(name)
}

fn files() -> TlsFiles {
    TlsFiles { certificate: file("server.pem"), key: file("server.key") }
}

/// Sends a request, and reads the answer.
fn ask(mut stream: impl Read + Write, head: &str) -> std::io::Result<HttpAnswer> {
    stream
        .write_all(format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    HttpAnswer::read(&mut BufReader::new(stream))
}

/// A connection to this address that trusts one authority.
fn encrypted(address: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("authority.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, TcpStream::connect(address).unwrap())
}

fn has_tls() -> bool {
    let supported = graviola::util::is_cpu_supported();
    if !supported {
        redline_testing::skip("this processor lacks the instructions for TLS");
    }
    supported
}

#[test]
fn requests_are_answered_over_tls_and_in_plain_text_they_are_not() {
    if !has_tls() {
        return;
    }
    let server: Running = start_with(model(), |config| config.tls = Some(files()));
    let address = server.address().to_owned();
    let answer = ask(encrypted(&address), "GET /ready").unwrap();
    assert_eq!(answer.status, 200);
    assert!(server.client.get("/ready").map(|answer| answer.status).is_err());
    // A client that breaks off, or says nothing, keeps nobody else waiting.
    let silent = TcpStream::connect(&address).unwrap();
    drop(TcpStream::connect(&address).unwrap());
    assert_eq!(ask(encrypted(&address), "GET /health").unwrap().status, 200);
    // Nor does it keep the server from ending.
    drop(server.end());
    drop(silent);
}

#[test]
fn a_full_server_with_tls_sends_nothing_that_is_not_encrypted() {
    if !has_tls() {
        return;
    }
    let server = start_with(model(), |config| {
        config.tls = Some(files());
        config.limits.connections = 1;
    });
    let first = TcpStream::connect(server.address()).unwrap();
    let mut sent = Vec::new();
    // The connection may be reset.
    let _ = TcpStream::connect(server.address()).unwrap().read_to_end(&mut sent);
    assert!(sent.is_empty(), "{}", String::from_utf8_lossy(&sent));
    drop(first);
}

#[test]
fn certificates_that_do_not_fit_are_refused_before_the_port_is_opened() {
    if !has_tls() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let fact = |certificate: &Path, key: &Path| {
        let tls = Some(TlsFiles { certificate: certificate.to_owned(), key: key.to_owned() });
        match Server::bind(ServerConfig { port: 0, tls, ..ServerConfig::default() }) {
            Err(ServeError::Tls { path, problem }) => (path, problem),
            other => panic!("{:?}", other.map(|server| server.url())),
        }
    };
    let (certificate, key) = (file("server.pem"), file("server.key"));
    assert_eq!(fact(&empty, &key), (empty.clone(), "there is no certificate in PEM".to_owned()));
    assert_eq!(fact(&certificate, &empty).0, empty);
    assert_eq!(fact(&certificate, &certificate).0, certificate);
    // The authority's certificate has another key.
    assert_eq!(fact(&file("authority.pem"), &key).0, key);
    let missing = folder.path().join("none");
    assert_eq!(fact(&missing, &key).0, missing);
}

#[cfg(unix)]
#[test]
fn requests_are_answered_over_a_unix_socket() {
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redline.sock");
    let server = start_with(model(), |config| config.unix_socket = Some(path.clone()));
    for head in ["GET /ready", "GET /v1/models"] {
        assert_eq!(ask(UnixStream::connect(&path).unwrap(), head).unwrap().status, 200);
    }
    let taken = ServerConfig { unix_socket: Some(path.clone()), ..ServerConfig::default() };
    match Server::bind(taken) {
        Err(ServeError::Bind { address, .. }) => assert_eq!(address, path.display().to_string()),
        other => panic!("{:?}", other.map(|server| server.url())),
    }
    drop(server);
    assert!(!path.exists());
}
