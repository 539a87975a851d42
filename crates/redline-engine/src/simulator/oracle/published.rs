//! The adapters that requests must get: by name, generation and contents, without memory limits and concurrency.
//!
//! Which adapters are evicted is left open. Once the memory for adapters may have been exceeded, any adapter may be out of memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::adapters::AdapterInfo;
use crate::request::AdapterChoice;

/// The bytes of an adapter in a directory, which are different for each adapter; `None` if it is damaged.
pub(in crate::simulator) type Contents = Option<u64>;

/// What happened on the disk.
#[derive(Clone, Debug)]
pub(in crate::simulator) enum Event {
    /// The directory of this number was read.
    Read(usize, Contents),
    /// While a directory was read, another caller published one.
    Published(Publication, Result<AdapterInfo, String>),
}

/// A publication, as it is requested.
#[derive(Clone, Copy, Debug)]
pub(in crate::simulator) struct Publication {
    pub(in crate::simulator) name: &'static str,
    /// The number of the directory.
    pub(in crate::simulator) dir: usize,
    pub(in crate::simulator) contents: Contents,
    /// The generation that is to be replaced.
    pub(in crate::simulator) expected: Option<u64>,
}

/// The adapter of a name.
struct Current {
    generation: u64,
    bytes: u64,
    dir: usize,
    /// What it replaced: bytes and directory.
    previous: Option<(u64, usize)>,
}

/// Generation, bytes and scale of an adapter that a request uses.
pub(in crate::simulator) type Use = (u64, u64, f32);

/// The published adapters.
pub(in crate::simulator) struct Published {
    memory: u64,
    most_uses: usize,
    names: BTreeMap<String, Current>,
    generation: u64,
    /// Whether all adapters together may have exceeded the memory.
    evicts: bool,
}

impl Published {
    pub(in crate::simulator) fn new(memory: u64, most_uses: usize) -> Self {
        Self { memory, most_uses, names: BTreeMap::new(), generation: 0, evicts: false }
    }

    /// The generation of a name; 0 if there is none.
    pub(in crate::simulator) fn generation(&self, name: &str) -> u64 {
        self.names.get(name).map_or(0, |current| current.generation)
    }

    fn put(&mut self, name: &str, bytes: u64, dir: usize, previous: Option<(u64, usize)>) {
        self.generation += 1;
        let current = Current { generation: self.generation, bytes, dir, previous };
        self.names.insert(name.to_owned(), current);
        let all =
            self.names.values().map(|current| current.bytes + current.previous.map_or(0, |(bytes, _)| bytes));
        self.evicts |= all.sum::<u64>() > self.memory;
    }

    /// Checks the result of a publication, `before` which the name had this generation.
    pub(in crate::simulator) fn load(
        &mut self,
        wanted: Publication,
        before: u64,
        result: &Result<AdapterInfo, String>,
    ) -> Result<(), String> {
        let Publication { name, dir, contents, expected } = wanted;
        let stale = expected.is_some_and(|expected| expected != before || expected != self.generation(name));
        let usable = contents.filter(|bytes| {
            let twice = self.names.iter().any(|(other, current)| other != name && current.bytes == *bytes);
            *bytes <= self.memory && !twice && !stale
        });
        match (usable, result) {
            (None, Err(_)) => Ok(()),
            (Some(bytes), Ok(info)) => {
                let old = self.names.get(name).map(|old| (old.bytes, old.dir));
                self.put(name, bytes, dir, old);
                self.same(name, info)
            }
            _ => Err(format!("{wanted:?} of generation {before} gave {result:?}")),
        }
    }

    /// Checks the result of a return to the adapter before.
    pub(in crate::simulator) fn roll_back(
        &mut self,
        name: &str,
        result: &Result<AdapterInfo, String>,
    ) -> Result<(), String> {
        let current = self.names.get(name);
        let previous = current.and_then(|current| Some((current.previous?, (current.bytes, current.dir))));
        match (previous, result) {
            (None, Err(_)) => Ok(()),
            (Some(_), Err(_)) if self.evicts => {
                // It was evicted, and does not come back.
                if let Some(current) = self.names.get_mut(name) {
                    current.previous = None;
                }
                Ok(())
            }
            (Some(((bytes, dir), now)), Ok(info)) => {
                self.put(name, bytes, dir, Some(now));
                self.same(name, info)
            }
            _ => Err(format!("`{name}` was rolled back: {result:?}, and {previous:?} was before")),
        }
    }

    /// Checks the result of a removal.
    pub(in crate::simulator) fn unload(
        &mut self,
        name: &str,
        expected: Option<u64>,
        result: &Result<(), String>,
    ) -> Result<(), String> {
        let now = self.generation(name);
        let removes = now > 0 && expected.is_none_or(|expected| expected == now);
        if removes != result.is_ok() {
            return Err(format!("`{name}` of generation {now} was removed at {expected:?}: {result:?}"));
        }
        if removes {
            self.names.remove(name);
        }
        Ok(())
    }

