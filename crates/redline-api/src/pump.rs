//! Requests of a file or a table: many run at a time, and their answers are taken in the order of the requests.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use redline_engine::{EngineError, Event, Ticket};

/// Requests in their order. `C` is what the answer to a request needs to know of it, `O` is its outcome, and `E` is what else the work
/// waits for, such as further input.
#[derive(Debug)]
pub struct Pump<C, O, E> {
    pending: VecDeque<Pending<C, O>>,
    /// The number of the first pending request.
    first: u64,
    /// Number of requests without an outcome.
    running: usize,
    send: Sender<Message<O, E>>,
    messages: Receiver<Message<O, E>>,
}

#[derive(Debug)]
struct Pending<C, O> {
    context: C,
    state: State<O>,
}

#[derive(Debug)]
enum State<O> {
    Running,
    /// The outcome; `None`: the request was not begun.
    Ended(Option<O>),
}

#[derive(Debug)]
enum Message<O, E> {
    /// The outcome of the request of this number.
    Done(u64, O),
    Event(E),
}

/// What a pump has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<E> {
    /// The outcome of a request, which the pump keeps until its turn.
    Outcome,
    /// Something else.
    Event(E),
}

/// Sends events to a pump, from any thread.
#[derive(Clone, Debug)]
pub struct Events<O, E>(Sender<Message<O, E>>);

impl<O, E> Events<O, E> {
    /// Returns whether the work still goes on.
    pub fn send(&self, event: E) -> bool {
        self.0.send(Message::Event(event)).is_ok()
    }
}

/// Where the outcome of a request is sent, from any thread.
#[derive(Debug)]
pub struct Done<O, E> {
    request: u64,
    send: Sender<Message<O, E>>,
}

impl<O: Send + 'static, E: Send + 'static> Done<O, E> {
    /// Sends the outcome.
    pub fn with(self, outcome: O) {
        // Nobody receives it if the work has ended in the meantime.
        let _ = self.send.send(Message::Done(self.request, outcome));
    }

    /// Sends what `convert` makes of the outcome of a ticket, as soon as it arrives.
    pub fn when_ended<T: 'static, P: 'static>(
        self,
        ticket: Ticket<T, P>,
        convert: impl FnOnce(Result<T, EngineError>) -> O + Send + 'static,
    ) {
        let mut once = Some((self, convert));
        ticket.send_to(move |event| {
            if let Event::Done(outcome) = event
                && let Some((done, convert)) = once.take()
            {
                done.with(convert(outcome));
            }
        });
    }
}

impl<C, O, E> Default for Pump<C, O, E> {
    fn default() -> Self {
        let (send, messages) = channel();
        Self { pending: VecDeque::new(), first: 0, running: 0, send, messages }
    }
}

impl<C, O, E> Pump<C, O, E> {
    /// A sender of events.
    pub fn events(&self) -> Events<O, E> {
        Events(self.send.clone())
    }

    /// Where to send the outcome of the request that is pushed next.
    pub fn next_done(&self) -> Done<O, E> {
        Done { request: self.first + self.pending.len() as u64, send: self.send.clone() }
    }

    /// Adds a request that was begun, or one that was not: its turn comes without an outcome.
    pub fn push(&mut self, context: C, was_begun: bool) {
        self.running += usize::from(was_begun);
        let state = if was_begun { State::Running } else { State::Ended(None) };
        self.pending.push_back(Pending { context, state });
    }

    /// Takes the first request if it has ended, with its outcome if it was begun.
    pub fn pop(&mut self) -> Option<(C, Option<O>)> {
        let Pending { context, state } = self.pending.pop_front_if(|first| first.has_ended())?;
        self.first += 1;
        match state {
            State::Ended(outcome) => Some((context, outcome)),
            State::Running => None,
        }
    }

    /// Whether [`Pump::pop`] has something.
    pub fn is_ready(&self) -> bool {
        self.pending.front().is_some_and(Pending::has_ended)
    }

    /// Whether all requests were taken.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Number of requests without an outcome.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Waits for an outcome or an event; `None`: none came within `longest`.
    pub fn receive(&mut self, longest: Duration) -> Option<Received<E>> {
        match self.messages.recv_timeout(longest).ok()? {
            Message::Event(event) => Some(Received::Event(event)),
            Message::Done(request, outcome) => {
                let index = request.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
                if let Some(pending) = index.and_then(|index| self.pending.get_mut(index)) {
                    pending.state = State::Ended(Some(outcome));
                    self.running -= 1;
                }
                Some(Received::Outcome)
            }
        }
    }
}

impl<C, O> Pending<C, O> {
    fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn outcomes_are_taken_in_the_order_of_the_requests() {
        let mut pump = Pump::<&str, i32, &str>::default();
        let mut begun = Vec::new();
        for (name, was_begun) in [("a", true), ("b", false), ("c", true)] {
            begun.push(pump.next_done());
            pump.push(name, was_begun);
        }
        assert_eq!((pump.running(), pump.is_ready(), pump.receive(NOW)), (2, false, None));
        begun.pop().unwrap().with(3);
        assert!(pump.events().send("more"));
        assert_eq!(pump.receive(NOW), Some(Received::Outcome));
        assert_eq!(pump.receive(NOW), Some(Received::Event("more")));
        assert_eq!((pump.running(), pump.pop()), (1, None));
        begun.swap_remove(0).with(1);
        assert_eq!((pump.receive(NOW), pump.running()), (Some(Received::Outcome), 0));
        assert_eq!(pump.pop(), Some(("a", Some(1))));
        // Numbers go on behind what was taken.
        let last = pump.next_done();
        pump.push("d", true);
        assert_eq!((pump.pop(), pump.pop(), pump.pop()), (Some(("b", None)), Some(("c", Some(3))), None));
        last.with(4);
        assert_eq!((pump.receive(NOW), pump.is_empty()), (Some(Received::Outcome), false));
        assert_eq!((pump.pop(), pump.is_empty()), (Some(("d", Some(4))), true));
        let events = pump.events();
        drop(pump);
        assert!(!events.send("late"));
    }
}
