//! `GET /`: a page for trying the model, its files, and what the model can do.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use redline_engine::EngineError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::route::{Access, Call, Handled, Method, Operation, ResponseBody, Route, ServerCall, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route { access: Access::Public, ..Route::of_server("/", index, PAGE) },
    Route { access: Access::Public, ..Route::of_server("/page/{*file}", file, FILE) },
    Route::get("/page/abilities", abilities, ABILITIES),
];

const PAGE: Operation = Operation {
    summary: "A page for trying the model.",
    request_bodies: &[],
    response: ResponseBody::Text(&[HTML]),
    further_statuses: &[],
};

const FILE: Operation = Operation {
    summary: "A file of the page.",
    request_bodies: &[],
    response: ResponseBody::Text(&[CSS, SCRIPT]),
    further_statuses: &[404],
};

const ABILITIES: Operation = Operation {
    summary: "What the page shows of the model.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<Abilities>]),
    further_statuses: &[],
};

/// Whether a route belongs to the page.
pub(super) fn has(route: &Route) -> bool {
    route.method == Method::Get && (route.path == "/" || route.path.starts_with("/page/"))
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Headers of the page and its files. They load nothing from elsewhere, run nothing that is written into a document, and no other page
/// can frame them.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
];

/// The files of the page: name, media type and text.
const FILES: &[(&str, &str, &str)] = &[
    ("page.css", CSS, include_str!("../page/page.css")),
    ("page.js", SCRIPT, include_str!("../page/page.js")),
    ("api.js", SCRIPT, include_str!("../page/api.js")),
    ("bars.js", SCRIPT, include_str!("../page/bars.js")),
    ("chat.js", SCRIPT, include_str!("../page/chat.js")),
    ("completion.js", SCRIPT, include_str!("../page/completion.js")),
    ("decisions.js", SCRIPT, include_str!("../page/decisions.js")),
    ("diffusion.js", SCRIPT, include_str!("../page/diffusion.js")),
    ("dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("gauges.js", SCRIPT, include_str!("../page/gauges.js")),
    ("generation.js", SCRIPT, include_str!("../page/generation.js")),
    ("run.js", SCRIPT, include_str!("../page/run.js")),
    ("scores.js", SCRIPT, include_str!("../page/scores.js")),
    ("tabs.js", SCRIPT, include_str!("../page/tabs.js")),
];

fn index(_: ServerCall) -> Handled {
    Box::pin(async { Ok(Answer::text(HTML, include_str!("../page/index.html")).with_headers(HEADERS)) })
}

fn file(call: ServerCall) -> Handled {
    Box::pin(async move {
        let named = |&&(name, ..): &&(&str, &str, &str)| call.rest.as_deref() == Some(name);
        match FILES.iter().find(named) {
            Some(&(_, media, text)) => Ok(Answer::text(media, text).with_headers(HEADERS)),
            None => {
                let message = "the page has no such file; `/` names those that it has";
                Err(Fault::new(StatusCode::NOT_FOUND, "route_not_found", message))
            }
        }
    })
}

/// What the page shows of the model.
#[derive(Serialize, JsonSchema)]
struct Abilities {
    model: String,
    version: &'static str,
    /// Longest sequence in tokens.
    context: usize,
    /// Why the model cannot do what these parts of the page ask for. Parts that are not named are available.
    unavailable: BTreeMap<&'static str, String>,
}

fn abilities(call: Call) -> Handled {
    Box::pin(async move {
        let (app, engine) = (&call.app, &call.app.model.engine);
        let text = reads_text(app).and_then(|()| writes_text(app));
        let chat = text.clone().and_then(|()| app.chat("messages").map(drop));
        let masks = engine.check_fills_masks().map_err(|error| Fault::of_engine(&error, "model"));
        let parts = [
            ("scores", text.clone()),
            ("decisions", text.clone()),
            ("completion", text.clone()),
            ("chat", chat),
            ("diffusion", text.and(masks)),
        ];
        let reason = |(part, able): (_, Result<(), Fault>)| Some((part, able.err()?.body().error.message));
        Answer::json(&Abilities {
            model: app.model.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            context: engine.info().context,
            unavailable: parts.into_iter().filter_map(reason).collect(),
        })
    })
}

/// Refuses a model without a tokenizer.
fn reads_text(app: &App) -> Result<(), Fault> {
    let none = || EngineError::NoTokenizer(app.model.name.clone());
    app.model.engine.tokenizer().map(|_| ()).ok_or_else(|| Fault::of_engine(&none(), "model"))
}

/// Refuses a model that only encodes.
fn writes_text(app: &App) -> Result<(), Fault> {
    let engine = &app.model.engine;
    if engine.info().objective.predicts() {
        return Ok(());
    }
    engine.check_predicts_next().map_err(|error| Fault::of_engine(&error, "model"))
}
