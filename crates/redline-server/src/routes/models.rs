//! `GET /v1/models`, `GET /v1/models/{id}`.

use redline_wire::{ModelEntry, ModelList};

use crate::answer::Answer;
use crate::app::App;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::get("/v1/models", list), Route::get("/v1/models/{*id}", one)];

fn list(call: Call) -> Handled {
    Box::pin(async move {
        let data = call.app.names().map(|name| entry(&call.app, name.to_owned())).collect();
        Answer::json(&ModelList { object: "list", data })
    })
}

fn one(call: Call) -> Handled {
    Box::pin(async move {
        // A path that is no UTF-8 names no model.
        let name = call.app.model_named(Some(call.rest.as_deref().unwrap_or("?")))?;
        Answer::json(&entry(&call.app, name))
    })
}

fn entry(app: &App, id: String) -> ModelEntry {
    ModelEntry {
        id,
        object: "model",
        created: app.started,
        owned_by: "redline",
        root: app.model.name.clone(),
        max_model_len: app.model.engine.info().context,
    }
}
