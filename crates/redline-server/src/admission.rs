//! Runs requests on the engine: a place in the queue, submission, and the wait for the outcomes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_engine::{Cancel, Engine, EngineError, Ticket};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::fault::Fault;

/// Places in the queue, given back when it is dropped.
pub(crate) struct Place {
    app: Arc<App>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Takes places for this number of prompts.
    pub(crate) fn take(app: &Arc<App>, prompts: usize, param: &str) -> Result<Self, Fault> {
        if let Some(fault) = app.refusal() {
            return Err(fault);
        }
        let most = app.config.limits.queue;
        let count = u32::try_from(prompts).ok().filter(|_| prompts <= most).ok_or_else(|| {
            let message = format!("{prompts} prompts are given, and {most} may wait or run; send fewer");
            Fault::invalid("invalid_value", message).of_field(param)
        })?;
        let permit = app.places.clone().try_acquire_many_owned(count).map_err(|_| {
            let free = app.places.available_permits();
            let message =
                format!("{} of {most} places are taken, and {prompts} are needed", most.saturating_sub(free));
            Fault::overloaded("queue_full", format!("{message}; try again when some requests are answered"))
        })?;
        app.admitted.fetch_add(1, Ordering::SeqCst);
        Ok(Self { app: app.clone(), _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.app.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// Submits the engine's requests of `prompts` prompts, all or none, and waits for their outcomes. `param` is the field that errors of the
/// engine concern. If the caller stops waiting, the requests are cancelled.
pub(crate) async fn run<O, P, S>(
    app: &Arc<App>,
    prompts: usize,
    param: &'static str,
    submit: S,
) -> Result<Vec<O>, Fault>
where
    O: Send + 'static,
    P: Send + 'static,
    S: FnOnce(&Engine, &Cancel) -> Result<Vec<Ticket<O, P>>, EngineError> + Send + 'static,
{
    let place = Place::take(app, prompts.max(1), param)?;
    let (_place, tickets) = blocking(app, place, move |app| submit(&app.model.engine, &app.cancel)).await?;
    let tickets = tickets.map_err(|error| failed(app, &error, param))?;
    let mut outcomes = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        outcomes.push(ticket.await.map_err(|error| failed(app, &error, param))?);
    }
    Ok(outcomes)
}

/// As [`run`], for one request of the engine.
pub(crate) async fn run_one<O, P, S>(app: &Arc<App>, param: &'static str, submit: S) -> Result<O, Fault>
where
    O: Send + 'static,
    P: Send + 'static,
    S: FnOnce(&Engine, &Cancel) -> Result<Ticket<O, P>, EngineError> + Send + 'static,
{
    let mut outcomes = run(app, 1, param, |engine, cancel| Ok(vec![submit(engine, cancel)?])).await?;
    outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))
}

/// Does work that may take long, such as tokenising, on a thread of its own. It keeps its place until it is done, also if its caller
/// leaves, so that no more work waits than there are places.
pub(crate) async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    place: Place,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<(Place, T), Fault> {
    let app = app.clone();
    let done = move || {
        let result = work(&app);
        (place, result)
    };
    tokio::task::spawn_blocking(done).await.map_err(|_| Fault::internal("panicked"))
}

fn failed(app: &App, error: &EngineError, param: &str) -> Fault {
    app.note(error);
    Fault::of_engine(error, param)
}
