//! `/api/...`, as Ollama has it.

use std::sync::Arc;

use redline_api::conversation::reading::Reading;
use redline_api::generation::mode::GenerationOutcome;
use redline_api::ollama::chat::{self, OllamaChatBody};
use redline_api::ollama::embed::{
    self, OllamaEmbedBody, OllamaEmbedding, OllamaEmbeddings, OllamaEmbeddingsBody,
};
use redline_api::ollama::generate::{self, OllamaGenerateBody, OllamaPrompt, TextPrompt};
use redline_api::ollama::models::{self, OllamaModels, OllamaShowBody, OllamaShown, OllamaVersion};
use redline_api::ollama::{OllamaAnswer, OllamaEvent, OllamaForm, OllamaStream, answer};
use redline_engine::{AdapterChoice, AnyRequest, EmbedRequest, EncodeOutcome};
use serde::Serialize;

use crate::admission::{Need, Submitter, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::app::App;
use crate::blocking::blocking;
use crate::clock::timestamp;
use crate::config::ServedModel;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::generation::{GivenGrammar, converse, generate as generated};
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, SchemaOf, ServerCall, schema_of};
use crate::sizes::answer_bytes;

pub(super) const ROUTES: &[Route] = &[
    in_format(Route::post("/api/chat", chat, CHAT)),
    in_format(Route::post("/api/generate", generate, GENERATE)),
    in_format(Route::post("/api/embed", embed, EMBED).of_purpose(Purpose::Embed)),
    in_format(Route::post("/api/embeddings", embed_one, EMBED_ONE).of_purpose(Purpose::Embed)),
    in_format(Route::of_server("/api/tags", tags, TAGS)),
    in_format(Route::of_server("/api/ps", loaded, LOADED)),
    in_format(Route::post("/api/show", show, SHOW).of_purpose(Purpose::Any)),
    in_format(Route::of_server("/api/version", version, VERSION)),
];

const fn in_format(route: Route) -> Route {
    Route { error_format: ErrorFormat::Ollama, ..route }
}

const CHAT: Operation = Operation {
    response: ResponseBody::JsonOrLines(schema_of::<OllamaAnswer>, schema_of::<OllamaEvent>),
    ..of("Answers a conversation, as Ollama's route does.", &[schema_of::<OllamaChatBody>], &[])
};

const GENERATE: Operation = Operation {
    response: ResponseBody::JsonOrLines(schema_of::<OllamaAnswer>, schema_of::<OllamaEvent>),
    ..of(
        "Answers a prompt, or continues a text, as Ollama's route does.",
        &[schema_of::<OllamaGenerateBody>],
        &[],
    )
};

const EMBED: Operation = of(
    "Makes a vector of each text, as Ollama's route does.",
    &[schema_of::<OllamaEmbedBody>],
    &[schema_of::<OllamaEmbeddings>],
);

const EMBED_ONE: Operation = of(
    "Makes a vector of a text, as Ollama's older route does.",
    &[schema_of::<OllamaEmbeddingsBody>],
    &[schema_of::<OllamaEmbedding>],
);

const TAGS: Operation = of("The models, as Ollama lists them.", &[], &[schema_of::<OllamaModels>]);

const LOADED: Operation = of("The loaded models, as Ollama lists them.", &[], &[schema_of::<OllamaModels>]);

const SHOW: Operation = of(
    "What a model is and can do, as Ollama says it.",
    &[schema_of::<OllamaShowBody>],
    &[schema_of::<OllamaShown>],
);

const VERSION: Operation = of("The version of the server.", &[], &[schema_of::<OllamaVersion>]);

const fn of(
    summary: &'static str,
    request_bodies: &'static [SchemaOf],
    answers: &'static [SchemaOf],
) -> Operation {
    Operation { summary, request_bodies, response: ResponseBody::Json(answers), further_statuses: &[] }
}

/// The form of the answer to a request that asks for a model or an adapter by this name, and its adapters.
fn answering(call: &Call, asked: Option<&str>) -> Result<(OllamaForm, Vec<AdapterChoice>), Fault> {
    let is_name = |asked: &str| call.app.names().any(|name| name == asked);
    let plain = asked.map(|name| if is_name(name) { name } else { ErrorFormat::Ollama.plain_name(name) });
    let (head, adapters) = call.head_with_adapters("ollama", plain, None)?;
    let name = asked.filter(|name| !name.is_empty()).map_or(head.model, str::to_owned);
    Ok((OllamaForm::new(call.app.model.clone(), name, timestamp(call.created)), adapters))
}

fn chat(call: Call) -> Handled {
    Box::pin(async move {
        let body: OllamaChatBody = call.parse().await?;
        let (form, adapters) = answering(&call, body.fields.model.as_deref())?;
        let is_empty = body.messages.is_empty();
        let (chat, form) =
            chat::request(call.app.mode(), form, body).map_err(|error| Fault::of(error, "messages"))?;
        if is_empty {
            return Answer::json(&form.loaded());
        }
        let for_stream = form.clone();
        let stream = |reading, _| for_stream.streams.then(|| OllamaStream::new(for_stream, reading));
        converse(&call, chat, adapters, stream, built(form, "messages")).await
    })
}

