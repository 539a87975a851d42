//! The models of a server: which of them are in memory, and which of them a request is for.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::http::StatusCode;
use redline_api::generation::mode::GenerationMode;
use redline_api::model::LoadedModel;
use redline_engine::ModelSummary;
use serde_json::json;
use tokio::sync::Notify;

use crate::app::App;
use crate::blocking::blocking;
use crate::clock::Moment;
use crate::config::{ModelSet, ServedModel, ServerConfig};
use crate::error::ServeError;
use crate::fault::Fault;
use crate::shared::Shared;
use crate::watchdog;

/// How often it is seen whether a model that is to leave memory is still used, and whether one has not been used for long.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_FOR_IDLE: Duration = Duration::from_millis(250);

/// What requests of a route that do not name a model need one for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Anything: the first model.
    Any,
    /// To write text.
    Write,
    /// To make vectors.
    Embed,
    /// To make sparse vectors.
    EmbedSparse,
    /// To rank documents.
    Rank,
    /// To tell classes apart.
    Classify,
}

/// The models of a server.
pub(crate) struct Models {
    pub(crate) shared: Arc<Shared>,
    slots: Vec<Slot>,
    /// Bytes that the loaded models may take together.
    memory: u64,
    /// How long a model stays in memory without requests; `None`: until another one needs the memory.
    idle: Option<Duration>,
    registry: Mutex<Registry>,
    /// Wakes requests that wait for a model.
    changed: Notify,
}

/// A model.
struct Slot {
    served: ServedModel,
    /// The settings of the server, with those of this model.
    config: ServerConfig,
}

/// How often loading a model failed, and why it did the last time.
#[derive(Clone, Default)]
struct Failures {
    count: u64,
    reason: String,
}

/// The states of the models, and who waits for them.
struct Registry {
    states: Vec<ModelState>,
    failures: Vec<Failures>,
    /// Requests that wait for a model, the first to come first: their numbers, and the indices of the models. Only for the first one models
    /// are loaded, and leave memory.
    waiting: VecDeque<(u64, usize)>,
    /// Number of requests that have waited.
    waited: u64,
}

impl Registry {
    /// Whether no request for another model is the first to come.
    fn stays(&self, index: usize) -> bool {
        self.waiting.front().is_none_or(|(_, first)| *first == index)
    }
}

/// The state of a model.
enum ModelState {
    /// Not in memory.
    Absent,
    /// It is being loaded.
    Loading,
    /// In memory, where it was last used at this time. One that leaves takes no more requests, unless nobody waits for its
    /// memory any more.
    Loaded { app: Arc<App>, used: Moment, leaves: bool },
    /// Its memory is given back.
    Freeing,
}

/// A request that waits for a model.
struct Waiting<'m> {
    models: &'m Models,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.models.registry().waiting.retain(|(number, _)| *number != self.number);
        self.models.changed.notify_waiters();
    }
}

impl Models {
    /// A model that is loaded and stays so.
    pub(crate) fn of_one(model: LoadedModel, shared: Arc<Shared>) -> Arc<Self> {
        let served = ServedModel::loaded(&model);
        let config = shared.config.clone();
        let app = Arc::new(App::new(model, config.clone(), shared.clone()));
        tokio::spawn(watchdog::watch(Arc::downgrade(&app)));
        let state = ModelState::Loaded { app, used: Moment::now(), leaves: false };
        Arc::new(Self::new(shared, vec![Slot { served, config }], vec![state], u64::MAX, None))
    }

    /// Models that are loaded when they are needed.
    pub(crate) fn of_several(set: ModelSet, shared: Arc<Shared>) -> Arc<Self> {
        let ModelSet { models, memory, idle } = set;
        let states = models.iter().map(|_| ModelState::Absent).collect();
        let slot = |(index, served): (usize, ServedModel)| {
            let mut config = shared.config.clone();
            if index > 0 {
                // These are the first model's.
                (config.aliases, config.classes, config.adapter_root) = (Vec::new(), Vec::new(), None);
            }
            config.chat.clone_from(&served.chat);
            Slot { served, config }
        };
        let slots = models.into_iter().enumerate().map(slot).collect();
        let all = Arc::new(Self::new(shared.clone(), slots, states, memory, idle));
        if idle.is_some() {
            tokio::spawn(Self::unload_idle(Arc::downgrade(&all)));
        }
        all
    }

