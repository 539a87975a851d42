//! The model and machine flags that commands share, and the engine that they configure.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use redline_api::model::LoadedModel;
use redline_engine::{
    AdapterOptions, Engine, EngineError, ModelSummary, Options, PlanOptions, PlanPolicy, PrefixCacheSize,
    PrefixDir, Source, TraceLog, Turns,
};
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Exec, Format, Simd, Tier};
use redline_lab::bench::{PlanSetup, Setup};
use redline_system::{Clock, Machine};
use redline_weights::{HubRoots, Infq, SigningKey, WeightsError, check_signed, resolve_model};

use crate::adapters::{self, AdapterFlags, LoadedAdapters, Named};
use crate::env::{self, Environment, or_else};
use crate::message::{self, Failure};
use crate::plan::PlanFlags;
use crate::profile::{self, ProfileFile};
use crate::value::{self, Device, Isa, Sizes};
use crate::{progress, trace};

/// Which model.
#[derive(Debug, Args)]
pub(crate) struct ModelFlag {
    /// A directory, a GGUF file, a Hugging Face id in the local cache, `demo`, `demo-chat`, or `demo-diffusion`, which fills masks
    /// [env: REDLINE_MODEL]
    #[arg(long, alias = "model-path", value_name = "M")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    signed: SignedFlag,
}

/// Who must have signed a model.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignedFlag {
    /// Refuse a model directory that the owner of this minisign key has not signed: the key in base64, or its file
    /// (docs/signed-models.md) [env: REDLINE_REQUIRE_SIGNED]
    #[arg(long, value_name = "KEY", value_parser = value::signing_key)]
    require_signed: Option<SigningKey>,
}

/// Which part of the machine.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineFlags {
    /// Threads that every pass runs on; default: up to one per physical core that this process may use, fewer while other
    /// processes keep cores busy [env: REDLINE_THREADS]
    #[arg(long, value_name = "N", value_parser = value::threads)]
    threads: Option<usize>,
    #[command(flatten)]
    backend: BackendFlags,
}

/// Which instructions.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct TierFlags {
    /// Instruction set: auto, scalar, avx2, avx512 or amx [env: REDLINE_ISA]
    #[arg(long, alias = "force-path", value_name = "ISA", value_parser = value::isa)]
    isa: Option<Isa>,
    /// Device: auto (default) or cpu [env: REDLINE_DEVICE]
    #[arg(long, alias = "backend", value_name = "D", value_parser = value::device)]
    device: Option<Device>,
}

/// Which instructions and number formats.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct BackendFlags {
    #[command(flatten)]
    tier: TierFlags,
    #[command(flatten)]
    weights: WeightFlags,
    /// Tensor parallelism: number of logical devices, from 1 to 8, among which outputs and heads are divided [env: REDLINE_TP]
    #[arg(long, alias = "tp-size", value_name = "N", value_parser = value::devices)]
    tp: Option<usize>,
    /// Format of the KV cache: f32, bf16, f16, w8 (8-bit integers) or w4 (4-bit integers, for heads whose dimension is a power of
    /// two); default: f32 with f32 weights, w8 in encoders with integer weights, else bf16 [env: REDLINE_KV_FORMAT]
    #[arg(long, value_name = "F", value_parser = value::kv_format)]
    kv_format: Option<KvFormat>,
    /// Memory for weights, activations, keys and values, such as 8GiB; the process takes some MiB more; default: 80 % of what is
    /// free [env: REDLINE_MEMORY]
    #[arg(long, value_name = "SIZE", value_parser = value::bytes, help_heading = "Memory")]
    memory: Option<u64>,
    /// Map the weights of a converted model instead of copying them: it loads sooner and shares memory with other processes, but
    /// its file must not change meanwhile, and passes can be slower because its pages are small
    #[arg(long, help_heading = "Memory")]
    mmap: bool,
    /// Longest sequence in tokens; default: the model's [env: REDLINE_MAX_CONTEXT]
    #[arg(long, value_name = "N", value_parser = value::count)]
    max_context: Option<usize>,
    /// Write a JSON line per pass and layer to this file: range, mean, root mean square and digest of the residual stream
    /// [env: REDLINE_PRECISION_TRACE]
    #[arg(long, value_name = "FILE")]
    precision_trace: Option<PathBuf>,
    /// Write a profile to this file, as Chrome-trace JSON (opens in Perfetto): when requests, passes, layers, operations and
    /// threads ran [env: REDLINE_PROFILE_TRACE]
    #[arg(long, value_name = "FILE")]
    profile_trace: Option<PathBuf>,
    #[command(flatten)]
    plans: PlanFlags,
}

