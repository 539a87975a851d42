//! Answers that are on their way.

use std::sync::mpsc::{Receiver, TryRecvError};

use crate::cancel::Cancel;
use crate::engine::{Drawn, Engine};
use crate::error::EngineError;
use crate::mode::autoregressive::Event;
use crate::mode::diffusion;
use crate::outcome::{DiffuseOutcome, DiffusionPass, GenerateOutcome, ScoreOutcome};
use crate::request::GenerateRequest;

/// Cancels one request when it is dropped: nobody waits for its answer any more.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(pub(crate) Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The answer to a score request that runs. Dropping it cancels the request.
#[derive(Debug)]
pub struct ScoreTicket {
    pub(crate) heard: Option<Result<ScoreOutcome, EngineError>>,
    pub(crate) answer: Receiver<Result<ScoreOutcome, EngineError>>,
    pub(crate) cancel: CancelOnDrop,
}

impl ScoreTicket {
    /// Whether the answer has come.
    pub fn is_ready(&mut self) -> bool {
        if self.heard.is_none() {
            self.heard = heard(self.answer.try_recv(), || Err(EngineError::Stopped));
        }
        self.heard.is_some()
    }

    /// Waits for the answer.
    pub fn wait(self) -> Result<ScoreOutcome, EngineError> {
        self.heard.unwrap_or_else(|| self.answer.recv().map_err(|_| EngineError::Stopped)?)
    }

    /// Ends the request before the next pass.
    pub fn cancel(&self) {
        self.cancel.0.cancel();
    }
}

/// The answer to a generation that runs. Dropping it cancels the request.
pub struct GenerateTicket<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) request: GenerateRequest,
    pub(crate) prompt: Vec<u32>,
    /// Events that came before anybody waited for them.
    pub(crate) heard: Vec<Event>,
    pub(crate) events: Receiver<Event>,
    pub(crate) cancel: CancelOnDrop,
}

impl GenerateTicket<'_> {
    /// Whether the answer has come.
    pub fn is_ready(&mut self) -> bool {
        let last = |event: &Event| matches!(event, Event::Done(_));
        is_over(&mut self.heard, &self.events, last, || Event::Done(Err(EngineError::Stopped)))
    }

    /// Waits for the answer. `on_text` gets the text as it becomes final.
    pub fn wait(self, on_text: &mut dyn FnMut(&str)) -> Result<GenerateOutcome, EngineError> {
        for event in self.heard.into_iter().chain(&self.events) {
            match event {
                Event::Text(text) => on_text(&text),
                Event::Done(outcome) => return self.engine.outcome(&self.request, self.prompt, outcome?),
            }
        }
        Err(EngineError::Stopped)
    }

    /// Ends the request before the next pass; what there is by then is the answer.
    pub fn cancel(&self) {
        self.cancel.0.cancel();
    }
}

/// The answer to a canvas that is being filled. Dropping it cancels the request.
pub struct DiffuseTicket<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) drawn: Drawn,
    /// The canvas as it is before the first pass.
    pub(crate) canvas: Vec<u32>,
    /// Events that came before anybody waited for them.
    pub(crate) heard: Vec<diffusion::Event>,
    pub(crate) events: Receiver<diffusion::Event>,
    pub(crate) cancel: CancelOnDrop,
}

impl DiffuseTicket<'_> {
    /// The tokens before the first pass: the prompt and masks.
    pub fn canvas(&self) -> &[u32] {
        &self.canvas
    }

    /// Whether the answer has come.
    pub fn is_ready(&mut self) -> bool {
        let last = |event: &diffusion::Event| matches!(event, diffusion::Event::Done(_));
        let lost = || diffusion::Event::Done(Err(EngineError::Stopped));
        is_over(&mut self.heard, &self.events, last, lost)
    }

    /// Waits for the answer. `on_text` gets the text as it becomes final, `on_pass` what every pass filled.
    pub fn wait(
        self,
        on_text: &mut dyn FnMut(&str),
        on_pass: &mut dyn FnMut(&DiffusionPass),
    ) -> Result<DiffuseOutcome, EngineError> {
        for event in self.heard.into_iter().chain(&self.events) {
            match event {
                diffusion::Event::Text(text) => on_text(&text),
                diffusion::Event::Pass(pass) => on_pass(&pass),
                diffusion::Event::Done(outcome) => return Ok(self.engine.diffused(self.drawn, outcome?)),
            }
        }
        Err(EngineError::Stopped)
    }

    /// Ends the request before the next pass; what there is by then is the answer.
    pub fn cancel(&self) {
        self.cancel.0.cancel();
    }
}

/// Hears what has come; whether the last event is among it.
fn is_over<E>(
    known: &mut Vec<E>,
    events: &Receiver<E>,
    is_last: impl Fn(&E) -> bool,
    lost: impl Fn() -> E,
) -> bool {
    while !known.last().is_some_and(&is_last) {
        match heard(events.try_recv(), &lost) {
            Some(event) => known.push(event),
            None => return false,
        }
    }
    true
}

/// What was received, if anything; `lost` where nothing can come any more.
fn heard<T>(received: Result<T, TryRecvError>, lost: impl FnOnce() -> T) -> Option<T> {
    match received {
        Ok(value) => Some(value),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(lost()),
    }
}
