//! Sends requests on many connections, each with a thread of its own, and keeps the bytes of answers with their times.
//!
//! Threads that block tell the time of a byte as soon as the system wakes them, which suits some hundreds of connections. Answers are
//! taken apart after the run, so that the client spends as little of the machine's time as possible while it measures.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redline_client::{HttpClient, HttpConnection};

use redline_system::Clock;

/// Bytes of a thread's stack: a thread only copies bytes.
const STACK: usize = 256 << 10;

/// What becomes of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exchange {
    /// Its number in the run.
    pub(super) index: usize,
    /// The connection that sent it.
    pub(super) worker: usize,
    /// Nanoseconds of the clock: when it was due, when it was sent, and when its answer had ended.
    pub(super) due: u64,
    pub(super) sent: u64,
    pub(super) end: u64,
    pub(super) status: u16,
    /// Whether the body consists of server-sent events.
    pub(super) is_events: bool,
    pub(super) body: Vec<u8>,
    /// When each piece of the body came, and where it ends in the body.
    pub(super) pieces: Vec<(u64, usize)>,
    pub(super) fault: Option<Fault>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// A word for each kind, such as `timeout` or `status_429`.
    pub(super) kind: String,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(kind: &str, message: String) -> Self {
        Self { kind: kind.to_owned(), message }
    }

    pub(super) fn status(status: u16, message: String) -> Self {
        Self { kind: format!("status_{status}"), message }
    }

    fn io(error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "timeout",
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::AddrNotAvailable => {
                "connect"
            }
            _ => "closed",
        };
        Self::new(kind, error.to_string())
    }
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) client: HttpClient,
    pub(super) path: String,
    /// Longest wait for a connection, and for the next byte of an answer.
    pub(super) patience: Duration,
}

/// How many requests are sent, and when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pace {
    /// Number of connections.
    pub(super) connections: usize,
    /// Most requests.
    pub(super) requests: usize,
    /// Nanoseconds after which no request is begun.
    pub(super) most_ns: Option<u64>,
    /// When each request is due, in nanoseconds from the beginning; `None`: as soon as its connection is free.
    pub(super) due: Option<Vec<u64>>,
}

/// Sends the requests that `body` gives, and returns what became of each, in their order. A due request waits if all connections are
/// busy; its due time stays.
pub(super) fn drive(
    clock: &Clock,
    target: &Target,
    pace: &Pace,
    body: &(dyn Fn(usize) -> String + Sync),
) -> io::Result<Vec<Exchange>> {
    let (next, open, abandoned) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let (all, start) = (Mutex::new(Vec::new()), Mutex::new(0u64));
    let connections = pace.connections.min(pace.requests);
    std::thread::scope(|scope| {
        // The threads wait for this lock until all connections are open.
        let mut started = lock(&start);
        for worker in 0..connections {
            let (next, open, abandoned, all, start) = (&next, &open, &abandoned, &all, &start);
            let work = move || {
                let mut connection = target.client.open(target.patience);
                // A server that cannot be reached is a fault of the first request.
                let _ = connection.connect();
                open.fetch_add(1, Ordering::SeqCst);
                let start = *lock(start);
                let mut own = Vec::new();
                while !abandoned.load(Ordering::SeqCst) {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    if index >= pace.requests {
                        break;
                    }
                    let request = body(index);
                    let due = pace.due.as_ref().and_then(|due| due.get(index)).map(|at| start + at);
                    if let Some(due) = due {
                        clock.sleep_until(due);
                    } else if pace.most_ns.is_some_and(|most| clock.now_ns() >= start.saturating_add(most)) {
                        break;
                    }
                    own.push(exchange(
                        clock,
                        &mut connection,
                        target,
                        (index, worker, due),
                        request.as_bytes(),
                    ));
                }
                lock(all).extend(own);
            };
            let thread = std::thread::Builder::new().stack_size(STACK).name(format!("load-{worker}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                abandoned.store(true, Ordering::SeqCst);
                return Err(error);
            }
        }
        while open.load(Ordering::SeqCst) < connections {
            std::thread::sleep(Duration::from_micros(200));
        }
        *started = clock.now_ns();
        drop(started);
        Ok(())
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|exchange: &Exchange| exchange.index);
    Ok(all)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends one request and reads its answer.
pub(super) fn exchange(
    clock: &Clock,
    connection: &mut HttpConnection,
    target: &Target,
    (index, worker, due): (usize, usize, Option<u64>),
    request: &[u8],
) -> Exchange {
    let sent = clock.now_ns();
    let mut exchange = Exchange { index, worker, due: due.unwrap_or(sent), sent, ..Exchange::default() };
    let outcome = answer(clock, connection, target, request, &mut exchange);
    exchange.end = clock.now_ns();
    exchange.fault = outcome.err().map(|error| Fault::io(&error));
    exchange
}

fn answer(
    clock: &Clock,
    connection: &mut HttpConnection,
    target: &Target,
    request: &[u8],
    exchange: &mut Exchange,
) -> io::Result<()> {
    let mut answer = connection.send("POST", &target.path, request)?;
    exchange.status = answer.head.status;
    exchange.is_events =
        answer.head.header("content-type").is_some_and(|it| it.starts_with("text/event-stream"));
    while answer.read(&mut exchange.body)? > 0 {
        exchange.pieces.push((clock.now_ns(), exchange.body.len()));
    }
    Ok(())
}
