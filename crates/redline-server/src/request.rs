//! The life of a request: key, phase, body, handler, log.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::RequestPartsExt as _;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Request, Response, header};
use redline_api::json::limits::MAX_SECONDS;
use serde::Deserialize;

use crate::answer::Answer;
use crate::body::ReadBody;
use crate::clock::{Moment, unix_seconds};
use crate::fault::Fault;
use crate::log::Record;
use crate::models::Models;
use crate::route::{Call, Handler, Route, ServerCall};
use crate::{body, key, origin};

/// The header with the id of a request.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// The header with the longest wait for the first pass of a request, in seconds.
pub(crate) const QUEUE_TIMEOUT: &str = "x-queue-timeout";
/// Longest id that a client may choose.
pub(crate) const MAX_ID: usize = 128;

/// Answers a request of a route. Every request gets an id and a line in the log.
pub(crate) async fn respond(
    models: Arc<Models>,
    route: &'static Route,
    request: Request<Body>,
) -> Response<Body> {
    let shared = models.shared.clone();
    let id = given_id(request.headers()).unwrap_or_else(|| shared.next_id());
    let mut record = Record::begin(
        (shared.log.clone(), shared.metrics.clone()),
        id.clone(),
        request.method().as_str(),
        route.path,
    );
    let origin = origin::allowed(request.headers(), &shared.config.origins);
    let asked_headers = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let answer = guarded(handle(&models, route, request, id.clone(), &mut record)).await;
    let mut response = match answer {
        Ok(answer) => answer.into_response(record),
        Err(fault) => fault.in_format(route.error_format).into_response(record),
    };
    if let Ok(id) = HeaderValue::from_str(&id) {
        for &name in route.error_format.id_headers() {
            response.headers_mut().insert(name, id.clone());
        }
    }
    if !shared.config.origins.is_empty() {
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Origin"));
    }
    origin::permit(response.headers_mut(), origin, asked_headers);
    response
}

async fn handle(
    models: &Arc<Models>,
    route: &'static Route,
    request: Request<Body>,
    id: String,
    record: &mut Record,
) -> Result<Answer, Fault> {
    let (mut parts, body) = request.into_parts();
    origin::check_unique(parts.version, &parts.headers)?;
    let shared = &models.shared;
    origin::check(&parts.headers, shared.local, &shared.config.origins)?;
    if let Some(answer) = origin::preflight(&parts, &shared.config.origins) {
        return Ok(answer);
    }
    let caller = if route.access.needs_key(&shared.config) {
        key::caller(&parts.headers, &shared.config.keys)?
    } else {
        key::ANYBODY.to_owned()
    };
    record.key = Some(caller.clone());
    let rest = parts.extract::<Path<String>>().await.ok().map(|Path(rest)| rest);
    let (body, longest_wait_s) = if route.takes_body() {
        // Of several models, the one that the request is for says this below.
        let of_models = if models.are_several() { shared.refusal() } else { models.refusal() };
        if let Some(fault) = of_models {
            return Err(fault);
        }
        (body::read(shared, &parts.headers, body).await?, longest_wait(&parts.headers)?)
    } else {
        (ReadBody::default(), None)
    };
    let (created, begun) = (unix_seconds(), Moment::now());
    let answer = match route.handler {
        Handler::OfServer(answer) => {
            return answer(ServerCall { models: models.clone(), rest }).await;
        }
        Handler::OfModel(answer) => answer,
    };
    let (index, longest) = chosen(models, route, &body).await?;
    let asked = longest_wait_s.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
    let asked = asked.or(shared.config.limits.queue_time);
    let app = models.app(index, asked.map_or(longest, |wait| wait.min(longest))).await?;
    answer(Call { app, caller, id, created, begun, body, longest_wait_s }).await
}

/// The model of several that a request is for, and for how long the request may wait for it.
async fn chosen(models: &Models, route: &Route, body: &ReadBody) -> Result<(usize, Duration), Fault> {
    let longest = models.shared.config.limits.request_time;
    if !models.are_several() {
        return Ok((models.chosen(None, route.purpose)?, longest));
    }
    /// The name under which a request asks for a model; what else it has is not looked at.
    #[derive(Default, Deserialize)]
    struct Asked {
        model: Option<String>,
        name: Option<String>,
        timeout_s: Option<f64>,
    }
    let depth = models.shared.config.limits.depth;
    let Asked { model, name, timeout_s } =
        if route.takes_body() { body.parse(depth).await? } else { Asked::default() };
    let asked = model.or(name);
    let index =
        models.chosen(asked.as_deref().map(|name| route.error_format.plain_name(name)), route.purpose)?;
    let given = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok((index, given.unwrap_or(longest)))
}

/// How long a request may wait for its first pass, in seconds, if its client says so.
fn longest_wait(headers: &HeaderMap) -> Result<Option<f64>, Fault> {
    let Some(value) = headers.get(QUEUE_TIMEOUT) else { return Ok(None) };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    match seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds)) {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let message =
                format!("the header `{QUEUE_TIMEOUT}` is no time; give seconds from 0 to {MAX_SECONDS}");
            Err(Fault::invalid("invalid_value", message).of_field(QUEUE_TIMEOUT))
        }
    }
}

/// A valid id that the client chose.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    ((1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain)).then(|| id.to_owned())
}

/// Runs the work; a panic ends this request only.
async fn guarded(work: impl Future<Output = Result<Answer, Fault>>) -> Result<Answer, Fault> {
    let mut work = Box::pin(work);
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(Fault::internal("panicked"))))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_error_of_its_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let panics = async { if true { panic!("a bug") } else { Err(Fault::draining()) } };
        let fault = runtime.block_on(guarded(panics)).unwrap_err();
        assert_eq!((fault.status.as_u16(), fault.code), (500, "panicked"));
        let fault = runtime.block_on(guarded(async { Err(Fault::draining()) })).unwrap_err();
        assert_eq!(fault.code, "draining");
    }

    #[test]
    fn an_id_that_could_break_a_log_is_not_taken() {
        let id = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_static(value));
            given_id(&headers)
        };
        assert_eq!(id("a-B_1."), Some("a-B_1.".to_owned()));
        assert_eq!((id(""), id("a b"), id("a\"b")), (None, None, None));
    }
}