fn generate(call: Call) -> Handled {
    Box::pin(async move {
        let body: OllamaGenerateBody = call.parse().await?;
        let (form, adapters) = answering(&call, body.fields.model.as_deref())?;
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let is_empty = !is_given(&body.prompt) && !is_given(&body.suffix);
        let app = &call.app;
        let template = app.config.chat.as_ref().filter(|chat| chat.source().is_some());
        let (prompt, form) = generate::request(app.mode(), form, body, template)
            .map_err(|error| Fault::of(error, "prompt"))?;
        if is_empty {
            return Answer::json(&form.loaded());
        }
        let for_stream = form.clone();
        let stream = |reading| for_stream.streams.then(|| OllamaStream::new(for_stream, reading));
        let mut text: TextPrompt = match prompt {
            OllamaPrompt::Chat(chat) => {
                return converse(&call, *chat, adapters, |reading, _| stream(reading), built(form, "prompt"))
                    .await;
            }
            OllamaPrompt::Text(text) => *text,
        };
        *text.request.common().adapters = adapters;
        let answer_bytes = answer_bytes(std::slice::from_ref(&text.request), &app.sizes, false);
        let need = Need { param: "prompt", prompts: 1, answer_bytes };
        let grammar = GivenGrammar::of(&mut text.request, text.grammar_param);
        let make = move |submitter: &Submitter<'_>| Ok(vec![text.completed(submitter.engine)?]);
        let build = built(form, "prompt");
        let build = move |app: &App, mut outcomes: Vec<GenerationOutcome>| {
            let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
            build(app, &Reading::default(), outcome)
        };
        generated(&call, need, grammar, stream(Arc::default()), make, build).await
    })
}

/// Builds an answer. Errors without a field concern this one.
fn built(
    form: OllamaForm,
    param: &'static str,
) -> impl FnOnce(&App, &Reading, GenerationOutcome) -> Result<Answer, Fault> + Send + 'static {
    move |_, reading, outcome| {
        let (answer, usage) = answer(&form, reading, outcome).map_err(|error| Fault::of(error, param))?;
        Ok(Answer::json(&answer)?.with_usage(usage))
    }
}

fn embed(call: Call) -> Handled {
    Box::pin(async move {
        let body: OllamaEmbedBody = call.parse().await?;
        let (form, adapters) = answering(&call, body.fields.model.as_deref())?;
        let request = embed::request(body).map_err(|error| Fault::of(error, "input"))?;
        vectors(&call, request, adapters, "input", move |outcome| embed::answer(form.name, outcome)).await
    })
}

fn embed_one(call: Call) -> Handled {
    Box::pin(async move {
        let body: OllamaEmbeddingsBody = call.parse().await?;
        let (_, adapters) = answering(&call, body.fields.model.as_deref())?;
        let request = embed::older_request(body).map_err(|error| Fault::of(error, "prompt"))?;
        vectors(&call, request, adapters, "prompt", embed::older_answer).await
    })
}

/// Runs a request whose texts are in the field `param`.
async fn vectors<A: Serialize>(
    call: &Call,
    request: EmbedRequest,
    adapters: Vec<AdapterChoice>,
    param: &'static str,
    answer: impl FnOnce(EncodeOutcome) -> A + Send + 'static,
) -> Result<Answer, Fault> {
    let answer_bytes = embedding_bytes(&request, &call.app.model.engine);
    let need = Need { param, prompts: 1, answer_bytes };
    let named = move |error| redline_api::openai::embeddings::named(error, param);
    run_one(call, need, request, adapters, named, |outcome| Answer::json(&answer(outcome))).await
}

fn tags(call: ServerCall) -> Handled {
    Box::pin(async move { listed(&call, false) })
}

fn loaded(call: ServerCall) -> Handled {
    Box::pin(async move { listed(&call, true) })
}

/// Lists the models, or those that are in memory, with their states.
fn listed(call: &ServerCall, are_loaded: bool) -> Result<Answer, Fault> {
    let modified_at = timestamp(call.models.shared.started);
    let entry = |(served, _, app): (&ServedModel, _, Option<Arc<App>>)| {
        let loaded = app.as_ref().map(|app| &*app.model);
        (!are_loaded || loaded.is_some())
            .then(|| models::entry(&served.name, &served.summary, loaded, modified_at.clone(), are_loaded))
    };
    Answer::json(&OllamaModels { models: call.models.all().into_iter().filter_map(entry).collect() })
}

fn show(call: Call) -> Handled {
    Box::pin(async move {
        let body: OllamaShowBody = call.parse().await?;
        answering(&call, body.model.or(body.name).as_deref())?;
        // The first request finds out whether the template knows tools, which takes long.
        let app = call.app.clone();
        let shown = blocking(move || {
            models::shown(&app.model, app.config.chat.as_ref(), timestamp(app.shared.started))
        });
        Answer::json(&shown.await?)
    })
}

fn version(_: ServerCall) -> Handled {
    Box::pin(async move { Answer::json(&OllamaVersion { version: env!("CARGO_PKG_VERSION") }) })
}
