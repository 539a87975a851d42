//! `GET /info`.

use redline_api::json::entries::Entries;
use redline_api::json::limits::{MAX_CONTINUATIONS, MAX_DOCUMENTS, MAX_STOPS, MAX_TEXTS};
use redline_api::tei::info::{TeiClasses, TeiEmbedding, TeiInfo, TeiModelType, TeiPooling};
use redline_engine::{ModelInfo, Pooling};

use crate::answer::Answer;
use crate::blocking::BLOCKING_THREADS;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::get("/info", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "What the server runs, as Text Embeddings Inference and Text Generation Inference say it.",
    request_bodies: &[],
    response: ResponseBody::Json(&[schema_of::<TeiInfo>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let (app, info) = (&call.app, call.app.model.engine.info());
        let model_type = model_type(&app.config.classes, info);
        Answer::json(&TeiInfo {
            model_id: app.model.name.clone(),
            model_sha: None,
            model_dtype: info.kernel_path.clone(),
            max_client_batch_size: match model_type {
                TeiModelType::Reranker(_) => MAX_DOCUMENTS,
                TeiModelType::Classifier(_) | TeiModelType::Embedding(_) => MAX_TEXTS,
            },
            model_type,
            max_concurrent_requests: app.config.limits.queue,
            max_input_length: info.context,
            max_batch_tokens: info.max_chunk,
            max_batch_requests: None,
            tokenization_workers: BLOCKING_THREADS,
            auto_truncate: false,
            max_input_tokens: info.context.saturating_sub(1),
            max_total_tokens: info.context,
            max_best_of: MAX_CONTINUATIONS,
            max_stop_sequences: MAX_STOPS,
            router: "redline",
            generation: app.generation(),
            version: env!("CARGO_PKG_VERSION"),
            sha: None,
            docker_label: None,
        })
    })
}

/// What the server is used for: the classes of `/predict` if it has some, or else what the model was trained for. A model that was
/// trained for none of these ranks documents by what it writes.
fn model_type(of_server: &[String], model: &ModelInfo) -> TeiModelType {
    if !of_server.is_empty() {
        return TeiModelType::Classifier(classes(of_server));
    }
    match (model.classes.as_deref(), model.embedding_pooling) {
        (Some([relevance]), _) => TeiModelType::Reranker(classes(std::slice::from_ref(relevance))),
        (Some(names), _) => TeiModelType::Classifier(classes(names)),
        (None, Some(pooling)) => TeiModelType::Embedding(TeiEmbedding {
            pooling: match pooling {
                Pooling::First => TeiPooling::Cls,
                Pooling::Mean => TeiPooling::Mean,
                Pooling::Last => TeiPooling::LastToken,
            },
        }),
        (None, None) if model.sparse => TeiModelType::Embedding(TeiEmbedding { pooling: TeiPooling::Splade }),
        (None, None) => TeiModelType::Reranker(classes(&["relevance".to_owned()])),
    }
}

fn classes(names: &[String]) -> TeiClasses {
    let numbered = || names.iter().enumerate();
    TeiClasses {
        id2label: Entries(numbered().map(|(at, name)| (at.to_string(), name.clone())).collect()),
        label2id: Entries(numbered().map(|(at, name)| (name.clone(), at)).collect()),
    }
}
