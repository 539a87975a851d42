//! `GET /health`, `GET /ready`, `GET /version`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Access, Handled, Operation, ResponseBody, Route, ServerCall, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route { access: Access::Public, ..Route::of_server("/health", health, HEALTH) },
    Route { access: Access::Public, ..Route::of_server("/ready", ready, READY) },
    Route::of_server("/version", version, VERSION),
];

const HEALTH: Operation = Operation {
    summary: "Whether the process works.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<State>]),
    further_statuses: &[],
};

const READY: Operation = Operation {
    summary: "Whether work is taken.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<State>]),
    further_statuses: &[],
};

const VERSION: Operation = Operation {
    summary: "The version of the server.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<Version>]),
    further_statuses: &[],
};

/// The state of the server.
#[derive(Serialize, JsonSchema)]
struct State {
    status: &'static str,
}

/// The version of the server.
#[derive(Serialize, JsonSchema)]
struct Version {
    version: &'static str,
}

/// Whether the process works: the engines of its models run.
fn health(call: ServerCall) -> Handled {
    Box::pin(async move {
        let stopped = call.models.loaded().into_iter().find(|app| app.is_stopped());
        match stopped.and_then(|app| app.refusal()) {
            Some(fault) => Err(fault),
            None => Answer::json(&State { status: "ok" }),
        }
    })
}

/// Whether work is taken.
fn ready(call: ServerCall) -> Handled {
    Box::pin(async move {
        call.models.refusal().map_or_else(|| Answer::json(&State { status: "ready" }), Err::<Answer, Fault>)
    })
}

fn version(_: ServerCall) -> Handled {
    Box::pin(async { Answer::json(&Version { version: env!("CARGO_PKG_VERSION") }) })
}
