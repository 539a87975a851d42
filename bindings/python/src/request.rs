//! Requests of every kind: from JSON to the engine, and from its outcome to Python.

use std::convert::Infallible;
use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pythonize::pythonize;
use redline_api::adapter::AdapterNames;
use redline_api::json::input::TextOrIds;
use redline_api::jsonl::generate::RequestEcho;
use redline_api::jsonl::{classify, diffuse, embed, generate, perplexity, rerank, score};
use redline_api::receipt;
use redline_api::receipt::document::ReceiptDocument;
use redline_engine::{
    AnyRequest, Cancel, EncodeOutcome, FinishReason, GeneratedPiece, PerplexityRequest, ScoreOutcome,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::Loaded;
use crate::error::{Class, Fault};
use crate::ticket::Ticket;

/// Reads JSON. An error names the argument.
pub(crate) fn parse<T: DeserializeOwned>(json: &str, class: Class) -> Result<T, Fault> {
    redline_api::json::parse::parse(json)
        .map_err(|bad| Fault::new(class, bad.to_string(), "`help(redline.Engine)` explains the arguments"))
}

/// Submits the request of `json`, of a kind with the name of its method.
pub(crate) fn submit(loaded: Arc<Loaded>, kind: &str, json: &str) -> Result<Ticket, Fault> {
    match kind {
        "score" => ask_score(loaded, json, |py, loaded, outcome| {
            to_python(py, &score::answer(&loaded.model, outcome))
        }),
        "score_array" => ask_score(loaded, json, |py, _, outcome| score_array(py, outcome)),
        "classify" => {
            let request = loaded.chat_model().classify(parse(json, Class::Request)?)?;
            ask(loaded, request, |py, loaded, outcome| {
                to_python(py, &classify::answer(&loaded.model, outcome))
            })
        }
        "rerank" => {
            let request = loaded.chat_model().rerank(parse(json, Class::Request)?)?;
            ask(loaded, request, |py, loaded, outcome| to_python(py, &rerank::answer(&loaded.model, outcome)))
        }
        "embed" => ask_embed(loaded, json, |py, loaded, outcome| {
            to_python(py, &embed::answer(&loaded.model, outcome))
        }),
        "embed_array" => ask_embed(loaded, json, |py, _, outcome: EncodeOutcome| {
            let width = outcome.texts.first().map_or(0, |text| text.values.len());
            let rows = outcome.texts.len();
            array(py, outcome.texts.into_iter().flat_map(|text| text.values).collect(), [rows, width])
        }),
        "generate" => submit_generate(loaded, json, false),
        "stream" => submit_generate(loaded, json, true),
        "diffuse" => submit_diffuse(loaded, json),
        "perplexity" => begin_perplexity(loaded, json),
        "verify" => begin_verification(loaded, json),
        _ => Err(Fault::new(Class::Request, format!("no request is called `{kind}`"), "this is a bug")),
    }
}

/// An answer as Python objects: dictionaries, lists and numbers.
pub(crate) fn to_python(py: Python<'_>, answer: &impl Serialize) -> PyResult<Py<PyAny>> {
    Ok(pythonize(py, answer)?.unbind())
}

/// A matrix of numpy that takes the memory of `values`.
fn array(py: Python<'_>, values: Vec<f32>, shape: [usize; 2]) -> PyResult<Py<PyAny>> {
    Ok(PyArray1::from_vec(py, values).reshape(shape)?.into_any().unbind())
}

type OfOutcome<O> = fn(Python<'_>, &Loaded, O) -> PyResult<Py<PyAny>>;

fn no_piece(_: Python<'_>, never: Infallible) -> PyResult<Py<PyAny>> {
    match never {}
}

/// Submits a request whose answer comes at once.
fn ask<R, O>(loaded: Arc<Loaded>, request: R, answer: OfOutcome<O>) -> Result<Ticket, Fault>
where
    R: AnyRequest<Ticket = redline_engine::Ticket<O>>,
    O: Send + 'static,
{
    let ticket = request.submit(&loaded.model.engine, &Cancel::new())?;
    Ok(Ticket::receive(loaded, ticket, answer, no_piece))
}

fn ask_score(loaded: Arc<Loaded>, json: &str, answer: OfOutcome<ScoreOutcome>) -> Result<Ticket, Fault> {
    let request = loaded.chat_model().score(parse(json, Class::Request)?)?;
    ask(loaded, request, answer)
}

fn ask_embed(loaded: Arc<Loaded>, json: &str, answer: OfOutcome<EncodeOutcome>) -> Result<Ticket, Fault> {
    let request = loaded.chat_model().embed(parse(json, Class::Request)?);
    ask(loaded, request, answer)
}

/// The scores as a matrix; rows of items that failed are NaN.
fn score_array(py: Python<'_>, outcome: ScoreOutcome) -> PyResult<Py<PyAny>> {
    let widths = outcome.item_label_token_ids.iter().flatten().map(Vec::len);
    let width = widths.clone().next().unwrap_or(outcome.label_token_ids.len());
    if let Some(other) = widths.into_iter().find(|other| *other != width) {
        return Err(Fault::new(
            Class::Request,
            format!("rows of {width} and of {other} labels make no array"),
            "`Engine.score` returns lists, which may have different lengths",
        )
        .into());
    }
    let rows = outcome.items.len();
    let mut values = Vec::with_capacity(rows * width);
    for item in outcome.items {
        match item {
            Ok(item) => values.extend(item.scores),
            Err(_) => values.extend(std::iter::repeat_n(f32::NAN, width)),
        }
    }
    array(py, values, [rows, width])
}

fn submit_generate(loaded: Arc<Loaded>, json: &str, streams: bool) -> Result<Ticket, Fault> {
    let request = loaded.chat_model().generate(parse(json, Class::Request)?)?;
    if let Some(best_of) = request.best_of.filter(|best_of| streams && *best_of > request.n) {
        return Err(Fault::new(
            Class::Request,
            format!("the best {} of {best_of} continuations are known at their end only", request.n),
            "call `Engine.generate`, or leave out `best_of`",
        ));
    }
    if streams && request.receipt.is_some() {
        let fact = "`receipt` is given for a stream, and a receipt is part of a whole answer".to_owned();
        return Err(Fault::new(Class::Request, fact, "call `Engine.generate`"));
    }
    let echo = RequestEcho::of(&request);
    let ticket = loaded.model.engine.submit_generate(request, &Cancel::new())?;
    let ticket = if streams { ticket } else { ticket.outcome_only() };
    let answer = move |py: Python<'_>, loaded: &Loaded, outcome| {
        to_python(py, &generate::answer(&loaded.model, echo, outcome))
    };
    Ok(Ticket::receive(loaded, ticket, answer, |py, piece| to_python(py, &PieceOfText::new(piece))))
}

/// A token of a stream.
#[derive(Serialize)]
struct PieceOfText {
    continuation: usize,
    token_id: Option<u32>,
    text: String,
    finish_reason: Option<&'static str>,
}

impl PieceOfText {
    fn new(piece: GeneratedPiece) -> Self {
        Self {
            continuation: piece.continuation,
            token_id: piece.token_id,
            text: piece.text,
            finish_reason: piece.finish_reason.map(FinishReason::name),
        }
    }
}

fn submit_diffuse(loaded: Arc<Loaded>, json: &str) -> Result<Ticket, Fault> {
    let request = loaded.chat_model().diffuse(parse(json, Class::Request)?)?;
    let echo = diffuse::RequestEcho::of(&request, true);
    let ticket = loaded.model.engine.submit_diffuse(request, &Cancel::new())?.outcome_only();
    let answer = move |py: Python<'_>, loaded: &Loaded, outcome| {
        to_python(py, &diffuse::answer(&loaded.model, echo, &outcome))
    };
    Ok(Ticket::receive(loaded, ticket, answer, |py, _| Ok(py.None())))
}

