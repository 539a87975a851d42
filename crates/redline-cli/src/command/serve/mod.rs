//! `redline serve`: answers requests over HTTP.

mod models;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use redline_engine::{ClassifyRequest, Label};
use redline_server::{ApiKey, LogSink, ServeError, Server, ServerConfig, ServerLimits, TlsFiles};
use redline_system::number;

use self::models::{ServedModels, Which};
use super::bench::throughput;
use super::template::TemplateFile;
use super::{Context, judge};
use crate::adapters::LoadedAdapters;
use crate::message::{self, Failure, INTERRUPTED};
use crate::model::MachineFlags;
use crate::prefix_cache::PrefixCacheFlags;
use crate::{env, output, text, value};

/// Flags of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    models: ServedModels,
    /// Address to listen at; 0.0.0.0 for all of the machine
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    host: String,
    /// Port to listen at; 0 lets the system choose one
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    port: u16,
    /// Listen at a Unix socket instead of a port: its file is made, and removed in the end
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port", "tls_cert"])]
    unix_socket: Option<PathBuf>,
    /// Encrypt connections (TLS 1.3): a file with the certificate, and with those between it and a known authority, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// A file with the private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The names of the model, in place of its own: answers and `/v1/models` have the first one, and requests may ask for any of them
    #[arg(long, value_name = "NAME", num_args = 1..)]
    served_model_name: Vec<String>,
    /// A further name under which requests may ask for the model (repeatable)
    #[arg(long, value_name = "NAME")]
    model_alias: Vec<String>,
    /// Let requests ask for the model by any name, which their answers repeat. The names of adapters keep their meaning
    #[arg(long)]
    any_model: bool,
    /// A class of `/predict` (repeatable, at least two; or all at once, as `good,bad`); without classes the route has status 424
    #[arg(long, alias = "classes", value_name = "TEXT")]
    class: Vec<String>,
    /// A file with the API keys that give access: lines `NAME KEY`, where NAME appears in the log. Without it, everybody who reaches
    /// the port has access
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// An API key that gives access, besides those of the file. Other users of the machine may see it in the list of processes: a file
    /// is safer, and so is the variable [env: REDLINE_API_KEY]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Origins whose web pages may send requests and read the answers, such as `https://app.example`; `*` stands for all. Without it,
    /// only the page of this server may
    #[arg(long, value_name = "ORIGIN", num_args = 1.., value_parser = origin)]
    allow_origin: Vec<String>,
    /// Maximum number of prompts that wait or run, up to 256; further requests are refused with status 429
    #[arg(long, value_name = "N", default_value_t = MAX_QUEUED, value_parser = queue)]
    queue: usize,
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = connections)]
    max_connections: usize,
    /// Largest body of a request, up to 4 GiB
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = body)]
    max_body: u64,
    /// Time limit in seconds of requests that have no `timeout_s`
    #[arg(long, value_name = "S", default_value_t = 600.0, value_parser = seconds)]
    request_timeout: f64,
    /// Seconds that requests without the header `X-Queue-Timeout` may wait to begin, before they are refused with status 503; default:
    /// as long as their time limit
    #[arg(long, value_name = "S", value_parser = seconds)]
    queue_timeout: Option<f64>,
    /// Seconds for which the engine may stand still in the middle of work before `/ready` has status 503
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = seconds)]
    watchdog: f64,
    /// Seconds that running requests have after SIGTERM or Ctrl-C
    #[arg(long, value_name = "S", default_value_t = 30.0, value_parser = seconds)]
    drain_timeout: f64,
    /// What to do: serve, or throughput, which measures a server on a free port for some seconds and ends (docs/load.md)
    #[arg(long, value_name = "WHICH", default_value = "serve")]
    mode: ServeMode,
    /// Write what throughput measured to this file, as run.json of `redline bench load`
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Do not serve the page at `/`
    #[arg(long)]
    no_page: bool,
    /// Let everybody read `/metrics`, also without an API key
    #[arg(long)]
    public_metrics: bool,
    /// Write metrics under the names of another server, too: vllm
    #[arg(long, value_name = "SERVER", value_parser = metrics_compat)]
    metrics_compat: Option<MetricsCompat>,
    /// Let requests load and remove adapters while the server runs, from directories below this one
    #[arg(long, value_name = "DIR", help_heading = "Adapters")]
    adapter_root: Option<PathBuf>,
    #[command(flatten)]
    adapters: LoadedAdapters,
    /// Do not log requests to standard error
    #[arg(long, short, help_heading = "Options")]
    quiet: bool,
    #[command(flatten)]
    template: TemplateFile,
    #[command(flatten)]
    machine: MachineFlags,
    #[command(flatten)]
    prefix_cache: PrefixCacheFlags,
}

