//! Requests of any kind: what they have in common.

use super::Engine;
use crate::answer::ticket::{
    ClassifyTicket, DiffuseTicket, EmbedTicket, GenerateTicket, RerankTicket, ScoreTicket,
};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::request::{
    AdapterChoice, ClassifyRequest, DiffuseRequest, EmbedRequest, GenerateRequest, Queueing, RerankRequest,
    ScoreRequest,
};

/// The fields that requests of all kinds have.
#[derive(Debug)]
pub struct CommonFields<'a> {
    /// The adapters, applied one after the other.
    pub adapters: &'a mut Vec<AdapterChoice>,
    /// The salt of the prefix cache, if the request uses it.
    pub cache_salt: Option<&'a mut String>,
    /// Whose request it is, and how long it may wait to begin.
    pub queueing: &'a mut Queueing,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: &'a mut Option<f64>,
}

/// A request of any kind.
pub trait AnyRequest: Send + 'static {
    /// What its outcome comes through.
    type Ticket: Send + 'static;

    /// The fields that requests of all kinds have.
    fn common(&mut self) -> CommonFields<'_>;

    /// Begins it: `submit_score` for a [`ScoreRequest`], and so on.
    ///
    /// # Errors
    /// As the function that it calls.
    fn submit(self, engine: &Engine, cancel: &Cancel) -> Result<Self::Ticket, EngineError>;
}

macro_rules! any_request {
    ($request:ty, $ticket:ty, $submit:ident, |$of:ident| $fields:expr, $salt:expr) => {
        impl AnyRequest for $request {
            type Ticket = $ticket;

            fn common(&mut self) -> CommonFields<'_> {
                let $of = self;
                CommonFields {
                    cache_salt: $salt,
                    adapters: &mut $fields.adapters,
                    queueing: &mut $fields.queueing,
                    timeout_s: &mut $fields.timeout_s,
                }
            }

            fn submit(self, engine: &Engine, cancel: &Cancel) -> Result<Self::Ticket, EngineError> {
                engine.$submit(self, cancel)
            }
        }
    };
}

any_request!(ScoreRequest, ScoreTicket, submit_score, |of| of, Some(&mut of.cache_salt));
any_request!(EmbedRequest, EmbedTicket, submit_embed, |of| of, Some(&mut of.cache_salt));
any_request!(GenerateRequest, GenerateTicket, submit_generate, |of| of, Some(&mut of.cache_salt));
any_request!(DiffuseRequest, DiffuseTicket, submit_diffuse, |of| of, None);
any_request!(
    ClassifyRequest,
    ClassifyTicket,
    submit_classify,
    |of| of.options,
    Some(&mut of.options.cache_salt)
);
any_request!(RerankRequest, RerankTicket, submit_rerank, |of| of.options, Some(&mut of.options.cache_salt));