/// A text whose perplexity is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PerplexityLine {
    text: TextOrIds,
    window: Option<usize>,
    adapter: Option<AdapterNames>,
}

fn begin_perplexity(loaded: Arc<Loaded>, json: &str) -> Result<Ticket, Fault> {
    let line: PerplexityLine = parse(json, Class::Request)?;
    let text = line.text.into();
    let adapters = redline_api::adapter::adapters(line.adapter, &[]);
    let request = PerplexityRequest { text, window: line.window, adapters };
    Ticket::compute(loaded, move |loaded, cancel, _| {
        let outcome = loaded.model.engine.perplexity(request, cancel)?;
        Ok(Box::new(move |py: Python<'_>, loaded: &Loaded| {
            to_python(py, &perplexity::answer(&loaded.model, &outcome))
        }))
    })
}

/// A receipt that is verified.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifyLine {
    receipt: ReceiptDocument,
}

fn begin_verification(loaded: Arc<Loaded>, json: &str) -> Result<Ticket, Fault> {
    let VerifyLine { receipt: document } = parse(json, Class::Request)?;
    Ticket::compute(loaded, move |loaded, cancel, _| {
        let verified = receipt::verify(&loaded.model.engine, document, cancel)?;
        Ok(Box::new(move |py: Python<'_>, _: &Loaded| to_python(py, &receipt::verdict(verified))))
    })
}

/// Facts about a model.
#[derive(Serialize)]
struct Info<'a> {
    name: &'a str,
    architecture: &'a str,
    parameters: u64,
    weight_bytes: u64,
    format: String,
    kv_format: &'static str,
    kernel_path: &'a str,
    context: usize,
    vocab_size: usize,
    layers: usize,
    hidden_size: usize,
    embedding_width: usize,
    classes: Option<Vec<String>>,
    end_ids: &'a [u32],
    threads: usize,
    tp_size: usize,
    adapters: Vec<String>,
}

pub(crate) fn info(py: Python<'_>, loaded: &Loaded) -> PyResult<Py<PyAny>> {
    let info = loaded.model.engine.info();
    let adapters = loaded.model.engine.adapters();
    to_python(
        py,
        &Info {
            name: &loaded.model.name,
            architecture: &info.architecture,
            parameters: info.parameters,
            weight_bytes: info.weight_bytes,
            format: info.format.to_string(),
            kv_format: info.kv_format.name(),
            kernel_path: &info.kernel_path,
            context: info.context,
            vocab_size: info.vocab,
            layers: info.layers,
            hidden_size: info.hidden,
            embedding_width: info.embedding_width,
            classes: info.classes.clone(),
            end_ids: loaded.model.engine.end_ids(),
            threads: info.threads,
            tp_size: info.tp,
            adapters: adapters.into_iter().map(|adapter| adapter.name.clone()).collect(),
        },
    )
}
