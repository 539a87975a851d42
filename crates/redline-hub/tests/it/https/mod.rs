//! Encrypted connections. The certificates are made by `make.py`.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use redline_hub::{HubError, HubOptions};
use redline_weights::Disk;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::tempdir;

use crate::{model, options, pull_with, tree};
use redline_testing::hub::{Connection, ID, Reply, Request, TestHub};

const AUTHORITY: &[u8] = include_bytes!("authority.pem");

/// A hub with an encrypted address on 127.0.0.1. `None` if this processor lacks the instructions.
fn hub() -> Option<TestHub> {
    if !graviola::util::is_cpu_supported() {
        redline_testing::skip("this processor lacks the instructions for `https`");
        return None;
    }
    let certificate = CertificateDer::from_pem_slice(include_bytes!("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    Some(TestHub::accepting(
        &model(),
        Box::new(|_: &Request, reply: Reply| reply),
        "https",
        Arc::new(move |stream: TcpStream| -> Box<dyn Connection> {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(StreamOwned::new(connection, stream))
        }),
    ))
}

#[test]
fn a_hub_with_a_certificate_of_a_known_authority_is_used() {
    let Some(hub) = hub() else { return };
    let cache = tempdir().unwrap();
    let options = HubOptions { certificates: Some(AUTHORITY.to_owned()), ..options(&hub.endpoint) };
    let dir = pull_with(&options, ID, cache.path(), Disk::default()).0.unwrap();
    assert_eq!(fs::read(dir.join("model.safetensors")).unwrap(), model()[3].content);
}

#[test]
fn a_hub_with_another_certificate_is_refused() {
    let Some(hub) = hub() else { return };
    let cache = tempdir().unwrap();
    let (result, _) = pull_with(&options(&hub.endpoint), ID, cache.path(), Disk::default());
    let Err(HubError::Connection { cause, .. }) = result else { panic!("{result:?}") };
    assert!(cause.contains("UnknownIssuer"), "{cause}");
    // A certificate for the address 127.0.0.1 is none for a name.
    let named = hub.endpoint.replace("127.0.0.1", "localhost");
    let options = HubOptions { certificates: Some(AUTHORITY.to_owned()), ..options(&named) };
    let result = pull_with(&options, ID, cache.path(), Disk::default()).0;
    assert!(matches!(result, Err(HubError::Connection { .. })), "{result:?}");
    assert!(hub.requests().is_empty() && tree(cache.path()).is_empty());
}

#[test]
fn certificates_that_are_none_are_refused() {
    for (pem, expect) in
        [(&b""[..], "there is none in the file"), (&b"-----BEGIN CERTIFICATE-----\nx"[..], "")]
    {
        let options = HubOptions { certificates: Some(pem.to_owned()), ..options("https://127.0.0.1:1") };
        let cache = tempdir().unwrap();
        match pull_with(&options, ID, cache.path(), Disk::default()).0 {
            Err(HubError::Certificates { problem }) => assert!(problem.contains(expect), "{problem}"),
            Err(HubError::NoHttps { .. }) => redline_testing::skip("this processor lacks the instructions"),
            other => panic!("{other:?}"),
        }
    }
}
