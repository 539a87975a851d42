//! Plans: how passes of up to so many rows are run, chosen once and kept.
//!
//! A pass falls into a bucket by its number of tokens, the evaluation of logits into one by its number of rows. The plan of a
//! bucket names a variant for each of its linear layers. It is looked for in memory, then on disk; what is found nowhere
//! is a miss, and the policy says what happens. No plan changes a result.

mod bucket;
mod key;
mod tune;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::Exec;
use redline_kernels::op::linear::Variant;
use redline_models::Model;
use redline_models::plan::Plan;
use redline_models::step::Arena;
use redline_weights::{Fields, PlanStore};

pub use self::bucket::{Bucket, BucketMode, Buckets};
use self::key::Key;
pub(crate) use self::key::Machine;
use crate::options::Clock;

/// What happens when there is no plan for a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPolicy {
    /// It is made by measuring, and stored.
    Tune,
    /// It is estimated, and kept in memory.
    #[default]
    Estimate,
    /// The requests of the pass fail.
    Forbid,
    /// Plans are estimated anew for every pass, and neither kept nor looked for: for debugging, and as a reference.
    Off,
}

impl PlanPolicy {
    /// Every policy there is.
    pub const ALL: &[PlanPolicy] = &[Self::Tune, Self::Estimate, Self::Forbid, Self::Off];

    /// The name used by `--plan-policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tune => "tune",
            Self::Estimate => "estimate",
            Self::Forbid => "forbid",
            Self::Off => "off",
        }
    }

    /// The policy of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|policy| policy.name() == name)
    }
}

/// What becomes of plans that somebody may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEvent {
    /// There was no plan for a bucket.
    Miss {
        /// The bucket.
        bucket: Bucket,
        /// How the most similar stored key differs; empty if nothing is stored.
        differs: String,
    },
    /// A stored file is no plan; it is not used.
    Dropped {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Other processes kept cores busy while a plan was measured: it consists of the estimates.
    Busy {
        /// The bucket.
        bucket: Bucket,
    },
    /// A plan could not be stored; it is kept in memory.
    NotStored {
        /// Where to.
        dir: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Told of every event, on the engine's thread.
pub type PlanLog = Arc<dyn Fn(&PlanEvent) + Send + Sync>;

/// How plans are made and where they are kept.
#[derive(Clone)]
pub struct PlanOptions {
    /// What a miss does.
    pub policy: PlanPolicy,
    /// The directory of stored plans; `None`: none are.
    pub cache: Option<PathBuf>,
    /// The sizes.
    pub buckets: Buckets,
    /// Whether misses are told too, with what differs: the stored plans are looked through for that.
    pub tells_misses: bool,
    /// Told of what happens.
    pub log: PlanLog,
}

impl Default for PlanOptions {
    fn default() -> Self {
        let (policy, buckets) = (PlanPolicy::default(), Buckets::default());
        Self { policy, cache: None, buckets, tells_misses: false, log: Arc::new(|_| ()) }
    }
}

/// What an engine's plans took since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCounters {
    /// Times that a plan was wanted and not there.
    pub misses: u64,
    /// Plans made by measuring.
    pub compiles: u64,
    /// Runs of a layer that were timed for them.
    pub measurements: u64,
    /// Plans read from disk.
    pub loads: u64,
}

/// The counters, written by the engine's thread and read by others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    misses: AtomicU64,
    compiles: AtomicU64,
    measurements: AtomicU64,
    loads: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> PlanCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PlanCounters {
            misses: of(&self.misses),
            compiles: of(&self.compiles),
            measurements: of(&self.measurements),
            loads: of(&self.loads),
        }
    }
}

/// Where a plan came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOrigin {
    /// From disk.
    Stored,
    /// Measured in this process.
    Measured,
    /// Estimated in this process.
    Estimated,
}

impl PlanOrigin {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
        }
    }
}

/// The plan of one bucket, as [`crate::Engine::precompile`] tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanEntry {
    /// The bucket.
    pub bucket: Bucket,
    /// Where the plan came from.
    pub origin: PlanOrigin,
    /// The variant of each layer, by names.
    pub choices: Vec<(&'static str, &'static str)>,
    /// What its layers take as estimated over what they take by their variants, where that was measured in this process.
    pub gain: Option<f64>,
    /// Bytes of activations that a pass of this bucket takes.
    pub activation_bytes: u64,
    /// Seconds it took to have it.
    pub seconds: f64,
}

/// There is no plan for a bucket, and none may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden {
    pub(crate) bucket: Bucket,
    pub(crate) differs: String,
}

/// A plan in memory.
struct Known {
    plan: Plan,
    origin: PlanOrigin,
    gain: Option<f64>,
}

/// The plans of an engine.
pub(crate) struct Plans {
    options: PlanOptions,
    store: Option<PlanStore>,
    machine: Machine,
    known: BTreeMap<Bucket, Known>,
    /// Those of the stored plans when they were first looked through.
    stored_keys: Option<Vec<Fields>>,
    counters: Arc<Counters>,
    clock: Clock,
}

/// What a plan is made with.
pub(crate) struct Workshop<'a> {
    pub(crate) model: &'a Model,
    pub(crate) arena: &'a mut Arena,
    pub(crate) exec: Exec<'a>,
}

