//! Running requests: the caller holds the [`Ticket`], the engine the [`Reply`].
//!
//! A ticket borrows nothing, so it may be stored, sent to another thread, or outlive the engine. The caller can wait for it,
//! poll it, await it as a future, or exchange it for a function that the engine calls with every event. None of these needs a
//! thread per request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::answer::outcome::{
    ClassifyOutcome, DiffuseOutcome, DiffusionProgress, EncodeOutcome, GenerateOutcome, GeneratedPiece,
    RerankOutcome, ScoreOutcome,
};
use crate::cancel::Cancel;
use crate::error::EngineError;

/// What a request reports: its progress while it runs, and its outcome at the end.
#[derive(Debug)]
pub enum Event<O, P = Infallible> {
    /// Something has become final. Requests without progress never report this.
    Progress(P),
    /// The request has ended; nothing follows.
    Done(Result<O, EngineError>),
}

/// A function that receives every event of a request.
type Sink<O, P> = Box<dyn FnMut(Event<O, P>) + Send>;

/// Events that a ticket has not taken yet.
struct Mailbox<O, P> {
    progress: VecDeque<P>,
    outcome: Option<Result<O, EngineError>>,
    /// Progress is dropped: only the outcome is waited for, and waking a thread for anything else would cost the engine time.
    outcome_only: bool,
    /// A thread waits for the next event.
    waiting: bool,
    /// Woken by the next event.
    waker: Option<Waker>,
}

impl<O, P> Mailbox<O, P> {
    fn new() -> Self {
        Self { progress: VecDeque::new(), outcome: None, outcome_only: false, waiting: false, waker: None }
    }

    /// Takes an event in. Returns whether to notify a thread, and the task to wake.
    fn put(&mut self, event: Event<O, P>) -> (bool, Option<Waker>) {
        match event {
            Event::Progress(_) if self.outcome_only => return (false, None),
            Event::Progress(progress) => self.progress.push_back(progress),
            Event::Done(outcome) => self.outcome = Some(outcome),
        }
        (std::mem::take(&mut self.waiting), self.waker.take())
    }
}

/// The receiver of a request's events.
enum Listener<O, P> {
    /// The ticket, which takes events when it is polled or waited for.
    Ticket(Mailbox<O, P>),
    /// A function, called immediately.
    Sink(Sink<O, P>),
    /// No receiver: the ticket was dropped, or everything has been delivered.
    Nobody,
}

/// State shared by a ticket and its reply.
struct Shared<O, P> {
    listener: Mutex<Listener<O, P>>,
    /// Notified of events while a thread waits.
    changed: Condvar,
}

