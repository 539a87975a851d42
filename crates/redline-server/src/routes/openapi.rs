//! `GET /openapi.json`.

use crate::answer::{Answer, JSON};
use crate::fault::Fault;
use crate::route::{About, Call, Gives, Handled, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::get("/openapi.json", answer, ABOUT)];

const ABOUT: About = About {
    summary: "This document.",
    takes: &[],
    gives: Gives::Json(&[schema_of::<serde_json::Map<String, serde_json::Value>>]),
    statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let document = call.app.openapi.get().ok_or_else(|| Fault::internal("no_document"))?;
        Ok(Answer::text(JSON, document.clone()))
    })
}
