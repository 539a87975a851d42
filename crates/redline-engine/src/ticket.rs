//! Answers that are on their way.

use std::sync::mpsc::Receiver;

use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::mode::autoregressive::Event;
use crate::outcome::{GenerateOutcome, ScoreOutcome};
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
    pub(crate) answer: Receiver<Result<ScoreOutcome, EngineError>>,
    pub(crate) cancel: CancelOnDrop,
}

impl ScoreTicket {
    /// Waits for the answer.
    pub fn wait(self) -> Result<ScoreOutcome, EngineError> {
        self.answer.recv().map_err(|_| EngineError::Stopped)?
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
    pub(crate) events: Receiver<Event>,
    pub(crate) cancel: CancelOnDrop,
}

impl GenerateTicket<'_> {
    /// Waits for the answer. `on_text` gets the text as it becomes final.
    pub fn wait(self, on_text: &mut dyn FnMut(&str)) -> Result<GenerateOutcome, EngineError> {
        for event in &self.events {
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
