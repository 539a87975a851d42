//! What all requests share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;
use redline_api::chat::template::Chat;
use redline_api::error::ApiError;
use redline_api::generation::mode::GenerationMode;
use redline_api::model::LoadedModel;
use redline_engine::{AdapterInfo, Cancel, EngineError, PulseState};
use tokio::sync::Semaphore;

use crate::clock::unix_seconds;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::sizes::ModelSizes;

/// Adapters that requests load at a time; further ones are refused.
const LOADS: usize = 2;

/// The state of the server.
pub(crate) struct App {
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) config: ServerConfig,
    pub(crate) log: Log,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether only this machine reaches the server, and without a key.
    pub(crate) local: bool,
    /// What bounds the memory of its answers.
    pub(crate) sizes: ModelSizes,
    /// When the server began to answer, in seconds since 1970.
    pub(crate) started: u64,
    /// Places for prompts that wait or run.
    pub(crate) places: Arc<Semaphore>,
    /// Who has these places.
    queue: Mutex<Queue>,
    /// Bytes of bodies that may be read.
    pub(crate) body_bytes: Arc<Semaphore>,
    /// Bytes of answers that may be generated, built or sent.
    pub(crate) answer_bytes: Arc<Semaphore>,
    /// Adapters that may be loaded at a time.
    pub(crate) loads: Arc<Semaphore>,
    /// Cancels all requests.
    pub(crate) cancel: Cancel,
    pub(crate) admitted: AtomicU64,
    pub(crate) ended: AtomicU64,
    /// The OpenAPI document of the routes, from its first request on.
    pub(crate) openapi: OnceLock<Bytes>,
    draining: AtomicBool,
    engine_stopped: AtomicBool,
    frozen: AtomicBool,
    requests: AtomicU64,
}

impl App {
    pub(crate) fn new(model: LoadedModel, config: ServerConfig, log: Log, loopback: bool) -> Self {
        Self {
            local: loopback && config.keys.is_empty(),
            sizes: ModelSizes::of(&model.engine),
            model: Arc::new(model),
            places: Arc::new(Semaphore::new(config.limits.queue.min(Semaphore::MAX_PERMITS))),
            queue: Mutex::default(),
            body_bytes: Arc::new(Semaphore::new(config.limits.all_body_bytes.min(u32::MAX as usize))),
            answer_bytes: Arc::new(Semaphore::new(config.limits.all_answer_bytes.min(u32::MAX as usize))),
            loads: Arc::new(Semaphore::new(LOADS)),
            config,
            log,
            metrics: Arc::default(),
            started: unix_seconds(),
            cancel: Cancel::new(),
            admitted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            openapi: OnceLock::new(),
            draining: AtomicBool::new(false),
            engine_stopped: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            requests: AtomicU64::new(0),
        }
    }

    /// How the model generates text.
    pub(crate) fn mode(&self) -> GenerationMode {
        GenerationMode::of(&self.model.engine)
    }

    /// How the model generates text, by name; `None`: it generates none.
    pub(crate) fn generation(&self) -> Option<&'static str> {
        let generates = self.model.engine.info().objective.predicts();
        generates.then(|| self.mode().name())
    }

    /// The names of the model.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.model.name.as_str()).chain(self.config.aliases.iter().map(String::as_str))
    }

    /// The name under which a request asks for the model.
    pub(crate) fn model_named(&self, asked: Option<&str>) -> Result<String, Fault> {
        let Some(asked) = asked.filter(|name| !name.is_empty()) else { return Ok(self.model.name.clone()) };
        let any = self.config.any_model && self.adapter(asked).is_none();
        if any || self.names().any(|name| name == asked) {
            return Ok(asked.to_owned());
        }
        Err(self.no_model(asked).of_field("model"))
    }

    /// The error of a name that no model and no adapter has.
    pub(crate) fn no_model(&self, asked: &str) -> Fault {
        let message = match self.adapter(asked) {
            Some(_) => format!("this route takes no adapter, and `{asked}` is one"),
            None => format!("there is no model `{asked}`; `/v1/models` lists those that there are"),
        };
        Fault::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }

    /// The adapter of this name.
    pub(crate) fn adapter(&self, name: &str) -> Option<AdapterInfo> {
        self.model.engine.adapters().into_iter().find(|adapter| adapter.name == name)
    }

    /// The names of the adapters.
    pub(crate) fn adapter_names(&self) -> Vec<String> {
        self.model.engine.adapters().into_iter().map(|adapter| adapter.name).collect()
    }

    /// Who has the places.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
        if self.is_stopped() {
            return Some(Fault::of_engine(&EngineError::Stopped, ""));
        }
        if self.is_frozen() {
            return Some(Fault::frozen());
        }
        self.draining.load(Ordering::SeqCst).then(Fault::draining)
    }

    /// Whether the engine's thread has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.engine_stopped.load(Ordering::SeqCst) || self.model.engine.pulse().state == PulseState::Stopped
    }

    /// Whether the engine has work and makes no progress.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// Notes whether the engine is frozen.
    pub(crate) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
    }

    /// Notes an error of the engine.
    pub(crate) fn note(&self, error: &EngineError) {
        if let EngineError::Stopped = error {
            self.engine_stopped.store(true, Ordering::SeqCst);
        }
    }
}
