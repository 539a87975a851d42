//! Values of a configuration that depend on the module: `r` with `rank_pattern`, `lora_alpha` with `alpha_pattern`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::fault::AdapterFault;
use super::pattern::Suffix;
use crate::config::ConfigFile;
use crate::error::{Result, WeightsError};

/// Maximum number of regular expressions in one key; plain names are not counted.
const MAX_EXPRESSIONS: usize = 64;

/// The value of a module: that of the first pattern that matches its path, or the default.
#[derive(Debug, Clone)]
pub(super) struct ByModule<T> {
    default: T,
    patterns: Vec<(Suffix, T)>,
}

impl<T: Copy> ByModule<T> {
    pub(super) fn of(&self, module: &str) -> Result<T, AdapterFault> {
        for (pattern, value) in &self.patterns {
            if pattern.matches(module)? {
                return Ok(*value);
            }
        }
        Ok(self.default)
    }
}

/// Reads `rank_pattern` and `alpha_pattern` in the order of the file; `json` is the content of `config`.
pub(super) fn read(
    config: &ConfigFile,
    json: &[u8],
    rank: usize,
    alpha: f64,
) -> Result<(ByModule<usize>, ByModule<f64>)> {
    for key in ["rank_pattern", "alpha_pattern"] {
        config.object(key)?;
    }
    let found: Patterns = serde_json::from_slice(json).map_err(|error| WeightsError::ConfigJson {
        file: config.file().to_owned(),
        message: error.to_string(),
    })?;
    let positive = |value: &Value| value.as_u64()?.try_into().ok().filter(|&rank: &usize| rank > 0);
    let ranks = entries(config, "rank_pattern", "a rank of 1 or more", found.rank_pattern, positive)?;
    let alphas = entries(config, "alpha_pattern", "a number", found.alpha_pattern, Value::as_f64)?;
    Ok((ByModule { default: rank, patterns: ranks }, ByModule { default: alpha, patterns: alphas }))
}

fn entries<T>(
    config: &ConfigFile,
    key: &'static str,
    needed: &'static str,
    entries: Option<Ordered>,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(Suffix, T)>> {
    let (mut found, mut expressions) = (Vec::new(), 0);
    for (pattern, value) in entries.unwrap_or_default().0 {
        let value = read(&value).ok_or_else(|| WeightsError::ConfigBadType {
            file: config.file().to_owned(),
            key: format!("{key}.{pattern}"),
            value: value.to_string(),
            needed,
        })?;
        let suffix = Suffix::new(key, &pattern).map_err(|fault| refused(config, fault))?;
        expressions += usize::from(!suffix.is_plain());
        check_count(config, key, expressions)?;
        found.push((suffix, value));
    }
    Ok(found)
}

/// Refuses more expressions than can be tried on every module in a short time.
pub(super) fn check_count(config: &ConfigFile, key: &'static str, count: usize) -> Result<()> {
    if count <= MAX_EXPRESSIONS {
        return Ok(());
    }
    Err(refused(config, AdapterFault::Patterns { key, limit: MAX_EXPRESSIONS }))
}

/// The error of a fault in the configuration.
pub(super) fn refused(config: &ConfigFile, fault: AdapterFault) -> WeightsError {
    WeightsError::Adapter { place: config.file().to_owned(), fault }
}

/// The two objects whose order matters.
#[derive(serde::Deserialize)]
struct Patterns {
    rank_pattern: Option<Ordered>,
    alpha_pattern: Option<Ordered>,
}

/// The entries of an object in the order of the file.
#[derive(Default)]
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OrderedVisitor)
    }
}

struct OrderedVisitor;

impl<'de> Visitor<'de> for OrderedVisitor {
    type Value = Ordered;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Ordered(entries))
    }
}
