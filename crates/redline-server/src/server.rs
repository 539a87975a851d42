//! Opens the port, answers requests, and ends in good order.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redline_api::LoadedModel;
use tokio::sync::watch;

use crate::app::App;
use crate::config::ServerConfig;
use crate::log::{Log, LogSink};
use crate::stop::Signals;
use crate::{connection, routes, watchdog};

/// Threads that tokenise.
const TOKENISING_THREADS: usize = 2;
/// How long answers to cancelled requests may take.
const AFTER_CANCEL: Duration = Duration::from_secs(5);

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be opened.
    #[error("{reason}\n  in `{address}`")]
    Bind {
        /// The address and the port.
        address: String,
        /// The system's message.
        reason: io::Error,
    },
    /// The threads or the signals cannot be set up.
    #[error("the server cannot start: {0}")]
    Start(#[from] io::Error),
}

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

/// A server whose port is open. Connections wait until it runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    config: ServerConfig,
    stop: ServerStop,
}

impl Server {
    /// Opens the port.
    pub fn bind(config: ServerConfig) -> Result<Self, ServeError> {
        let host = config.host.trim_start_matches('[').trim_end_matches(']');
        let bound = TcpListener::bind((host, config.port)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) = bound.map_err(|reason| ServeError::Bind {
            address: format!("{}:{}", config.host, config.port),
            reason,
        })?;
        Ok(Self { listener, address, config, stop: ServerStop(Arc::new(watch::Sender::new(false))) })
    }

    /// The address with the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle that ends the server.
    pub fn stop_handle(&self) -> ServerStop {
        self.stop.clone()
    }

    /// Answers requests until the server is told to end. `ready` is called when signals are handled and connections are accepted.
    pub fn run(
        self,
        model: LoadedModel,
        log: Option<LogSink>,
        ready: impl FnOnce(),
    ) -> Result<ServeSummary, ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(TOKENISING_THREADS)
            .build()?;
        let (log, writer) = Log::start(log);
        let app = Arc::new(App::new(model, self.config, log, self.address.ip().is_loopback()));
        let summary = runtime.block_on(serve(app.clone(), self.listener, self.stop, ready));
        runtime.shutdown_timeout(AFTER_CANCEL);
        drop(app);
        if let (Some(writer), Ok(ServeSummary { forced: false, .. })) = (writer, &summary) {
            let _ = writer.join();
        }
        summary
    }
}

async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    stop: ServerStop,
    ready: impl FnOnce(),
) -> Result<ServeSummary, ServeError> {
    let mut signals = if app.config.signals { Some(Signals::install()?) } else { None };
    let mut next_signal = async || match &mut signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = routes::router(&app);
    let stopped = stop.0.subscribe();
    let mut told = stop.0.subscribe();
    let accept = connection::accept(listener, router, app.config.limits, app.metrics.clone(), stopped);
    let accepting = tokio::spawn(accept);
    let watching = tokio::spawn(watchdog::watch(app.clone()));
    ready();
    tokio::select! {
        () = next_signal() => {}
        () = connection::stopped(&mut told) => {}
    }
    app.drain();
    stop.stop();
    let mut connections = accepting.await.map_err(io::Error::other)?;
    let answered = async {
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(app.config.limits.drain_time, drained).await.is_err() {
            app.cancel.cancel();
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
    let summary = ServeSummary { admitted: count(&app.admitted), ended: count(&app.ended), forced };
    connections.shutdown().await;
    watching.abort();
    let _ = watching.await;
    Ok(summary)
}
