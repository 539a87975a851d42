//! Who sends a request.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::config::ApiKey;
use crate::fault::Fault;

/// The name of everybody, if there are no keys.
pub(crate) const ANYBODY: &str = "anybody";

/// The name of the owner of the key in these headers. Every key is compared in constant time, also after one is found.
pub(crate) fn caller(headers: &HeaderMap, keys: &[ApiKey]) -> Result<String, Fault> {
    let Some(given) = presented(headers) else {
        let message = "no API key is given; send `Authorization: Bearer KEY`";
        return Err(Fault::new(StatusCode::UNAUTHORIZED, "missing_api_key", message));
    };
    let digest: [u8; 32] = Sha256::digest(given).into();
    let mut found = None;
    for key in keys {
        if bool::from(key.digest.ct_eq(&digest)) {
            found = Some(key);
        }
    }
    match found {
        Some(key) => Ok(key.name.clone()),
        None => {
            let message = "the API key is not one of the server's; check the key";
            Err(Fault::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
        }
    }
}

/// The key in the headers; an empty one counts as none.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    let given = bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes));
    given.map(<[u8]>::trim_ascii).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_in_either_header_and_names_its_owner() {
        let keys = [ApiKey::new("a", "one"), ApiKey::new("b", "two")];
        let named = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            caller(&headers, &keys).map_err(|fault| fault.code)
        };
        assert_eq!(named("authorization", "Bearer two"), Ok("b".to_owned()));
        assert_eq!(named("authorization", "bearer  one "), Ok("a".to_owned()));
        assert_eq!(named("x-api-key", "one"), Ok("a".to_owned()));
        assert_eq!(named("authorization", "Bearer tw"), Err("invalid_api_key"));
        assert_eq!(named("authorization", "Bearer "), Err("missing_api_key"));
        assert_eq!(named("authorization", "Basic two"), Err("missing_api_key"));
    }
}
