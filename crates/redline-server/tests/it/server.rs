//! A server with the demo model on a free port.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use redline_api::chat::template::{Chat, ChatOptions};
use redline_api::generation::mode::GenerationMode;
use redline_api::model::LoadedModel;
use redline_client::{ArrivingAnswer, EventReader, HttpAnswer, HttpClient, HttpConnection, StreamedEvent};
use redline_engine::{Engine, Options, Source, Stage, StageLog, StageTime};
use redline_server::{LogSink, ModelSet, ServeError, ServeSummary, Server, ServerConfig, ServerStop};
use serde_json::Value;

use crate::openapi::{described, described_event};

/// A running server, which ends when it is dropped.
pub(crate) struct Running {
    pub(crate) client: HttpClient,
    /// How its model generates text.
    pub(crate) mode: GenerationMode,
    address: String,
    stop: ServerStop,
    thread: Option<JoinHandle<ServeSummary>>,
    log: Arc<Mutex<Vec<String>>>,
}

/// The demo model.
pub(crate) fn model() -> LoadedModel {
    model_with(|_| {})
}

/// The demo model, loaded with changed options.
pub(crate) fn model_with(change: impl FnOnce(&mut Options)) -> LoadedModel {
    loaded("demo", change)
}

/// The demo model that fills masks.
pub(crate) fn masked() -> LoadedModel {
    loaded("demo-diffusion", |_| {})
}

/// This model of `models/`, loaded with changed options.
fn loaded(name: &str, change: impl FnOnce(&mut Options)) -> LoadedModel {
    loaded_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name), change)
}

/// The model in this directory, loaded with changed options.
pub(crate) fn loaded_from(dir: &Path, change: impl FnOnce(&mut Options)) -> LoadedModel {
    let mut options = Options { threads: 1, ..Options::new(Source::Path(dir.to_owned())) };
    change(&mut options);
    let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
    LoadedModel { name, engine: Engine::load(options).unwrap() }
}

/// Starts a server with these settings.
pub(crate) fn start_with(model: LoadedModel, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mode = GenerationMode::of(&model.engine);
    run(mode, |server, log| server.run(model, Some(log), || ()), change)
}

/// Starts a server of several models, the first of which that writes text is autoregressive.
pub(crate) fn start_several(models: ModelSet, change: impl FnOnce(&mut ServerConfig)) -> Running {
    run(GenerationMode::Autoregressive, |server, log| server.run_several(models, Some(log), || ()), change)
}

fn run(
    mode: GenerationMode,
    run: impl FnOnce(Server, LogSink) -> Result<ServeSummary, ServeError> + Send + 'static,
    change: impl FnOnce(&mut ServerConfig),
) -> Running {
    let mut config = ServerConfig { port: 0, ..ServerConfig::default() };
    change(&mut config);
    let server = Server::bind(config).unwrap();
    let address = server.address().to_string();
    let client = HttpClient::new(address.clone());
    let stop = server.stop_handle();
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = log.clone();
    let sink: LogSink = Box::new(move |line| lines.lock().unwrap().push(line.to_owned()));
    let thread = std::thread::spawn(move || run(server, sink).unwrap());
    Running { client, mode, address, stop, thread: Some(thread), log }
}

/// Starts a server whose model chats with this template of `tests/golden/chat`. Nothing is cached, so that answers are the same.
pub(crate) fn start_chat(template: &str) -> Running {
    start_with(uncached(), |config| config.chat = Some(chat(template)))
}

/// The demo model without a prefix cache.
pub(crate) fn uncached() -> LoadedModel {
    model_with(|options| options.prefix_cache = None)
}

/// A template of `tests/golden/chat` for the demo model.
pub(crate) fn chat(template: &str) -> Chat {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = Some(root.join("tests/golden/chat").join(template));
    Chat::open(
        "demo",
        &Source::Path(root.join("models/demo")),
        ChatOptions { file, ..ChatOptions::default() },
    )
}

/// Starts a server.
pub(crate) fn start() -> Running {
    start_with(model(), |_| ())
}

/// A server whose engine stops before the end of its next pass, until it is let go.
pub(crate) struct Held {
    pub(crate) server: Running,
    /// Says that a pass is held.
    pub(crate) holding: Receiver<()>,
    /// Ends all holding when it is dropped.
    pub(crate) go: Sender<()>,
}

/// Starts such a server with these settings.
pub(crate) fn held(change: impl FnOnce(&mut ServerConfig)) -> Held {
    held_with(|_| (), change)
}

/// Starts such a server with changed options of the engine, too.
pub(crate) fn held_with(options: impl FnOnce(&mut Options), change: impl FnOnce(&mut ServerConfig)) -> Held {
    held_model("demo", options, change)
}

