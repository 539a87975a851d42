//! The routes: one file each, and one line in [`ALL`].

mod adapters;
mod chat;
mod classify;
mod completions;
mod count_tokens;
mod decisions;
mod embed;
mod embeddings;
mod health;
mod infill;
mod info;
mod messages;
mod metrics;
mod models;
mod ollama;
mod openapi;
mod page;
mod predict;
mod rerank;
mod responses;
mod root;
mod score;
mod similarity;
mod systemone;
mod tgi;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::{MethodFilter, on};
use redline_api::generation::mode::GenerationMode;

use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::models::Models;
use crate::openapi::document;
use crate::request::respond;
use crate::route::{Access, Handled, Method, Operation, ResponseBody, Route, ServerCall};

/// Every route.
const ALL: &[&[Route]] = &[
    chat::ROUTES,
    adapters::ROUTES,
    classify::ROUTES,
    completions::ROUTES,
    count_tokens::ROUTES,
    decisions::ROUTES,
    embed::ROUTES,
    embeddings::ROUTES,
    health::ROUTES,
    infill::ROUTES,
    messages::ROUTES,
    metrics::ROUTES,
    info::ROUTES,
    models::ROUTES,
    ollama::ROUTES,
    openapi::ROUTES,
    page::ROUTES,
    predict::ROUTES,
    rerank::ROUTES,
    responses::ROUTES,
    root::ROUTES,
    score::ROUTES,
    similarity::ROUTES,
    systemone::ROUTES,
    tgi::ROUTES,
    tokens::ROUTES,
];

/// Every route, with its handler.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> {
    ALL.iter().copied().flatten()
}

/// The routes that a server with these settings has.
fn offered(config: &ServerConfig) -> impl Iterator<Item = &'static Route> {
    all().filter(|route| config.page || !page::has(route))
}

/// The OpenAPI document of a server with these settings and a model of this mode, as JSON.
pub fn openapi(config: &ServerConfig, mode: GenerationMode) -> String {
    document(offered(config), config, mode)
}

/// A route, for tests and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The method.
    pub method: &'static str,
    /// The path; `{*name}` stands for any text.
    pub path: &'static str,
    /// Whether the route needs no key.
    pub public: bool,
}

/// Every route.
pub fn routes() -> Vec<RouteInfo> {
    let info = |route: &Route| RouteInfo {
        method: route.method.name(),
        path: route.path,
        public: route.access == Access::Public,
    };
    all().map(info).collect()
}

/// Answers requests for a path that has no route.
static NO_ROUTE: Route = refusing(|_| {
    let message = "there is no such route; check the path";
    Box::pin(async move { Err(Fault::new(StatusCode::NOT_FOUND, "route_not_found", message)) })
});

/// Answers requests with a method that the route of their path does not have.
static NO_METHOD: Route = refusing(|_| {
    let message = "the route has no such method; the header `Allow` names those that it has";
    Box::pin(async move { Err(Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)) })
});

/// Stands for a route that does not exist.
const fn refusing(handler: fn(ServerCall) -> Handled) -> Route {
    let operation = Operation {
        summary: "",
        request_bodies: &[],
        response: ResponseBody::Json(&[]),
        further_statuses: &[],
    };
    Route { access: Access::Public, ..Route::of_server("(none)", handler, operation) }
}

/// Finds the route of a request.
pub(crate) fn router(models: &Arc<Models>) -> Router {
    let answering = |route: &'static Route| {
        let models = models.clone();
        move |request: Request<Body>| respond(models, route, request)
    };
    let mut router = Router::new();
    for route in offered(&models.shared.config) {
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
        };
        router = router.route(route.path, on(filter, answering(route)));
        if route.path != "/" && !route.path.contains('{') {
            router = router.route(&format!("{}/", route.path), on(filter, answering(route)));
        }
    }
    router.fallback(answering(&NO_ROUTE)).method_not_allowed_fallback(answering(&NO_METHOD))
}
