//! Runs requests on the engine: a place in the queue, memory for the answer, submission, and the wait for the outcomes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_api::error::ApiError;
use redline_engine::{
    AdapterChoice, AnyRequest, Cancel, EmbedRequest, Engine, EngineError, Prompt, Queueing, VectorForm,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::Answer;
use crate::app::App;
use crate::blocking::blocking;
use crate::clock::Moment;
use crate::fault::Fault;
use crate::queue::{may_take, most_of_key};
use crate::route::Call;

/// Answers up to this size are built on the thread that serves all connections, which takes less time than a change of threads.
const SMALL: usize = 64 << 10;

/// Bytes that an answer with scores may take: for each item its scores, in the outcome, in the answer and in JSON.
pub(crate) fn score_bytes(items: usize, labels: usize) -> usize {
    items.saturating_mul(labels.saturating_mul(64).saturating_add(256))
}

/// Bytes that an answer with embeddings may take: for each value its number, in the outcome and in JSON, whose text may grow to twice
/// its length while it is written.
pub(crate) fn embedding_bytes(request: &EmbedRequest, engine: &Engine) -> usize {
    let model = engine.info();
    let own = model.embedding_width;
    let values = request.dimensions.map_or(own, |dimensions| dimensions.min(own));
    // A token is at least a byte, beside special ones and the marker of a query or document, a few letters.
    let special =
        engine.tokenizer().map_or(0, |tokenizer| tokenizer.prefix_ids().len() + tokenizer.suffix_ids().len());
    let prompt = engine.task_prompt(request.prompt_name.as_deref()).map_or(0, str::len);
    let tokens = |text: &Prompt| match text {
        Prompt::Ids(ids) => ids.len(),
        Prompt::Text(text) | Prompt::Formatted(text) => text.len().saturating_add(prompt + special + 16),
    };
    let states = |text| tokens(text).min(model.context).saturating_mul(model.hidden);
    let bytes = |text| {
        let values = match request.form {
            VectorForm::Dense => values,
            VectorForm::Sparse => model.vocab,
            VectorForm::States => states(text),
            VectorForm::MultiVector => model.multi_vector.map_or(0, |vectors| {
                tokens(text).max(vectors.query_tokens).min(model.context).saturating_mul(vectors.width)
            }),
        };
        values.saturating_mul(36).saturating_add(256)
    };
    request.texts.iter().map(bytes).fold(0, usize::saturating_add)
}

/// What a request needs of the server while it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// The field to blame for an error that names none.
    pub(crate) param: &'static str,
    /// Number of prompts.
    pub(crate) prompts: usize,
    /// Most bytes that its outcome and its answer may take: see `sizes.rs`.
    pub(crate) answer_bytes: usize,
}

/// Places in the queue and memory for an answer, given back when it is dropped.
pub(crate) struct Place {
    app: Arc<App>,
    caller: String,
    prompts: usize,
    begun: Moment,
    /// Whether the request was answered.
    answered: bool,
    _permit: OwnedSemaphorePermit,
    memory: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Takes places for this number of prompts.
    pub(crate) fn take(call: &Call, prompts: usize, param: &str) -> Result<Self, Fault> {
        let app = &call.app;
        if let Some(fault) = app.refusal() {
            return Err(fault);
        }
        let (all, keys) = (app.config.limits.queue, app.config.keys.len());
        let most = most_of_key(all, keys).max(1);
        let count = u32::try_from(prompts).ok().filter(|_| prompts <= most).ok_or_else(|| {
            let message = format!("{prompts} prompts are given, and {most} may wait or run; send fewer");
            Fault::invalid("invalid_value", message).of_field(param)
        })?;
        let mut queue = app.queue();
        let own = queue.by_key.get(&call.caller).copied().unwrap_or(0);
        let free = app.places.available_permits();
        let fits = may_take(own, prompts, free, all, keys);
        let permit = app.places.clone().try_acquire_many_owned(count).ok().filter(|_| fits);
        let Some(permit) = permit else {
            let taken = all.saturating_sub(free);
            let fact = if prompts > free {
                format!("{taken} of {all} places are taken, and {prompts} are needed")
            } else {
                format!(
                    "{taken} of {all} places are taken, {own} of them by this key; the others are for other keys"
                )
            };
            let message = format!("{fact}; try again when some requests are answered");
            return Err(Fault::overloaded("queue_full", message).after(queue.retry_after()));
        };
        *queue.by_key.entry(call.caller.clone()).or_default() += prompts;
        drop(queue);
        app.shared.admitted.fetch_add(1, Ordering::SeqCst);
        let (app, caller, begun) = (app.clone(), call.caller.clone(), Moment::now());
        Ok(Self { app, caller, prompts, begun, answered: false, _permit: permit, memory: None })
    }

