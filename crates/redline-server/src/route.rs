//! What a route is, and what its handler receives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redline_api::foreign::AnswerHead;
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::app::App;
use crate::body::{self, ReadBody};
use crate::fault::Fault;
use crate::form::Form;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Public,
    /// Owners of a key, if there are keys.
    Key,
}

/// The methods of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: fn(Call) -> Handled,
    /// The form of its handler's errors.
    pub(crate) form: Form,
}

impl Route {
    /// A route of owners of a key.
    pub(crate) const fn get(path: &'static str, handler: fn(Call) -> Handled) -> Self {
        Self { method: Method::Get, path, access: Access::Key, handler, form: Form::OpenAi }
    }

    /// A route of owners of a key, with a body.
    pub(crate) const fn post(path: &'static str, handler: fn(Call) -> Handled) -> Self {
        Self { method: Method::Post, path, access: Access::Key, handler, form: Form::OpenAi }
    }

    /// Whether requests have a body.
    pub(crate) fn takes_body(&self) -> bool {
        self.method == Method::Post
    }
}

/// What a handler receives.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    /// The name of the key's owner.
    pub(crate) caller: String,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) body: ReadBody,
    /// What stands for the variable part of the route's path.
    pub(crate) rest: Option<String>,
}

impl Call {
    /// Parses the body.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        body::parse(&self.body.bytes, self.app.config.limits.depth)
    }

    /// What the answer says about itself. The request asked for the model by this name.
    pub(crate) fn head(&self, kind: &str, asked: Option<&str>) -> Result<AnswerHead, Fault> {
        let model = self.app.model_named(asked)?;
        Ok(AnswerHead { id: format!("{kind}-{}", self.id), created: self.created, model })
    }

    /// The engine's salt: requests with different keys share no cached prefix.
    pub(crate) fn salt(&self, of_request: &str) -> String {
        format!("{}\0{of_request}", self.caller)
    }

    /// The time limit of a request.
    pub(crate) fn timeout_s(&self, of_request: Option<f64>) -> f64 {
        of_request.unwrap_or(self.app.config.limits.request_time.as_secs_f64())
    }
}

/// The work of a handler.
pub(crate) type Handled = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;