/// A format of weights.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormatFlags {
    /// Format of weights: f32, bf16, w8 or w4; default: the model's own [env: REDLINE_FORMAT]
    #[arg(long, value_name = "F", value_parser = value::format)]
    format: Option<Format>,
    /// Number of inputs that share a scale; w8: 32, 128 (default), or 0 for one scale per output; w4: 32, 64 (default) or 128
    #[arg(long, value_name = "N")]
    group: Option<usize>,
}

/// How weights are held.
#[derive(Clone, Debug, Args)]
pub(crate) struct WeightFlags {
    #[command(flatten)]
    format: FormatFlags,
    /// Share of the input columns of every layer that w8 and w4 keep as bf16: the columns with the largest weights
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, value_parser = value::fraction)]
    pub(crate) outliers: f64,
}

impl WeightFlags {
    /// The format with its group size, from the flags or the environment.
    pub(crate) fn resolve(&self, environment: Environment) -> Result<Option<Format>, Failure> {
        let format = self.format.resolve(|| environment.value(env::FORMAT, value::format))?;
        if self.outliers > 0.0 && !format.is_some_and(Format::is_integer) {
            let fact = format!("`--outliers {}` without a format of integers", self.outliers);
            return Err(Failure::usage(fact, "`--format w8` and `--format w4` keep columns apart"));
        }
        Ok(format)
    }
}

impl FormatFlags {
    /// The format with its group size; `otherwise` if neither flags nor environment name one.
    pub(crate) fn resolve(
        &self,
        otherwise: impl FnOnce() -> Result<Option<Format>, Failure>,
    ) -> Result<Option<Format>, Failure> {
        let format = or_else(self.format, otherwise)?;
        let Some(group) = self.group else { return Ok(format) };
        let Some(format) = format.filter(|f| f.is_integer()) else {
            let fact = format!("`--group {group}` without a format of groups");
            return Err(Failure::usage(fact, "`--format w8` and `--format w4` have groups"));
        };
        let groups: Vec<_> = format.groups().iter().map(usize::to_string).collect();
        let fact = || format!("{} has no group of {group}", format.name());
        let with_group = format.with_group(group);
        with_group.map(Some).ok_or_else(|| Failure::usage(fact(), format!("one of {}", groups.join(", "))))
    }
}

impl ModelFlag {
    /// A model that another flag named.
    pub(crate) fn one(model: Option<String>, signed: &SignedFlag) -> Self {
        Self { model, signed: signed.clone() }
    }

    fn named(&self, environment: Environment) -> Result<Option<String>, Failure> {
        let named = match &self.model {
            Some(model) => Some(model.clone()),
            None => environment.value(env::MODEL, |text| Ok(text.to_owned()))?,
        };
        Ok(named.filter(|name| !name.is_empty()))
    }

    /// The model's name, from the flag or the environment; otherwise `embedded`.
    pub(crate) fn or(&self, embedded: &str, environment: Environment) -> Result<ModelName, Failure> {
        let name = self.named(environment)?.unwrap_or_else(|| embedded.to_owned());
        self.signed.of(&name, environment)
    }

    /// The model's name, from the flag or the environment.
    pub(crate) fn resolve(&self, environment: Environment) -> Result<ModelName, Failure> {
        let name = self.named(environment)?.ok_or_else(|| {
            Failure::usage(
                "no model given",
                "`--model demo` is the embedded one; `--model DIR` a Hugging Face directory; `--model FILE` a GGUF file; `--model ORG/NAME` one \
                 in the local Hugging Face cache",
            )
        })?;
        self.signed.of(&name, environment)
    }
}

impl SignedFlag {
    /// The model of that name, with the signing key from the flag or the environment.
    pub(crate) fn of(&self, name: &str, environment: Environment) -> Result<ModelName, Failure> {
        let key = self.require_signed.clone();
        let signed_by = or_else(key, || environment.value(env::REQUIRE_SIGNED, value::signing_key))?;
        Ok(ModelName::new(name, signed_by))
    }
}

