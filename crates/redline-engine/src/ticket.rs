//! Requests that are under way: a caller holds the [`Ticket`], the engine the [`Reply`].
//!
//! A ticket borrows nothing, so it may be kept, sent to another thread, or outlive the engine. It is used in one of four ways:
//! waited for, asked now and then whether the answer has come, awaited as a future, or exchanged for a function that the
//! engine calls with every event. None of them takes a thread for each request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::judge::{ClassifyOutcome, RerankOutcome};
use crate::outcome::{BatchOutcome, DiffuseOutcome, DiffusionProgress, GenerateOutcome, ScoreOutcome};

/// What a request reports: its progress while it runs, and its outcome at the end.
#[derive(Debug)]
pub enum Event<O, P = Infallible> {
    /// Something has become final. Requests without progress have none of these.
    Progress(P),
    /// The request has ended; nothing follows.
    Done(Result<O, EngineError>),
}

/// A function that gets every event of a request.
type Sink<O, P> = Box<dyn FnMut(Event<O, P>) + Send>;

/// Who gets the events of a request.
enum Listener<O, P> {
    /// The ticket, when it asks for them.
    Ticket {
        progress: VecDeque<P>,
        outcome: Option<Result<O, EngineError>>,
        /// To be woken by the next event.
        waker: Option<Waker>,
    },
    /// A function, at once.
    Sink(Sink<O, P>),
    /// Nobody: the ticket was dropped, or everything has been handed over.
    Nobody,
}

/// What a ticket and its reply share.
struct Shared<O, P> {
    listener: Mutex<Listener<O, P>>,
    /// Notified of every event.
    changed: Condvar,
}

impl<O, P> Shared<O, P> {
    fn lock(&self) -> MutexGuard<'_, Listener<O, P>> {
        // Nothing panics while the lock is held: sinks are called behind `catch_unwind`.
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over an event; whether anybody listens.
    fn give(&self, event: Event<O, P>) -> bool {
        let mut listener = self.lock();
        let waker = match &mut *listener {
            Listener::Ticket { progress, outcome, waker } => {
                match event {
                    Event::Progress(more) => progress.push_back(more),
                    Event::Done(result) => *outcome = Some(result),
                }
                waker.take()
            }
            Listener::Sink(sink) => {
                let last = matches!(event, Event::Done(_));
                let listens = call(sink, event);
                if last || !listens {
                    *listener = Listener::Nobody;
                }
                return listens;
            }
            Listener::Nobody => return false,
        };
        drop(listener);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

/// Calls a sink; whether it returned. One that panics must not take the engine with it.
fn call<O, P>(sink: &mut Sink<O, P>, event: Event<O, P>) -> bool {
    catch_unwind(AssertUnwindSafe(|| sink(event))).is_ok()
}

/// Takes the outcome of a request, once.
pub(crate) type Answer<O> = Box<dyn FnOnce(Result<O, EngineError>) + Send>;

/// The engine's end of a request. If it is dropped before [`Reply::finish`], the caller gets [`EngineError::Stopped`].
pub(crate) struct Reply<O, P = Infallible> {
    shared: Arc<Shared<O, P>>,
    finished: bool,
}

impl<O, P> Reply<O, P> {
    /// Reports progress; whether anybody listens.
    pub(crate) fn progress(&self, progress: P) -> bool {
        self.shared.give(Event::Progress(progress))
    }

    /// Reports the outcome.
    pub(crate) fn finish(mut self, outcome: Result<O, EngineError>) {
        self.finished = true;
        self.shared.give(Event::Done(outcome));
    }
}

impl<O, P> Drop for Reply<O, P> {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.give(Event::Done(Err(EngineError::Stopped)));
        }
    }
}

/// A request that was submitted. Dropping the ticket cancels the request, unless it has ended.
///
/// `O` is the outcome, `P` the progress that is reported while the request runs.
pub struct Ticket<O, P = Infallible> {
    shared: Arc<Shared<O, P>>,
    cancel: Cancel,
    /// Dropping the ticket cancels the request.
    cancels: bool,
}

/// A score request that was submitted.
pub type ScoreTicket = Ticket<ScoreOutcome>;
/// A classification that was submitted.
pub type ClassifyTicket = Ticket<ClassifyOutcome>;
/// A reranking that was submitted.
pub type RerankTicket = Ticket<RerankOutcome>;
/// A generation that was submitted; its progress is text that has become final.
pub type GenerateTicket = Ticket<GenerateOutcome, String>;
/// A canvas that is being filled.
pub type DiffuseTicket = Ticket<DiffuseOutcome, DiffusionProgress>;
/// Several prompts that are continued together.
pub type BatchTicket = Ticket<BatchOutcome>;