/// What to do with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ServeMode {
    Serve,
    Throughput,
}

/// A server whose metrics are imitated.
#[derive(Clone, Copy, Debug)]
enum MetricsCompat {
    Vllm,
}

/// Parses `--metrics-compat`.
fn metrics_compat(text: &str) -> Result<MetricsCompat, value::BadValue> {
    match text {
        "vllm" => Ok(MetricsCompat::Vllm),
        _ => value::bad(format!("`{text}` is no such server"), "vllm"),
    }
}

/// The engine's own limit.
const MAX_QUEUED: usize = 256;
/// More than a process may have open.
const MAX_CONNECTIONS: usize = 1 << 20;
/// More than any request needs.
const MAX_BODY: u64 = 4 << 30;
/// A week: longer times overflow nothing, but mean nothing either.
const LONGEST_SECONDS: f64 = 604_800.0;

/// Parses a number from 1 to `most`.
fn number(text: &str, most: usize) -> Result<usize, value::BadValue> {
    let hint = format!("a number from 1 to {most}");
    match text.parse::<usize>() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        Ok(n) => value::bad(format!("{n} is out of range"), hint),
        Err(error) => value::bad(error.to_string(), hint),
    }
}

/// Parses `--host`: a name or an address. Whether this machine has it is seen when the port is opened.
fn host(text: &str) -> Result<String, value::BadValue> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]%".contains(&byte);
    if text.is_empty() || !text.bytes().all(is_plain) {
        return value::bad("this is no host", "an address such as 127.0.0.1, or a name");
    }
    Ok(text.to_owned())
}

/// Parses an origin of `--allow-origin`: a scheme, a host and perhaps a port, as browsers send it.
fn origin(text: &str) -> Result<String, value::BadValue> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte);
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| {
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
            && !scheme.is_empty()
            && !host.is_empty()
            && host.bytes().all(is_plain)
    });
    if text != "*" && !is_origin {
        return value::bad(
            "this is no origin",
            "`*`, or an origin such as https://app.example, without a path",
        );
    }
    Ok(text.to_owned())
}

/// Parses `--queue`.
fn queue(text: &str) -> Result<usize, value::BadValue> {
    number(text, MAX_QUEUED)
}

/// Parses `--max-body`.
fn body(text: &str) -> Result<u64, value::BadValue> {
    match value::bytes(text)? {
        bytes if bytes > MAX_BODY => value::bad(format!("{bytes} bytes"), "up to 4GiB"),
        bytes => Ok(bytes),
    }
}

/// Parses `--max-connections`.
fn connections(text: &str) -> Result<usize, value::BadValue> {
    number(text, MAX_CONNECTIONS)
}

/// Parses a time limit.
fn seconds(text: &str) -> Result<f64, value::BadValue> {
    value::seconds_up_to(text, LONGEST_SECONDS)
}