/// The name of a model, and the key that must have signed it.
#[derive(Clone)]
pub(crate) struct ModelName {
    /// A directory, an id, or an embedded model.
    pub(crate) name: String,
    signed_by: Option<SigningKey>,
    /// The location of the model, once it has been resolved.
    source: OnceCell<Source>,
}

impl ModelName {
    fn new(name: &str, signed_by: Option<SigningKey>) -> Self {
        Self { name: name.to_owned(), signed_by, source: OnceCell::new() }
    }

    /// An embedded model. It needs no signature, because it is part of the program.
    pub(crate) fn embedded(name: &str) -> Self {
        Self::new(name, None)
    }

    /// A model that this program wrote to a directory. It needs no signature.
    pub(crate) fn made(dir: &Path) -> Self {
        Self::new(&dir.to_string_lossy(), None)
    }

    /// Another model, with the same signing key.
    pub(crate) fn another(&self, name: &str) -> Self {
        if name == self.name { self.clone() } else { Self::new(name, self.signed_by.clone()) }
    }

    /// Locates the model. The first call searches for it and checks the signature if one is required.
    pub(crate) fn source(&self, environment: Environment) -> Result<Source, Failure> {
        if let Some(source) = self.source.get() {
            return Ok(source.clone());
        }
        let source = self.find(environment)?;
        Ok(self.source.get_or_init(|| source).clone())
    }

    fn find(&self, environment: Environment) -> Result<Source, Failure> {
        if let Some(embedded) = redline_demo::EMBEDDED.iter().find(|embedded| embedded.name == self.name) {
            return Ok(Source::Embedded(**embedded));
        }
        let failed = |error: WeightsError| Failure::advised(&error, error.hint());
        let dir = resolve_model(&self.name, &hub_roots(environment)).map_err(failed)?;
        if let Some(key) = &self.signed_by {
            progress::during("checking the signature", || check_signed(&dir, key)).map_err(failed)?;
        }
        Ok(Source::Path(dir))
    }
}

/// The directories where Hugging Face caches may be.
pub(crate) fn hub_roots(environment: Environment) -> HubRoots {
    HubRoots {
        hub_cache: environment.path(env::HF_HUB_CACHE),
        hf_home: environment.path(env::HF_HOME),
        xdg_cache: environment.path(env::XDG_CACHE_HOME),
        home: environment.path(env::HOME),
    }
}

impl MachineFlags {
    /// A copy of these flags for making plans of these sizes.
    pub(crate) fn for_plans(&self, tokens: Option<Sizes>, rows: Option<Sizes>) -> Self {
        let mut flags = self.clone();
        flags.backend.plans = flags.backend.plans.making(tokens, rows);
        flags
    }

    /// Fills in the values that no flag gave, from the environment and the machine.
    pub(crate) fn resolve(&self, environment: Environment, clock: &Clock) -> Result<Settings, Failure> {
        let backend = self.backend.resolve(environment, clock)?;
        Ok(Settings {
            threads: Threads::of(self.threads, environment)?,
            backend,
            adapters: Vec::new(),
            tells_fallback: true,
        })
    }
}

impl Settings {
    /// Sets what is kept of finished requests, in memory and on disk.
    pub(crate) fn with_prefix_cache(self, size: Option<PrefixCacheSize>, dir: Option<PrefixDir>) -> Self {
        let backend = Backend { prefix_cache: size, prefix_dir: dir, ..self.backend };
        Self { backend, ..self }
    }
}

/// The default memory budget, of the memory that is free now.
fn free_memory() -> Option<u64> {
    Machine::here().default_memory_bytes()
}

/// The number of threads: from the flag or the environment, or one per physical core that this process may use.
pub(crate) fn threads(flag: Option<usize>, environment: Environment) -> Result<usize, Failure> {
    Ok(Threads::of(flag, environment)?.count)
}

/// The number of threads of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    count: usize,
    /// Whether passes may run on fewer threads; true if no number was given.
    adaptive: bool,
}

impl Threads {
    /// The number from the flag or the environment, or one per physical core that this process may use.
    fn of(flag: Option<usize>, environment: Environment) -> Result<Self, Failure> {
        let given = or_else(flag, || environment.value(env::THREADS, value::threads))?;
        let count = given.unwrap_or_else(|| machine().default_threads());
        Ok(Self { count, adaptive: given.is_none() })
    }
}

