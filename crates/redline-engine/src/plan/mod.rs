//! Plans: how passes of up to a certain size are run, chosen once and kept.
//!
//! A pass falls into a bucket by its number of tokens, the evaluation of logits by its number of rows. The plan of a bucket
//! names a variant for each of its linear layers. It is looked up in memory, then on disk. If it is in neither place, that is a
//! miss, and the policy decides what happens. No plan changes a result.

mod bucket;
mod key;
mod tune;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_kernels::op::linear::Variant;
use redline_kernels::{ClockFn, Exec};
use redline_models::Model;
use redline_models::plan::Plan;
use redline_models::step::Arena;
use redline_weights::{Fields, PlanStore};

pub(crate) use self::bucket::OUTPUT_ROWS;
pub use self::bucket::{Bucket, BucketMode, Buckets};
use self::key::Key;
pub(crate) use self::key::PlanEnvironment;
pub use redline_settings::PlanPolicy;

/// An event in the life of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEvent {
    /// There was no plan for a bucket.
    Miss {
        /// The bucket.
        bucket: Bucket,
        /// How the most similar stored key differs; empty if nothing is stored.
        differs: String,
    },
    /// A stored file is not a valid plan; it is not used.
    Dropped {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Other processes kept cores busy while a plan was measured, so it consists of the estimates.
    Busy {
        /// The bucket.
        bucket: Bucket,
    },
    /// A plan could not be stored; it is kept in memory only. Plans that fail later for the same reason are counted but not logged.
    NotStored {
        /// The directory it was to be stored in.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Receives every event, on the engine's thread.
pub type PlanLog = Arc<dyn Fn(&PlanEvent) + Send + Sync>;

/// How plans are made and where they are kept.
#[derive(Clone)]
pub struct PlanOptions {
    /// What happens on a miss.
    pub policy: PlanPolicy,
    /// The directory of stored plans; `None`: plans are not stored.
    pub cache: Option<PathBuf>,
    /// The sizes of buckets.
    pub buckets: Buckets,
    /// Whether misses are logged too, with the difference to the most similar stored plan, which takes a search through all of
    /// them.
    pub tells_misses: bool,
    /// Receives the events.
    pub log: PlanLog,
}

impl Default for PlanOptions {
    fn default() -> Self {
        let (policy, buckets) = (PlanPolicy::default(), Buckets::default());
        Self { policy, cache: None, buckets, tells_misses: false, log: Arc::new(|_| ()) }
    }
}

/// Counters of plan use since the engine was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCounters {
    /// Number of times that a plan was missing.
    pub misses: u64,
    /// Number of plans made by measuring.
    pub compiles: u64,
    /// Number of timed runs of a layer.
    pub measurements: u64,
    /// Number of plans read from disk.
    pub loads: u64,
    /// Number of measured plans that could not be stored.
    pub not_stored: u64,
}

/// The counters, written by the engine's thread and read by others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    misses: AtomicU64,
    compiles: AtomicU64,
    measurements: AtomicU64,
    loads: AtomicU64,
    not_stored: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> PlanCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PlanCounters {
            misses: of(&self.misses),
            compiles: of(&self.compiles),
            measurements: of(&self.measurements),
            loads: of(&self.loads),
            not_stored: of(&self.not_stored),
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
    /// The origin in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
        }
    }
}

/// The plan of one bucket, as returned by [`crate::Engine::precompile`].
#[derive(Clone, Debug, PartialEq)]
pub struct PlanEntry {
    /// The bucket.
    pub bucket: Bucket,
    /// Where the plan came from.
    pub origin: PlanOrigin,
    /// The variant of each layer, by names.
    pub choices: Vec<(&'static str, &'static str)>,
    /// Time of its layers with the estimated variants over that with the chosen ones, if it was measured in this process.
    pub gain: Option<f64>,
    /// Bytes of activations for a pass of this bucket.
    pub activation_bytes: u64,
    /// Seconds it took to obtain the plan.
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
    environment: PlanEnvironment,
    known: BTreeMap<Bucket, Known>,
    /// Keys of the stored plans, read at the first search, and of those stored since.
    stored_keys: Option<Vec<Fields>>,
    /// The last error of storing a plan. The same one is not logged again.
    not_stored: Option<String>,
    counters: Arc<Counters>,
    clock: ClockFn,
}

/// The resources needed to make a plan.
pub(crate) struct Workshop<'a> {
    pub(crate) model: &'a Model,
    pub(crate) arena: &'a mut Arena,
    pub(crate) exec: Exec<'a>,
}

impl Plans {
    pub(crate) fn new(
        options: PlanOptions,
        environment: PlanEnvironment,
        counters: Arc<Counters>,
        clock: ClockFn,
    ) -> Self {
        let reads = options.policy != PlanPolicy::Off;
        let store = options.cache.clone().filter(|_| reads).map(PlanStore::new);
        Self {
            options,
            store,
            environment,
            known: BTreeMap::new(),
            stored_keys: None,
            not_stored: None,
            counters,
            clock,
        }
    }

    /// The bucket for a pass of `size` tokens, or for `size` rows of logits.
    pub(crate) fn bucket(&self, mode: BucketMode, size: usize) -> Bucket {
        self.options.buckets.of(mode, size)
    }

    /// The plan of a bucket, if it has been prepared.
    pub(crate) fn get(&self, bucket: Bucket) -> Option<&Plan> {
        self.known.get(&bucket).map(|known| &known.plan)
    }

    /// Ensures that there is a plan for a bucket. Returns whether it was missing.
    pub(crate) fn prepare(&mut self, shop: &mut Workshop<'_>, bucket: Bucket) -> Result<bool, Forbidden> {
        let policy = self.options.policy;
        if policy == PlanPolicy::Off {
            self.known.remove(&bucket);
        } else if self.known.contains_key(&bucket) {
            return Ok(false);
        }
        let key = Key::new(&self.environment, bucket);
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

    /// Ensures that every bucket has a plan, and returns all of them.
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

    /// The stored plan, if there is one and it is valid.
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
        // The sites that the model has.
        let estimated = shop.model.estimated(shop.exec, bucket.mode.sites(), bucket.size);
        let plan: Option<Vec<_>> = estimated
            .choices()
            .iter()
            .map(|&(site, _)| {
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

    /// Makes a plan by measuring, and stores it.
    fn tuned(&mut self, shop: &mut Workshop<'_>, key: &Key) -> Known {
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
                Counters::add(&self.counters.not_stored, 1);
                let (dir, reason) = (store.dir().to_owned(), error.to_string());
                if self.not_stored.replace(reason.clone()).as_ref() != Some(&reason) {
                    (self.options.log)(&PlanEvent::NotStored { dir, reason });
                }
            } else if let Some(keys) = &mut self.stored_keys {
                keys.push(key.fields().clone());
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