impl Plans {
    pub(crate) fn new(options: PlanOptions, machine: Machine, counters: Arc<Counters>, clock: Clock) -> Self {
        let reads = options.policy != PlanPolicy::Off;
        let store = options.cache.clone().filter(|_| reads).map(PlanStore::new);
        Self { options, store, machine, known: BTreeMap::new(), stored_keys: None, counters, clock }
    }

    /// The bucket of a pass of so many tokens, or of so many rows of logits.
    pub(crate) fn bucket(&self, mode: BucketMode, size: usize) -> Bucket {
        self.options.buckets.of(mode, size)
    }

    /// The plan of a bucket, if it was asked for before.
    pub(crate) fn get(&self, bucket: Bucket) -> Option<&Plan> {
        self.known.get(&bucket).map(|known| &known.plan)
    }

    /// Sees to it that there is a plan; whether there was none.
    pub(crate) fn prepare(&mut self, shop: &mut Workshop<'_>, bucket: Bucket) -> Result<bool, Forbidden> {
        let policy = self.options.policy;
        if policy == PlanPolicy::Off {
            self.known.remove(&bucket);
        } else if self.known.contains_key(&bucket) {
            return Ok(false);
        }
        let key = Key::new(&self.machine, bucket);
        if let Some(plan) = self.stored(shop, &key) {
            Counters::add(&self.counters.loads, 1);
            self.known.insert(bucket, Known { plan, origin: PlanOrigin::Stored, gain: None });
            return Ok(false);
        }
        Counters::add(&self.counters.misses, 1);
        let differs = if self.options.tells_misses || policy == PlanPolicy::Forbid {
            let stored =
                self.store.as_ref().map(|store| &*self.stored_keys.get_or_insert_with(|| store.keys()));
            stored.map(|keys| key.nearest(keys)).unwrap_or_default()
        } else {
            String::new()
        };
        if self.options.tells_misses {
            (self.options.log)(&PlanEvent::Miss { bucket, differs: differs.clone() });
        }
        let known = match policy {
            PlanPolicy::Forbid => return Err(Forbidden { bucket, differs }),
            PlanPolicy::Tune => self.tuned(shop, &key),
            PlanPolicy::Estimate | PlanPolicy::Off => {
                let plan = shop.model.estimated(shop.exec, bucket.mode.sites(), bucket.size);
                Known { plan, origin: PlanOrigin::Estimated, gain: None }
            }
        };
        self.known.insert(bucket, known);
        Ok(true)
    }

    /// Every bucket there is, each with a plan.
    pub(crate) fn precompile(&mut self, shop: &mut Workshop<'_>) -> Result<Vec<PlanEntry>, Forbidden> {
        let buckets = self.options.buckets.all();
        let mut entries = Vec::with_capacity(buckets.len());
        for bucket in buckets {
            let start = (self.clock)();
            self.prepare(shop, bucket)?;
            let seconds = (self.clock)().saturating_sub(start) as f64 * 1e-9;
            let Some(known) = self.known.get(&bucket) else { continue };
            let choices = known.plan.choices().iter();
            entries.push(PlanEntry {
                bucket,
                origin: known.origin,
                choices: choices.map(|(site, variant)| (site.name(), variant.name())).collect(),
                gain: known.gain,
                activation_bytes: bucket.activation_bytes(shop.model),
                seconds,
            });
        }
        Ok(entries)
    }

    /// The stored plan, if there is one and it fits.
    fn stored(&self, shop: &Workshop<'_>, key: &Key) -> Option<Plan> {
        let store = self.store.as_ref()?;
        let dropped = |path, reason| (self.options.log)(&PlanEvent::Dropped { path, reason });
        let choices = match store.read(key.fields()) {
            Ok(choices) => choices?,
            Err(bad) => {
                dropped(bad.path, bad.reason);
                return None;
            }
        };
        let bucket = key.bucket();
        let plan: Option<Vec<_>> = bucket
            .mode
            .sites()
            .iter()
            .map(|&site| {
                let variant = Variant::parse(choices.get(site.name())?)?;
                let fits = shop.model.candidates(shop.exec, site, bucket.size).contains(&variant);
                fits.then_some((site, variant))
            })
            .collect();
        if plan.is_none() {
            let reason = "it names no variant for some layer, or one that cannot be run here".to_owned();
            dropped(store.path(key.fields()), reason);
        }
        plan.map(Plan::new)
    }

    /// A plan made by measuring, and stored.
    fn tuned(&self, shop: &mut Workshop<'_>, key: &Key) -> Known {
        let tuned = tune::plan(shop, key.bucket(), &self.clock);
        Counters::add(&self.counters.compiles, 1);
        Counters::add(&self.counters.measurements, tuned.measurements);
        if tuned.busy {
            (self.options.log)(&PlanEvent::Busy { bucket: key.bucket() });
        }
        if let Some(store) = &self.store {
            let choices = tuned.plan.choices().iter();
            let choices = choices.map(|(site, v)| (site.name().to_owned(), v.name().to_owned())).collect();
            if let Err(error) = store.write(key.fields(), &choices) {
                let (dir, reason) = (store.dir().to_owned(), error.to_string());
                (self.options.log)(&PlanEvent::NotStored { dir, reason });
            }
        }
        Known { plan: tuned.plan, origin: PlanOrigin::Measured, gain: tuned.gain }
    }
}

impl Counters {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}
