//! Parses the JSON of a safetensors header directly into bounded values, so that input nested deeper or longer than
//! the format allows is never built in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::dtype::StoredDtype;
use crate::fault::HeaderFault;
use crate::json::refuse_twice;

/// Reserved key of a header, whose value maps strings to strings.
pub(crate) const METADATA: &str = "__metadata__";
/// The highest rank a tensor may have.
pub(crate) const MAX_RANK: usize = 8;

/// The header entry of one tensor, not yet validated.
pub(crate) struct Entry {
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Parses all entries by name. Duplicate, unknown and missing keys are errors.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Entry>, HeaderFault> {
    let mut current = None;
    let mut json = serde_json::Deserializer::from_str(text);
    let parsed = Document { current: &mut current }.deserialize(&mut json);
    parsed.and_then(|entries| json.end().map(|()| entries)).map_err(|error| {
        let message = error.to_string();
        match current {
            Some(tensor) => HeaderFault::Entry { tensor, message },
            None => HeaderFault::Json { message },
        }
    })
}

/// The outer object; `current` is the key being read, for the message.
struct Document<'a> {
    current: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = BTreeMap<String, Entry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = BTreeMap<String, Entry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        let mut metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            let twice = entries.contains_key(&name) || (metadata && name == METADATA);
            *self.current = Some(name.clone());
            refuse_twice(&name, twice)?;
            if name.is_empty() {
                return Err(A::Error::custom("a tensor without a name"));
            }
            if name == METADATA {
                metadata = true;
                map.next_value::<Metadata>()?;
            } else {
                entries.insert(name, map.next_value()?);
            }
            *self.current = None;
        }
        Ok(entries)
    }
}

/// Metadata is checked but not kept.
struct Metadata;

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, _)) = map.next_entry::<String, String>()? {
            refuse_twice(&key, keys.contains(&key))?;
            keys.insert(key);
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `dtype`, `shape` and `data_offsets`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "dtype" => {
                    refuse_twice(&key, dtype.is_some())?;
                    let name: String = map.next_value()?;
                    let known = StoredDtype::from_name(&name);
                    dtype =
                        Some(known.ok_or_else(|| A::Error::custom(format_args!("unknown dtype `{name}`")))?);
                }
                "shape" => {
                    refuse_twice(&key, shape.is_some())?;
                    shape = Some(map.next_value_seed(AtMost::<usize>(MAX_RANK, PhantomData))?);
                }
                "data_offsets" => {
                    refuse_twice(&key, offsets.is_some())?;
                    offsets = Some(map.next_value_seed(AtMost::<u64>(2, PhantomData))?);
                }
                _ => return Err(A::Error::custom(format_args!("unknown key `{key}`"))),
            }
        }
        let missing = |key| A::Error::custom(format_args!("the key `{key}` is missing"));
        let offsets = offsets.ok_or_else(|| missing("data_offsets"))?;
        let [begin, end] = offsets[..] else {
            return Err(A::Error::custom(format_args!("{} data offsets instead of 2", offsets.len())));
        };
        let dtype = dtype.ok_or_else(|| missing("dtype"))?;
        Ok(Entry { dtype, shape: shape.ok_or_else(|| missing("shape"))?, begin, end })
    }
}

/// A list of at most this many numbers.
struct AtMost<T>(usize, PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for AtMost<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {} numbers", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            if values.len() == self.0 {
                return Err(A::Error::custom(format_args!("more than {} numbers in a list", self.0)));
            }
            values.push(value);
        }
        Ok(values)
    }
}
