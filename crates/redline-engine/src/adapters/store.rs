//! The published adapters by name.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline_models::adapter::Adapter;
use redline_settings::{LARGEST_ADAPTER_SCALE, Setting, hint};
use redline_weights::Checksum;

use super::resident::{AdapterInfo, Published, SequenceAdapters};
use super::source::{AdapterSource, ReadAdapter};
use crate::error::{EngineError, message};
use crate::gauges::AdapterGauges;
use crate::options::{AdapterOptions, ClockFn};
use crate::request::AdapterChoice;
use crate::stages::{Stage, StageLog, StageTime};

/// Adapters by name, and how they are read.
pub(crate) struct Store {
    source: Arc<dyn AdapterSource>,
    clock: ClockFn,
    options: AdapterOptions,
    stages: Option<StageLog>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    /// The last generation.
    generation: u64,
    /// The worth of the adapter that was evicted last: newer adapters are worth more.
    floor: f64,
    failures: u64,
    evictions: u64,
    restores: u64,
}

/// A name.
struct Entry {
    dir: PathBuf,
    generation: u64,
    digest: Checksum,
    identity: Checksum,
    /// `None` while it is evicted.
    adapter: Option<Arc<Adapter>>,
    load_s: f64,
    uses: u64,
    worth: f64,
    /// What the last publication replaced.
    previous: Option<Box<Loaded>>,
}

/// An adapter that is in memory but not published: it was just read, or replaced.
struct Loaded {
    dir: PathBuf,
    digest: Checksum,
    identity: Checksum,
    adapter: Arc<Adapter>,
    load_s: f64,
}

/// The adapters of a request, if all are in memory.
pub(crate) enum Resolved {
    Ready(SequenceAdapters),
    /// The name of one that has to be read again.
    Evicted(String),
}

impl Entry {
    fn bytes(&self) -> u64 {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.adapter.bytes());
        self.adapter.as_ref().map_or(0, |adapter| adapter.bytes()) + previous
    }

    fn info(&self, name: &str) -> AdapterInfo {
        AdapterInfo {
            name: name.to_owned(),
            generation: self.generation,
            dir: self.dir.clone(),
            bytes: self.adapter.as_ref().map_or(0, |adapter| adapter.bytes()),
            load_s: self.load_s,
        }
    }
}

impl State {
    /// Counts a use.
    fn touch(&mut self, name: &str) {
        let floor = self.floor;
        if let Some(entry) = self.entries.get_mut(name) {
            entry.uses += 1;
            let bytes = entry.bytes().max(1) as f64;
            entry.worth = floor + entry.uses as f64 * entry.load_s.max(1e-6) / bytes;
        }
    }

    /// Evicts until all adapters fit `memory`. Those of a request are evicted after the others, and `kept` never.
    fn shrink(&mut self, memory: u64, kept: &str, for_request: &[AdapterChoice]) {
        while self.entries.values().map(Entry::bytes).sum::<u64>() > memory {
            // What was replaced goes first.
            if let Some(entry) = self.entries.values_mut().find(|entry| entry.previous.is_some()) {
                entry.previous = None;
                continue;
            }
            let others =
                self.entries.iter_mut().filter(|(name, entry)| *name != kept && entry.adapter.is_some());
            let needed = |name: &str| for_request.iter().any(|choice| choice.name == name);
            let order = |(a_name, a): &(&String, &mut Entry), (b_name, b): &(&String, &mut Entry)| {
                needed(a_name).cmp(&needed(b_name)).then(a.worth.total_cmp(&b.worth))
            };
            let Some((_, least)) = others.min_by(order) else { return };
            least.adapter = None;
            self.evictions += 1;
            self.floor = self.floor.max(least.worth);
        }
    }
}

impl Store {
    pub(crate) fn new(source: Arc<dyn AdapterSource>, clock: ClockFn, options: AdapterOptions) -> Self {
        Self { source, clock, options, stages: None, state: Mutex::default() }
    }

