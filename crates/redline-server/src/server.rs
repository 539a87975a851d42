//! Opens the port or the socket, answers requests, and ends in good order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redline_api::model::LoadedModel;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::blocking::BLOCKING_THREADS;
use crate::config::{ModelSet, ServerConfig};
use crate::error::ServeError;
use crate::listener::{Listener, ServerAddress};
use crate::log::{Log, LogSink};
use crate::models::Models;
use crate::shared::Shared;
use crate::stop::Signals;
use crate::{connection, routes, tls};

/// How long answers to cancelled requests may take.
const AFTER_CANCEL: Duration = Duration::from_secs(5);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeSummary {
    /// Requests that were admitted to the engine.
    pub admitted: u64,
    /// How many of them got an answer, or were abandoned by their clients.
    pub ended: u64,
    /// Whether a second signal ended the server before its requests were answered.
    pub forced: bool,
}

/// Tells a server to end, from any thread.
#[derive(Clone, Debug)]
pub struct ServerStop(Arc<watch::Sender<bool>>);

impl ServerStop {
    /// Ends the server: it accepts nothing more, and its running requests are answered first.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server whose port, or socket, is open. Connections wait until it runs.
pub struct Server {
    listener: Listener,
    address: ServerAddress,
    tls: Option<TlsAcceptor>,
    config: ServerConfig,
    stop: ServerStop,
}

impl Server {
    /// Opens the port, or the socket.
    pub fn bind(config: ServerConfig) -> Result<Self, ServeError> {
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let (listener, address) = Listener::bind(&config).map_err(|reason| {
            let address = match &config.unix_socket {
                Some(path) => path.display().to_string(),
                None => format!("{}:{}", config.host, config.port),
            };
            ServeError::Bind { address, reason }
        })?;
        let stop = ServerStop(Arc::new(watch::Sender::new(false)));
        Ok(Self { listener, address, tls, config, stop })
    }

    /// Where it listens.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// The same as a URL, such as `http://127.0.0.1:8000`. That of a socket is `unix:` and its path.
    pub fn url(&self) -> String {
        let scheme = match (&self.address, &self.tls) {
            (ServerAddress::Socket(_), _) => "unix:",
            (ServerAddress::Port(_), None) => "http://",
            (ServerAddress::Port(_), Some(_)) => "https://",
        };
        format!("{scheme}{}", self.address)
    }

    /// A handle that ends the server.
    pub fn stop_handle(&self) -> ServerStop {
        self.stop.clone()
    }

    /// Answers requests for a model until the server is told to end. `ready` is called when signals are handled and connections are
    /// accepted.
    pub fn run(
        self,
        model: LoadedModel,
        log: Option<LogSink>,
        ready: impl FnOnce(),
    ) -> Result<ServeSummary, ServeError> {
        self.run_with(|shared| Models::of_one(model, shared), log, ready)
    }

    /// As [`Server::run`], for several models. Those for which there is memory beside the others are loaded first.
    pub fn run_several(
        self,
        models: ModelSet,
        log: Option<LogSink>,
        ready: impl FnOnce(),
    ) -> Result<ServeSummary, ServeError> {
        self.run_with(|shared| Models::of_several(models, shared), log, ready)
    }

    fn run_with(
        self,
        models: impl FnOnce(Arc<Shared>) -> Arc<Models>,
        log: Option<LogSink>,
        ready: impl FnOnce(),
    ) -> Result<ServeSummary, ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()?;
        let (log, writer) = Log::start(log);
        let is_loopback = match &self.address {
            ServerAddress::Port(address) => address.ip().is_loopback(),
            // No web page reaches a socket, so the name by which it is asked for does not matter.
            ServerAddress::Socket(_) => false,
        };
        let shared = Arc::new(Shared::new(self.config, log, is_loopback));
        let summary = runtime.block_on(async {
            let models = models(shared);
            serve(&models, self.listener, self.tls, self.stop, ready).await
        });
        runtime.shutdown_timeout(AFTER_CANCEL);
        if let (Some(writer), Ok(ServeSummary { forced: false, .. })) = (writer, &summary) {
            let _ = writer.join();
        }
        summary
    }
}

async fn serve(
    models: &Arc<Models>,
    listener: Listener,
    tls: Option<TlsAcceptor>,
    stop: ServerStop,
    ready: impl FnOnce(),
) -> Result<ServeSummary, ServeError> {
    let shared = &models.shared;
    let mut signals = if shared.config.signals { Some(Signals::install()?) } else { None };
    let mut next_signal = async || match &mut signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    };
    tokio::select! {
        loaded = models.load_first() => loaded?,
        () = next_signal() => return Ok(ServeSummary { admitted: 0, ended: 0, forced: false }),
    }
    let listener = listener.open()?;
    let router = routes::router(models);
    let stopped = stop.0.subscribe();
    let mut told = stop.0.subscribe();
    let accept =
        connection::accept(listener, tls, router, shared.config.limits, shared.metrics.clone(), stopped);
    let accepting = tokio::spawn(accept);
    ready();
    tokio::select! {
        () = next_signal() => {}
        () = connection::stopped(&mut told) => {}
    }
    shared.drain();
    models.wake();
    stop.stop();
    let mut connections = accepting.await.map_err(io::Error::other)?;
    let answered = async {
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(shared.config.limits.drain_time, drained).await.is_err() {
            shared.cancel.cancel();
            let rest = async { while connections.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(AFTER_CANCEL, rest).await;
        }
    };
    let forced = tokio::select! {
        () = answered => false,
        () = next_signal() => true,
    };
    // Counted before the remaining connections are dropped, whose requests end without an answer.
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::SeqCst);
    let summary = ServeSummary { admitted: count(&shared.admitted), ended: count(&shared.ended), forced };
    connections.shutdown().await;
    Ok(summary)
}
