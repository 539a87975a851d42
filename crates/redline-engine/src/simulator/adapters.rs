//! Random adapters: publications beside the running requests, and the adapters of requests, on the engine's own store.
//!
//! Directories are numbers, and an adapter is the number of its bytes. While a directory is read, another caller may publish.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redline_models::adapter::Adapter;
use redline_weights::Checksum;

use super::Random;
use super::machine::Mark;
use super::oracle::published::{Contents, Event, Publication, Published, Use};
use crate::adapters::resident::SequenceAdapters;
use crate::adapters::source::{AdapterSource, ReadAdapter};
use crate::adapters::{AdapterInfo, Resolved, Store};
use crate::error::EngineError;
use crate::options::{AdapterOptions, ClockFn};
use crate::request::AdapterChoice;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Number of directories of a name.
const DIRECTORIES: usize = 2;

/// The name that has a directory.
fn name_of(dir: usize) -> &'static str {
    NAMES[dir / DIRECTORIES]
}

fn path(dir: usize) -> PathBuf {
    dir.to_string().into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directories.
struct Disk {
    contents: Mutex<Vec<Contents>>,
    events: Mutex<Vec<Event>>,
    /// Runs once, during the next read.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Every adapter that was read.
    read: Mutex<Vec<Weak<Adapter>>>,
    clock: Arc<AtomicU64>,
}

impl AdapterSource for Disk {
    fn read(&self, dir: &Path) -> Result<ReadAdapter, EngineError> {
        let number = dir.to_str().and_then(|text| text.parse::<usize>().ok());
        let number = number.ok_or_else(|| EngineError::request("no such directory", "give another"))?;
        let meanwhile = lock(&self.meanwhile).take();
        if let Some(run) = meanwhile {
            run();
        }
        let contents = lock(&self.contents)[number];
        lock(&self.events).push(Event::Read(number, contents));
        let bytes = contents.ok_or_else(|| EngineError::request("the file is damaged", "read another"))?;
        self.clock.fetch_add(bytes % 777, Ordering::Relaxed);
        let adapter = Arc::new(Adapter::blank(bytes));
        lock(&self.read).push(Arc::downgrade(&adapter));
        let digest = Checksum::of(&bytes.to_le_bytes());
        Ok(ReadAdapter { digest, identity: digest, adapter })
    }
}

/// The adapters of a request.
#[derive(Default)]
pub(super) struct Used {
    pub(super) adapters: SequenceAdapters,
    pub(super) mark: Mark,
    /// Contents, which are numbers of bytes, and scales.
    pub(super) key: Vec<(u64, f32)>,
    pub(super) bytes: u64,
}

/// How a request begins.
pub(super) enum Begin {
    Ready(Used),
    /// Its adapters have to be read again.
    Waits,
    Refused,
}

/// The engine's store of adapters, and what it must hold.
pub(super) struct Library {
    store: Arc<Store>,
    disk: Arc<Disk>,
    expected: Published,
    memory: u64,
    /// Number of adapters so far.
    adapters: u64,
    pub(super) published: u64,
    pub(super) restored: u64,
}

impl Library {
    pub(super) fn new(random: &mut Random, clock: Arc<AtomicU64>, now: ClockFn) -> Self {
        let memory = random.of(&[4_999, 6_500, 9_000, 1 << 40]);
        let disk = Arc::new(Disk {
            contents: Mutex::new(vec![None; NAMES.len() * DIRECTORIES]),
            events: Mutex::default(),
            meanwhile: Mutex::default(),
            read: Mutex::default(),
            clock,
        });
        let options = AdapterOptions { memory, ..AdapterOptions::default() };
        let store = Arc::new(Store::new(disk.clone(), now, options));
        let expected = Published::new(memory, options.max_uses);
        Self { store, disk, expected, memory, adapters: 0, published: 0, restored: 0 }
    }

    /// Publishes some adapters before the first request.
    pub(super) fn fill(&mut self, random: &mut Random) -> Result<(), String> {
        for _ in 0..random.of(&[0, 12, 12, 24]) {
            self.load(random)?;
        }
        self.check()
    }

    /// Writes a new adapter, a copy of another one, or a damaged one to a directory.
    fn write(&mut self, random: &mut Random, dir: usize) {
        self.adapters += 1;
        let new = random.of(&[1000, 1000, 2000, 2000, 3000, 6000]) + self.adapters;
        let mut contents = lock(&self.disk.contents);
        contents[dir] = match random.below(8) {
            0 => None,
            1 => contents[random.below(NAMES.len() * DIRECTORIES)],
            _ => Some(new),
        };
    }

    /// A random publication, whose directory is often written first.
    fn publication(&mut self, random: &mut Random) -> Publication {
        let dir = random.below(NAMES.len() * DIRECTORIES);
        if !random.once_in(3) {
            self.write(random, dir);
        }
        let (name, contents) = (name_of(dir), lock(&self.disk.contents)[dir]);
        let generation = self.expected.generation(name);
        let expected = random.of(&[None, None, Some(generation), Some(generation + 1)]);
        Publication { name, dir, contents, expected }
    }

    /// Lets another caller publish one or two adapters during the next read.
    fn prepare_meanwhile(&mut self, random: &mut Random) {
        let count = 1 + random.below(2);
        let all: Vec<_> =
            (0..count).map(|_| Publication { expected: None, ..self.publication(random) }).collect();
        let (store, disk) = (self.store.clone(), Arc::downgrade(&self.disk));
        *lock(&self.disk.meanwhile) = Some(Box::new(move || {
            let Some(disk) = disk.upgrade() else { return };
            for wanted in all {
                // Another one may have written this directory, too.
                let contents = lock(&disk.contents)[wanted.dir];
                let before = lock(&disk.events).len();
                let result = store.load(wanted.name, &path(wanted.dir), None).map_err(|e| e.to_string());
                let mut events = lock(&disk.events);
                events.truncate(before);
                events.push(Event::Published(Publication { contents, ..wanted }, result));
            }
        }));
    }

    /// What happened on the disk since the last call.
    fn events(&self) -> Vec<Event> {
        *lock(&self.disk.meanwhile) = None;
        std::mem::take(&mut *lock(&self.disk.events))
    }

    /// Publishes, rolls back or removes an adapter, or changes a directory.
    pub(super) fn change(&mut self, random: &mut Random) -> Result<(), String> {
        match random.below(16) {
            0..=6 => self.load(random)?,
            7..=11 => {
                let name = random.of(&NAMES);
                let result = self.store.roll_back(name).map_err(|e| e.to_string());
                self.published += u64::from(result.is_ok());
                self.expected.roll_back(name, &result)?;
            }
            12 => {
                let name = random.of(&NAMES);
                let expected = random.of(&[None, Some(self.expected.generation(name)), Some(7)]);
                let result = self.store.unload(name, expected).map_err(|e| e.to_string());
                self.expected.unload(name, expected, &result)?;
            }
            _ => {
                let dir = random.below(NAMES.len() * DIRECTORIES);
                self.write(random, dir);
            }
        }
        self.check()
    }

    fn load(&mut self, random: &mut Random) -> Result<(), String> {
        let wanted = self.publication(random);
        if random.once_in(4) {
            self.prepare_meanwhile(random);
        }
        // The other publication may have written this directory, too.
        let contents = lock(&self.disk.contents)[wanted.dir];
        let (wanted, before) = (Publication { contents, ..wanted }, self.expected.generation(wanted.name));
        let result = self.store.load(wanted.name, &path(wanted.dir), wanted.expected);
        let result = result.map_err(|e| e.to_string());
        for event in self.events() {
            if let Event::Published(other, result) = event {
                self.published += u64::from(result.is_ok());
                self.expected.load(other, self.expected.generation(other.name), &result)?;
            }
        }
        self.published += u64::from(result.is_ok());
        self.expected.load(wanted, before, &result)
    }

    /// Adapters that a request names: mostly up to three, with scales.
    pub(super) fn choices(random: &mut Random) -> Vec<AdapterChoice> {
        let count = if random.once_in(24) { 5 } else { random.of(&[0, 1, 1, 1, 1, 2, 2, 3]) };
        let name = |random: &mut Random| if random.once_in(40) { "none" } else { random.of(&NAMES) };
        let choice = |random: &mut Random| AdapterChoice {
            name: name(random).to_owned(),
            scale: if random.once_in(80) { f32::NAN } else { random.of(&[1.0, 1.0, 0.5, -2.0]) },
        };
        (0..count).map(|_| choice(random)).collect()
    }

    /// Looks for the adapters of a request.
    pub(super) fn begin(&mut self, choices: &[AdapterChoice]) -> Result<Begin, String> {
        let list = self.store.list();
        let evicted = |name: &str| list.iter().any(|info| info.name == name && info.bytes == 0);
        match self.store.resolve(choices, &[]) {
            Ok(Resolved::Evicted(name)) if evicted(&name) => Ok(Begin::Waits),
            Ok(Resolved::Evicted(name)) => Err(format!("`{name}` is in memory")),
            Ok(Resolved::Ready(adapters)) => self.used(choices, adapters).map(Begin::Ready),
            Err(error) => self.refused(choices, false, &error),
        }
    }

    /// Reads the adapters of a request again, as the engine's loader does.
    pub(super) fn restore(
        &mut self,
        random: &mut Random,
        choices: &[AdapterChoice],
    ) -> Result<Begin, String> {
        if random.once_in(4) {
            self.prepare_meanwhile(random);
        }
        let resolved = self.store.resolve_all(choices);
        let events = self.events();
        self.restored += events.iter().filter(|event| matches!(event, Event::Read(..))).count() as u64;
        let failed = self.expected.restore(name_of, &events)?;
        let begin = match resolved {
            Ok(_) if failed => Err("a damaged adapter is used".into()),
            Ok(adapters) => self.used(choices, adapters).map(Begin::Ready),
            Err(error) => self.refused(choices, failed, &error),
        };
        self.check()?;
        begin
    }

    fn used(&self, choices: &[AdapterChoice], adapters: SequenceAdapters) -> Result<Used, String> {
        let Some(uses) = self.expected.of(choices) else {
            return Err(format!("{choices:?} are not refused"));
        };
        let key = uses.iter().map(|(_, bytes, scale)| (*bytes, *scale)).collect();
        let bytes = uses.iter().map(|(_, bytes, _)| bytes).sum();
        let mark = Mark::new(uses.iter().map(|(_, bytes, scale)| (*bytes, *scale)));
        Ok(Used { adapters, mark, key, bytes })
    }

    fn refused(&self, choices: &[AdapterChoice], failed: bool, error: &EngineError) -> Result<Begin, String> {
        let uses: Option<Vec<Use>> = self.expected.of(choices);
        if failed || uses.is_none_or(|uses| self.expected.too_large(&uses)) {
            return Ok(Begin::Refused);
        }
        Err(format!("{choices:?} are refused: {error}"))
    }

    fn check(&self) -> Result<(), String> {
        let list: Vec<AdapterInfo> = self.store.list();
        self.expected.check(&list)
    }

    /// Checks that no adapters are in memory but those of the store and `used` bytes of requests.
    pub(super) fn check_memory(&self, used: u64) -> Result<(), String> {
        let mut read = lock(&self.disk.read);
        read.retain(|adapter| adapter.strong_count() > 0);
        let bytes: u64 = read.iter().filter_map(Weak::upgrade).map(|adapter| adapter.bytes()).sum();
        let most = self.memory + used;
        if bytes <= most {
            Ok(())
        } else {
            Err(format!("{bytes} bytes of adapters are in memory, not {most}"))
        }
    }

    /// Removes all adapters, after which none may be in memory.
    pub(super) fn finish(self) -> Result<(), String> {
        for name in NAMES {
            let _ = self.store.unload(name, None);
        }
        match lock(&self.disk.read).iter().filter(|adapter| adapter.strong_count() > 0).count() {
            0 => Ok(()),
            some => Err(format!("{some} adapters that nobody uses are in memory")),
        }
    }
}
