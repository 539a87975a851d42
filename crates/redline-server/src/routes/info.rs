//! `GET /info`.

use redline_wire::limits::{MAX_DOCUMENTS, MAX_TEXTS};
use redline_wire::{Entries, TeiClasses, TeiInfo, TeiModelType};

use crate::answer::Answer;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::get("/info", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "What the server runs, as Text Embeddings Inference says it.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<TeiInfo>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let (app, info) = (&call.app, call.app.model.engine.info());
        let classes = |names: &[String]| TeiClasses {
            id2label: Entries(
                names.iter().enumerate().map(|(at, name)| (at.to_string(), name.clone())).collect(),
            ),
            label2id: Entries(names.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect()),
        };
        let model_type = match app.config.classes.as_slice() {
            [] => TeiModelType::Reranker(classes(&["relevance".to_owned()])),
            names => TeiModelType::Classifier(classes(names)),
        };
        Answer::json(&TeiInfo {
            model_id: app.model.name.clone(),
            model_sha: None,
            model_dtype: info.kernel_path.clone(),
            model_type,
            max_concurrent_requests: app.config.limits.queue,
            max_input_length: info.context,
            max_batch_tokens: info.max_chunk,
            max_client_batch_size: if app.config.classes.is_empty() { MAX_DOCUMENTS } else { MAX_TEXTS },
            auto_truncate: false,
            generation: app.mode().name(),
            version: env!("CARGO_PKG_VERSION"),
        })
    })
}