impl<O, P> Shared<O, P> {
    fn lock(&self) -> MutexGuard<'_, Listener<O, P>> {
        // Nothing panics while the lock is held: sinks are called inside `catch_unwind`.
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event. Returns whether there is a receiver.
    fn give(&self, event: Event<O, P>) -> bool {
        let mut listener = self.lock();
        let (notify, waker) = match &mut *listener {
            Listener::Ticket(mailbox) => mailbox.put(event),
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
        if notify {
            self.changed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Who hears of progress.
    fn audience(&self) -> Audience {
        match &*self.lock() {
            Listener::Ticket(mailbox) if mailbox.outcome_only => Audience::OfOutcome,
            Listener::Ticket(_) | Listener::Sink(_) => Audience::OfAll,
            Listener::Nobody => Audience::None,
        }
    }

    /// Drops progress, what has come and what will come.
    fn expect_outcome_only(&self) {
        if let Listener::Ticket(mailbox) = &mut *self.lock() {
            mailbox.outcome_only = true;
            mailbox.progress.clear();
        }
    }
}

/// The receiver of a request's events, by what it receives.
enum Audience {
    OfAll,
    OfOutcome,
    None,
}

/// Calls a sink. Returns `false` if it panicked; that must not take the engine down.
fn call<O, P>(sink: &mut Sink<O, P>, event: Event<O, P>) -> bool {
    catch_unwind(AssertUnwindSafe(|| sink(event))).is_ok()
}

/// Receives the outcome of a request, once.
pub(crate) type Answer<O> = Box<dyn FnOnce(Result<O, EngineError>) + Send>;

/// The engine's end of a request. If it is dropped before [`Reply::finish`], the caller gets [`EngineError::Stopped`].
pub(crate) struct Reply<O, P = Infallible> {
    shared: Arc<Shared<O, P>>,
    /// Completes the outcome.
    completion: Option<Completion<O>>,
    finished: bool,
}

/// Adds to an outcome what its request does not know, now or later, and hands it on.
pub(crate) type Completion<O> = Box<dyn FnOnce(Result<O, EngineError>, Answer<O>) + Send>;

impl<O, P> Reply<O, P> {
    /// Reports progress. Returns whether there is a receiver.
    pub(crate) fn progress(&self, progress: P) -> bool {
        self.shared.give(Event::Progress(progress))
    }

    /// As [`Reply::progress`], but the progress is made only for a receiver that waits for it.
    pub(crate) fn progress_of<E>(&self, make: impl FnOnce() -> Result<P, E>) -> Result<bool, E> {
        match self.shared.audience() {
            Audience::OfAll => Ok(self.progress(make()?)),
            Audience::OfOutcome => Ok(true),
            Audience::None => Ok(false),
        }
    }

    /// Lets this add to the outcome before the caller gets it.
    pub(crate) fn complete_with(&mut self, completion: Option<Completion<O>>) {
        self.completion = completion;
    }
}

impl<O: Send + 'static, P: Send + 'static> Reply<O, P> {
    /// Reports the outcome, when it is complete.
    pub(crate) fn finish(mut self, outcome: Result<O, EngineError>) {
        match self.completion.take() {
            Some(complete) => complete(outcome, Box::new(|outcome| self.deliver(outcome))),
            None => self.deliver(outcome),
        }
    }

    fn deliver(mut self, outcome: Result<O, EngineError>) {
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

/// A submitted request. Dropping the ticket cancels the request, unless it has ended.
///
/// `O` is the outcome, `P` the progress that is reported while the request runs.
pub struct Ticket<O, P = Infallible> {
    shared: Arc<Shared<O, P>>,
    cancel: Cancel,
    /// Whether dropping the ticket cancels the request.
    cancels: bool,
}

/// A submitted score request.
pub type ScoreTicket = Ticket<ScoreOutcome>;
/// A submitted classification.
pub type ClassifyTicket = Ticket<ClassifyOutcome>;
/// A submitted reranking.
pub type RerankTicket = Ticket<RerankOutcome>;
/// Texts that are being embedded.
pub type EmbedTicket = Ticket<EncodeOutcome>;
/// A submitted generation. It reports every token of its continuations, unless more are generated than returned.
pub type GenerateTicket = Ticket<GenerateOutcome, GeneratedPiece>;
/// A canvas that is being filled.
pub type DiffuseTicket = Ticket<DiffuseOutcome, DiffusionProgress>;

impl<O, P> Ticket<O, P> {
    /// Creates a ticket and the reply it waits for.
    pub(crate) fn new() -> (Self, Reply<O, P>) {
        let listener = Mutex::new(Listener::Ticket(Mailbox::new()));
        let shared = Arc::new(Shared { listener, changed: Condvar::new() });
        let reply = Reply { shared: shared.clone(), completion: None, finished: false };
        (Self { shared, cancel: Cancel::new(), cancels: true }, reply)
    }

    /// Creates a ticket, and begins its request with the reply and with the handles that cancel it: `cancel` and the ticket's own.
    pub(crate) fn begin(
        cancel: &Cancel,
        request: impl FnOnce(Reply<O, P>, Vec<Cancel>) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let (ticket, reply) = Self::new();
        request(reply, vec![cancel.clone(), ticket.canceller()])?;
        Ok(ticket)
    }

    /// Ends the request before its next pass. A generation or a canvas returns what it has by then as its outcome; other
    /// requests end with [`EngineError::Cancelled`].
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns a handle whose [`Cancel::cancel`] cancels this request, from any thread and at any time.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Declares that only the outcome is waited for, so that the engine reports no progress. Progress that has come is dropped.
    #[must_use]
    pub fn outcome_only(self) -> Self {
        self.shared.expect_outcome_only();
        self
    }

    /// Returns whether the request has ended, so that [`Ticket::wait`] returns at once.
    pub fn is_ready(&self) -> bool {
        match &*self.shared.lock() {
            Listener::Ticket(mailbox) => mailbox.outcome.is_some(),
            Listener::Sink(_) | Listener::Nobody => true,
        }
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// The errors of the request; [`EngineError::Stopped`] if the engine was dropped meanwhile, or if the outcome was already
    /// taken.
    pub fn wait(self) -> Result<O, EngineError> {
        self.shared.expect_outcome_only();
        self.wait_with(|_| ())
    }

    /// Waits for the outcome, and calls `on_progress` with all progress until then.
    ///
    /// # Errors
    ///
    /// The errors of [`Ticket::wait`].
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
                    if let Listener::Ticket(mailbox) = &mut *listener {
                        mailbox.waiting = true;
                    }
                    listener = self.shared.changed.wait(listener).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Polls the next event, like a stream of an asynchronous runtime: `Ready(None)` after the last.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<O, P>>> {
        let mut listener = self.shared.lock();
        let event = next(&mut listener);
        if event.is_pending() {
            wake_by(&mut listener, context);
        }
        event
    }

    /// Exchanges the ticket for a function that receives every event. Events that have already arrived are delivered on this
    /// thread; all others on the engine's thread, which does nothing else meanwhile. So the function must be quick and must not
    /// block; it should only send the event on, for example through a channel. If it panics, it is not called again, and a
    /// generation ends.
    ///
    /// After that, no drop cancels the request; use the returned [`Cancel`].
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

/// Returns the next event of a ticket, if it has arrived; `None` after the last.
fn next<O, P>(listener: &mut Listener<O, P>) -> Poll<Option<Event<O, P>>> {
    let Listener::Ticket(mailbox) = listener else { return Poll::Ready(None) };
    if let Some(progress) = mailbox.progress.pop_front() {
        return Poll::Ready(Some(Event::Progress(progress)));
    }
    let Some(outcome) = mailbox.outcome.take() else { return Poll::Pending };
    *listener = Listener::Nobody;
    Poll::Ready(Some(Event::Done(outcome)))
}

/// Registers a task to be woken by the next event.
fn wake_by<O, P>(listener: &mut Listener<O, P>, context: &Context<'_>) {
    if let Listener::Ticket(mailbox) = listener {
        match &mut mailbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => mailbox.waker = Some(context.waker().clone()),
        }
    }
}

/// Resolves to the outcome; progress is discarded.
impl<O, P> Future for Ticket<O, P> {
    type Output = Result<O, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.shared.expect_outcome_only();
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
            // Later events are not stored. The unread ones are dropped after the lock is released.
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Wakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let [first, last] = [(); 2].map(|()| Arc::new(Wakes::default()));
        let (mut ticket, reply) = Ticket::<u32, &str>::new();
        for wakes in [&first, &last] {
            let waker = Waker::from(wakes.clone());
            assert!(ticket.poll_event(&mut Context::from_waker(&waker)).is_pending());
        }
        reply.finish(Ok(7));
        assert_eq!((first.count(), last.count()), (0, 1));
    }

    #[test]
    fn progress_wakes_nobody_who_awaits_the_outcome() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let (ticket, reply) = Ticket::<u32, &str>::new();
        let mut ticket = pin!(ticket);
        assert!(ticket.as_mut().poll(&mut context).is_pending());
        assert!(reply.progress("half"), "the caller is still there");
        assert_eq!(wakes.count(), 0);
        reply.finish(Ok(7));
        assert_eq!(wakes.count(), 1);
        assert!(matches!(ticket.as_mut().poll(&mut context), Poll::Ready(Ok(7))));
    }

    #[test]
    fn progress_is_not_made_for_a_ticket_of_the_outcome_only() {
        let (ticket, reply) = Ticket::<u32, &str>::new();
        assert!(reply.progress("early"));
        let mut ticket = ticket.outcome_only();
        let heard = reply.progress_of(|| if true { panic!("progress is made") } else { Ok::<_, ()>("late") });
        assert_eq!(heard, Ok(true), "the caller is still there");
        reply.finish(Ok(7));
        assert!(matches!(ticket.event(), Some(Event::Done(Ok(7)))));
    }

    #[test]
    fn a_ticket_is_ready_with_its_outcome_not_with_progress() {
        let (mut ticket, reply) = Ticket::<u32, &str>::new();
        assert!(!ticket.is_ready());
        assert!(reply.progress("half"));
        assert!(!ticket.is_ready(), "progress that was not read is no outcome");
        reply.finish(Ok(7));
        assert!(ticket.is_ready());
        assert!(matches!(ticket.event(), Some(Event::Progress("half"))) && ticket.is_ready());
        assert!(matches!(ticket.event(), Some(Event::Done(Ok(7)))));
        assert!(ticket.event().is_none() && ticket.is_ready());
    }
}
