//! The cryptography of `https`: rustls with Graviola, which needs no C compiler.

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsConfigBuilder, parse_pem};

use crate::error::{HubError, Result};

/// The configuration of `https`, with Mozilla's root certificates or those in `pem`. `None` if this processor lacks the
/// instructions.
pub(crate) fn config(pem: Option<&[u8]>) -> Result<Option<TlsConfig>> {
    let Some(builder) = provider() else { return Ok(None) };
    let builder = match pem {
        Some(pem) => builder.root_certs(RootCerts::new_with_certs(&certificates(pem)?)),
        None => builder,
    };
    Ok(Some(builder.build()))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> Option<TlsConfigBuilder> {
    let provider = graviola::util::is_cpu_supported().then(rustls_graviola::default_provider)?;
    Some(TlsConfig::builder().unversioned_rustls_crypto_provider(provider.into()))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> Option<TlsConfigBuilder> {
    None
}

/// The certificates in a PEM file.
fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>> {
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(HubError::Certificates { problem: error.to_string() }),
        }
    }
    if certificates.is_empty() {
        return Err(HubError::Certificates { problem: "there is none in the file".to_owned() });
    }
    Ok(certificates)
}
