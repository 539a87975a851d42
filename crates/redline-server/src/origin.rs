//! Web pages may send requests to this machine. Only those of the server's own origin and of origins that it allows are answered. Nor are
//! requests that another server or a proxy could read in another way.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};

use crate::answer::Answer;
use crate::fault::Fault;

/// Headers of the answer to a browser that asks whether a page may send a request (a preflight of the Fetch standard).
const PREFLIGHT: &[(&str, &str)] =
    &[("access-control-allow-methods", "GET, POST"), ("access-control-max-age", "7200")];

/// Refuses requests whose headers can be read in several ways: another transfer coding than `chunked`, no host or several, several origins.
pub(crate) fn check_unique(version: Version, headers: &HeaderMap) -> Result<(), Fault> {
    let invalid = |fact: &str| Err(Fault::invalid("invalid_http", fact));
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        || codings.next().is_some()
    {
        return invalid("the request has another `Transfer-Encoding` than `chunked`");
    }
    let hosts = headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && version >= Version::HTTP_11) {
        return invalid(&format!("the request has {hosts} headers `Host`; send one"));
    }
    let origins = headers.get_all(header::ORIGIN).iter().count();
    if origins > 1 {
        return invalid(&format!("the request has {origins} headers `Origin`; send at most one"));
    }
    Ok(())
}

/// The value of `Access-Control-Allow-Origin` for a request of a page whose origin is one of these.
pub(crate) fn allowed(headers: &HeaderMap, origins: &[String]) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    if origins.iter().any(|allowed| allowed == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    let is_allowed = |allowed: &String| origin.as_bytes().eq_ignore_ascii_case(allowed.as_bytes());
    origins.iter().any(is_allowed).then(|| origin.clone())
}

/// The answer to a preflight of a page that may send requests. A browser gives it no key.
pub(crate) fn preflight(parts: &Parts, origins: &[String]) -> Option<Answer> {
    let asks = parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let is_preflight = parts.method == Method::OPTIONS && asks && allowed(&parts.headers, origins).is_some();
    is_preflight.then(|| Answer::empty().with_headers(PREFLIGHT))
}

/// Lets pages of allowed origins read an answer. `asked` are the headers of a request that a page wants to send: it may send them all.
pub(crate) fn permit(to: &mut HeaderMap, origin: Option<HeaderValue>, asked: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    to.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    to.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
    if let Some(asked) = asked {
        to.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
}

/// Refuses requests from pages of other origins than the server's own and these. If the server is reached only from this machine and has
/// no keys (`local`), it also refuses other hosts: a page could give its own name the address of this machine.
pub(crate) fn check(headers: &HeaderMap, local: bool, origins: &[String]) -> Result<(), Fault> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(header::HOST).unwrap_or_default();
    if let Some(origin) = text(header::ORIGIN) {
        let same = origin.split_once("://").is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host));
        if !same && allowed(headers, origins).is_none() {
            return forbidden("forbidden_origin", "the request comes from a web page of another origin");
        }
    }
    if local && !host.is_empty() && !is_here(host) {
        return forbidden("forbidden_host", "the request asks for another host than this machine");
    }
    Ok(())
}

/// Whether a host, with or without a port, is this machine.
fn is_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn forbidden(code: &'static str, message: &str) -> Result<(), Fault> {
    let message = format!("{message}; use the address at which the server listens");
    Err(Fault::new(StatusCode::FORBIDDEN, code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_origins_and_other_names_of_this_machine_are_refused() {
        let code = |host: &'static str, origin: Option<&'static str>, local| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            check(&headers, local, &[]).map_err(|fault| fault.code)
        };
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:8000", "[::1]", "127.3.2.1"] {
            assert_eq!(code(host, None, true), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "localhost.evil.example"] {
            assert_eq!(code(host, None, true), Err("forbidden_host"), "{host}");
            assert_eq!(code(host, None, false), Ok(()), "{host}");
        }
        assert_eq!(code("localhost:80", Some("http://localhost:80"), true), Ok(()));
        for origin in
            ["http://evil.example", "null", "http://localhost:81", "https://localhost:80.evil.example"]
        {
            assert_eq!(code("localhost:80", Some(origin), true), Err("forbidden_origin"), "{origin}");
        }
    }

    #[test]
    fn only_pages_of_allowed_origins_may_read_answers() {
        let of = |origin: &'static str, origins: &[&str]| {
            let headers = HeaderMap::from_iter([
                (header::HOST, HeaderValue::from_static("localhost:80")),
                (header::ORIGIN, HeaderValue::from_static(origin)),
            ]);
            let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
            let value = allowed(&headers, &origins);
            assert_eq!(check(&headers, true, &origins).is_ok(), value.is_some(), "{origin}");
            value
        };
        let app = "https://app.example";
        assert_eq!(of(app, &["http://a.example", app]), Some(HeaderValue::from_static(app)));
        assert_eq!(of(app, &["*"]), Some(HeaderValue::from_static("*")));
        assert_eq!(of("null", &["*"]), Some(HeaderValue::from_static("*")));
        for other in ["https://app.example.evil", "http://app.example", "https://app.example:444", "null", ""]
        {
            assert_eq!(of(other, &[app]), None, "{other}");
        }
        // A name that a page gives to this machine stays refused.
        let headers = HeaderMap::from_iter([
            (header::HOST, HeaderValue::from_static("evil.example")),
            (header::ORIGIN, HeaderValue::from_static("http://evil.example")),
        ]);
        let refused = check(&headers, true, &["*".to_owned()]).map_err(|fault| fault.code);
        assert_eq!(refused, Err("forbidden_host"));
    }
}
