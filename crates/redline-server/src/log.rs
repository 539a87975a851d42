//! The log: one line of JSON per request, without texts of requests or answers.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use redline_api::cost::Usage;
use serde::Serialize;

use crate::clock::Moment;
use crate::metrics::Metrics;

/// Lines that wait to be written. Further lines are dropped, so that a sink that blocks does not stop the server.
const WAITING: usize = 4096;

/// Writes lines of the log.
pub type LogSink = Box<dyn FnMut(&str) + Send>;

/// Sends lines to a thread that writes them.
#[derive(Clone)]
pub(crate) struct Log(Option<SyncSender<String>>);

impl Log {
    /// A log and the thread that writes it until all senders are gone.
    pub(crate) fn start(sink: Option<LogSink>) -> (Self, Option<JoinHandle<()>>) {
        let Some(mut sink) = sink else { return (Self(None), None) };
        let (to, from) = sync_channel::<String>(WAITING);
        let write = move || from.iter().for_each(|line| sink(&line));
        match std::thread::Builder::new().name("redline-log".to_owned()).spawn(write) {
            Ok(thread) => (Self(Some(to)), Some(thread)),
            Err(_) => (Self(None), None),
        }
    }

    pub(crate) fn write(&self, entry: &impl Serialize) {
        if let (Some(to), Ok(line)) = (&self.0, serde_json::to_string(entry)) {
            let _ = to.try_send(line);
        }
    }
}

/// The status in the log of a request whose client left before the answer.
const CLIENT_CLOSED: u16 = 499;

/// The line of a request, which is written, and counted in the metrics, when it is dropped: with the head of a document, and after the last
/// event of a stream.
#[derive(Serialize)]
pub(crate) struct Record {
    event: &'static str,
    pub(crate) request_id: String,
    pub(crate) key: Option<String>,
    method: String,
    route: &'static str,
    pub(crate) status: u16,
    pub(crate) code: Option<&'static str>,
    pub(crate) prompt_tokens: Option<usize>,
    pub(crate) completion_tokens: Option<usize>,
    pub(crate) cached_tokens: Option<usize>,
    total_ms: f64,
    #[serde(skip)]
    begun: Moment,
    #[serde(skip)]
    log: Log,
    #[serde(skip)]
    metrics: Arc<Metrics>,
}

impl Record {
    /// The line of a request that begins now. Unless it gets another status, its client left.
    pub(crate) fn begin(
        (log, metrics): (Log, Arc<Metrics>),
        request_id: String,
        method: &str,
        route: &'static str,
    ) -> Self {
        metrics.begin();
        Self {
            event: "request",
            request_id,
            key: None,
            method: method.to_owned(),
            route,
            status: CLIENT_CLOSED,
            code: None,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            total_ms: 0.0,
            begun: Moment::now(),
            log,
            metrics,
        }
    }
}

impl Record {
    /// Takes token counts.
    pub(crate) fn count(&mut self, usage: Usage) {
        self.prompt_tokens = Some(usage.prompt_tokens);
        self.completion_tokens = Some(usage.completion_tokens);
        self.cached_tokens = Some(usage.prompt_tokens_details.cached_tokens);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.metrics.end(self.route, self.status, self.code, seconds);
        // A thousandth of a millisecond is exact enough for a reader.
        self.total_ms = (seconds * 1e6).round() / 1e3;
        self.log.clone().write(self);
    }
}