    /// Sets the log that receives the time of every adapter that is read.
    pub(crate) fn with_stages(self, stages: Option<StageLog>) -> Self {
        Self { stages, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and packs an adapter, as a part of `stage`. Nothing that exists changes.
    fn read(&self, dir: &Path, stage: Stage) -> Result<Loaded, EngineError> {
        let start = (self.clock)();
        // A panic would end the thread that reads for all.
        let read = catch_unwind(AssertUnwindSafe(|| self.source.read(dir)));
        let ReadAdapter { digest, identity, adapter } =
            read.map_err(|panic| EngineError::Panicked(message(&*panic)))??;
        if adapter.bytes() > self.options.memory {
            let fact = format!(
                "an adapter of {} bytes exceeds the {} bytes for adapters\n  in `{}`",
                adapter.bytes(),
                self.options.memory,
                dir.display()
            );
            return Err(EngineError::request(fact, hint!["give more ", Setting::AdapterMemory]));
        }
        let end = (self.clock)();
        if let Some(log) = &self.stages {
            log(StageTime { stage, start, end });
        }
        let load_s = end.saturating_sub(start) as f64 * 1e-9;
        Ok(Loaded { dir: dir.to_owned(), digest, identity, adapter, load_s })
    }

    /// Reads an adapter and publishes it under a name, in place of the one that has the name. If `expected` is given, that one must
    /// have this generation (0: none has the name). If anything fails, nothing changes.
    pub(crate) fn load(
        &self,
        name: &str,
        dir: &Path,
        expected: Option<u64>,
    ) -> Result<AdapterInfo, EngineError> {
        let loaded = self.load_checked(name, dir, expected);
        if loaded.is_err() {
            self.state().failures += 1;
        }
        loaded
    }

    fn load_checked(
        &self,
        name: &str,
        dir: &Path,
        expected: Option<u64>,
    ) -> Result<AdapterInfo, EngineError> {
        check_name(name)?;
        check_generation(&self.state(), name, expected)?;
        let loaded = self.read(dir, Stage::Load)?;
        let mut state = self.state();
        // Others may have published meanwhile.
        check_generation(&state, name, expected)?;
        let same =
            state.entries.iter().find(|(other, entry)| *other != name && entry.digest == loaded.digest);
        if let Some((other, _)) = same {
            let fact = format!("`{name}` is the same adapter as `{other}`\n  in `{}`", dir.display());
            return Err(EngineError::request(fact, "give an adapter one name"));
        }
        Ok(publish(&mut state, name, loaded, (self.options.memory, &[])))
    }

    /// Removes a name. Requests that use the adapter keep it until they end.
    pub(crate) fn unload(&self, name: &str, expected: Option<u64>) -> Result<(), EngineError> {
        let mut state = self.state();
        check_generation(&state, name, expected)?;
        state.entries.remove(name).map(drop).ok_or_else(|| unknown(name, &state))
    }

    /// Publishes the adapter that the last publication under this name replaced.
    pub(crate) fn roll_back(&self, name: &str) -> Result<AdapterInfo, EngineError> {
        let mut state = self.state();
        let Some(entry) = state.entries.get_mut(name) else { return Err(unknown(name, &state)) };
        let Some(previous) = entry.previous.take() else {
            let fact = format!("`{name}` has no earlier adapter in memory");
            return Err(EngineError::request(fact, "load it from its directory"));
        };
        Ok(publish(&mut state, name, *previous, (self.options.memory, &[])))
    }

    /// Reads an evicted adapter again for a request that combines it with others, and returns it as it is published then. It keeps its
    /// generation if it is still the same. `None` if another one was published meanwhile and is evicted, too.
    fn restore(&self, name: &str, for_request: &[AdapterChoice]) -> Result<Option<Published>, EngineError> {
        let before = self.state().entries.get(name).map(|entry| (entry.dir.clone(), entry.generation));
        let Some((dir, evicted)) = before else { return Err(unknown(name, &self.state())) };
        let loaded = self.read(&dir, Stage::Restore);
        let mut state = self.state();
        let Some(entry) = state.entries.get_mut(name) else { return Err(unknown(name, &state)) };
        // Another thread read it, or another one was published meanwhile.
        if let Some(adapter) = entry.adapter.clone() {
            return Ok(Some(Published { adapter, generation: entry.generation, identity: entry.identity }));
        }
        if entry.generation != evicted {
            return Ok(None);
        }
        let loaded = loaded?;
        let (adapter, identity) = (loaded.adapter.clone(), loaded.identity);
        if entry.identity != loaded.identity {
            let generation = publish(&mut state, name, loaded, (self.options.memory, for_request)).generation;
            return Ok(Some(Published { adapter, generation, identity }));
        }
        let generation = entry.generation;
        entry.adapter = Some(loaded.adapter);
        entry.load_s = loaded.load_s;
        state.restores += 1;
        state.touch(name);
        state.shrink(self.options.memory, name, for_request);
        Ok(Some(Published { adapter, generation, identity }))
    }

    /// Counts of adapters and of what was done with them.
    pub(crate) fn gauges(&self) -> AdapterGauges {
        let state = self.state();
        let loaded = state.entries.values().filter(|entry| entry.adapter.is_some()).count();
        AdapterGauges {
            loaded,
            evicted: state.entries.len() - loaded,
            loading: 0,
            bytes: state.entries.values().map(Entry::bytes).sum(),
            loads: state.generation,
            failures: state.failures,
            evictions: state.evictions,
            restores: state.restores,
            most_uses: self.options.max_uses,
        }
    }

    /// All adapters, by name.
    pub(crate) fn list(&self) -> Vec<AdapterInfo> {
        self.state().entries.iter().map(|(name, entry)| entry.info(name)).collect()
    }

    /// The names of all adapters, each with a checksum over what was read.
    pub(crate) fn checksums(&self) -> Vec<(String, Checksum)> {
        self.state().entries.iter().map(|(name, entry)| (name.clone(), entry.identity)).collect()
    }

    /// The adapters that a request names, of which those that were evicted are read again. Those stay in memory for the request, even
    /// if other threads evict them meanwhile.
    pub(crate) fn resolve_all(&self, choices: &[AdapterChoice]) -> Result<SequenceAdapters, EngineError> {
        let mut held = Vec::new();
        loop {
            match self.resolve(choices, &held)? {
                Resolved::Ready(adapters) => return Ok(adapters),
                Resolved::Evicted(name) => held.extend(self.restore(&name, choices)?),
            }
        }
    }

    /// The adapters that a request names; those of `held` count as being in memory as long as they are published.
    pub(crate) fn resolve(
        &self,
        choices: &[AdapterChoice],
        held: &[Published],
    ) -> Result<Resolved, EngineError> {
        let most = self.options.max_uses;
        if choices.len() > most {
            let fact = format!("{} adapters are combined", choices.len());
            return Err(EngineError::field("adapter", fact, format!("combine at most {most}")));
        }
        let mut state = self.state();
        let mut uses = Vec::with_capacity(choices.len());
        for AdapterChoice { name, scale } in choices {
            let Some(entry) = state.entries.get(name) else { return Err(unknown(name, &state)) };
            let (generation, identity) = (entry.generation, entry.identity);
            let held = || held.iter().find(|held| held.generation == generation);
            let adapter = entry.adapter.clone().or_else(|| held().map(|held| held.adapter.clone()));
            let Some(adapter) = adapter else { return Ok(Resolved::Evicted(name.clone())) };
            check_scale(name, *scale, &adapter, choices.len())?;
            uses.push((Published { adapter, generation, identity }, *scale));
        }
        self.check_memory(&uses)?;
        for choice in choices {
            state.touch(&choice.name);
        }
        Ok(Resolved::Ready(SequenceAdapters::new(uses)))
    }

    /// Refuses adapters that do not fit the memory together.
    fn check_memory(&self, uses: &[(Published, f32)]) -> Result<(), EngineError> {
        let distinct: BTreeMap<u64, u64> =
            uses.iter().map(|(published, _)| (published.generation, published.adapter.bytes())).collect();
        if distinct.values().sum::<u64>() <= self.options.memory {
            return Ok(());
        }
        let fact = format!("the memory for adapters does not hold the {} that are combined", uses.len());
        Err(EngineError::field("adapter", fact, hint!["give more ", Setting::AdapterMemory]))
    }
}

/// Replaces the adapter of a name, and evicts others until all fit the memory.
fn publish(
    state: &mut State,
    name: &str,
    loaded: Loaded,
    (memory, for_request): (u64, &[AdapterChoice]),
) -> AdapterInfo {
    state.generation += 1;
    let generation = state.generation;
    let Loaded { dir, digest, identity, adapter, load_s } = loaded;
    let old = state.entries.remove(name);
    let uses = old.as_ref().map_or(0, |old| old.uses);
    let previous = old.and_then(|old| {
        let (dir, digest, identity, load_s) = (old.dir, old.digest, old.identity, old.load_s);
        Some(Box::new(Loaded { dir, digest, identity, adapter: old.adapter?, load_s }))
    });
    let entry = Entry {
        dir,
        generation,
        digest,
        identity,
        adapter: Some(adapter),
        load_s,
        uses,
        worth: 0.0,
        previous,
    };
    let info = entry.info(name);
    state.entries.insert(name.to_owned(), entry);
    state.touch(name);
    state.shrink(memory, name, for_request);
    info
}

fn check_name(name: &str) -> Result<(), EngineError> {
    let plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if name != "base" && !name.is_empty() && name.chars().all(plain) {
        return Ok(());
    }
    let fact = format!("`{name}` is no name of an adapter");
    Err(EngineError::field(
        "lora_name",
        fact,
        "take letters, digits, `-`, `_`, `.` and `/`; `base` is the model without adapters",
    ))
}

fn check_generation(state: &State, name: &str, expected: Option<u64>) -> Result<(), EngineError> {
    let now = state.entries.get(name).map_or(0, |entry| entry.generation);
    match expected.filter(|expected| *expected != now) {
        None => Ok(()),
        Some(expected) => {
            let fact = format!("`{name}` has generation {now} instead of {expected}");
            Err(EngineError::request(fact, "another one was published meanwhile: look at it first"))
        }
    }
}

fn check_scale(name: &str, scale: f32, adapter: &Adapter, uses: usize) -> Result<(), EngineError> {
    if scale.is_nan() || scale.abs() > LARGEST_ADAPTER_SCALE {
        let fact = format!("the scale of `{name}` is {scale:e}");
        let hint = format!(
            "give a number from -{LARGEST_ADAPTER_SCALE} to {LARGEST_ADAPTER_SCALE}; 1 is the adapter as it was trained"
        );
        return Err(EngineError::field("adapter", fact, hint));
    }
    if adapter.has_gains() && (scale != 1.0 || uses > 1) {
        let fact = format!("`{name}` rescales the layers that it changes (DoRA)");
        return Err(EngineError::field("adapter", fact, "use it alone, with scale 1"));
    }
    Ok(())
}

fn unknown(name: &str, state: &State) -> EngineError {
    let mut known: Vec<&str> = state.entries.keys().map(String::as_str).collect();
    known.truncate(8);
    let known = known.into_iter().map(str::to_owned).collect();
    EngineError::NoAdapter { name: name.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adapters of 100 bytes whose values are those of the map, and which all say that they were made from their directory.
    #[derive(Default)]
    struct Values(Mutex<BTreeMap<PathBuf, u8>>);

    impl Values {
        fn set(&self, dir: &str, value: u8) {
            self.0.lock().unwrap().insert(dir.into(), value);
        }
    }

    impl AdapterSource for Values {
        fn read(&self, dir: &Path) -> Result<ReadAdapter, EngineError> {
            let value = self.0.lock().unwrap()[dir];
            let digest = Checksum::of(dir.as_os_str().as_encoded_bytes());
            let adapter = Arc::new(Adapter::blank(100));
            Ok(ReadAdapter { digest, identity: Checksum::of(&[value]), adapter })
        }
    }

    #[test]
    fn adapters_are_told_apart_by_what_was_read() {
        let values = Arc::new(Values::default());
        let options = AdapterOptions { memory: 150, ..AdapterOptions::default() };
        let store = Store::new(values.clone(), Arc::new(|| 0), options);
        let load = |name: &str, value| {
            values.set(name, value);
            store.load(name, Path::new(name), None).unwrap().generation
        };
        let namespace = |name: &str| {
            let choice = AdapterChoice { name: name.to_owned(), scale: 1.0 };
            store.resolve_all(&[choice]).unwrap().namespace("")
        };
        load("a", 1);
        let first = namespace("a");
        load("a", 2);
        assert_ne!(namespace("a"), first, "the values are others");
        let generation = load("a", 1);
        assert_eq!(namespace("a"), first, "the values are the same again");
        // One that was evicted is read again: the same, and then another one.
        load("b", 7);
        assert_eq!((namespace("a"), store.list()[0].generation), (first.clone(), generation));
        namespace("b");
        values.set("a", 2);
        assert_ne!(namespace("a"), first);
        assert_ne!(store.list()[0].generation, generation);
    }
}
