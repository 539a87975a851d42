//! The public engine: loads a model, checks requests, and hands them to the engine's thread.

mod adapters;
mod any_request;
pub(crate) mod budget;
mod diffuse;
mod encode;
mod generate;
mod grammar;
mod hold;
mod identity;
mod judge;
pub(crate) mod multi_vector;
mod observe;
mod perplexity;
pub(crate) mod prompt;
mod receipt;
mod score;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use redline_grammar::Compiler;
use redline_kernels::op::kv::{KvFormat, PAGE_TOKENS};
use redline_kernels::{Exec, Format, Simd, Tier, usable_cpus, with_team};
use redline_models::activation::ActivationId;
use redline_models::adapter::AdapterBuilder;
use redline_models::block::dense::Classifier;
use redline_models::model::{ExpertCounts, OperationCounts};
use redline_models::sentence::{self, SentenceRules};
use redline_models::spec::{DecoderSpec, Mask, Objective, Output};
use redline_models::{LoadOptions, Loader, Model, ModelFiles, Weights};
use redline_settings::{Command, Pooling, Setting, hint};
use redline_tokenizer::Tokenizer;
use redline_weights::{Checkpoint, ConfigFile, Gguf, Infq};

pub use self::any_request::{AnyRequest, CommonFields};
pub use self::judge::preset::RerankPreset;

use self::budget::Room;
pub use self::hold::Hold;
use self::identity::{Origin, of_pages};
use self::judge::preset;
pub use self::summary::ModelSummary;
use crate::adapters::Store;
use crate::adapters::resident::SequenceAdapters;
use crate::adapters::source::Directories;
use crate::answer::outcome::EngineUse;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::prompt::Limits;
use crate::gauges::{EngineGauges, Gauges, PageCounters, Pulse};
use crate::heartbeat::core::Arrival;
use crate::heartbeat::loader::AdapterLoader;
use crate::heartbeat::runner::{Inbox, Job, Runner, Saving};
use crate::memory::pages::PageIndex;
use crate::options::{ClockFn, Options, Source};
use crate::plan::{Buckets, Counters, PlanCounters, PlanEntry, PlanOptions};
use crate::receipt::Recorder;
use crate::request::{AdapterChoice, Queueing};
use crate::task::Task;
use crate::vocabulary::vocabulary;

/// Maximum number of threads in a team.
const MAX_THREADS: usize = 1024;
/// Maximum number of logical devices.
pub const MAX_DEVICES: usize = 8;

/// The vectors of tokens that a model of late interaction makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiVectorInfo {
    /// Number of values of a vector.
    pub width: usize,
    /// Number of tokens that queries are filled up to; 0: they are not.
    pub query_tokens: usize,
    /// Whether the similarity of a document is divided by the number of the query's vectors.
    pub mean: bool,
}

/// Facts about the loaded model and how it runs.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// Directory name, or the embedded model's name.
    pub name: String,
    /// The architecture in `config.json`.
    pub architecture: String,
    /// What the model was trained to predict.
    pub objective: Objective,
    /// Id of the mask token, if the configuration names one.
    pub mask_id: Option<u32>,
    /// The classes of a model that was trained to classify.
    pub classes: Option<Vec<String>>,
    /// Number of values of an embedding.
    pub embedding_width: usize,
    /// How the states of a text become its embedding, if the model says so (`modules.json`).
    pub embedding_pooling: Option<Pooling>,
    /// Whether it makes sparse vectors.
    pub sparse: bool,
    /// The vectors of tokens, if it makes such.
    pub multi_vector: Option<MultiVectorInfo>,
    /// Number of token types, if the model tells the texts of a pair apart by them.
    pub token_types: Option<usize>,
    /// Number of parameters, a tied head counted once.
    pub parameters: u64,
    /// Resident bytes of the weights.
    pub weight_bytes: u64,
    /// Bytes of weights that one decoding step reads.
    pub bytes_per_token: u64,
    /// The experts, of which a pass of more rows reads more; `None` without experts.
    pub experts: Option<ExpertCounts>,
    /// Bytes of the head's weights, included in `bytes_per_token`.
    pub head_bytes: u64,
    /// Bytes of keys and values per stored token, over all layers.
    pub kv_bytes_per_token: u64,
    /// Bytes of the state that a sequence has besides, whatever its length; 0 unless a layer is a recurrence.
    pub state_bytes: u64,
    /// Bytes reserved for the activations of the largest pass over several sequences.
    pub activation_bytes: u64,
    /// Maximum sequence length in tokens.
    pub context: usize,
    /// Number of rows of the embedding.
    pub vocab: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of threads in the team.
    pub threads: usize,
    /// Number of logical devices.
    pub tp: usize,
    /// Bytes of activations that each additional token of a pass needs.
    pub activation_bytes_per_row: u64,
    /// Bytes of activations that each additional row of logits needs; at most [`crate::MAX_LOGITS_ROWS`] rows are held at a time.
    pub activation_bytes_per_output: u64,
    /// Maximum number of tokens in a pass.
    pub max_chunk: usize,
    /// Instruction tier in use.
    pub tier: Tier,
    /// Format of the weights.
    pub format: Format,
    /// Format of keys and values.
    pub kv_format: KvFormat,
    /// Tier and formats in short, such as `avx512+bf16/bf16/kv-bf16`.
    pub kernel_path: String,
    /// Maximum bytes of keys and values; `None` without a limit.
    pub kv_budget_bytes: Option<u64>,
    /// Whether keys and values of earlier requests are kept for reuse.
    pub prefix_cache: bool,
    /// Floating-point operations of a pass.
    pub operations: OperationCounts,
}