    fn new(
        shared: Arc<Shared>,
        slots: Vec<Slot>,
        states: Vec<ModelState>,
        memory: u64,
        idle: Option<Duration>,
    ) -> Self {
        let failures = vec![Failures::default(); states.len()];
        let registry = Mutex::new(Registry { states, failures, waiting: VecDeque::new(), waited: 0 });
        Self { shared, slots, memory, idle, registry, changed: Notify::new() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets requests that wait for a model see that the server ends.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Whether there are several models.
    pub(crate) fn are_several(&self) -> bool {
        self.slots.len() > 1
    }

    /// The models with the names under which requests ask for them, and their state if they are in memory.
    pub(crate) fn all(&self) -> Vec<(&ServedModel, &ServerConfig, Option<Arc<App>>)> {
        let registry = self.registry();
        let app = |state: &ModelState| match state {
            ModelState::Loaded { app, .. } => Some(app.clone()),
            _ => None,
        };
        self.slots
            .iter()
            .zip(&registry.states)
            .map(|(slot, state)| (&slot.served, &slot.config, app(state)))
            .collect()
    }

    /// The models that are in memory.
    pub(crate) fn loaded(&self) -> Vec<Arc<App>> {
        self.all().into_iter().filter_map(|(.., app)| app).collect()
    }

    /// How text is generated by those that generate some.
    pub(crate) fn mode(&self) -> GenerationMode {
        let objectives = self.slots.iter().map(|slot| slot.served.summary.objective);
        let generating = objectives.filter(|objective| objective.predicts());
        generating.map(GenerationMode::of_objective).next().unwrap_or(GenerationMode::Autoregressive)
    }

    /// Why no work is taken, if none is.
    pub(crate) fn refusal(&self) -> Option<Fault> {
        let of_models = || self.loaded().iter().find_map(|app| app.refusal());
        self.shared.refusal().or_else(of_models)
    }

    /// The index of the model that a request is for, by the name that it asks for, or else by what it is for.
    pub(crate) fn chosen(&self, asked: Option<&str>, purpose: Purpose) -> Result<usize, Fault> {
        if !self.are_several() {
            return Ok(0);
        }
        let Some(asked) = asked.filter(|name| !name.is_empty()) else { return Ok(self.of_purpose(purpose)) };
        let is =
            |slot: &Slot| slot.served.name == asked || slot.config.aliases.iter().any(|name| name == asked);
        if let Some(index) = self.slots.iter().position(is) {
            return Ok(index);
        }
        // Adapters are those of the first model, which says itself that it has none of this name.
        let first = &self.slots[0];
        let is_adapter = first.served.adapters.iter().any(|name| name == asked);
        if is_adapter || first.config.adapter_root.is_some() {
            return Ok(0);
        }
        if self.shared.config.any_model {
            Ok(self.of_purpose(purpose))
        } else {
            Err(Fault::no_model(asked).of_field("model"))
        }
    }

    /// The first model that was made for a purpose, or else one that can serve it.
    fn of_purpose(&self, purpose: Purpose) -> usize {
        let first =
            |can: fn(&ModelSummary) -> bool| self.slots.iter().position(|slot| can(&slot.served.summary));
        let writes = || first(|model| model.objective.predicts());
        let found = match purpose {
            Purpose::Any => None,
            Purpose::Write => writes(),
            Purpose::Embed => first(|model| model.embeds),
            Purpose::EmbedSparse => first(|model| model.embeds_sparsely),
            Purpose::Rank => first(|model| model.ranks).or_else(writes),
            Purpose::Classify if !self.slots[0].config.classes.is_empty() => None,
            Purpose::Classify => first(|model| model.classes.is_some_and(|count| count > 1)).or_else(writes),
        };
        found.unwrap_or(0)
    }

    /// The model of this index, if it is in memory. One that leaves stays if nobody waits before requests for it.
    fn in_memory(&self, index: usize) -> Option<Arc<App>> {
        let mut registry = self.registry();
        let stays = registry.stays(index);
        match &mut registry.states[index] {
            ModelState::Loaded { app, used, leaves } if !*leaves || stays => {
                (*used, *leaves) = (Moment::now(), false);
                Some(app.clone())
            }
            _ => None,
        }
    }

    /// The model of this index, which is loaded if it is not in memory. That waits until the requests of other models have left it the
    /// memory, for `longest` at most. Requests wait in their order.
    pub(crate) async fn app(self: &Arc<Self>, index: usize, longest: Duration) -> Result<Arc<App>, Fault> {
        let begun = Moment::now();
        let mut waiting: Option<Waiting<'_>> = None;
        let mut failed_before = None;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(app) = self.in_memory(index) {
                return Ok(app);
            }
            if let Some(fault) = self.shared.refusal() {
                return Err(fault);
            }
            {
                let mut registry = self.registry();
                let Registry { states, failures, waiting: queue, waited } = &mut *registry;
                let failures = &mut failures[index];
                let is_absent = matches!(states[index], ModelState::Absent);
                let failed_before = *failed_before.get_or_insert(failures.count);
                if is_absent && failed_before < failures.count {
                    // It may name files of the server.
                    let told =
                        if self.shared.local { &failures.reason } else { "the log of the server says why" };
                    let fault = Fault::not_loaded(&self.slots[index].served.name, told);
                    drop(registry);
                    return Err(fault);
                }
                let most = self.shared.config.limits.queue;
                if waiting.is_none() && queue.len() >= most {
                    let message =
                        format!("{most} requests wait for models; try again when some are answered");
                    drop(registry);
                    return Err(Fault::overloaded("queue_full", message));
                }
                let own = waiting.get_or_insert_with(|| {
                    *waited += 1;
                    queue.push_back((*waited, index));
                    Waiting { models: self, number: *waited }
                });
                let is_first = queue.front().is_some_and(|(first, _)| *first == own.number);
                if is_first && is_absent && self.make_room(index, states) {
                    match self.load(index) {
                        Ok(()) => states[index] = ModelState::Loading,
                        Err(why) => {
                            self.note_failure(index, failures, why);
                            self.changed.notify_waiters();
                        }
                    }
                }
            }
            let left = longest.saturating_sub(begun.elapsed());
            if tokio::time::timeout(left, changed).await.is_err() {
                return Err(Fault::model_waits(&self.slots[index].served.name));
            }
        }
    }

    /// Whether there is memory for a model. If there is not, those that were not used for longest begin to leave.
    fn make_room(self: &Arc<Self>, index: usize, states: &mut [ModelState]) -> bool {
        let bytes = |index: usize| self.slots[index].served.memory;
        let (mut taken, mut leaving) = (0_u64, 0_u64);
        let mut others = Vec::new();
        for (other, state) in states.iter().enumerate() {
            match state {
                ModelState::Absent => continue,
                ModelState::Freeing | ModelState::Loaded { leaves: true, .. } => leaving += bytes(other),
                ModelState::Loading => {}
                ModelState::Loaded { app, used, .. } => {
                    others.push((is_used(app), std::cmp::Reverse(used.elapsed()), other));
                }
            }
            taken = taken.saturating_add(bytes(other));
        }
        let over = taken.saturating_add(bytes(index)).saturating_sub(self.memory);
        // First those that nobody uses.
        others.sort_unstable();
        for (.., other) in others {
            if leaving >= over {
                break;
            }
            leaving += bytes(other);
            if let ModelState::Loaded { leaves, .. } = &mut states[other] {
                *leaves = true;
                tokio::spawn(Self::leave(self.clone(), other));
            }
        }
        over == 0 || taken == 0
    }

    /// Takes a model that leaves out of memory as soon as no request uses it, unless it stays.
    async fn leave(models: Arc<Self>, index: usize) {
        loop {
            {
                let mut registry = models.registry();
                let stays = registry.stays(index);
                match &mut registry.states[index] {
                    ModelState::Loaded { leaves, .. } if *leaves && stays => *leaves = false,
                    ModelState::Loaded { app, leaves: true, .. } if is_used(app) => {}
                    ModelState::Loaded { leaves: true, .. } => {
                        models.free(index, &mut registry.states);
                        return;
                    }
                    _ => return,
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Takes a model that nobody uses out of memory.
    fn free(self: &Arc<Self>, index: usize, states: &mut [ModelState]) {
        let freed = std::mem::replace(&mut states[index], ModelState::Freeing);
        let models = self.clone();
        tokio::spawn(async move {
            // The engine's thread ends, and memory is given back, which may take a while.
            let _ = blocking(move || drop(freed)).await;
            models.registry().states[index] = ModelState::Absent;
            models.changed.notify_waiters();
        });
    }

    /// Loads a model on a thread of its own. It is an error if there is no thread for it.
    fn load(self: &Arc<Self>, index: usize) -> Result<(), String> {
        let models = self.clone();
        let runtime = tokio::runtime::Handle::current();
        let load = move || {
            let slot = &models.slots[index];
            let loaded = catch_unwind(AssertUnwindSafe(|| {
                let engine = (slot.served.load)()?;
                let model = LoadedModel { name: slot.served.name.clone(), engine };
                Ok(Arc::new(App::new(model, slot.config.clone(), models.shared.clone())))
            }));
            let loaded = loaded.unwrap_or_else(|_| Err("loading it panicked".to_owned()));
            let mut registry = models.registry();
            registry.states[index] = match loaded {
                Ok(app) => {
                    runtime.spawn(watchdog::watch(Arc::downgrade(&app)));
                    ModelState::Loaded { app, used: Moment::now(), leaves: false }
                }
                Err(reason) => {
                    models.note_failure(index, &mut registry.failures[index], reason);
                    ModelState::Absent
                }
            };
            drop(registry);
            models.changed.notify_waiters();
        };
        let thread = std::thread::Builder::new().name("redline-load".to_owned()).spawn(load);
        thread.map(drop).map_err(|error| error.to_string())
    }

    /// Counts a failure to load a model, and writes to the log why.
    fn note_failure(&self, index: usize, failures: &mut Failures, reason: String) {
        let model = &self.slots[index].served.name;
        self.shared.log.write(&json!({ "event": "model_not_loaded", "model": model, "reason": reason }));
        *failures = Failures { count: failures.count + 1, reason };
    }

    /// Loads the models for which there is memory beside the others, in their order. It is an error if one cannot be loaded.
    pub(crate) async fn load_first(self: &Arc<Self>) -> Result<(), ServeError> {
        let mut taken = 0_u64;
        for (index, slot) in self.slots.iter().enumerate() {
            if taken.saturating_add(slot.served.memory) <= self.memory {
                taken += slot.served.memory;
                if let Err(fault) = self.app(index, Duration::MAX).await {
                    let Failures { count, reason } = &self.registry().failures[index];
                    let fact = format!("`{}` cannot be loaded: {reason}", slot.served.name);
                    return Err(ServeError::Model(if *count > 0 {
                        fact
                    } else {
                        fault.body().error.message
                    }));
                }
            }
        }
        Ok(())
    }

    /// Takes models out of memory that have not been used for long, until the server ends.
    async fn unload_idle(models: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK_FOR_IDLE).await;
            let Some(models) = models.upgrade() else { return };
            let Some(idle) = models.idle else { return };
            let mut registry = models.registry();
            for index in 0..registry.states.len() {
                if let ModelState::Loaded { app, used, leaves: false } = &mut registry.states[index] {
                    if is_used(app) {
                        *used = Moment::now();
                    } else if used.elapsed() >= idle {
                        models.free(index, &mut registry.states);
                    }
                }
            }
        }
    }
}

/// Whether requests use a model that is in memory.
fn is_used(app: &Arc<App>) -> bool {
    Arc::strong_count(app) > 1 || Arc::strong_count(&app.model) > 1
}

impl Fault {
    /// The error of a name that no model has.
    pub(crate) fn no_model(asked: &str) -> Self {
        let message = format!("there is no model `{asked}`; `/v1/models` lists those that there are");
        Self::new(StatusCode::NOT_FOUND, "model_not_found", message)
    }

    /// The error of a model that could not be loaded.
    fn not_loaded(name: &str, reason: &str) -> Self {
        let message = format!("`{name}` cannot be loaded: {reason}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "model_not_loaded", message).of_field("model")
    }

    /// The error of a model that did not find memory in time.
    fn model_waits(name: &str) -> Self {
        let message = format!("`{name}` is not in memory, and other models are used; try again later");
        Self::overloaded("model_waits", message).of_field("model")
    }
}