impl From<&Setup> for Threads {
    fn from(setup: &Setup) -> Self {
        Self { count: setup.threads, adaptive: setup.adaptive_threads }
    }
}

/// The machine, inspected once.
fn machine() -> &'static Machine {
    static HERE: OnceLock<Machine> = OnceLock::new();
    HERE.get_or_init(Machine::here)
}

impl TierFlags {
    /// The tier from the flag or the environment; `None` for the fastest.
    pub(crate) fn resolve(&self, environment: Environment) -> Result<Option<Tier>, Failure> {
        or_else(self.device, || environment.value(env::DEVICE, value::device))?;
        let isa = or_else(self.isa, || environment.value(env::ISA, value::isa))?;
        Ok(isa.and_then(|isa| isa.0))
    }
}

impl BackendFlags {
    /// Fills in the values that no flag gave, from the environment.
    pub(crate) fn resolve(&self, environment: Environment, clock: &Clock) -> Result<Backend, Failure> {
        Ok(Backend {
            tp: or_else(self.tp, || environment.value(env::TP, value::devices))?.unwrap_or(1),
            plans: self.plans.resolve(environment)?,
            trace: self.trace(environment)?,
            profile: self.profile(environment)?,
            tier: self.tier.resolve(environment)?,
            format: self.weights.resolve(environment)?,
            outliers: self.weights.outliers,
            mmap: self.mmap,
            kv_format: or_else(self.kv_format, || environment.value(env::KV_FORMAT, value::kv_format))?,
            max_context: or_else(self.max_context, || environment.value(env::MAX_CONTEXT, value::count))?,
            memory: or_else(self.memory, || environment.value(env::MEMORY, value::bytes))?,
            prefix_cache: None,
            prefix_dir: None,
            stall_s: None,
            adapters: None,
            turns: None,
            clock: clock.clone(),
        })
    }
}

impl BackendFlags {
    /// The plan directory that the flag or the environment names, if there is one.
    pub(crate) fn named_plan_dir(&self, environment: Environment) -> Result<Option<PathBuf>, Failure> {
        self.plans.named_dir(environment)
    }

    /// The writer of the precision trace, if one is requested.
    fn trace(&self, environment: Environment) -> Result<Option<TraceLog>, Failure> {
        let path = self.precision_trace.clone().or_else(|| environment.path(env::PRECISION_TRACE));
        path.map(|path| trace::writer(&path)).transpose()
    }

    /// The writer of the profile, if one is requested.
    fn profile(&self, environment: Environment) -> Result<Option<ProfileFile>, Failure> {
        let path = self.profile_trace.clone().or_else(|| environment.path(env::PROFILE_TRACE));
        path.map(|path| profile::open(&path)).transpose()
    }
}

/// Capacity of an engine's request queue; more than any command has under way.
const QUEUE: usize = 256;

/// The options of an engine, besides the model and the threads.
#[derive(Clone)]
pub(crate) struct Backend {
    tp: usize,
    plans: PlanOptions,
    trace: Option<TraceLog>,
    profile: Option<ProfileFile>,
    tier: Option<Tier>,
    format: Option<Format>,
    outliers: f64,
    mmap: bool,
    kv_format: Option<KvFormat>,
    max_context: Option<usize>,
    /// Memory budget of each engine, in bytes; `None`: most of what is free when it is loaded.
    memory: Option<u64>,
    prefix_cache: Option<PrefixCacheSize>,
    prefix_dir: Option<PrefixDir>,
    stall_s: Option<f64>,
    adapters: Option<AdapterOptions>,
    /// See [`Options::turns`].
    turns: Option<Turns>,
    clock: Clock,
}

impl Backend {
    /// The requested tier.
    pub(crate) fn tier(&self) -> Option<Tier> {
        self.tier
    }

    /// The requested format of keys and values.
    pub(crate) fn kv_format(&self) -> Option<KvFormat> {
        self.kv_format
    }

    /// These settings, adapted to a lane.
    pub(crate) fn for_lane(self, setup: &Setup) -> Self {
        let plans = match &setup.plans {
            None => self.plans,
            Some(PlanSetup { policy, cache, tokens, rows }) => PlanOptions {
                policy: *policy,
                cache: cache.clone(),
                buckets: self.plans.buckets.with_sizes(tokens, rows),
                tells_misses: self.plans.tells_misses,
                log: self.plans.log,
            },
        };
        let prefix_cache = setup.prefix_cache.then_some(PrefixCacheSize::Automatic);
        let kv_format = setup.kv_format.or(self.kv_format);
        Self { plans, kv_format, prefix_cache, ..self }
    }