/// A loaded model and the thread that runs it.
pub struct Engine {
    info: ModelInfo,
    /// See [`Model::window`].
    window: Option<usize>,
    tokenizer: Option<Arc<Tokenizer>>,
    /// How the model embeds texts, if it says so.
    sentence: Option<Arc<SentenceRules>>,
    /// What the model makes of a text, if it was trained to classify.
    classifier: Option<Arc<Classifier>>,
    /// How the model was trained to rerank, if its files say so.
    rerank_preset: Option<RerankPreset>,
    end_ids: Vec<u32>,
    /// Compiles the grammars of answers, from the first one on.
    grammars: OnceLock<Compiler>,
    inbox: Option<Inbox>,
    /// What its identity is computed of.
    origin: Arc<Origin>,
    /// Adapters, if the options allow some.
    loader: Option<AdapterLoader>,
    /// What adapters with random values are made for.
    spec: Arc<DecoderSpec>,
    simd: Simd,
    clock: ClockFn,
    activations: Vec<(ActivationId, usize)>,
    counters: Arc<Counters>,
    gauges: Arc<Gauges>,
    /// Pages on disk, if some are kept there.
    disk_pages: Option<(Arc<PageCounters>, Arc<PageIndex>)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Closing the inbox ends the thread, and joining it frees the model before `drop` returns. A sink that runs on the
        // engine's thread may own the last handle; that thread cannot join itself.
        self.loader = None;
        self.inbox = None;
        if let Ok(mut thread) = self.thread.lock()
            && let Some(thread) = thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Everything that is read from the model's source.
struct Parts {
    name: String,
    model: Model,
    /// What all keys and values are computed with, if they are to outlive the process.
    identity: Option<String>,
    room: Room,
    tokenizer: Option<Tokenizer>,
    sentence: Option<SentenceRules>,
    rerank_preset: Option<RerankPreset>,
    end_ids: Vec<u32>,
    mask_id: Option<u32>,
}

impl Parts {
    /// Reads on a separate thread, because packing rounds values and needs the default rounding mode.
    fn read(options: &Options, simd: Simd) -> Result<Self, EngineError> {
        let read = with_team(simd, options.threads, |exec| Self::read_here(options, exec));
        read.map_err(|e| not_started(options.threads, &e))?.map_err(|_| EngineError::Stopped)?
    }

