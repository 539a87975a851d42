//! HTTP requests to a hub.

use std::fmt;
use std::time::Duration;

use ureq::http::{HeaderMap, Uri};
use ureq::{Agent, Body};

use crate::error::{HubError, Result, address, printable};
use crate::https;

/// Maximum number of redirects of a request.
const REDIRECTS: usize = 10;
/// Maximum time until a connection is made.
const CONNECT: Duration = Duration::from_secs(20);
/// The name and version that requests carry.
const USER_AGENT: &str = concat!("redline/", env!("CARGO_PKG_VERSION"));

/// How a hub is reached.
#[derive(Clone)]
pub struct HubOptions {
    /// The address of the hub, such as `https://huggingface.co`.
    pub endpoint: String,
    /// The access token. It is sent to the endpoint only, not to other hosts to which the hub redirects.
    pub token: Option<String>,
    /// Root certificates in PEM format, in place of Mozilla's.
    pub certificates: Option<Vec<u8>>,
    /// Use the proxy that the environment variables of HTTP clients name (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).
    pub proxy_of_environment: bool,
    /// Maximum time without a byte from the hub.
    pub stall: Duration,
    /// The pause before the second attempt after a failure without progress; later pauses are longer.
    pub retry_pause: Duration,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            certificates: None,
            proxy_of_environment: true,
            stall: Duration::from_secs(30),
            retry_pause: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubOptions").field("endpoint", &address(&self.endpoint)).finish_non_exhaustive()
    }
}

/// A hub and the connections to it.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    origin: String,
    authorization: Option<String>,
    has_https: bool,
}

/// What a hub says about a file.
#[derive(Debug, Default)]
pub(crate) struct Linked {
    /// The hash of the content.
    pub(crate) etag: Option<String>,
    /// The length of the content.
    pub(crate) bytes: Option<u64>,
    /// The commit of the revision.
    pub(crate) commit: Option<String>,
}

/// A successful answer.
pub(crate) struct Answer {
    /// The address that was requested first.
    pub(crate) url: String,
    /// 200, 206 or 416.
    pub(crate) status: u16,
    pub(crate) linked: Linked,
    /// Headers of the last answer.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

impl Client {
    pub(crate) fn new(options: &HubOptions) -> Result<Self> {
        let endpoint = options.endpoint.trim_end_matches('/').to_owned();
        let origin = origin(&endpoint)
            .map_err(|problem| HubError::Endpoint { endpoint: address(&options.endpoint), problem })?;
        let token = options.token.as_deref().filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(HubError::Token);
        }
        let https = https::config(options.certificates.as_deref())?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(USER_AGENT)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(options.stall))
            .timeout_per_read(Some(options.stall));
        if !options.proxy_of_environment {
            config = config.proxy(None);
        }
        let has_https = https.is_some();
        if let Some(https) = https {
            config = config.tls_config(https);
        }
        let authorization = token.map(|token| format!("Bearer {token}"));
        Ok(Self { agent: config.build().new_agent(), endpoint, origin, authorization, has_https })
    }

    /// The address of a path of the hub.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint)
    }

    /// Requests the content of a path, from byte `from` on, and follows redirects.
    pub(crate) fn get(&self, path: &str, from: u64) -> Result<Answer> {
        self.request(path, Some(from))
    }

    /// Requests what the hub knows about a file.
    pub(crate) fn head(&self, path: &str) -> Result<Linked> {
        Ok(self.request(path, None)?.linked)
    }

    /// A `GET` from a byte on, or a `HEAD`.
    fn request(&self, path: &str, from: Option<u64>) -> Result<Answer> {
        let first = self.url(path);
        let mut url = first.clone();
        let mut linked = Linked::default();
        for _ in 0..=REDIRECTS {
            let response = self.send(&url, from)?;
            let status = response.status().as_u16();
            let (parts, body) = response.into_parts();
            let headers = parts.headers;
            let own = origin(&url).is_ok_and(|origin| origin == self.origin);
            linked.read(&headers, own && (200..300).contains(&status));
            let known = linked.etag.is_some() && linked.bytes.is_some();
            match status {
                200 | 206 | 416 => return Ok(Answer { url: first, status, linked, headers, body }),
                301 | 302 | 303 | 307 | 308 if from.is_none() && known => {
                    return Ok(Answer { url: first, status, linked, headers, body });
                }
                301 | 302 | 303 | 307 | 308 => url = redirected(&url, &headers)?,
                _ => {
                    let text = |name: &str| printable(&header(&headers, name).unwrap_or_default());
                    let (code, message) = (text("x-error-code"), text("x-error-message"));
                    return Err(HubError::Status { status, code, message, url: first });
                }
            }
        }
        Err(HubError::Answer { problem: format!("more than {REDIRECTS} redirects"), url: first })
    }

    fn send(&self, url: &str, from: Option<u64>) -> Result<ureq::http::Response<Body>> {
        if url.starts_with("https:") && !self.has_https {
            return Err(HubError::NoHttps { url: address(url) });
        }
        let mut request = if from.is_some() { self.agent.get(url) } else { self.agent.head(url) };
        if let Some(authorization) = &self.authorization
            && origin(url).is_ok_and(|origin| origin == self.origin)
        {
            request = request.header("authorization", authorization);
        }
        if let Some(from) = from.filter(|from| *from > 0) {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| HubError::Connection { cause: cause(&error), url: address(url) })
    }
}

