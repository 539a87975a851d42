//! The servers that a lane measures over HTTP.

use std::any::Any;

use redline_engine::ModelInfo;

use super::Result;

/// Servers, and what every request to them carries.
pub struct Servers<'a> {
    /// Servers that run already. If there are none, [`start`](Self::start) starts one.
    pub running: Vec<MeasuredServer>,
    /// The model that requests name; `None` for the first that a server lists.
    pub model: Option<String>,
    /// Headers of every request. They may be secret.
    pub headers: Vec<(String, String)>,
    /// Starts a server of this program with so many threads.
    pub start: &'a dyn Fn(usize) -> Result<StartedServer>,
}

/// A server that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredServer {
    /// The name in rows.
    pub name: String,
    /// `HOST:PORT`.
    pub address: String,
    /// What comes before the path of every route, such as `/api`; often empty.
    pub base: String,
}

/// A server that was started for a measurement. It ends when this value is dropped.
pub struct StartedServer {
    /// `HOST:PORT`.
    pub address: String,
    /// Its model.
    pub info: ModelInfo,
    /// Ends the server when it is dropped.
    pub running: Box<dyn Any>,
}

impl MeasuredServer {
    /// Reads `NAME=http://HOST:PORT/BASE`, where the name and the base are optional. An error tells what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, url) = match text.split_once('=') {
            Some((name, url)) if !name.contains("://") => (Some(name), url),
            _ => (None, text),
        };
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(if url.starts_with("https://") {
                "TLS is not supported"
            } else {
                "this is no address that begins with http://"
            });
        };
        let (host, base) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}@?#".contains(&byte))
        };
        if host.is_empty() || !plain(host) || !plain(base) {
            return Err("there is no plain host in it");
        }
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        if name.is_some_and(|name| !is_name(name)) {
            return Err("a name has letters, digits and `.`, `_`, `-`");
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        // The paths of routes begin with `/v1`, which many addresses end with.
        let base = base.trim_end_matches('/');
        let base =
            base.strip_suffix("v1").filter(|base| base.is_empty() || base.ends_with('/')).unwrap_or(base);
        let base = base.trim_end_matches('/');
        let base = if base.is_empty() { String::new() } else { format!("/{base}") };
        Ok(Self { name: name.unwrap_or(host).to_owned(), address, base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_name_a_host_and_a_base() {
        let parsed = |text: &str| MeasuredServer::parse(text).map(|it| (it.name, it.address, it.base));
        let is = |name: &str, address: &str, base: &str| {
            Ok((name.to_owned(), address.to_owned(), base.to_owned()))
        };
        assert_eq!(parsed("http://127.0.0.1:8000"), is("127.0.0.1:8000", "127.0.0.1:8000", ""));
        assert_eq!(parsed("ours=http://localhost:1/"), is("ours", "localhost:1", ""));
        assert_eq!(parsed("http://host/v1"), is("host", "host:80", ""));
        assert_eq!(parsed("a-b.c=http://[::1]:8080/x/v1/"), is("a-b.c", "[::1]:8080", "/x"));
        assert_eq!(parsed("http://[::1]/x=y"), is("[::1]", "[::1]:80", "/x=y"));
        assert_eq!(parsed("http://h/dev1"), is("h", "h:80", "/dev1"));
        for (bad, why) in [
            ("", "http://"),
            ("127.0.0.1:8000", "http://"),
            ("https://x", "TLS"),
            ("http://", "host"),
            ("http://a b", "host"),
            ("http://a\r\nX: y", "host"),
            ("http://user@host", "host"),
            ("=http://x", "name"),
            ("a b=http://x", "name"),
        ] {
            assert!(MeasuredServer::parse(bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
