//! `GET /health`, `GET /ready`, `GET /version`.

use serde::Serialize;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Access, Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[
    Route { access: Access::Public, ..Route::get("/health", health) },
    Route { access: Access::Public, ..Route::get("/ready", ready) },
    Route::get("/version", version),
];

/// The state of the server.
#[derive(Serialize)]
struct State {
    status: &'static str,
}

/// The version of the server.
#[derive(Serialize)]
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
