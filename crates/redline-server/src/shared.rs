//! What all requests share, whatever their model.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use redline_engine::Cancel;
use tokio::sync::Semaphore;

use crate::clock::unix_seconds;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::log::Log;
use crate::metrics::Metrics;

/// The state of the server, beside that of its models.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) log: Log,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether only this machine reaches the server, and without a key.
    pub(crate) local: bool,
    /// When the server began to answer, in seconds since 1970.
    pub(crate) started: u64,
    /// Bytes of bodies that may be read.
    pub(crate) body_bytes: Arc<Semaphore>,
    /// Bytes of answers that may be generated, built or sent.
    pub(crate) answer_bytes: Arc<Semaphore>,
    /// Cancels all requests.
    pub(crate) cancel: Cancel,
    pub(crate) admitted: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// The OpenAPI document of the routes, from its first request on.
    pub(crate) openapi: OnceLock<Bytes>,
    draining: AtomicBool,
    requests: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: ServerConfig, log: Log, loopback: bool) -> Self {
        Self {
            local: loopback && config.keys.is_empty(),
            body_bytes: Arc::new(Semaphore::new(config.limits.all_body_bytes.min(u32::MAX as usize))),
            answer_bytes: Arc::new(Semaphore::new(config.limits.all_answer_bytes.min(u32::MAX as usize))),
            config,
            log,
            metrics: Arc::default(),
            started: unix_seconds(),
            cancel: Cancel::new(),
            admitted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            openapi: OnceLock::new(),
            draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    /// A new id of a request.
    pub(crate) fn next_id(&self) -> String {
        format!("{:x}-{:x}", self.started, self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes no more work.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Why no work is taken, if none is.
    pub(crate) fn refusal(&self) -> Option<Fault> {
        self.draining.load(Ordering::SeqCst).then(Fault::draining)
    }
}