    fn read_here(options: &Options, exec: Exec<'_>) -> Result<Self, EngineError> {
        let load_options =
            LoadOptions { format: options.format, outliers: options.outliers, mmap: options.mmap };
        match &options.source {
            Source::Path(path) => {
                let files = ModelFiles::open(path)?;
                let vocabulary = files.gguf().map(vocabulary).transpose()?.flatten();
                let place = path.display().to_string();
                let end_ids = match &vocabulary {
                    Some(vocabulary) => vocabulary.end_ids(&place)?,
                    None => end_ids(files.config(), files.generation()?.as_ref())?,
                };
                let mask_id = mask_id(files.config())?;
                let loader = Loader::new(files.config(), files.weights(), load_options)?;
                let room = Room::new(&loader, options)?;
                let identity = of_pages(&loader, &room, options)?;
                let tokenizer = || match (&vocabulary, files.gguf()) {
                    (Some(vocabulary), _) => Ok(Some(vocabulary.tokenizer(&place)?)),
                    (None, Some(_)) => Ok(None),
                    (None, None) => tokenizer(path),
                };
                let (tokenizer, model) = beside(tokenizer, || loader.load(exec));
                let name = path.file_name().map_or(place.clone(), |name| name.display().to_string());
                let (tokenizer, model) = (tokenizer?, model?);
                let sentence = match files.gguf() {
                    None => sentence::read(exec, path, (model.facts().hidden, model.has_mask_head()))?,
                    Some(gguf) => sentence::of_gguf(gguf)?,
                };
                let rerank_preset = match &vocabulary {
                    Some(vocabulary) => preset::of_gguf(vocabulary),
                    None => preset::of_directory(path, model.facts().architecture)?,
                };
                Ok(Self { name, model, identity, room, tokenizer, sentence, rerank_preset, end_ids, mask_id })
            }
            Source::Embedded(e) => {
                let config = ConfigFile::from_bytes("config.json", e.config)?;
                let generation = ConfigFile::from_bytes("generation_config.json", e.generation_config)?;
                let checkpoint = Checkpoint::from_bytes("model.safetensors", (e.weights)())?;
                let loader = Loader::new(&config, Weights::Checkpoint(&checkpoint), load_options)?;
                let room = Room::new(&loader, options)?;
                Ok(Self {
                    name: e.name.into(),
                    identity: of_pages(&loader, &room, options)?,
                    model: loader.load(exec)?,
                    room,
                    sentence: None,
                    rerank_preset: None,
                    tokenizer: Some(Tokenizer::from_bytes("tokenizer.json", e.tokenizer)?),
                    end_ids: end_ids(&config, Some(&generation))?,
                    mask_id: mask_id(&config)?,
                })
            }
        }
    }
}

/// The directory with the checkpoint that the model was read from; `None` if it was converted, by Redline or to GGUF, or is part of
/// the binary.
fn checkpoint(source: &Source) -> Option<PathBuf> {
    match source {
        Source::Path(path) if !Infq::is(path) && !Gguf::is(path) => Some(path.clone()),
        Source::Path(_) | Source::Embedded(_) => None,
    }
}

fn not_started(threads: usize, error: &std::io::Error) -> EngineError {
    EngineError::Threads { threads, reason: error.to_string() }
}

/// Calls `first` while `second` runs on this thread, or before that if the system refuses another thread.
fn beside<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, &first) {
        Ok(thread) => {
            let second = second();
            (thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second)
        }
        Err(_) => (first(), second()),
    })
}

/// The tokenizer of a model directory, if it has one.
fn tokenizer(dir: &Path) -> Result<Option<Tokenizer>, EngineError> {
    let has_one = ["tokenizer.json", "vocab.json", "merges.txt"].iter().any(|name| dir.join(name).exists());
    Ok(if has_one { Some(Tokenizer::from_dir(dir)?) } else { None })
}

/// End-of-sequence ids from `generation_config.json`, or from `config.json` if the former names none.
fn end_ids(config: &ConfigFile, generation: Option<&ConfigFile>) -> Result<Vec<u32>, EngineError> {
    let named = match generation {
        Some(generation) => generation.ids("eos_token_id")?,
        None => Vec::new(),
    };
    Ok(if named.is_empty() { config.ids("eos_token_id")? } else { named })
}

/// Id of the mask token that diffusion models replace.
fn mask_id(config: &ConfigFile) -> Result<Option<u32>, EngineError> {
    Ok(config.ids("mask_token_id")?.first().copied())
}

/// The CPUs that threads are bound to, if they are, and those that are left for threads that read adapters.
fn cpus(options: &Options) -> Result<(Option<Vec<u32>>, Vec<u32>), EngineError> {
    let cpus = options.pin.then(usable_cpus).transpose();
    let cpus = cpus.map_err(|e| not_started(options.threads, &e))?;
    let free = cpus.iter().flatten().skip(options.threads).copied().collect();
    Ok((cpus, free))
}