    /// Applies what happened while the adapters of a request were read again. Returns whether one could not be read.
    pub(in crate::simulator) fn restore(
        &mut self,
        name_of: impl Fn(usize) -> &'static str,
        events: &[Event],
    ) -> Result<bool, String> {
        // The names that others published during the current read.
        let (mut meanwhile, mut failed) = (BTreeSet::new(), false);
        for event in events {
            match event {
                Event::Published(wanted, result) => {
                    self.load(*wanted, self.generation(wanted.name), result)?;
                    meanwhile.extend(result.as_ref().ok().map(|info| info.name.clone()));
                }
                Event::Read(dir, contents) => {
                    let name = name_of(*dir);
                    let newer = std::mem::take(&mut meanwhile).contains(name);
                    let Some(current) = self.names.get(name) else {
                        return Err(format!("`{name}` was read again without a name"));
                    };
                    match contents.filter(|bytes| *bytes <= self.memory) {
                        None => failed |= !newer,
                        Some(bytes) if bytes != current.bytes && !newer => self.put(name, bytes, *dir, None),
                        Some(_) => {}
                    }
                }
            }
        }
        Ok(failed)
    }

    /// The adapters that a request must get; `None` if it must be refused.
    pub(in crate::simulator) fn of(&self, choices: &[AdapterChoice]) -> Option<Vec<Use>> {
        let one = |choice: &AdapterChoice| {
            let current = self.names.get(&choice.name)?;
            choice.scale.is_finite().then_some((current.generation, current.bytes, choice.scale))
        };
        if choices.len() > self.most_uses { None } else { choices.iter().map(one).collect() }
    }

    /// Whether the adapters that a request combines may be too many for the memory.
    pub(in crate::simulator) fn too_large(&self, uses: &[Use]) -> bool {
        let all: BTreeMap<u64, u64> =
            uses.iter().map(|(generation, bytes, _)| (*generation, *bytes)).collect();
        all.values().sum::<u64>() > self.memory
    }

    fn same(&self, name: &str, info: &AdapterInfo) -> Result<(), String> {
        let current = self.names.get(name).ok_or_else(|| format!("no `{name}`: {info:?}"))?;
        let (dir, kept) = (current.dir.to_string(), info.bytes == current.bytes);
        let right =
            info.name == name && info.generation == current.generation && info.dir.as_os_str() == &*dir;
        let evicted = self.evicts && info.bytes == 0;
        if right && (kept || evicted) {
            return Ok(());
        }
        Err(format!("{info:?}, and generation {} of {} bytes is expected", current.generation, current.bytes))
    }

    /// Checks the list of all adapters.
    pub(in crate::simulator) fn check(&self, list: &[AdapterInfo]) -> Result<(), String> {
        list.iter().try_for_each(|info| self.same(&info.name, info))?;
        let bytes: u64 = list.iter().map(|info| info.bytes).sum();
        if list.len() != self.names.len() || bytes > self.memory {
            return Err(format!(
                "{bytes} bytes of {} in {} names of {}",
                self.memory,
                list.len(),
                self.names.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(generation: u64, dir: usize, bytes: u64) -> AdapterInfo {
        AdapterInfo { name: "a".into(), generation, dir: dir.to_string().into(), bytes, load_s: 0.0 }
    }

    #[test]
    fn publications_by_hand() {
        let mut published = Published::new(100, 2);
        let wanted = Publication { name: "a", dir: 0, contents: Some(60), expected: Some(0) };
        published.load(wanted, 0, &Ok(info(1, 0, 60))).unwrap();
        // Refused: damaged, of another generation, too large. Nothing changes.
        let refused = Err("refused".to_owned());
        for wrong in [
            Publication { contents: None, expected: None, ..wanted },
            Publication { expected: Some(2), ..wanted },
            Publication { contents: Some(101), expected: None, ..wanted },
        ] {
            published.load(wrong, 1, &refused).unwrap();
            assert!(published.load(wrong, 1, &Ok(info(2, 0, 60))).is_err());
        }
        let second = Publication { dir: 1, contents: Some(30), expected: Some(1), ..wanted };
        assert!(published.load(second, 1, &Ok(info(3, 1, 30))).is_err(), "generation 2 is next");
        let mut published = Published::new(100, 2);
        published.load(wanted, 0, &Ok(info(1, 0, 60))).unwrap();
        published.load(second, 1, &Ok(info(2, 1, 30))).unwrap();
        assert!(published.roll_back("a", &refused).is_err(), "both are in memory");
        published.roll_back("a", &Ok(info(3, 0, 60))).unwrap();
        let one = |scale| AdapterChoice { name: "a".into(), scale };
        assert_eq!(published.of(&[one(0.5)]), Some(vec![(3, 60, 0.5)]));
        assert_eq!(published.of(&[one(f32::NAN)]), None);
        assert_eq!(published.of(&[one(1.0), one(1.0), one(1.0)]), None);
        published.unload("a", Some(1), &Err("stale".into())).unwrap();
        published.unload("a", Some(3), &Ok(())).unwrap();
        assert_eq!(published.of(&[one(1.0)]), None);
    }
}