impl Linked {
    /// Adds what the headers say, unless it is known. The headers `ETag` and `Content-Length` are those of the content only in
    /// the hub's own last answer.
    fn read(&mut self, headers: &HeaderMap, is_content: bool) {
        let content = |name: &str| if is_content { header(headers, name) } else { None };
        let hash = |etag: String| etag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
        let etag = header(headers, "x-linked-etag").or_else(|| content("etag")).map(hash);
        let bytes = header(headers, "x-linked-size").or_else(|| content("content-length"));
        self.etag = self.etag.take().or(etag);
        self.bytes = self.bytes.or_else(|| bytes?.parse().ok());
        self.commit = self.commit.take().or_else(|| header(headers, "x-repo-commit"));
    }
}

/// The value of a header, if it is text.
pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Why a request failed, without the address.
fn cause(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(phase) => format!("no answer in time ({phase})"),
        error => error.to_string(),
    }
}

/// Scheme, host and port of an address, or what is wrong with it.
fn origin(url: &str) -> Result<String, String> {
    let uri: Uri = url.parse().map_err(|error: ureq::http::uri::InvalidUri| error.to_string())?;
    match (uri.scheme_str(), uri.authority()) {
        (_, Some(authority)) if authority.as_str().contains('@') => {
            Err("it contains a user name, which is not sent".to_owned())
        }
        (Some(scheme @ ("http" | "https")), Some(authority)) => {
            Ok(format!("{scheme}://{authority}").to_ascii_lowercase())
        }
        _ => Err("it does not begin with `http://` or `https://` and a host".to_owned()),
    }
}

/// The address to which an answer redirects.
fn redirected(url: &str, headers: &HeaderMap) -> Result<String> {
    let bad = |problem: String| HubError::Answer { problem, url: address(url) };
    let location =
        header(headers, "location").ok_or_else(|| bad("a redirect without `Location`".to_owned()))?;
    let from = origin(url).map_err(bad)?;
    let next = if location.starts_with('/') && !location.starts_with("//") {
        format!("{from}{location}")
    } else {
        location
    };
    let to = origin(&next).map_err(|_| bad(format!("a redirect to `{}`", printable(&address(&next)))))?;
    if from.starts_with("https:") && to.starts_with("http:") {
        return Err(bad(format!("a redirect from `https` to `{}`", printable(&to))));
    }
    Ok(next)
}

/// Encodes a text as one part of a path (RFC 3986, section 2.1).
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(url: &str, location: &str) -> Result<String> {
        let mut headers = HeaderMap::new();
        headers.insert("location", location.parse().unwrap());
        redirected(url, &headers)
    }

    #[test]
    fn a_redirect_stays_with_http_and_does_not_leave_https() {
        let (plain, secure) = ("http://hub:80/a/b", "https://hub/a");
        assert_eq!(location(plain, "/c?d").unwrap(), "http://hub:80/c?d");
        assert_eq!(location(plain, "https://cdn/x").unwrap(), "https://cdn/x");
        assert_eq!(location(secure, "https://cdn/x").unwrap(), "https://cdn/x");
        for hostile in
            ["http://hub/a", "file:///etc/passwd", "//cdn/x", "c", "", "https://", "https://u:p@host/"]
        {
            assert!(location(secure, hostile).is_err(), "{hostile}");
        }
        assert!(redirected(plain, &HeaderMap::new()).is_err());
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        assert_eq!(origin("HTTP://Hub:8080/x").unwrap(), "http://hub:8080");
        for bad in ["hub", "ftp://hub", "http://", "", "http://user@hub", "http://a b"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts_of_a_path_are_escaped() {
        assert_eq!(escaped("refs/pr 1+%#é-_.~"), "refs%2Fpr%201%2B%25%23%C3%A9-_.~");
    }

    #[test]
    fn a_token_is_not_printed() {
        let options = HubOptions { token: Some("hf_secret".to_owned()), ..HubOptions::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