/// The store of adapters, if the options allow some.
fn store(model: &Model, options: &Options, simd: Simd) -> Option<Arc<Store>> {
    let adapters = options.adapters?;
    let directories = Directories {
        builder: AdapterBuilder::new(model),
        base: checkpoint(&options.source),
        simd,
        max_rank: adapters.max_rank,
    };
    let store = Store::new(Arc::new(directories), options.clock.clone(), adapters);
    Some(Arc::new(store.with_stages(options.stages.clone())))
}

/// Facts about a model that was read.
fn info(
    (name, mask_id): (String, Option<u32>),
    model: &Model,
    sentence: Option<&SentenceRules>,
    room: &Room,
    options: &Options,
    simd: Simd,
) -> ModelInfo {
    let Room { context, kv_format, budget, pages, buckets } = room;
    let (facts, page_bytes) = (model.facts(), budget.page);
    // A text of an encoder must fit one pass, and the rules of its checkpoint.
    let is_encoder = !facts.objective.is_causal() && facts.objective.output == Output::States;
    let text = if is_encoder {
        sentence.and_then(|rules| rules.max_tokens).unwrap_or(usize::MAX).min(Buckets::MAX_TOKENS)
    } else {
        usize::MAX
    };
    let dense = sentence.and_then(|rules| rules.dense.as_ref());
    ModelInfo {
        name,
        architecture: facts.architecture.into(),
        objective: facts.objective,
        mask_id,
        classes: model.classifier().map(|classifier| classifier.labels.clone()),
        embedding_width: dense.map_or(facts.hidden, |dense| dense.layers.outputs(facts.hidden)),
        embedding_pooling: dense.map(|dense| dense.pooling),
        sparse: sentence.is_some_and(|rules| rules.sparse.is_some()),
        multi_vector: sentence.and_then(|rules| rules.multi_vector.as_ref()).map(|rules| MultiVectorInfo {
            width: rules.layers.outputs(facts.hidden),
            query_tokens: rules.expansion.as_ref().map_or(0, |expansion| expansion.length),
            mean: rules.mean,
        }),
        token_types: model.token_types(),
        parameters: facts.parameters,
        weight_bytes: model.weight_bytes(),
        bytes_per_token: model.bytes_per_token(),
        experts: model.experts(),
        head_bytes: model.head().bytes() as u64,
        kv_bytes_per_token: page_bytes / PAGE_TOKENS as u64,
        state_bytes: budget.state_pages * page_bytes,
        activation_bytes: budget.activations,
        activation_bytes_per_row: budget.activation_row,
        activation_bytes_per_output: budget.output_row,
        context: (*context).min(text),
        vocab: facts.vocab,
        layers: model.layers(),
        hidden: facts.hidden,
        threads: options.threads,
        tp: options.tp,
        max_chunk: buckets.max_chunk(),
        tier: simd.tier(),
        format: facts.format,
        kv_format: *kv_format,
        kernel_path: format!("{}/{}/kv-{}", simd.name(), facts.formats, kv_format.name()),
        kv_budget_bytes: pages.map(|pages| pages as u64 * page_bytes),
        prefix_cache: options.prefix_cache.is_some(),
        operations: model.operations(),
    }
}