    /// Takes memory for an answer too.
    pub(crate) fn with_memory(mut self, bytes: usize, param: &str) -> Result<Self, Fault> {
        let most = self.app.config.limits.all_answer_bytes;
        let count = u32::try_from(bytes).ok().filter(|_| bytes <= most).ok_or_else(|| {
            let message = format!(
                "the answer may take {bytes} bytes of memory, and all answers together have {most}; ask for fewer tokens, continuations, \
                 log-probabilities or items"
            );
            Fault::invalid("answer_too_large", message).of_field(param)
        })?;
        let memory = self.app.shared.answer_bytes.clone().try_acquire_many_owned(count).map_err(|_| {
            let message = "the answers of other requests take the memory for answers; try again later";
            Fault::overloaded("bytes_budget", message)
        })?;
        self.memory = Some(memory);
        Ok(self)
    }

    /// The request was answered: the time that this took counts.
    pub(crate) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.app.shared.ended.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.app.queue();
        if let Some(own) = queue.by_key.get_mut(&self.caller) {
            *own = own.saturating_sub(self.prompts);
            if *own == 0 {
                queue.by_key.remove(&self.caller);
            }
        }
        if self.answered {
            queue.remember(self.begun.elapsed().as_secs_f64());
        }
    }
}

/// Submits the engine's requests of a request, in the name of its caller and within its time limit.
pub(crate) struct Submitter<'a> {
    pub(crate) engine: &'a Engine,
    cancel: &'a Cancel,
    /// Whose requests they are, and how long each may wait to begin.
    queueing: Queueing,
    /// The time limit in seconds of requests that have none.
    request_time: f64,
    /// See [`Call::begun`].
    begun: Moment,
}

impl Submitter<'_> {
    /// Submits one of them. Of its time limit counts what has passed: the wait for a thread that tokenises, and the time for earlier
    /// prompts.
    pub(crate) fn submit<R: AnyRequest>(&self, mut request: R) -> Result<R::Ticket, EngineError> {
        let common = request.common();
        if let Some(salt) = common.cache_salt {
            // Requests with different keys share no cached prefix.
            *salt = format!("{}\0{salt}", self.queueing.tenant);
        }
        common.queueing.clone_from(&self.queueing);
        *common.timeout_s = Some(time_left(self.begun, common.timeout_s.unwrap_or(self.request_time))?);
        request.submit(self.engine, self.cancel)
    }
}

/// What is left of a time limit in seconds that counts from `begun` on.
pub(crate) fn time_left(begun: Moment, limit: f64) -> Result<f64, EngineError> {
    let seconds = begun.elapsed().as_secs_f64();
    if seconds >= limit { Err(EngineError::Late { seconds, tokens: None }) } else { Ok(limit - seconds) }
}

