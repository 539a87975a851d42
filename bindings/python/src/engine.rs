//! A loaded model.

use std::process;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::{mem, thread};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use redline_api::{Chat, ChatFrames, LoadedModel};

use crate::error::{Class, Fault};
use crate::options::LoadOptions;
use crate::request;
use crate::ticket::Ticket;
use crate::tokenizer::Tokenizer;

/// A loaded model, shared by the engine, its requests and its tokenizer.
pub(crate) struct Loaded {
    pub(crate) model: Arc<LoadedModel>,
    pub(crate) chat: Chat,
    /// The chat template around instructions of `classify` and `rerank`, if prompts are formatted.
    pub(crate) frames: Option<Mutex<ChatFrames>>,
    pub(crate) notifier: Notifier,
    /// The process that loaded it. Others have none of its threads.
    process: u32,
}

impl Loaded {
    /// Refuses calls in a process that was forked after the model was loaded.
    pub(crate) fn check_process(&self) -> Result<(), Fault> {
        if self.process == process::id() {
            return Ok(());
        }
        Err(Fault::new(
            Class::Other,
            format!(
                "`{}` was loaded by process {}, and this is process {}: a forked process has none of the engine's threads",
                self.model.name,
                self.process,
                process::id()
            ),
            "load the model in the process that uses it, or start processes by `spawn`",
        ))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The end of the engine would wait for threads that are not there.
            mem::forget(self.model.clone());
        }
    }
}

/// Calls functions of Python on a thread of its own, so that the engine's thread never waits for the interpreter.
#[derive(Clone)]
pub(crate) struct Notifier(Arc<Mutex<Sender<Py<PyAny>>>>);

impl Notifier {
    fn start() -> std::io::Result<Self> {
        let (sender, functions) = mpsc::channel::<Py<PyAny>>();
        thread::Builder::new().name("redline-python".to_owned()).spawn(move || {
            for function in functions {
                let called = Python::try_attach(|py| {
                    if let Err(error) = function.call0(py) {
                        error.write_unraisable(py, Some(function.bind(py)));
                    }
                });
                if called.is_none() {
                    return;
                }
            }
        })?;
        Ok(Self(Arc::new(Mutex::new(sender))))
    }

    /// Calls `function` without arguments, soon.
    pub(crate) fn tell(&self, function: Py<PyAny>) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver the interpreter has ended, and nobody waits.
        let _ = sender.send(function);
    }
}

/// A loaded model.
#[pyclass(frozen, module = "redline._redline")]
pub(crate) struct Engine {
    loaded: Mutex<Option<Arc<Loaded>>>,
}

impl Engine {
    fn loaded(&self) -> PyResult<Arc<Loaded>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let loaded = loaded.ok_or_else(|| PyRuntimeError::new_err("the engine is closed"))?;
        loaded.check_process()?;
        Ok(loaded)
    }
}

/// Loads a model.
fn load(options: LoadOptions) -> Result<Loaded, Fault> {
    let adapters = options.adapters.clone();
    let chat_options = options.chat_options();
    let formats_prompts = chat_options.formats_prompts;
    let (name, options) = options.resolve()?;
    let chat = Chat::open(&name, &options.source, chat_options);
    let engine = redline_engine::Engine::load(options).map_err(|error| Fault::of_loading(&error))?;
    for (adapter, dir) in adapters {
        engine.load_adapter(&adapter, dir.as_ref(), None).map_err(|error| Fault::of_loading(&error))?;
    }
    let frames = if formats_prompts {
        chat.check()?;
        Some(Mutex::new(ChatFrames::new(chat.clone(), &engine)?))
    } else {
        None
    };
    let notifier = Notifier::start().map_err(|error| {
        Fault::new(Class::Load, format!("a thread could not be started: {error}"), "end other processes")
    })?;
    let model = Arc::new(LoadedModel { name, engine });
    Ok(Loaded { model, chat, frames, notifier, process: process::id() })
}

#[pymethods]
impl Engine {
    /// Loads a model; `options` is JSON.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Self> {
        let options = request::parse(options, Class::Load)?;
        let loaded = py.detach(|| load(options))?;
        Ok(Self { loaded: Mutex::new(Some(Arc::new(loaded))) })
    }

    /// Submits a request; `json` has the form of a line of the command line.
    fn submit(&self, py: Python<'_>, kind: &str, json: &str) -> PyResult<Ticket> {
        let loaded = self.loaded()?;
        Ok(py.detach(|| request::submit(loaded, kind, json))?)
    }

    /// Facts about the model and how it runs, as a dictionary.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let loaded = self.loaded()?;
        request::info(py, &loaded)
    }

    /// The tokenizer.
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer { loaded: self.loaded()? })
    }

    /// Frees the model when its last request has ended.
    fn close(&self, py: Python<'_>) {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(loaded));
    }
}
