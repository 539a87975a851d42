//! `GET /health`, `GET /ready`, `GET /version`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Access, Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route { access: Access::Public, ..Route::get("/health", health, HEALTH) },
    Route { access: Access::Public, ..Route::get("/ready", ready, READY) },
    Route::get("/version", version, VERSION),
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

/// Whether the process works: its engine runs.
fn health(call: Call) -> Handled {
    Box::pin(async move {
        match call.app.refusal().filter(|_| call.app.is_stopped()) {
            Some(fault) => Err(fault),
            None => Answer::json(&State { status: "ok" }),
        }
    })
}

/// Whether work is taken.
fn ready(call: Call) -> Handled {
    Box::pin(async move {
        call.app.refusal().map_or_else(|| Answer::json(&State { status: "ready" }), Err::<Answer, Fault>)
    })
}

fn version(_: Call) -> Handled {
    Box::pin(async { Answer::json(&Version { version: env!("CARGO_PKG_VERSION") }) })
}