    /// Converts the settings to engine options.
    pub(crate) fn options(&self, source: Source, threads: Threads) -> Options {
        Options {
            source,
            threads: threads.count,
            adaptive_threads: threads.adaptive,
            tp: self.tp,
            plans: self.plans.clone(),
            trace: self.trace.clone(),
            profile: self.profile.as_ref().map(ProfileFile::log),
            stages: None,
            pin: false,
            tier: self.tier,
            format: self.format,
            outliers: self.outliers,
            mmap: self.mmap,
            kv_format: self.kv_format,
            max_context: self.max_context,
            memory: self.memory.or_else(free_memory),
            prefix_cache: self.prefix_cache,
            prefix_dir: self.prefix_dir.clone(),
            adapters: self.adapters,
            queue: QUEUE,
            stall_s: self.stall_s,
            clock: self.clock.as_fn(),
            turns: self.turns.clone(),
            poison: false,
        }
    }
}

/// The options of an engine, besides the model.
#[derive(Clone)]
pub(crate) struct Settings {
    threads: Threads,
    backend: Backend,
    /// Adapters to load with the model.
    adapters: Vec<Named>,
    /// Whether to report that the library tokenizer is used instead of the native one.
    tells_fallback: bool,
}

impl Settings {
    /// Whether newly made plans are stored.
    pub(crate) fn stores_plans(&self) -> bool {
        let plans = &self.backend.plans;
        plans.cache.is_some() && plans.policy == PlanPolicy::Tune
    }

    /// Settings for a second model: the same threads and instructions, other formats, no trace, no profile, and no message about the
    /// tokenizer, which must produce the same ids as the first.
    pub(crate) fn with_formats(&self, format: Option<Format>, kv_format: Option<KvFormat>) -> Self {
        let base = self.backend.clone();
        let backend = Backend {
            format,
            kv_format,
            outliers: 0.0,
            mmap: false,
            max_context: None,
            trace: None,
            profile: None,
            adapters: None,
            ..base
        };
        Self { threads: self.threads, backend, adapters: Vec::new(), tells_fallback: false }
    }

    /// Sets the number of seconds that prompts may add to a pass while other requests generate.
    pub(crate) fn with_stall(self, stall_s: Option<f64>) -> Self {
        Self { backend: Backend { stall_s, ..self.backend }, ..self }
    }

    /// Lets requests use these adapters.
    pub(crate) fn with_adapters(self, flags: &AdapterFlags) -> Self {
        self.with_loaded_adapters(flags.loaded(), false)
    }

    /// Loads these adapters; `later` says whether more may be loaded while the engine runs.
    pub(crate) fn with_loaded_adapters(self, flags: &LoadedAdapters, later: bool) -> Self {
        let memory = self.backend.memory;
        let adapters = flags.options(later, || memory.or_else(free_memory));
        let backend = Backend { adapters, ..self.backend };
        Self { backend, adapters: flags.named().cloned().collect(), ..self }
    }

    /// The memory budget.
    pub(crate) fn memory(&self) -> u64 {
        self.backend.memory.or_else(free_memory).unwrap_or(u64::MAX)
    }

    /// Sets the memory budget.
    pub(crate) fn with_memory(self, bytes: u64) -> Self {
        Self { backend: Backend { memory: Some(bytes), ..self.backend }, ..self }
    }

    /// The same, with no longer context than the model has.
    pub(crate) fn with_context_of(self, model: &ModelSummary) -> Self {
        let max_context = self.backend.max_context.map(|_| model.context);
        Self { backend: Backend { max_context, ..self.backend }, ..self }
    }

    /// Settings for one of several models, which take turns. The trace and the profile are the first one's.
    pub(crate) fn of_several(&self, turns: &Turns, is_first: bool) -> Self {
        let mut settings = self.clone();
        settings.backend.turns = Some(turns.clone());
        if !is_first {
            (settings.backend.trace, settings.backend.profile) = (None, None);
        }
        settings
    }

    /// What can be said of a model before it is loaded.
    pub(crate) fn summary(
        &self,
        model: &ModelName,
        environment: Environment,
    ) -> Result<ModelSummary, Failure> {
        Ok(Engine::inspect(&self.backend.options(model.source(environment)?, self.threads))?)
    }

