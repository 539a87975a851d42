//! The servers of lane `load`: those that flags name, or one that this process starts.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use clap::Args;
use redline_api::model::LoadedModel;
use redline_engine::Engine;
use redline_lab::bench::{LaneError, MeasuredServer, StartedServer};
use redline_server::{ServeSummary, Server, ServerConfig, ServerStop};

use crate::message::Failure;
use crate::text;
use crate::value::{self, BadValue};

/// Which servers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers")]
pub(super) struct ServerFlags {
    /// A server to measure, such as http://127.0.0.1:8000 or NAME=http://127.0.0.1:8000 (repeatable); without one, a server with
    /// --model is started in this process
    #[arg(long, value_name = "URL", value_parser = url)]
    url: Vec<MeasuredServer>,
    /// A file with the API key of the servers: the last word of its first line that is not a comment
    #[arg(long, value_name = "FILE", requires = "url")]
    api_key_file: Option<PathBuf>,
    /// A header of every request, such as "X-Team: a" (repeatable). It is recorded with the command line, so give no secret
    #[arg(long, value_name = "HEADER", value_parser = header)]
    header: Vec<(String, String)>,
}

/// Parses `--url`.
fn url(text: &str) -> Result<MeasuredServer, BadValue> {
    MeasuredServer::parse(text)
        .or_else(|fact| value::bad(fact, "an address such as http://127.0.0.1:8000, with a name as NAME=URL"))
}

/// Parses `--header`.
fn header(text: &str) -> Result<(String, String), BadValue> {
    let is_token = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let is_value = |value: &str| value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    match text.split_once(':') {
        Some((name, value)) if is_token(name) && is_value(value.trim()) => {
            Ok((name.to_owned(), value.trim().to_owned()))
        }
        _ => value::bad("this is no header", "a name, a colon and a value, such as \"X-Team: a\""),
    }
}

impl ServerFlags {
    /// The servers that run already.
    pub(super) fn running(&self) -> Result<Vec<MeasuredServer>, Failure> {
        let mut servers = self.url.clone();
        // A single server is compared with itself at another time, when its port may differ.
        if let [server] = &mut servers[..]
            && server.address.starts_with(&server.name)
        {
            "server".clone_into(&mut server.name);
        }
        for (index, server) in servers.iter().enumerate() {
            if servers[..index].iter().any(|other| other.name == server.name) {
                let fact = format!("two servers are called `{}`", server.name);
                return Err(Failure::usage(fact, "`--url NAME=URL` names each"));
            }
        }
        Ok(servers)
    }

    /// The headers of every request.
    pub(super) fn headers(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut headers = self.header.clone();
        if let Some(path) = &self.api_key_file {
            headers.push(("Authorization".to_owned(), format!("Bearer {}", read_key(path)?)));
        }
        Ok(headers)
    }
}

/// Reads a key. Messages do not quote it.
fn read_key(path: &Path) -> Result<String, Failure> {
    let text = text::read_at_most(1 << 20, path)?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    match line.and_then(|line| line.split_whitespace().last()) {
        Some(key) if key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(key.to_owned()),
        _ => {
            let fact = format!("there is no key\n  in `{}`", path.display());
            Err(Failure::failed(fact, Some("write the key on its first line".to_owned())))
        }
    }
}

/// A server of this process, which ends when it is dropped.
struct Running {
    stop: ServerStop,
    thread: Option<JoinHandle<Option<ServeSummary>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the server was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Starts a server with this model on a free port of the loopback address.
pub(super) fn start(name: &str, engine: Engine) -> Result<StartedServer, LaneError> {
    let failed = |error: &dyn std::fmt::Display| LaneError::Input(error.to_string());
    let server = Server::bind(ServerConfig { port: 0, ..ServerConfig::default() }).map_err(|e| failed(&e))?;
    let (address, stop, info) = (server.address().to_string(), server.stop_handle(), engine.info().clone());
    let model = LoadedModel { name: name.to_owned(), engine };
    let work = move || server.run(model, None, || ()).ok();
    let thread = std::thread::Builder::new().name("server".to_owned()).spawn(work).map_err(|e| failed(&e))?;
    Ok(StartedServer { address, info, running: Box::new(Running { stop, thread: Some(thread) }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value() {
        assert_eq!(header("X-Team: a b").unwrap(), ("X-Team".to_owned(), "a b".to_owned()));
        for bad in ["", "X", ": a", "X Y: a", "X: a\r\nY: b", "X: \u{e4}"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }
}
