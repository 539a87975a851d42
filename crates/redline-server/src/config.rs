//! Settings of the server: plain values.

use std::path::PathBuf;
use std::time::Duration;

use redline_api::chat::template::Chat;
use redline_api::model::LoadedModel;
use redline_engine::{Engine, ModelSummary};
use sha2::{Digest as _, Sha256};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address to listen at, such as `127.0.0.1`.
    pub host: String,
    /// The port; 0 lets the system choose one.
    pub port: u16,
    /// The path of a Unix socket to listen at, instead of an address and a port.
    pub unix_socket: Option<PathBuf>,
    /// Encrypt connections with this certificate.
    pub tls: Option<TlsFiles>,
    /// Further names under which requests may ask for the model.
    pub aliases: Vec<String>,
    /// Whether requests may ask for the model by any name that is none of an adapter.
    pub any_model: bool,
    /// Origins whose web pages may send requests, such as `https://app.example`; `*` stands for all.
    pub origins: Vec<String>,
    /// The keys that give access; without any, everybody has access.
    pub keys: Vec<ApiKey>,
    /// The classes of `/predict`; without any, the route is not offered.
    pub classes: Vec<String>,
    /// The model's chat template. Without one, conversations are refused, and prompts of decisions are plain text.
    pub chat: Option<Chat>,
    /// Limits of requests and connections.
    pub limits: ServerLimits,
    /// Whether SIGTERM and SIGINT end the server.
    pub signals: bool,
    /// The directory below which requests may load adapters; `None`: they may load and remove none.
    pub adapter_root: Option<PathBuf>,
    /// Whether there is a page at `/`.
    pub page: bool,
    /// Whether `/metrics` needs no key.
    pub public_metrics: bool,
    /// Whether `/metrics` has the metrics under the names that vLLM gives them, too.
    pub vllm_metrics: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            unix_socket: None,
            tls: None,
            aliases: Vec::new(),
            any_model: false,
            origins: Vec::new(),
            keys: Vec::new(),
            classes: Vec::new(),
            chat: None,
            limits: ServerLimits::default(),
            signals: false,
            adapter_root: None,
            page: true,
            public_metrics: false,
            vllm_metrics: false,
        }
    }
}

/// The models of a server.
pub struct ModelSet {
    /// The models. What the settings of the server say of aliases, classes and adapters is about the first one.
    pub models: Vec<ServedModel>,
    /// Bytes of memory that the loaded models may take together.
    pub memory: u64,
    /// How long a model stays in memory without requests; `None`: until another one needs the memory.
    pub idle: Option<Duration>,
}

/// A model of several.
pub struct ServedModel {
    /// The name by which requests ask for it.
    pub name: String,
    /// Its chat template.
    pub chat: Option<Chat>,
    /// The names of its adapters.
    pub adapters: Vec<String>,
    /// What it is for.
    pub summary: ModelSummary,
    /// Bytes of memory that it may take.
    pub memory: u64,
    /// Loads it, or says why it cannot be loaded.
    pub load: Box<dyn Fn() -> Result<Engine, String> + Send + Sync>,
}

impl ServedModel {
    /// A model that is loaded, and does not leave memory.
    pub(crate) fn loaded(model: &LoadedModel) -> Self {
        Self {
            name: model.name.clone(),
            chat: None,
            adapters: Vec::new(),
            summary: model.engine.summary(),
            memory: 0,
            load: Box::new(|| Err("it has left memory".to_owned())),
        }
    }
}

/// Files that encrypted connections need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those of the authorities between it and a known one, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// A key that gives access. Only its digest is kept.
#[derive(Clone)]
pub struct ApiKey {
    /// The name of its owner, for the log and the prefix cache.
    pub(crate) name: String,
    pub(crate) digest: [u8; 32],
}

impl ApiKey {
    /// A key, and the name of its owner.
    pub fn new(name: &str, key: &str) -> Self {
        Self { name: name.to_owned(), digest: Sha256::digest(key.as_bytes()).into() }
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum number of prompts that wait or run.
    pub queue: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Largest body of a request in bytes.
    pub body_bytes: usize,
    /// Maximum number of bytes of all bodies that are read at a time.
    pub all_body_bytes: usize,
    /// Maximum number of bytes of all answers that are generated, built or sent at a time, as estimated from their requests.
    pub all_answer_bytes: usize,
    /// Bytes of a streamed answer that may wait for its client; one that reads more slowly is cut off.
    pub stream_bytes: usize,
    /// Maximum depth of arrays and objects in a body.
    pub depth: usize,
    /// Longest wait for the head of a request, and longest life of a connection without one.
    pub head_time: Duration,
    /// Longest time for the body of a request.
    pub body_time: Duration,
    /// Longest time for which a client may read nothing of an answer.
    pub send_time: Duration,
    /// Time limit of requests that have none.
    pub request_time: Duration,
    /// How long requests that do not say so may wait for their first pass; `None`: as long as their time limit.
    pub queue_time: Option<Duration>,
    /// How long running requests may take after the server was told to stop.
    pub drain_time: Duration,
    /// An engine that has work and makes no progress for this long counts as frozen. Passes that were expected to take longer may.
    pub frozen_time: Duration,
}

impl ServerLimits {
    /// Most bytes of the head of a request.
    pub const HEAD_BYTES: usize = 64 << 10;
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            queue: 256,
            connections: 4096,
            body_bytes: 16 << 20,
            all_body_bytes: 256 << 20,
            all_answer_bytes: 256 << 20,
            stream_bytes: 1 << 20,
            depth: 64,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
            send_time: Duration::from_secs(30),
            request_time: Duration::from_mins(10),
            queue_time: None,
            drain_time: Duration::from_secs(30),
            frozen_time: Duration::from_secs(4),
        }
    }
}
