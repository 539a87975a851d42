//! Encrypted connections: TLS 1.3 by rustls, with Graviola's cryptography, which needs no C compiler.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;
use crate::error::ServeError;

/// Reads certificate and key.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    let provider = provider().ok_or_else(|| {
        failed(&files.certificate, &"this processor lacks the instructions for encrypted connections")
    })?;
    let certificates = CertificateDer::pem_slice_iter(&read(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(&files.certificate, &error))?;
    if certificates.is_empty() {
        return Err(failed(&files.certificate, &"there is no certificate in PEM"));
    }
    let key =
        PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| failed(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| failed(&files.key, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    fs::read(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, problem: &dyn fmt::Display) -> ServeError {
    ServeError::Tls { path: path.to_owned(), problem: problem.to_string() }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> Option<CryptoProvider> {
    graviola::util::is_cpu_supported().then(rustls_graviola::default_provider)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> Option<CryptoProvider> {
    None
}