/// Submits the engine's requests of a request on a thread that tokenises.
pub(crate) async fn submit<T, E, S>(call: &Call, need: Need, submit: S) -> Result<(Place, T), Fault>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
    S: FnOnce(&Submitter<'_>) -> Result<T, E> + Send + 'static,
{
    let (app, begun) = (&call.app, call.begun);
    let Need { param, prompts, answer_bytes } = need;
    let prompts = prompts.max(1);
    let place = Place::take(call, prompts, param)?.with_memory(answer_bytes, param)?;
    // Before the work of tokenising.
    if !app.model.engine.has_room(prompts) {
        let message = "the engine takes no more requests; try again when some are answered";
        let after = app.queue().retry_after();
        return Err(Fault::overloaded("queue_full", message).after(after));
    }
    let limits = &app.config.limits;
    let longest_wait_s = call.longest_wait_s.or(limits.queue_time.map(|time| time.as_secs_f64()));
    let queueing = Queueing { tenant: call.caller.clone(), longest_wait_s };
    let request_time = limits.request_time.as_secs_f64();
    let work = move |app: &App| {
        let (engine, cancel) = (&app.model.engine, &app.shared.cancel);
        submit(&Submitter { engine, cancel, queueing, request_time, begun })
    };
    let (place, submitted) = placed(app, place, work).await?;
    Ok((place, submitted.map_err(|error| failed(app, error.into(), param))?))
}

/// Submits the engine's requests of a request, all or none, waits for their outcomes and builds the answer. If the caller stops waiting,
/// the requests are cancelled.
pub(crate) async fn run<O, T, E, S, B>(call: &Call, need: Need, work: S, build: B) -> Result<Answer, Fault>
where
    O: Send + 'static,
    T: Future<Output = Result<O, EngineError>> + Send + 'static,
    E: Into<ApiError> + Send + 'static,
    S: FnOnce(&Submitter<'_>) -> Result<Vec<T>, E> + Send + 'static,
    B: FnOnce(&App, Vec<O>) -> Result<Answer, Fault> + Send + 'static,
{
    let app = &call.app;
    let (mut place, tickets) = submit(call, need, work).await?;
    let mut outcomes = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        outcomes.push(ticket.await.map_err(|error| failed(app, error.into(), need.param))?);
    }
    let answer;
    if need.answer_bytes <= SMALL {
        answer = build(app, outcomes);
    } else {
        (place, answer) = placed(app, place, move |app| build(app, outcomes)).await?;
    }
    place.answered();
    Ok(answer?.holding(place.memory.take()))
}

/// As [`run`], for one request of the engine, which uses these adapters. `named` gives errors about it the names of the route's fields.
/// Text is generated by [`crate::generation::generate`], which knows what to do when a generation is cut short.
pub(crate) async fn run_one<R, O, N, B>(
    call: &Call,
    need: Need,
    mut request: R,
    adapters: Vec<AdapterChoice>,
    named: N,
    build: B,
) -> Result<Answer, Fault>
where
    R: AnyRequest<Ticket: Future<Output = Result<O, EngineError>>>,
    O: Send + 'static,
    N: FnOnce(EngineError) -> EngineError + Send + 'static,
    B: FnOnce(O) -> Result<Answer, Fault> + Send + 'static,
{
    *request.common().adapters = adapters;
    let work =
        |submitter: &Submitter<'_>| Ok::<_, EngineError>(vec![submitter.submit(request).map_err(named)?]);
    let builds = |_: &App, mut outcomes: Vec<O>| {
        let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
        build(outcome)
    };
    run(call, need, work, builds).await
}

/// Does work that may take long, such as tokenising, on a thread of its own. It keeps its place until it is done, also if its caller
/// leaves, so that no more work waits than there are places.
pub(crate) async fn placed<T: Send + 'static>(
    app: &Arc<App>,
    place: Place,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<(Place, T), Fault> {
    let app = app.clone();
    blocking(move || {
        let result = work(&app);
        (place, result)
    })
    .await
}

/// The fault of an error. `param` is the field to blame for one that names none.
pub(crate) fn failed(app: &App, error: ApiError, param: &str) -> Fault {
    let again = match &error {
        ApiError::Engine(error) => {
            app.note(error);
            matches!(error, EngineError::QueueFull { .. } | EngineError::Expired { .. })
        }
        _ => false,
    };
    let fault = Fault::of(error, param);
    if again { fault.after(app.queue().retry_after()) } else { fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_counts_what_has_passed() {
        let begun = Moment::now();
        assert!(matches!(time_left(begun, 0.0), Err(EngineError::Late { tokens: None, .. })));
        let left = time_left(begun, 1e6).unwrap();
        assert!(left <= 1e6 && left > 1e5, "{left}");
    }
}
