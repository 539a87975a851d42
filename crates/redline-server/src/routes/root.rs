//! `POST /`: what the model is for, as Text Embeddings Inference and Text Generation Inference have it.

use redline_api::cohere::{RankedDocuments, RerankBody, TeiRank};
use redline_api::json::finite::Finite;
use redline_api::tei::embed::EmbedBody;
use redline_api::tei::predict::{PredictBody, Predictions};
use redline_api::tgi::{TgiAnswer, TgiBody, TgiEvent};
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{embed, predict, rerank, tgi};
use crate::error_format::ErrorFormat;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route {
    error_format: ErrorFormat::Tei,
    ..Route::post("/", answer, OPERATION).of_purpose(Purpose::Any)
}];

const OPERATION: Operation = Operation {
    summary: "Classifies, embeds, ranks or continues texts, whatever the model is for.",
    request_bodies: &[
        schema_of::<PredictBody>,
        schema_of::<EmbedBody>,
        schema_of::<RerankBody>,
        schema_of::<TgiBody>,
    ],
    response: ResponseBody::JsonOrEvents(answers, schema_of::<TgiEvent>),
    further_statuses: &[424],
};

/// The schema of the answers.
fn answers(generator: &mut SchemaGenerator) -> Schema {
    let of = [
        generator.subschema_for::<Predictions>(),
        generator.subschema_for::<Vec<Vec<Finite<f32>>>>(),
        generator.subschema_for::<Vec<TeiRank>>(),
        generator.subschema_for::<RankedDocuments>(),
        generator.subschema_for::<Vec<TgiAnswer>>(),
    ];
    json_schema!({ "anyOf": of })
}

/// A body with a `query` ranks texts, and one with `parameters` or `stream` is continued if the model writes text. Other bodies are
/// classified by the classes of the server or the model, embedded if the model was trained for that, or else continued.
fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let [query, parameters, stream] = call.has(["query", "parameters", "stream"]).await;
        let (app, engine) = (&call.app, &call.app.model.engine);
        let info = engine.info();
        let writes = engine.check_predicts_next().is_ok();
        let classes = info.classes.as_ref().map_or(0, Vec::len);
        let handler = if query || (classes == 1 && app.config.classes.is_empty()) {
            rerank::answer
        } else if writes && (parameters || stream) {
            tgi::root
        } else if classes > 1 || !app.config.classes.is_empty() {
            predict::answer
        } else if info.embedding_pooling.is_some() {
            embed::answer
        } else {
            tgi::root
        };
        handler(call).await
    })
}