/// Serves the model until a signal.
pub(super) fn run(args: &ServeArgs, context: &Context) -> Result<ExitCode, Failure> {
    let classes = checked_classes(&args.class)?;
    let mut keys = Vec::from_iter(key_of_flag(args.api_key.clone(), context)?);
    let models = args.models.resolve(context.environment)?;
    let settings = args.machine.resolve(context.environment, &context.clock)?;
    let settings = args.prefix_cache.resolve(settings, context.environment)?;
    if let Which::Several(models) = &models {
        models::check_flags(args, models)?;
    }
    if let (Which::One(model), ServeMode::Throughput) = (&models, args.mode) {
        if args.adapter_root.is_some() {
            return Err(Failure::usage(
                "`--adapter-root` with `--mode throughput`",
                "`--adapter` and `--adapters` name the adapters that requests use",
            ));
        }
        let names: Vec<&str> = args.adapters.named().map(|adapter| adapter.name.as_str()).collect();
        let loaded = settings.with_loaded_adapters(&args.adapters, false).load(model, context.environment)?;
        check_name(&loaded.name, args)?;
        return throughput::run(loaded, &names, args.report.as_deref(), context);
    }
    if let Some(path) = &args.report {
        let fact = format!("`--report {}` without a measurement", path.display());
        return Err(Failure::usage(fact, "`--mode throughput` measures"));
    }
    check_adapters(args)?;
    keys.extend(args.api_key_file.as_deref().map(read_keys).transpose()?.unwrap_or_default());
    let is_open = keys.is_empty();
    let mut config = config(args, keys, classes);
    if let Which::One(model) = &models {
        config.chat = Some(args.template.open(model, context.environment)?);
    }
    // Opened before the model is loaded, so that a port in use is reported at once.
    let server = Server::bind(config)?;
    let url = server.url();
    if is_open && !server.address().is_local() {
        let address = server.address();
        message::say(format_args!(
            "warning: everybody who reaches {address} has access; `--api-key-file` restricts it\n"
        ));
    }
    let log: Option<LogSink> =
        if args.quiet { None } else { Some(Box::new(|line| message::say(format_args!("{line}\n")))) };
    let mut printed = Ok(());
    let ready = || {
        printed = output::line(&format!("listening on {url}"));
        tell_supervisor();
    };
    let summary = match &models {
        Which::One(model) => {
            let settings = settings.with_loaded_adapters(&args.adapters, args.adapter_root.is_some());
            let mut loaded = settings.load(model, context.environment)?;
            if let Some(name) = args.served_model_name.first() {
                loaded.name.clone_from(name);
            }
            check_name(&loaded.name, args)?;
            server.run(loaded, log, ready)?
        }
        Which::Several(models) => {
            models.iter().try_for_each(|(name, _)| check_name(name, args))?;
            server.run_several(args.models.set(models, &settings, args, context.environment)?, log, ready)?
        }
    };
    printed?;
    let lost = match summary.admitted - summary.ended {
        0 => String::new(),
        lost => format!(", {lost} not answered"),
    };
    let admitted = number::count(usize::try_from(summary.admitted).unwrap_or(usize::MAX), "request");
    message::note(&format!("{admitted} admitted{lost}"));
    Ok(if summary.forced { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The settings of the server, but for the template of its model.
fn config(args: &ServeArgs, keys: Vec<ApiKey>, classes: Vec<String>) -> ServerConfig {
    ServerConfig {
        host: args.host.clone(),
        port: args.port,
        unix_socket: args.unix_socket.clone(),
        tls: args
            .tls_cert
            .clone()
            .zip(args.tls_key.clone())
            .map(|(certificate, key)| TlsFiles { certificate, key }),
        aliases: [args.served_model_name.get(1..).unwrap_or_default(), &args.model_alias].concat(),
        any_model: args.any_model,
        origins: args.allow_origin.clone(),
        keys,
        classes,
        chat: None,
        limits: limits(args),
        signals: true,
        adapter_root: args.adapter_root.clone(),
        page: !args.no_page,
        public_metrics: args.public_metrics,
        vllm_metrics: matches!(args.metrics_compat, Some(MetricsCompat::Vllm)),
    }
}

/// The limits of requests and connections.
fn limits(args: &ServeArgs) -> ServerLimits {
    let body_bytes = usize::try_from(args.max_body).unwrap_or(usize::MAX);
    let defaults = ServerLimits::default();
    ServerLimits {
        queue: args.queue,
        connections: args.max_connections,
        body_bytes,
        all_body_bytes: defaults.all_body_bytes.max(body_bytes),
        request_time: Duration::from_secs_f64(args.request_timeout),
        drain_time: Duration::from_secs_f64(args.drain_timeout),
        queue_time: args.queue_timeout.map(Duration::from_secs_f64),
        frozen_time: Duration::from_secs_f64(args.watchdog),
        ..defaults
    }
}

/// Tells systemd that requests are answered, if it waits for that (`Type=notify`).
fn tell_supervisor() {
    #[cfg(unix)]
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        message::say(format_args!("warning: systemd cannot be told that the server is ready: {error}\n"));
    }
}

/// Refuses a root that is no directory, and adapters that have a name of the model.
fn check_adapters(args: &ServeArgs) -> Result<(), Failure> {
    if let Some(root) = args.adapter_root.as_deref().filter(|root| !root.is_dir()) {
        let fact = format!("this is no directory\n  in `{}`", root.display());
        return Err(Failure::failed(
            fact,
            Some("`--adapter-root DIR` names a directory that exists".to_owned()),
        ));
    }
    let names = args.served_model_name.iter().chain(&args.model_alias);
    names.into_iter().try_for_each(|name| check_name(name, args))
}

/// Refuses an adapter with this name, which is one of the model.
fn check_name(of_model: &str, args: &ServeArgs) -> Result<(), Failure> {
    if args.adapters.named().any(|adapter| adapter.name == of_model) {
        let fact = format!("an adapter has the model's name `{of_model}`");
        return Err(Failure::usage(
            fact,
            "requests ask for both by name: `--adapter NAME=DIR` gives it another",
        ));
    }
    Ok(())
}

/// The classes, if a model can tell them apart.
fn checked_classes(given: &[String]) -> Result<Vec<String>, Failure> {
    let classes = judge::classes(given);
    if classes.is_empty() {
        return Ok(classes);
    }
    let labels = classes.iter().cloned().map(Label::Text).collect();
    match ClassifyRequest::new(Vec::new(), labels).check() {
        Ok(()) => Ok(classes),
        Err(error) => {
            let hint = "`--class good --class bad` gives at least two that differ";
            Err(Failure::usage(error.to_string(), hint))
        }
    }
}

/// The key of `--api-key`, or of its variable. The name of its owner is none of a file, where names have no spaces.
fn key_of_flag(flag: Option<String>, context: &Context) -> Result<Option<ApiKey>, Failure> {
    let Some(key) =
        env::or_else(flag, || context.environment.value(env::API_KEY, |text| Ok(text.to_owned())))?
    else {
        return Ok(None);
    };
    // No message quotes the key.
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let fact = "the key of `--api-key` is empty, or has characters other than letters, digits and signs of ASCII";
        return Err(Failure::usage(fact, "give a key without spaces"));
    }
    Ok(Some(ApiKey::new("api key", &key)))
}

/// Bytes of the longest file of keys.
const LONGEST_KEYS: u64 = 16 << 20;

/// Reads the keys. Messages do not quote them.
fn read_keys(path: &Path) -> Result<Vec<ApiKey>, Failure> {
    let text = text::read_at_most(LONGEST_KEYS, path)?;
    let (mut keys, mut words_before) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[name, key] = words.as_slice() else {
            let fact = format!("line {} has {} words\n  in `{}`", index + 1, words.len(), path.display());
            return Err(Failure::failed(fact, Some("write `NAME KEY` on each line".to_owned())));
        };
        if let Some(taken) = words_before.iter().find(|(n, k)| *n == name || *k == key) {
            let what = if taken.0 == name { "name" } else { "key" };
            let fact =
                format!("line {} has the {what} of an earlier line\n  in `{}`", index + 1, path.display());
            return Err(Failure::failed(fact, Some("give each name and each key once".to_owned())));
        }
        words_before.push((name, key));
        keys.push(ApiKey::new(name, key));
    }
    if keys.is_empty() {
        let fact = format!("there is no key\n  in `{}`", path.display());
        return Err(Failure::failed(
            fact,
            Some("write `NAME KEY` on each line, or leave the file out".to_owned()),
        ));
    }
    Ok(keys)
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let hint = match &error {
            ServeError::Bind { .. } => Some(
                "`--port` takes another port, 0 any free one; `--host` an address of this machine; `--unix-socket` a path \
                     without a file",
            ),
            ServeError::Tls { .. } => {
                Some("`--tls-cert` and `--tls-key` take a certificate and its key in PEM")
            }
            ServeError::Model(_) | ServeError::Start(_) => None,
        };
        Self::failed(error.to_string(), hint.map(str::to_owned))
    }
}
