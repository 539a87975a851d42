//! Parses `model.safetensors.index.json`, which maps tensors to shards.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::fault::IndexFault;
use crate::file::is_plain_name;
use crate::json::refuse_twice;

/// Maps tensor names to shard file names, as in `weight_map`.
pub(crate) type WeightMap = BTreeMap<String, String>;

/// Parses the `weight_map` of an index. Every file name must be a plain name, so that it lies in the index's
/// directory.
pub(crate) fn parse(json: &[u8]) -> Result<WeightMap, IndexFault> {
    let mut current = None;
    let mut json = serde_json::Deserializer::from_slice(json);
    let parsed = Document { current: &mut current }.deserialize(&mut json);
    let parsed = parsed.and_then(|map| json.end().map(|()| map));
    let map = parsed.map_err(|error| {
        let message = error.to_string();
        match current {
            Some(tensor) => IndexFault::Entry { tensor, message },
            None => IndexFault::Json { message },
        }
    })?;
    let map = map.ok_or(IndexFault::NoWeightMap)?;
    if map.is_empty() {
        return Err(IndexFault::Empty);
    }
    match map.iter().find(|(_, shard)| !is_plain_name(shard)) {
        Some((tensor, shard)) => {
            Err(IndexFault::OutsideDirectory { tensor: tensor.clone(), shard: shard.clone() })
        }
        None => Ok(map),
    }
}

/// The outer object. All keys but `weight_map` are skipped. `current` is the tensor being read, for the error
/// message.
struct Document<'a> {
    current: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Option<WeightMap>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Option<WeightMap>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut weights = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "weight_map" {
                refuse_twice(&key, weights.is_some())?;
                weights = Some(map.next_value_seed(Weights { current: self.current })?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(weights)
    }
}

struct Weights<'a> {
    current: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Weights<'_> {
    type Value = WeightMap;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WeightMap, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Weights<'_> {
    type Value = WeightMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from tensor names to file names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightMap, A::Error> {
        let mut weights = WeightMap::new();
        while let Some(tensor) = map.next_key::<String>()? {
            *self.current = Some(tensor.clone());
            refuse_twice(&tensor, weights.contains_key(&tensor))?;
            weights.insert(tensor, map.next_value()?);
            *self.current = None;
        }
        Ok(weights)
    }
}
