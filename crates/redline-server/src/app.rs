//! A loaded model, and what its requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use redline_api::chat::template::Chat;
use redline_api::error::ApiError;
use redline_api::generation::mode::GenerationMode;
use redline_api::model::LoadedModel;
use redline_engine::{AdapterInfo, EngineError, PulseState};
use tokio::sync::Semaphore;

use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::sizes::ModelSizes;

/// Adapters that requests load at a time; further ones are refused.
const LOADS: usize = 2;

/// A loaded model.
pub(crate) struct App {
    pub(crate) shared: Arc<Shared>,
    pub(crate) model: Arc<LoadedModel>,
    /// The settings of the server, with those of this model.
    pub(crate) config: ServerConfig,
    /// What bounds the memory of its answers.
    pub(crate) sizes: ModelSizes,
    /// Places for prompts that wait or run.
    pub(crate) places: Arc<Semaphore>,
    /// Who has these places.
    queue: Mutex<Queue>,
    /// Adapters that may be loaded at a time.
    pub(crate) loads: Arc<Semaphore>,
    engine_stopped: AtomicBool,
    frozen: AtomicBool,
}

impl App {
    pub(crate) fn new(model: LoadedModel, config: ServerConfig, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            sizes: ModelSizes::of(&model.engine),
            model: Arc::new(model),
            places: Arc::new(Semaphore::new(config.limits.queue.min(Semaphore::MAX_PERMITS))),
            queue: Mutex::default(),
            loads: Arc::new(Semaphore::new(LOADS)),
            config,
            engine_stopped: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
        }
    }

    /// A model with the default settings, for tests.
    #[cfg(test)]
    pub(crate) fn of_test(model: LoadedModel, log: crate::log::Log) -> Self {
        let config = ServerConfig::default();
        Self::new(model, config.clone(), Arc::new(Shared::new(config, log, true)))
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
        match self.adapter(asked) {
            Some(_) => {
                let message = format!("this route takes no adapter, and `{asked}` is one");
                Fault::new(StatusCode::NOT_FOUND, "model_not_found", message)
            }
            None => Fault::no_model(asked),
        }
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

    /// Why no work is taken, if none is.
    pub(crate) fn refusal(&self) -> Option<Fault> {
        if self.is_stopped() {
            return Some(Fault::of_engine(&EngineError::Stopped, ""));
        }
        if self.is_frozen() {
            return Some(Fault::frozen());
        }
        self.shared.refusal()
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
