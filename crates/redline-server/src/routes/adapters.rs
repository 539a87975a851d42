//! `POST /v1/load_lora_adapter`, `POST /v1/unload_lora_adapter`, `GET /v1/lora_adapters`.

use std::path::PathBuf;

use axum::http::StatusCode;
use redline_api::json::limits::MAX_ADAPTER_NAME;
use redline_api::vllm::adapters::{AdapterEntry, AdapterList, LoadAdapterBody, UnloadAdapterBody};
use redline_engine::{AdapterInfo, EngineError};
use tokio::sync::oneshot;

use crate::adapters::confined;
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route::post("/v1/load_lora_adapter", load, LOAD).of_purpose(Purpose::Any),
    Route::post("/v1/unload_lora_adapter", unload, UNLOAD).of_purpose(Purpose::Any),
    Route::get("/v1/lora_adapters", list, LIST),
];

const LOAD: Operation = Operation {
    summary: "Loads an adapter.",
    request_bodies: &[schema_of::<LoadAdapterBody>],
    response: ResponseBody::Text(&[TEXT]),
    further_statuses: &[],
};

const UNLOAD: Operation = Operation {
    summary: "Removes an adapter.",
    request_bodies: &[schema_of::<UnloadAdapterBody>],
    response: ResponseBody::Text(&[TEXT]),
    further_statuses: &[],
};

const LIST: Operation = Operation {
    summary: "The adapters.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<AdapterList>]),
    further_statuses: &[],
};

/// The media type of texts.
const TEXT: &str = "text/plain; charset=utf-8";

/// The root below which adapters may be loaded.
fn root(app: &App) -> Result<&PathBuf, Fault> {
    app.config.adapter_root.as_ref().ok_or_else(|| {
        let message =
            "adapters cannot be loaded or removed while the server runs; it was started without a root of adapters";
        Fault::new(StatusCode::FORBIDDEN, "adapters_fixed", message)
    })
}

fn load(call: Call) -> Handled {
    Box::pin(async move {
        let body: LoadAdapterBody = call.parse().await?;
        let root = root(&call.app)?.clone();
        let replaces = body.load_inplace.unwrap_or(false);
        let name = body.lora_name;
        let bad_name = |fact: String| Err(Fault::invalid("invalid_value", fact).of_field("lora_name"));
        let length = name.chars().count();
        if !(1..=MAX_ADAPTER_NAME).contains(&length) {
            return bad_name(format!("`lora_name` has {length} characters; give 1 to {MAX_ADAPTER_NAME}"));
        }
        if call.app.names().any(|of_model| of_model == name) {
            return bad_name(format!("`{name}` is the name of the model; give the adapter another"));
        }
        if !replaces && call.app.adapter(&name).is_some() {
            let message = format!("there is an adapter `{name}`; `load_inplace`: true replaces it");
            return Err(Fault::invalid("adapter_exists", message).of_field("lora_name"));
        }
        let Ok(turn) = call.app.loads.clone().try_acquire_owned() else {
            let message = "other adapters are being loaded; try again later";
            return Err(Fault::overloaded("adapters_loading", message));
        };
        // Not the whole server, whose end does not wait for a load.
        let (model, named) = (call.app.model.clone(), name.clone());
        let (reply, loaded) = oneshot::channel();
        // On a thread of its own, because the few threads that tokenise serve all requests.
        let work = move || {
            let dir = confined(&root, &body.lora_path);
            let expected = (!replaces).then_some(0);
            let load = |dir: PathBuf| model.engine.load_adapter(&named, &dir, expected).map_err(not_loaded);
            let loaded = dir.and_then(load).map_err(|fault| fault.with_paths_from(&root));
            // The next load may come as soon as this one is answered.
            drop(turn);
            let _ = reply.send(loaded);
        };
        let thread = std::thread::Builder::new().name("redline-load".to_owned()).spawn(work);
        thread
            .map_err(|_| Fault::unavailable("no_thread", "the system gives no thread to load the adapter"))?;
        let AdapterInfo { generation, .. } = loaded.await.map_err(|_| Fault::internal("panicked"))??;
        let text = format!("Success: LoRA adapter '{name}' added successfully as generation {generation}.");
        Ok(Answer::text(TEXT, text))
    })
}

/// The fault of an adapter that cannot be loaded: its files are at fault unless the engine is.
fn not_loaded(error: EngineError) -> Fault {
    match error {
        EngineError::Model(_) => {
            let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            Fault::invalid("invalid_adapter", format!("{error}{hint}")).of_field("lora_path")
        }
        error => Fault::of_engine(&error, "lora_path"),
    }
}

fn unload(call: Call) -> Handled {
    Box::pin(async move {
        let body: UnloadAdapterBody = call.parse().await?;
        root(&call.app)?;
        let name = body.lora_name;
        let unloaded = match call.app.adapter(&name) {
            Some(_) => call.app.model.engine.unload_adapter(&name, None),
            None => Err(EngineError::NoAdapter { name: name.clone(), known: call.app.adapter_names() }),
        };
        unloaded.map_err(|error| Fault::of_engine(&error, "lora_name").of_field("lora_name"))?;
        Ok(Answer::text(TEXT, format!("Success: LoRA adapter '{name}' removed successfully.")))
    })
}

fn list(call: Call) -> Handled {
    Box::pin(async move {
        let entry = |info: AdapterInfo| AdapterEntry {
            id: info.name,
            object: "adapter",
            generation: info.generation,
            bytes: info.bytes,
            loaded: info.bytes > 0,
        };
        let data = call.app.model.engine.adapters().into_iter().map(entry).collect();
        Answer::json(&AdapterList { object: "list", data })
    })
}
