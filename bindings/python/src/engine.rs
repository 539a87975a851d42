//! A loaded model.

use std::ops::Deref;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::{mem, process, thread};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use redline_api::chat::template::Chat;
use redline_api::jsonl::judge::ChatFrames;
use redline_api::jsonl::model::ChatModel;
use redline_api::model::LoadedModel;
use redline_engine::EngineError;

use crate::error::{Class, Fault, MORE_THREADS};
use crate::options::LoadOptions;
use crate::ticket::{LOOK, Ticket};
use crate::tokenizer::Tokenizer;
use crate::{batch, request};

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
    /// The model with its chat template.
    pub(crate) fn chat_model(&self) -> ChatModel<'_> {
        ChatModel { model: &self.model, chat: &self.chat, frames: self.frames.as_ref() }
    }

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
                let called = Python::try_attach(move |py| {
                    let function = function;
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

/// A loaded model as long as some object of Python has it.
pub(crate) struct Shared(Option<Arc<Loaded>>);

impl Shared {
    pub(crate) fn new(loaded: Arc<Loaded>) -> Self {
        Self(Some(loaded))
    }
}

impl Deref for Shared {
    type Target = Arc<Loaded>;

    fn deref(&self) -> &Arc<Loaded> {
        self.0.as_ref().expect("a model that is there until this is dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last one waits for the engine's thread. Other threads of Python run meanwhile.
        let loaded = self.0.take();
        Python::try_attach(move |py| py.detach(move || drop(loaded)));
    }
}

/// A loaded model.
#[pyclass(frozen, module = "redline._redline")]
pub(crate) struct Engine {
    loaded: Mutex<Option<Shared>>,
}

impl Engine {
    fn loaded(&self) -> PyResult<Arc<Loaded>> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.as_ref().ok_or_else(|| PyRuntimeError::new_err("the engine is closed"))?;
        loaded.check_process()?;
        Ok(Arc::clone(loaded))
    }
}

/// Loads a model.
fn load(options: LoadOptions) -> Result<Loaded, Fault> {
    let adapters = options.adapters.clone();
    let chat_options = options.chat_options();
    let formats_prompts = chat_options.formats_prompts;
    let (name, options) = options.resolve()?;
    let chat = Chat::open(&name, &options.source, chat_options);
    let engine = redline_engine::Engine::load(options)?;
    for (adapter, dir) in adapters {
        engine.load_adapter(&adapter, dir.as_ref(), None)?;
    }
    let frames = if formats_prompts {
        chat.check()?;
        Some(Mutex::new(ChatFrames::new(chat.clone(), &engine)?))
    } else {
        None
    };
    let notifier = Notifier::start().map_err(|error| {
        Fault::new(Class::Load, format!("a thread could not be started: {error}"), MORE_THREADS)
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
        // On a thread of its own, so that this one can look for signals. After Ctrl-C, what was loaded is dropped.
        let (sender, mut receiver) = mpsc::sync_channel(1);
        let started = thread::Builder::new().name("redline-load".to_owned()).spawn(move || {
            let loaded = panic::catch_unwind(AssertUnwindSafe(|| load(options)));
            let _ = sender.send(loaded.unwrap_or_else(|_| Err(EngineError::Stopped.into())));
        });
        started.map_err(|error| {
            Fault::new(Class::Load, format!("a thread could not be started: {error}"), MORE_THREADS)
        })?;
        loop {
            let receiver = &mut receiver;
            match py.detach(move || receiver.recv_timeout(LOOK)) {
                Ok(loaded) => {
                    let loaded = Arc::new(loaded.map_err(Fault::while_loading)?);
                    return Ok(Self { loaded: Mutex::new(Some(Shared::new(loaded))) });
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Fault::from(EngineError::Stopped).into()),
            }
        }
    }

    /// Submits a request; `json` has the form of a line of the command line.
    fn submit(&self, py: Python<'_>, kind: &str, json: &str) -> PyResult<Ticket> {
        let loaded = self.loaded()?;
        Ok(py.detach(|| request::submit(loaded, kind, json))?)
    }

    /// Answers the rows of tables in files; `json` says what is asked and where they are. The ticket's pieces say how far the work is.
    fn batch(&self, py: Python<'_>, json: &str) -> PyResult<Ticket> {
        let loaded = self.loaded()?;
        Ok(py.detach(|| batch::files(loaded, json))?)
    }

    /// Answers the rows of a table, an Arrow stream; the ticket's answer is an Arrow file.
    fn rows(&self, py: Python<'_>, json: &str, table: Vec<u8>) -> PyResult<Ticket> {
        let loaded = self.loaded()?;
        Ok(py.detach(|| batch::rows(loaded, json, table))?)
    }

    /// Facts about the model and how it runs, as a dictionary.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let loaded = self.loaded()?;
        request::info(py, &loaded)
    }

    /// The tokenizer.
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer { loaded: Shared::new(self.loaded()?) })
    }

    /// Frees the model when its last request has ended.
    fn close(&self) {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(loaded);
    }
}