    /// A function that loads a model and its adapters, as often as it is called.
    pub(crate) fn loader(
        self,
        model: &ModelName,
        environment: Environment,
    ) -> Result<Box<dyn Fn() -> Result<Engine, String> + Send + Sync>, Failure> {
        adapters::check_names(&self.adapters)?;
        let options = self.backend.options(model.source(environment)?, self.threads);
        let adapters = self.adapters;
        Ok(Box::new(move || {
            let engine = Engine::load(options.clone()).map_err(|error| error.to_string())?;
            for Named { name, dir } in &adapters {
                engine.load_adapter(name, dir, Some(0)).map_err(|error| error.to_string())?;
            }
            Ok(engine)
        }))
    }

    /// Loads a model and its adapters.
    pub(crate) fn load(self, model: &ModelName, environment: Environment) -> Result<LoadedModel, Failure> {
        adapters::check_names(&self.adapters)?;
        let options = self.backend.options(model.source(environment)?, self.threads);
        let model = &model.name;
        let engine = progress::during(&format!("loading {model}"), || Engine::load(options))?;
        for Named { name, dir } in &self.adapters {
            progress::during(&format!("loading {name}"), || engine.load_adapter(name, dir, Some(0)))?;
        }
        if self.tells_fallback {
            engine.tokenizer().into_iter().for_each(|it| message::warn_of_fallback(model, it));
        }
        // A model in the hub cache lies in a directory named after its commit.
        let name = if Path::new(model).exists() { engine.info().name.clone() } else { model.to_owned() };
        Ok(LoadedModel { engine, name })
    }
}

/// The size of the weights in a directory written by `convert`; `None` for any other source.
pub(crate) fn packed_bytes(source: &Source) -> Result<Option<u64>, Failure> {
    let Source::Path(dir) = source else { return Ok(None) };
    if !Infq::is(dir) {
        return Ok(None);
    }
    let infq = Infq::open(dir).map_err(EngineError::from)?;
    let bytes = |name| {
        infq.weight(name)
            .into_iter()
            .flat_map(|w| &w.parts)
            .filter_map(|p| infq.part_bytes(name, &p.suffix))
            .sum::<u64>()
    };
    Ok(Some(infq.names().map(bytes).sum()))
}

/// Runs work that packs weights on a team of threads.
pub(crate) fn with_team<T: Send>(
    threads: usize,
    tier: Option<Tier>,
    work: impl FnOnce(Exec<'_>) -> T + Send,
) -> Result<T, Failure> {
    let failed = |fact: String| Failure::failed(fact, None);
    let simd = tier.map_or_else(|| Ok(Simd::best()), Simd::new).map_err(|error| failed(error.to_string()))?;
    redline_kernels::with_team(simd, threads, work)
        .map_err(|error| failed(format!("{threads} threads could not be started: {error}")))?
        .map_err(|_| failed("the work ended early".to_owned()))
}

#[cfg(test)]
mod tests {
    use redline_models::{ConvertOptions, convert};

    use super::*;

    #[test]
    fn a_model_is_looked_for_once() {
        let environment = Environment::of_process();
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().to_str().unwrap().to_owned();
        let model = ModelName::new(&name, None);
        let looked_for = |model: &ModelName| matches!(model.source(environment), Ok(Source::Path(_)));
        assert!(looked_for(&model));
        drop(dir);
        assert!(looked_for(&model) && looked_for(&model.another(&name)));
        assert!(!looked_for(&ModelName::new(&name, None)) && !looked_for(&model.another("/no/such/model")));
    }

    #[test]
    fn packed_weights_have_a_size_before_they_are_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama-b");
        let packed = folder.path().join("packed");
        let options = ConvertOptions { format: Format::W8 { group: 128 }, outliers: 0.0 };
        with_team(1, None, |exec| convert(exec, &golden, &packed, options, &mut |_| Ok(())))
            .unwrap()
            .unwrap();
        let size = |dir: &Path| packed_bytes(&Source::Path(dir.to_owned())).unwrap();
        assert_eq!(size(&golden), None);
        let file = std::fs::metadata(packed.join("model.safetensors")).unwrap().len();
        let bytes = size(&packed).unwrap();
        assert!((1..=file).contains(&bytes), "{bytes} of {file}");
    }
}
