//! What a route is, and what its handler receives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redline_api::adapter::AdapterNames;
use redline_api::head::AnswerHead;
use redline_api::json::entries::Entries;
use redline_engine::{AdapterChoice, EngineError};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::answer::Answer;
use crate::app::App;
use crate::body::ReadBody;
use crate::clock::Moment;
use crate::config::ServerConfig;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::{Models, Purpose};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Public,
    /// Owners of a key, if there are keys.
    Key,
    /// Owners of a key, unless metrics are public.
    Metrics,
}

impl Access {
    /// Whether requests need a key on a server with these settings.
    pub(crate) fn needs_key(self, config: &ServerConfig) -> bool {
        let guarded = match self {
            Self::Public => false,
            Self::Key => true,
            Self::Metrics => !config.public_metrics,
        };
        guarded && !config.keys.is_empty()
    }
}

/// The methods of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

impl Method {
    /// Its name in HTTP.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a type, or a reference to it.
pub(crate) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The body of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum ResponseBody {
    /// JSON with one of these schemas.
    Json(&'static [SchemaOf]),
    /// JSON with the first schema, or a stream of events with the second, if the request asks for one.
    JsonOrEvents(SchemaOf, SchemaOf),
    /// JSON with the first schema, or lines of JSON with the second, unless the request asks for a whole answer.
    JsonOrLines(SchemaOf, SchemaOf),
    /// A stream of events with this schema.
    Events(SchemaOf),
    /// Text of one of these media types.
    Text(&'static [&'static str]),
}

/// The description of a route in the OpenAPI document.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// What the route does, in one sentence.
    pub(crate) summary: &'static str,
    /// The schemas of the request body, which has one of them. Empty for a route without a body.
    pub(crate) request_bodies: &'static [SchemaOf],
    pub(crate) response: ResponseBody,
    /// Statuses of errors beyond those of `openapi.rs` that every route of its method, or with its form of errors, may have.
    pub(crate) further_statuses: &'static [u16],
}

/// What answers the requests of a route.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// They are about the server.
    OfServer(fn(ServerCall) -> Handled),
    /// They are for a model.
    OfModel(fn(Call) -> Handled),
}

/// A route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: Handler,
    /// What requests that do not name a model need one for.
    pub(crate) purpose: Purpose,
    /// The format of its handler's errors.
    pub(crate) error_format: ErrorFormat,
    pub(crate) operation: Operation,
}

impl Route {
    /// A route for callers with a key, if the server has keys.
    pub(crate) const fn get(path: &'static str, handler: fn(Call) -> Handled, operation: Operation) -> Self {
        Self::new(Method::Get, path, Handler::OfModel(handler), operation)
    }

    /// As [`Route::get`], about the server.
    pub(crate) const fn of_server(
        path: &'static str,
        handler: fn(ServerCall) -> Handled,
        operation: Operation,
    ) -> Self {
        Self::new(Method::Get, path, Handler::OfServer(handler), operation)
    }

    /// As [`Route::get`], with a body. Its requests need a model that writes text if they do not name one.
    pub(crate) const fn post(path: &'static str, handler: fn(Call) -> Handled, operation: Operation) -> Self {
        Self::new(Method::Post, path, Handler::OfModel(handler), operation).of_purpose(Purpose::Write)
    }

    const fn new(method: Method, path: &'static str, handler: Handler, operation: Operation) -> Self {
        let (access, purpose, error_format) = (Access::Key, Purpose::Any, ErrorFormat::OpenAi);
        Self { method, path, access, handler, purpose, error_format, operation }
    }

    /// The route, whose requests need a model for this purpose if they do not name one.
    pub(crate) const fn of_purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Whether requests have a body.
    pub(crate) fn takes_body(&self) -> bool {
        self.method == Method::Post
    }
}

/// What the handler of a route about the server receives.
pub(crate) struct ServerCall {
    pub(crate) models: Arc<Models>,
    /// What stands for the variable part of the route's path.
    pub(crate) rest: Option<String>,
}

/// What the handler of a route for a model receives.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    /// The name of the key's owner.
    pub(crate) caller: String,
    pub(crate) id: String,
    pub(crate) created: u64,
    /// When its body had come: its time limit counts from then on.
    pub(crate) begun: Moment,
    pub(crate) body: ReadBody,
    /// How long the request may wait for its first pass, if it says so, in seconds.
    pub(crate) longest_wait_s: Option<f64>,
}

impl Call {
    /// Parses the body.
    pub(crate) async fn parse<T: DeserializeOwned + Send + 'static>(&self) -> Result<T, Fault> {
        self.body.parse(self.app.config.limits.depth).await
    }

    /// Which of these fields the body has: none, if it is no JSON object.
    pub(crate) async fn has<const N: usize>(&self, names: [&str; N]) -> [bool; N] {
        let fields: Entries<IgnoredAny> = self.parse().await.unwrap_or_default();
        names.map(|name| fields.0.iter().any(|(field, _)| field == name))
    }

    /// What the answer says about itself. The request asked for the model by this name.
    pub(crate) fn head(&self, kind: &str, asked: Option<&str>) -> Result<AnswerHead, Fault> {
        let model = self.app.model_named(asked)?;
        Ok(AnswerHead { id: format!("{kind}-{}", self.id), created: self.created, model })
    }

    /// As [`Call::head`], for a route whose requests may use adapters, and the adapters that this one uses. The request asks for an
    /// adapter as its model, or names adapters of the model.
    pub(crate) fn head_with_adapters(
        &self,
        kind: &str,
        asked: Option<&str>,
        named: Option<&AdapterNames>,
    ) -> Result<(AnswerHead, Vec<AdapterChoice>), Fault> {
        let adapter = asked.filter(|name| self.app.names().all(|other| other != *name) && !name.is_empty());
        let Some(info) = adapter.and_then(|name| self.app.adapter(name)) else {
            let head = self.head(kind, asked)?;
            let choices =
                named.map(AdapterNames::checked).transpose().map_err(|error| Fault::of(error, "adapter"))?;
            let choices = choices.unwrap_or_default();
            if !choices.is_empty() {
                let known = self.app.adapter_names();
                if let Some(unknown) = choices.iter().find(|choice| !known.contains(&choice.name)) {
                    let error = EngineError::NoAdapter { name: unknown.name.clone(), known };
                    return Err(Fault::of_engine(&error, "adapter"));
                }
            }
            return Ok((head, choices));
        };
        if named.is_some() {
            let message =
                format!("`model` is the adapter `{}`, and `adapter` is given too; give one", info.name);
            return Err(Fault::invalid("invalid_value", message).of_field("adapter"));
        }
        let head =
            AnswerHead { id: format!("{kind}-{}", self.id), created: self.created, model: info.name.clone() };
        Ok((head, vec![AdapterChoice { name: info.name, scale: 1.0 }]))
    }

    /// A request without a body, for tests.
    #[cfg(test)]
    pub(crate) fn of_test(app: &Arc<App>) -> Self {
        Self {
            app: app.clone(),
            caller: "caller".to_owned(),
            id: "id".to_owned(),
            created: 0,
            begun: Moment::now(),
            body: ReadBody::default(),
            longest_wait_s: None,
        }
    }
}

/// The work of a handler.
pub(crate) type Handled = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;
