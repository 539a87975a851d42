//! What the server counts, the table of all metrics, and their text format.

mod exposition;
mod process;
mod table;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redline_engine::Histogram;

pub(crate) use self::exposition::{Exposition, MEDIA_TYPE};
pub(crate) use self::process::gather as gather_process;
pub use self::table::{METRICS, MetricInfo, MetricKind};

/// Seconds of a request.
const REQUEST: &[f64] = &[
    0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    160.0, 320.0,
];

/// What the server counts.
#[derive(Default)]
pub(crate) struct Metrics {
    in_flight: AtomicUsize,
    connections: AtomicUsize,
    accepted: AtomicU64,
    refused_connections: AtomicU64,
    body_bytes: AtomicU64,
    requests: Mutex<Requests>,
}

/// Requests that were answered. Routes, statuses and codes come from fixed lists.
#[derive(Default)]
struct Requests {
    by_status: BTreeMap<(&'static str, u16), u64>,
    refused: BTreeMap<&'static str, u64>,
    seconds: BTreeMap<&'static str, Histogram>,
}

/// An open connection.
pub(crate) struct OpenConnection(std::sync::Arc<Metrics>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that began is answered, or its client has left.
    pub(crate) fn end(&self, route: &'static str, status: u16, code: Option<&'static str>, seconds: f64) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let mut requests = self.requests();
        *requests.by_status.entry((route, status)).or_default() += 1;
        if let Some(code) = code.filter(|_| status == 429 || status == 503) {
            *requests.refused.entry(code).or_default() += 1;
        }
        requests.seconds.entry(route).or_insert_with(|| Histogram::new(REQUEST)).add(seconds);
    }

    /// A connection is accepted.
    pub(crate) fn connect(self: &std::sync::Arc<Self>) -> OpenConnection {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    /// A connection is refused.
    pub(crate) fn refuse_connection(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A body was read.
    pub(crate) fn read_body(&self, bytes: usize) {
        self.body_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds what the server counted.
    pub(crate) fn gather(&self, to: &mut Exposition) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        to.number("redline_http_requests_in_flight", self.in_flight.load(Ordering::Relaxed));
        to.number("redline_http_connections", self.connections.load(Ordering::Relaxed));
        to.number("redline_http_connections_total", of(&self.accepted));
        to.number("redline_http_connections_refused_total", of(&self.refused_connections));
        to.number("redline_http_body_bytes_total", of(&self.body_bytes));
        let requests = self.requests();
        for (&(route, status), &count) in &requests.by_status {
            let labels = vec![("route", route.to_owned()), ("status", status.to_string())];
            to.labelled("redline_http_requests_total", labels, count);
        }
        for (&code, &count) in &requests.refused {
            to.labelled("redline_requests_refused_total", vec![("code", code.to_owned())], count);
        }
        for (&route, seconds) in &requests.seconds {
            let labels = vec![("route", route.to_owned())];
            to.counts("redline_request_duration_seconds", labels, seconds.read());
        }
    }
}
