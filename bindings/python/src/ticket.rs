//! Requests under way.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use redline_engine::{Cancel, EngineError, Event};

use crate::engine::{Loaded, Notifier, Shared};
use crate::error::{Class, Fault, MORE_THREADS};

/// How often a waiting call looks whether Python received a signal, such as that of Ctrl-C.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Makes the Python object of an answer.
type Answer = Box<dyn FnOnce(Python<'_>, &Loaded) -> PyResult<Py<PyAny>> + Send>;
/// Makes the Python object of a piece of an answer.
type Piece = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What has come of a request.
#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    outcome: Option<Result<Answer, Fault>>,
    /// Whether the request has ended.
    ended: bool,
    /// Called once, when the request has ended.
    then: Option<Py<PyAny>>,
}

/// A request under way, between the engine's thread and those of Python.
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request has ended.
    fn end(&self, outcome: Result<Answer, Fault>, notifier: &Notifier) {
        let mut state = self.lock();
        state.ended = true;
        state.outcome = Some(outcome);
        let then = state.then.take();
        drop(state);
        self.changed.notify_all();
        if let Some(then) = then {
            notifier.tell(then);
        }
    }
}

/// Where work says how far it is.
pub(crate) struct Report(Arc<Slot>);

impl Report {
    /// Shows this instead of what was shown before and not looked at.
    pub(crate) fn show(&self, piece: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static) {
        let mut state = self.0.lock();
        state.pieces.clear();
        state.pieces.push_back(Box::new(piece));
        drop(state);
        self.0.changed.notify_all();
    }
}

/// A request under way. Dropping it cancels the request.
#[pyclass(frozen, module = "redline._redline")]
pub(crate) struct Ticket {
    slot: Arc<Slot>,
    loaded: Shared,
    cancel: Cancel,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Ticket {
    /// Receives the events of an engine's ticket. `answer` and `piece` make Python objects of what comes.
    pub(crate) fn receive<O: Send + 'static, P: Send + 'static>(
        loaded: Arc<Loaded>,
        ticket: redline_engine::Ticket<O, P>,
        answer: impl FnOnce(Python<'_>, &Loaded, O) -> PyResult<Py<PyAny>> + Send + 'static,
        piece: impl Fn(Python<'_>, P) -> PyResult<Py<PyAny>> + Send + Sync + 'static,
    ) -> Self {
        let slot = Arc::new(Slot { state: Mutex::default(), changed: Condvar::new() });
        let (to, mut answer, piece) = (slot.clone(), Some(answer), Arc::new(piece));
        let notifier = loaded.notifier.clone();
        let cancel = ticket.send_to(move |event| match event {
            Event::Progress(progress) => {
                let piece = piece.clone();
                to.lock().pieces.push_back(Box::new(move |py| piece(py, progress)));
                to.changed.notify_all();
            }
            Event::Done(outcome) => {
                let Some(answer) = answer.take() else { return };
                let outcome = outcome.map_err(Fault::from).map(|outcome| {
                    Box::new(move |py: Python<'_>, loaded: &Loaded| answer(py, loaded, outcome)) as Answer
                });
                to.end(outcome, &notifier);
            }
        });
        Self { slot, loaded: Shared::new(loaded), cancel }
    }

    /// Runs what no ticket of the engine stands for on a thread of its own, which may say how far it is.
    pub(crate) fn compute(
        loaded: Arc<Loaded>,
        run: impl FnOnce(&Loaded, &Cancel, &Report) -> Result<Answer, Fault> + Send + 'static,
    ) -> Result<Self, Fault> {
        let slot = Arc::new(Slot { state: Mutex::default(), changed: Condvar::new() });
        let cancel = Cancel::new();
        let (to, with, until) = (slot.clone(), loaded.clone(), cancel.clone());
        let report = Report(slot.clone());
        let started = thread::Builder::new().name("redline-call".to_owned()).spawn(move || {
            let outcome = panic::catch_unwind(AssertUnwindSafe(|| run(&with, &until, &report)));
            let outcome = outcome.unwrap_or_else(|_| Err(EngineError::Stopped.into()));
            to.end(outcome, &with.notifier);
        });
        started.map_err(|error| {
            let fact = format!("a thread could not be started: {error}");
            Fault::new(Class::Other, fact, MORE_THREADS)
        })?;
        Ok(Self { slot, loaded: Shared::new(loaded), cancel })
    }

    /// Waits until `ready` finds something. Other threads of Python run meanwhile.
    fn wait_for<T: Send>(
        &self,
        py: Python<'_>,
        mut ready: impl FnMut(&mut State) -> Option<T> + Send,
    ) -> PyResult<T> {
        loop {
            self.loaded.check_process()?;
            let found = py.detach(|| {
                let mut state = self.slot.lock();
                if let Some(found) = ready(&mut state) {
                    return Some(found);
                }
                let waited = self.slot.changed.wait_timeout(state, LOOK);
                ready(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
            });
            if let Some(found) = found {
                return Ok(found);
            }
            py.check_signals().inspect_err(|_| self.cancel.cancel())?;
        }
    }
}

#[pymethods]
impl Ticket {
    /// Waits for the answer, and returns it. Ctrl-C cancels the request.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let outcome = self.wait_for(py, |state| state.ended.then(|| state.outcome.take()))?;
        match outcome {
            Some(Ok(answer)) => answer(py, &self.loaded),
            Some(Err(fault)) => Err(fault.into()),
            None => Err(PyRuntimeError::new_err("the answer was already taken")),
        }
    }

    /// Waits for the next piece of a generation, and returns it; `None` after the last.
    fn next_piece(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let piece = self.wait_for(py, |state| match state.pieces.pop_front() {
            Some(piece) => Some(Some(piece)),
            None => state.ended.then_some(None),
        })?;
        piece.map(|piece| piece(py)).transpose()
    }

    /// Whether the request has ended.
    fn done(&self) -> bool {
        self.slot.lock().ended
    }

    /// Calls `then` without arguments, on a thread of its own, when the request has ended.
    fn call_when_done(&self, then: Py<PyAny>) {
        let mut state = self.slot.lock();
        if state.ended {
            drop(state);
            self.loaded.notifier.tell(then);
        } else {
            state.then = Some(then);
        }
    }

    /// Ends the request before its next pass.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}
