//! `GET /v1/models`, `GET /v1/models/{id}`.

use redline_api::openai::models::{ModelEntry, ModelList};

use crate::answer::Answer;
use crate::app::App;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route::get("/v1/models", list, LIST), Route::get("/v1/models/{*id}", one, ONE)];

const LIST: Operation = Operation {
    summary: "The models and adapters.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<ModelList>]),
    further_statuses: &[],
};

const ONE: Operation = Operation {
    summary: "A model or an adapter.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<ModelEntry>]),
    further_statuses: &[404],
};

fn list(call: Call) -> Handled {
    Box::pin(async move {
        let models = call.app.names().map(|name| entry(&call.app, name.to_owned(), None));
        let adapters = call.app.adapter_names().into_iter();
        let parent = || Some(call.app.model.name.clone());
        let adapters = adapters.map(|name| entry(&call.app, name, parent()));
        let data = models.chain(adapters).collect();
        Answer::json(&ModelList { object: "list", data })
    })
}

fn one(call: Call) -> Handled {
    Box::pin(async move {
        // A path that is no UTF-8 names no model.
        let asked = call.rest.as_deref().unwrap_or("?");
        if let Some(adapter) = call.app.adapter(asked).filter(|_| call.app.model_named(Some(asked)).is_err())
        {
            return Answer::json(&entry(&call.app, adapter.name, Some(call.app.model.name.clone())));
        }
        let name = call.app.model_named(Some(asked))?;
        Answer::json(&entry(&call.app, name, None))
    })
}

/// The entry of a name; `parent` is the model that an adapter changes.
fn entry(app: &App, id: String, parent: Option<String>) -> ModelEntry {
    ModelEntry {
        id,
        object: "model",
        created: app.started,
        owned_by: "redline",
        root: app.model.name.clone(),
        parent,
        max_model_len: app.model.engine.info().context,
        generation: app.generation(),
    }
}