/// Starts such a server of the model that fills masks.
pub(crate) fn held_masked(change: impl FnOnce(&mut ServerConfig)) -> Held {
    held_model("demo-diffusion", |_| (), change)
}

/// Stops an engine before the end of every pass, until it is let go. Says that a pass is held; all holding ends when the last is dropped.
pub(crate) fn hold() -> (StageLog, Receiver<()>, Sender<()>) {
    let (holds, holding) = channel();
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let hold = move |time: StageTime| {
        if matches!(time.stage, Stage::Pass) {
            let _ = holds.send(());
            let _ = gone.lock().unwrap().recv();
        }
    };
    (Arc::new(hold), holding, go)
}

fn held_model(
    name: &str,
    options: impl FnOnce(&mut Options),
    change: impl FnOnce(&mut ServerConfig),
) -> Held {
    let (hold, holding, go) = hold();
    let model = loaded(name, |of_engine| {
        options(of_engine);
        of_engine.stages = Some(hold);
    });
    // A held engine is frozen, which is no concern of tests that do not ask for it.
    let patient = |config: &mut ServerConfig| {
        config.limits.frozen_time = Duration::from_hours(1);
        change(config);
    };
    Held { server: start_with(model, patient), holding, go }
}

impl Running {
    /// Where the server listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Tells the server to end.
    pub(crate) fn stop(&self) {
        self.stop.stop();
    }

    /// Waits for the end of the server. Returns how it ended, and its log.
    pub(crate) fn end(mut self) -> (ServeSummary, Vec<Value>) {
        self.stop.stop();
        let summary = self.thread.take().unwrap().join().unwrap();
        let lines = self.log.lock().unwrap();
        (summary, lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// A connection to the server.
    pub(crate) fn open(&self) -> HttpConnection {
        self.client.open(Duration::from_mins(2))
    }

    /// The events that a request is answered with, as documents; the mark after the last event is `null`.
    pub(crate) fn events(&self, path: &str, body: &str) -> Vec<Value> {
        let mut connection = self.open();
        let mut stream = Streamed::of(connection.send("POST", path, body.as_bytes()).unwrap());
        assert!(stream.answer.head.status == 200, "{path} {body}: {}", stream.rest());
        assert_eq!(stream.answer.head.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let mut events = Vec::new();
        while let Some((name, data)) = stream.next() {
            let document = match data.as_str() {
                "[DONE]" => Value::Null,
                data => serde_json::from_str(data).unwrap(),
            };
            assert_eq!(name.as_deref(), document["type"].as_str(), "{document}");
            described_event(self.mode, path, &data);
            events.push(document);
        }
        events
    }

    /// The document that a request is answered with.
    pub(crate) fn ok(&self, path: &str, body: &str) -> Value {
        let answer = self.client.post(path, body).unwrap();
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        described(self.mode, path, body, &answer);
        json(&answer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An answer whose events are read as they come.
pub(crate) struct Streamed<'a> {
    pub(crate) answer: ArrivingAnswer<'a>,
    reader: EventReader,
    ready: VecDeque<(Option<String>, String)>,
}

impl<'a> Streamed<'a> {
    pub(crate) fn of(answer: ArrivingAnswer<'a>) -> Self {
        Self { answer, reader: EventReader::default(), ready: VecDeque::new() }
    }

    /// Waits for name and data of the next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(Option<String>, String)> {
        while self.ready.is_empty() {
            let mut piece = Vec::new();
            if self.answer.read(&mut piece).unwrap() == 0 {
                return None;
            }
            let ready = &mut self.ready;
            self.reader.push(&piece, |StreamedEvent { name, data }| {
                ready.push_back((name.map(str::to_owned), data.to_owned()));
            });
        }
        self.ready.pop_front()
    }

    /// The rest of the body.
    pub(crate) fn rest(&mut self) -> String {
        let mut body = Vec::new();
        while self.answer.read(&mut body).unwrap() > 0 {}
        String::from_utf8_lossy(&body).into_owned()
    }
}

/// The document of an answer.
pub(crate) fn json(answer: &HttpAnswer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

/// Status, code and field of an error.
pub(crate) fn error(answer: &HttpAnswer) -> (u16, String, Option<String>) {
    let document = json(answer);
    // Ollama's form has the message as `error`, and the rest beside it.
    let error = if document["error"].is_string() { &document } else { &document["error"] };
    assert!(
        document["error"].is_string() || error["message"].is_string() && error["type"].is_string(),
        "{document}"
    );
    let text = |key: &str| error[key].as_str().map(str::to_owned);
    (answer.status, text("code").unwrap(), text("param"))
}