impl<O, P> Ticket<O, P> {
    /// A ticket and the reply that it waits for.
    pub(crate) fn new() -> (Self, Reply<O, P>) {
        let listener = Listener::Ticket { progress: VecDeque::new(), outcome: None, waker: None };
        let shared = Arc::new(Shared { listener: Mutex::new(listener), changed: Condvar::new() });
        let reply = Reply { shared: shared.clone(), finished: false };
        (Self { shared, cancel: Cancel::new(), cancels: true }, reply)
    }

    /// Ends the request before its next pass. What there is by then is the outcome of a generation or a canvas; other requests
    /// end with [`EngineError::Cancelled`].
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Cancels this request when [`Cancel::cancel`] is called, from any thread and for as long as it is kept.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Whether the request has ended, so that [`Ticket::wait`] returns at once.
    pub fn is_ready(&self) -> bool {
        match &*self.shared.lock() {
            Listener::Ticket { outcome, .. } => outcome.is_some(),
            Listener::Sink(_) | Listener::Nobody => true,
        }
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// Those of the request; [`EngineError::Stopped`] if the engine was dropped meanwhile, or if the outcome was taken already.
    pub fn wait(self) -> Result<O, EngineError> {
        self.wait_with(|_| ())
    }

    /// Waits for the outcome and passes on the progress that is reported until then.
    ///
    /// # Errors
    ///
    /// Those of [`Ticket::wait`].
    pub fn wait_with(mut self, mut on_progress: impl FnMut(P)) -> Result<O, EngineError> {
        loop {
            match self.event() {
                Some(Event::Progress(progress)) => on_progress(progress),
                Some(Event::Done(outcome)) => return outcome,
                None => return Err(EngineError::Stopped),
            }
        }
    }

    /// Waits for the next event; `None` after the last.
    pub fn event(&mut self) -> Option<Event<O, P>> {
        let mut listener = self.shared.lock();
        loop {
            match next(&mut listener) {
                Poll::Ready(event) => return event,
                Poll::Pending => {
                    listener = self.shared.changed.wait(listener).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The next event, as a stream of an asynchronous runtime has it: `Ready(None)` after the last.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<O, P>>> {
        let mut listener = self.shared.lock();
        let event = next(&mut listener);
        if event.is_pending() {
            wake_by(&mut listener, context);
        }
        event
    }

    /// Exchanges the ticket for a function that gets every event, those included that have come already: these on this
    /// thread, all others on the engine's, which does nothing else meanwhile. So the function must be quick and must not wait:
    /// to send the event on through a channel is what it is for. If it panics, it is not called again, and a generation ends.
    ///
    /// The request is no longer cancelled when something is dropped; the [`Cancel`] that is returned cancels it.
    pub fn send_to(mut self, mut sink: impl FnMut(Event<O, P>) + Send + 'static) -> Cancel {
        loop {
            let mut listener = self.shared.lock();
            match next(&mut listener) {
                Poll::Ready(Some(event)) => {
                    drop(listener);
                    sink(event);
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    *listener = Listener::Sink(Box::new(sink));
                    break;
                }
            }
        }
        self.cancels = false;
        self.cancel.clone()
    }
}

/// The next event of a ticket, if it has come; `None` after the last.
fn next<O, P>(listener: &mut Listener<O, P>) -> Poll<Option<Event<O, P>>> {
    let Listener::Ticket { progress, outcome, .. } = listener else { return Poll::Ready(None) };
    if let Some(progress) = progress.pop_front() {
        return Poll::Ready(Some(Event::Progress(progress)));
    }
    let Some(outcome) = outcome.take() else { return Poll::Pending };
    *listener = Listener::Nobody;
    Poll::Ready(Some(Event::Done(outcome)))
}

/// Has a task woken by the next event.
fn wake_by<O, P>(listener: &mut Listener<O, P>, context: &Context<'_>) {
    if let Listener::Ticket { waker, .. } = listener {
        match waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }
}

/// The outcome; progress is left out.
impl<O, P> Future for Ticket<O, P> {
    type Output = Result<O, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.poll_event(context) {
                Poll::Ready(Some(Event::Progress(_))) => {}
                Poll::Ready(Some(Event::Done(outcome))) => return Poll::Ready(outcome),
                Poll::Ready(None) => return Poll::Ready(Err(EngineError::Stopped)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<O, P> Drop for Ticket<O, P> {
    fn drop(&mut self) {
        if self.cancels {
            self.cancel.cancel();
            // What comes from now on is kept nowhere. What was kept is dropped after the lock is released.
            let unread = std::mem::replace(&mut *self.shared.lock(), Listener::Nobody);
            drop(unread);
        }
    }
}

impl<O, P> std::fmt::Debug for Ticket<O, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}
