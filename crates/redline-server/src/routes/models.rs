//! `GET /v1/models`, `GET /v1/models/{id}`.

use redline_api::generation::mode::GenerationMode;
use redline_api::openai::models::{ModelEntry, ModelList};
use redline_engine::ModelSummary;

use crate::answer::Answer;
use crate::fault::Fault;
use crate::models::Models;
use crate::route::{Handled, Operation, ResponseBody, Route, ServerCall, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route::of_server("/v1/models", list, LIST), Route::of_server("/v1/models/{*id}", one, ONE)];

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

fn list(call: ServerCall) -> Handled {
    Box::pin(async move { Answer::json(&ModelList { object: "list", data: entries(&call.models) }) })
}

fn one(call: ServerCall) -> Handled {
    Box::pin(async move {
        // A path that is no UTF-8 names no model.
        let asked = call.rest.as_deref().unwrap_or("?");
        let of_name = entries(&call.models).into_iter().find(|entry| entry.id == asked);
        let any = || {
            let first =
                entries(&call.models).into_iter().next().filter(|_| call.models.shared.config.any_model)?;
            Some(ModelEntry { id: asked.to_owned(), ..first })
        };
        let entry = of_name.or_else(any).ok_or_else(|| Fault::no_model(asked).of_field("model"))?;
        Answer::json(&entry)
    })
}

/// The entries of all names: those of every model, and then those of its adapters.
fn entries(models: &Models) -> Vec<ModelEntry> {
    let mut all = Vec::new();
    for (served, config, app) in models.all() {
        let entry = |id: String, parent| ModelEntry {
            id,
            object: "model",
            created: models.shared.started,
            owned_by: "redline",
            root: served.name.clone(),
            parent,
            max_model_len: served.summary.context,
            generation: generation(&served.summary),
            abilities: abilities(&served.summary),
            loaded: app.is_some(),
        };
        let names = std::iter::once(&served.name).chain(&config.aliases);
        all.extend(names.map(|name| entry(name.clone(), None)));
        let adapters = app.as_ref().map_or_else(|| served.adapters.clone(), |app| app.adapter_names());
        all.extend(adapters.into_iter().map(|name| entry(name, Some(served.name.clone()))));
    }
    all
}

/// How a model generates text, by name; `None`: it generates none.
fn generation(model: &ModelSummary) -> Option<&'static str> {
    model.objective.predicts().then(|| GenerationMode::of_objective(model.objective).name())
}

/// What a model can do. One that writes text also scores, ranks and classifies by what it would write.
fn abilities(model: &ModelSummary) -> Vec<&'static str> {
    let writes = model.objective.predicts();
    let can = [
        ("generate", writes),
        ("score", writes),
        ("embed", model.embeds),
        ("rerank", writes || model.ranks),
        ("classify", writes || model.classes.is_some_and(|count| count > 1)),
    ];
    can.into_iter().filter(|(_, can)| *can).map(|(name, _)| name).collect()
}
