//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::StatusCode;
use redline_api::{ApiError, Chat, LoadedModel};
use redline_engine::{Cancel, EngineError};
use tokio::sync::Semaphore;

use crate::clock::unix_seconds;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::log::Log;

/// The state of the server.
pub(crate) struct App {
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) config: ServerConfig,
    pub(crate) log: Log,
    /// Whether only this machine reaches the server, and without a key.
    pub(crate) local: bool,
    /// When the server began to answer, in seconds since 1970.
    pub(crate) started: u64,
    /// Places for prompts that wait or run.
    pub(crate) places: Arc<Semaphore>,
    /// Bytes of bodies that may be read.
    pub(crate) body_bytes: Arc<Semaphore>,
    /// Bytes of answers that may be generated, built or sent.
    pub(crate) answer_bytes: Arc<Semaphore>,
    /// Cancels all requests.
    pub(crate) cancel: Cancel,
    pub(crate) admitted: AtomicU64,
    pub(crate) ended: AtomicU64,
    draining: AtomicBool,
    engine_stopped: AtomicBool,
    requests: AtomicU64,
}

impl App {
    pub(crate) fn new(model: LoadedModel, config: ServerConfig, log: Log, loopback: bool) -> Self {
        Self {
            local: loopback && config.keys.is_empty(),
            model: Arc::new(model),
            places: Arc::new(Semaphore::new(config.limits.queue.min(Semaphore::MAX_PERMITS))),
            body_bytes: Arc::new(Semaphore::new(config.limits.all_body_bytes.min(u32::MAX as usize))),
            answer_bytes: Arc::new(Semaphore::new(config.limits.all_answer_bytes.min(u32::MAX as usize))),
            config,
            log,
            started: unix_seconds(),
            cancel: Cancel::new(),
            admitted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            engine_stopped: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    /// The names of the model.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.model.name.as_str()).chain(self.config.aliases.iter().map(String::as_str))
    }

    /// The name under which a request asks for the model.
    pub(crate) fn model_named(&self, asked: Option<&str>) -> Result<String, Fault> {
        let Some(asked) = asked.filter(|name| !name.is_empty()) else { return Ok(self.model.name.clone()) };
        if self.names().any(|name| name == asked) {
            return Ok(asked.to_owned());
        }
        let message = format!("there is no model `{asked}`; `/v1/models` lists those that there are");
        Err(Fault::new(StatusCode::NOT_FOUND, "model_not_found", message).of_field("model"))
    }

    /// The chat template, for the messages in this field.
    pub(crate) fn chat(&self, param: &str) -> Result<Chat, Fault> {
        let none = || ApiError::NoChatTemplate(self.model.name.clone());
        let chat = self.config.chat.as_ref().ok_or_else(none).and_then(|chat| chat.check().map(|()| chat));
        chat.cloned().map_err(|error| Fault::of(error, param))
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
        if self.engine_stopped.load(Ordering::SeqCst) {
            return Some(Fault::of_engine(&EngineError::Stopped, ""));
        }
        self.draining.load(Ordering::SeqCst).then(Fault::draining)
    }

    /// Whether the engine's thread has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.engine_stopped.load(Ordering::SeqCst)
    }

    /// Notes an error of the engine.
    pub(crate) fn note(&self, error: &EngineError) {
        if let EngineError::Stopped = error {
            self.engine_stopped.store(true, Ordering::SeqCst);
        }
    }
}
