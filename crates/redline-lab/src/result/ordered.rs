//! A map that keeps the order of insertion.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// A map from names to values in insertion order, so that files keep the author's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered<V> {
    entries: Vec<(String, V)>,
}

impl<V> Default for Ordered<V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<V> Ordered<V> {
    /// Sets the value for a name.
    pub fn insert(&mut self, name: impl Into<String>, value: V) {
        let name = name.into();
        match self.entries.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.entries.push((name, value)),
        }
    }

    /// The value for a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.entries.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<N: Into<String>, V> FromIterator<(N, V)> for Ordered<V> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (name, value) in entries {
            map.insert(name, value);
        }
        map
    }
}

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = Ordered<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<V>, A::Error> {
        let mut entries = Ordered::default();
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            entries.insert(name, value);
        }
        Ok(entries)
    }
}
