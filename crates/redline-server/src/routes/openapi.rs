//! `GET /openapi.json`.

use crate::answer::{Answer, JSON};
use crate::blocking::blocking;
use crate::route::{Handled, Operation, ResponseBody, Route, ServerCall, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::of_server("/openapi.json", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "This document.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<serde_json::Map<String, serde_json::Value>>]),
    further_statuses: &[],
};

fn answer(call: ServerCall) -> Handled {
    Box::pin(async move {
        let (shared, mode) = (call.models.shared.clone(), call.models.mode());
        if let Some(document) = shared.openapi.get() {
            return Ok(Answer::text(JSON, document.clone()));
        }
        let build =
            move || shared.openapi.get_or_init(|| super::openapi(&shared.config, mode).into()).clone();
        Ok(Answer::text(JSON, blocking(build).await?))
    })
}