impl Engine {
    /// Loads the model and starts the engine's thread.
    pub fn load(options: Options) -> Result<Self, EngineError> {
        check(&options)?;
        let simd = options.tier.map_or_else(|| Ok(Simd::best()), Simd::new)?;
        let origin = Arc::new(Origin::new(&options));
        let Parts { name, mut model, identity, room, tokenizer, sentence, rerank_preset, end_ids, mask_id } =
            Parts::read(&options, simd)?;
        model.limit_adapters(options.adapter_limits());
        let spec = AdapterBuilder::new(&model).spec().clone();
        let store = store(&model, &options, simd);
        let (cpus, free_cpus) = cpus(&options)?;
        let classifier = model.classifier().cloned();
        let info = info((name, mask_id), &model, sentence.as_ref(), &room, &options, simd);
        let Room { kv_format, budget, pages, buckets, .. } = room;
        let (activations, window) = (model.activations(), model.window());
        let (counters, gauges) = (Arc::<Counters>::default(), Arc::<Gauges>::default());
        let saving = identity.zip(options.prefix_dir).map(|(identity, dir)| {
            let (counters, index) = (Arc::default(), Arc::default());
            Saving { dir, identity, counters, index }
        });
        let disk_pages = saving.as_ref().map(|saving| (saving.counters.clone(), saving.index.clone()));
        let runner = Runner {
            model,
            kv_format,
            pages: pages.unwrap_or(usize::MAX),
            simd,
            threads: options.threads,
            adaptive_threads: options.adaptive_threads,
            cpus,
            devices: options.tp,
            plans: PlanOptions { buckets, ..options.plans },
            counters: counters.clone(),
            gauges: gauges.clone(),
            most_kept: options.prefix_cache.map(|size| size.pages(budget.page)),
            saving,
            stall_s: options.stall_s,
            trace: options.trace,
            profile: options.profile.map(|log| (log, info.kernel_path.clone())),
            stages: options.stages,
            clock: options.clock.clone(),
            turns: options.turns,
            poison: options.poison,
        };
        let (inbox, thread) = runner.start(options.queue)?;
        let threads = options.adapters.map_or(1, |adapters| adapters.threads);
        let start = |store| AdapterLoader::start(store, inbox.clone(), threads, &free_cpus);
        let loader = store.map(start).transpose()?;
        let (inbox, tokenizer, thread) = (Some(inbox), tokenizer.map(Arc::new), Mutex::new(Some(thread)));
        Ok(Self {
            info,
            window,
            tokenizer,
            sentence: sentence.map(Arc::new),
            classifier,
            rerank_preset,
            end_ids,
            grammars: OnceLock::new(),
            inbox,
            origin,
            loader,
            spec,
            simd,
            clock: options.clock,
            activations,
            counters,
            gauges,
            disk_pages,
            thread,
        })
    }

    /// Facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Counters of plan use since the engine was loaded.
    pub fn plan_counters(&self) -> PlanCounters {
        self.counters.read()
    }

    /// Gauges and totals, read without waiting for the engine's thread.
    pub fn gauges(&self) -> EngineGauges {
        let page_bytes = self.info.kv_bytes_per_token * PAGE_TOKENS as u64;
        EngineGauges {
            requests: self.inbox.as_ref().map(Inbox::gauges).unwrap_or_default(),
            pages_limit: self.info.kv_budget_bytes.map(|bytes| bytes / page_bytes.max(1)),
            page_tokens: PAGE_TOKENS as u64,
            page_bytes,
            plans: self.counters.read(),
            adapters: self.loader.as_ref().map(AdapterLoader::gauges),
            disk_pages: self.disk_pages.as_ref().map(|(counters, index)| counters.gauges(index.len())),
            ..self.gauges.read()
        }
    }

    /// Whether the engine's thread works and makes progress, read without waiting for it.
    pub fn pulse(&self) -> Pulse {
        self.gauges.pulse()
    }

