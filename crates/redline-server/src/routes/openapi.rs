//! `GET /openapi.json`.

use crate::answer::{Answer, JSON};
use crate::blocking::blocking;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::get("/openapi.json", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "This document.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<serde_json::Map<String, serde_json::Value>>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let app = call.app;
        if let Some(document) = app.openapi.get() {
            return Ok(Answer::text(JSON, document.clone()));
        }
        let build =
            move || app.openapi.get_or_init(|| super::openapi(&app.config, app.mode()).into()).clone();
        Ok(Answer::text(JSON, blocking(build).await?))
    })
}
