//! Requests that begin together.

use std::marker::PhantomData;
use std::sync::mpsc::{Sender, channel};

use super::Engine;
use crate::error::EngineError;
use crate::heartbeat::runner::Job;

/// While it lives, the engine runs nothing.
#[derive(Debug)]
pub struct Hold<'a> {
    _until: Sender<()>,
    engine: PhantomData<&'a Engine>,
}

impl Engine {
    /// Runs nothing before the guard is dropped, so that the requests that are submitted meanwhile, as many as fit, begin in one pass.
    /// Others wait too.
    pub fn hold(&self) -> Result<Hold<'_>, EngineError> {
        let (until, held) = channel();
        self.inbox()?.send(Job::Hold(held))?;
        Ok(Hold { _until: until, engine: PhantomData })
    }
}