    /// Whether this number of requests would find places now. Another caller may take them before they are submitted.
    pub fn has_room(&self, requests: usize) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| requests <= inbox.free())
    }

    /// Resources that requests hold now. When no request is running, only the prefix cache holds any.
    pub fn in_use(&self) -> Result<EngineUse, EngineError> {
        let (reply, answer) = channel();
        self.inbox()?.send(Job::Use(reply))?;
        answer.recv().map_err(|_| EngineError::Stopped)
    }

    /// Ensures that every bucket has a plan, as far as the policy allows, and returns the plans. Requests wait meanwhile.
    pub fn precompile(&self) -> Result<Vec<PlanEntry>, EngineError> {
        let (reply, answer) = channel();
        self.inbox()?.send(Job::Precompile(reply))?;
        answer.recv().map_err(|_| EngineError::Stopped)?
    }

    /// The tokenizer, if the model has one.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_deref()
    }

    /// The same tokenizer, shared.
    pub fn shared_tokenizer(&self) -> Option<Arc<Tokenizer>> {
        self.tokenizer.clone()
    }

    /// The ids of a text as requests get them: with `add_special_tokens`, the tokenizer's special tokens are put around it, and those
    /// that the text itself begins with stand once.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, EngineError> {
        self.limits().text(text, add_special_tokens)
    }

    /// The ids of the tokens that end a text.
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    pub(crate) fn limits(&self) -> Limits<'_> {
        Limits {
            vocab: self.info.vocab,
            context: self.info.context,
            model: &self.info.name,
            tokenizer: self.tokenizer.as_deref(),
        }
    }

    fn inbox(&self) -> Result<&Inbox, EngineError> {
        self.inbox.as_ref().ok_or(EngineError::Stopped)
    }

    /// Hands a request with these adapters to the engine's thread if a place is free. Any of `cancels` cancels it. The recorder gets the
    /// digests for its receipt.
    fn run(
        &self,
        task: impl Task + Send + 'static,
        cancels: Vec<Cancel>,
        timeout_s: Option<f64>,
        queueing: Queueing,
        choices: &[AdapterChoice],
        recorder: Option<Arc<Recorder>>,
    ) -> Result<(), EngineError> {
        let inbox = self.inbox()?;
        checked_wait(queueing.longest_wait_s)?;
        let place = inbox.place()?.using(choices.iter().map(|choice| choice.name.as_str()));
        let adapters = SequenceAdapters::default();
        let task = Box::new(task);
        let at = (self.clock)();
        let arrival = Arrival { task, at, cancels, timeout_s, queueing, place, adapters, recorder };
        if choices.is_empty() {
            inbox.send(Job::Run(arrival))
        } else {
            self.loader()?.submit(arrival, choices)
        }
    }

    /// Refuses requests that need a next-token prediction if the model makes none.
    pub fn check_predicts_next(&self) -> Result<(), EngineError> {
        match (self.info.objective.output, self.info.objective.mask) {
            (Output::Tokens, Mask::Causal) => Ok(()),
            (Output::Tokens, Mask::Bidirectional) => {
                let fact = format!(
                    "`{}` fills masks and predicts no token from those before it",
                    self.info.architecture
                );
                let hint = hint!["take ", Command::Diffuse, ", or an autoregressive model such as Qwen2.5"];
                Err(EngineError::request(fact, hint))
            }
            (Output::States, _) => Err(self.only_encodes()),
        }
    }

    /// The error for a request that a model without a head cannot answer.
    fn only_encodes(&self) -> EngineError {
        let what =
            if self.info.objective.is_causal() { "has a classifier and no head" } else { "is an encoder" };
        let fact = format!("`{}` {what}: it predicts no tokens", self.info.architecture);
        if self.info.classes.is_some() {
            return EngineError::request(fact, "use it to classify or to rerank, or take a generative model");
        }
        EngineError::request(fact, hint!["take ", Command::Embed, ", or a generative model"])
    }
}

/// Refuses options that are invalid for every model.
fn check(options: &Options) -> Result<(), EngineError> {
    let refused = |fact: String| Err(EngineError::Option(fact));
    let Options { threads, tp, queue, .. } = *options;
    let max_chunk = options.plans.buckets.max_chunk();
    if threads == 0 {
        return refused("0 threads cannot run a model".into());
    }
    if threads > MAX_THREADS {
        return refused(format!("{threads} threads exceed {MAX_THREADS}"));
    }
    if !(1..=MAX_DEVICES).contains(&tp) {
        return refused(format!("{tp} logical devices are not from 1 to {MAX_DEVICES}"));
    }
    if max_chunk > Buckets::MAX_TOKENS {
        return refused(format!("passes of {max_chunk} tokens exceed {}", Buckets::MAX_TOKENS));
    }
    let readers = options.adapters.map_or(1, |adapters| adapters.threads);
    if !(1..=MAX_THREADS).contains(&readers) {
        return refused(format!("{readers} threads that read adapters are not from 1 to {MAX_THREADS}"));
    }
    if queue == 0 {
        return refused("a queue of 0 places takes no request".into());
    }
    Ok(())
}

/// Refuses a request for zero new tokens.
fn some_tokens(new: usize) -> Result<(), EngineError> {
    if new > 0 {
        return Ok(());
    }
    Err(EngineError::request(
        "0 new tokens were asked for",
        hint!["give ", Setting::MaxNewTokens, " at least 1"],
    ))
}

/// Checks how long a request may wait, in seconds.
fn checked_wait(seconds: Option<f64>) -> Result<(), EngineError> {
    match seconds.filter(|&s| s.is_nan() || s < 0.0) {
        None => Ok(()),
        Some(bad) => Err(EngineError::request(
            format!("a longest wait of {bad} seconds is no time"),
            "give 0 or more, or leave it out",
        )),
    }
}

/// Checks the time limit of a request, in seconds.
fn checked_timeout(seconds: Option<f64>) -> Result<Option<f64>, EngineError> {
    match seconds.filter(|&s| s.is_nan() || s <= 0.0) {
        None => Ok(seconds),
        Some(bad) => Err(EngineError::request(
            format!("a timeout of {bad} seconds leaves no time"),
            "give more than 0, or leave it out",
        )),
    }
}
