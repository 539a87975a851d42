//! `redline health`: asks a server whether it takes requests.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use redline_client::HttpClient;
use redline_lab::bench::MeasuredServer;

use crate::message::Failure;
use crate::output;
use crate::value::{self, BadValue};

/// Arguments of `health`.
#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    /// The server, by HTTP without TLS
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8000", value_parser = url)]
    url: MeasuredServer,
    /// Seconds to wait for the connection, and then for the answer
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = patience)]
    timeout: f64,
}

/// Parses the address.
fn url(text: &str) -> Result<MeasuredServer, BadValue> {
    MeasuredServer::parse(text).or_else(|fact| value::bad(fact, "an address such as http://127.0.0.1:8000"))
}

/// Parses `--timeout`.
fn patience(text: &str) -> Result<f64, BadValue> {
    value::seconds_up_to(text, 3600.0)
}

/// Asks for `/ready`.
pub(super) fn run(args: &HealthArgs) -> Result<ExitCode, Failure> {
    let address = &args.url.address;
    let mut connection = HttpClient::new(address.as_str()).open(Duration::from_secs_f64(args.timeout));
    let path = format!("{}/ready", args.url.base);
    let place = format!("\n  in `http://{address}{path}`");
    let answer = connection.request("GET", &path, b"").map_err(|error| {
        let hint = "`redline serve` prints the address at which it listens";
        Failure::failed(format!("no answer: {error}{place}"), Some(hint.to_owned()))
    })?;
    if answer.status != 200 {
        let fact = format!("the server takes no requests: status {}{place}", answer.status);
        return Err(Failure::failed(fact, None));
    }
    output::line("ready")?;
    Ok(ExitCode::SUCCESS)
}
