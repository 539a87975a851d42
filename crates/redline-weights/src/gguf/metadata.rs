//! The metadata of a file: keys with typed getters.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::value::{GgufArray, GgufValue};
use crate::error::{Result, WeightsError};

/// The metadata of a GGUF file. Getters name the file, the key, the value with its type, and the type that is needed.
///
/// An integer may have any of the integer types in the file if its value fits. A key of the wrong type is always an error, even if
/// there is a default.
#[derive(Debug, Clone)]
pub struct GgufMetadata {
    file: PathBuf,
    values: BTreeMap<String, GgufValue>,
}

impl GgufMetadata {
    pub(super) fn new(file: PathBuf, values: BTreeMap<String, GgufValue>) -> Self {
        Self { file, values }
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// The value of a key, or `None`.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }

    /// A size, count or id.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.opt_u32(key).and_then(|value| self.needed(key, value))
    }

    /// A size, count or id, `default` when absent.
    pub fn u32_or(&self, key: &str, default: u32) -> Result<u32> {
        Ok(self.opt_u32(key)?.unwrap_or(default))
    }

    /// A size, count or id, if given.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "u32", |value| value.integer()?.try_into().ok())
    }

    /// A number.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.opt_f32(key).and_then(|value| self.needed(key, value))
    }

    /// A number, `default` when absent.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    /// A number, if given. Numbers that are not finite are errors.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite f32", |value| match *value {
            GgufValue::F32(number) if number.is_finite() => Some(number),
            _ => None,
        })
    }

    /// `true` or `false`, `default` when absent.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.opt_bool(key)?.unwrap_or(default))
    }

    /// `true` or `false`, if given.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "bool", |value| match *value {
            GgufValue::Bool(boolean) => Some(boolean),
            _ => None,
        })
    }

    /// A string.
    pub fn string(&self, key: &str) -> Result<&str> {
        self.opt_string(key).and_then(|value| self.needed(key, value))
    }

    /// A string, if given.
    pub fn opt_string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "string", |value| match value {
            GgufValue::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An array of strings, empty when absent.
    pub fn strings(&self, key: &str) -> Result<Vec<&str>> {
        let strings = self.typed(key, "an array of string", |value| match value {
            GgufValue::Array(GgufArray::String(strings)) => Some(strings.iter().collect()),
            _ => None,
        })?;
        Ok(strings.unwrap_or_default())
    }

    /// An array of numbers, empty when absent.
    pub fn f32s(&self, key: &str) -> Result<&[f32]> {
        let numbers = self.typed(key, "an array of f32", |value| match value {
            GgufValue::Array(GgufArray::F32(numbers)) => Some(numbers.as_slice()),
            _ => None,
        })?;
        Ok(numbers.unwrap_or_default())
    }

    /// Sizes, counts or ids: an array of integers or a single one, empty when absent.
    pub fn u32s(&self, key: &str) -> Result<Vec<u32>> {
        Ok(self.typed(key, "u32 or an array of u32", GgufValue::integers)?.unwrap_or_default())
    }

    /// An array of integers or a single one, empty when absent.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>> {
        Ok(self.typed(key, "i32 or an array of i32", GgufValue::integers)?.unwrap_or_default())
    }

    /// An array of booleans, empty when absent.
    pub fn bools(&self, key: &str) -> Result<&[bool]> {
        let booleans = self.typed(key, "an array of bool", |value| match value {
            GgufValue::Array(GgufArray::Bool(booleans)) => Some(booleans.as_slice()),
            _ => None,
        })?;
        Ok(booleans.unwrap_or_default())
    }

    /// The error for an unsupported value. `supported` says what is supported, like "`silu`".
    pub fn refuse(&self, key: &str, supported: impl Into<String>) -> WeightsError {
        let value = self.values.get(key).map_or_else(|| "absent".to_owned(), GgufValue::to_string);
        let (file, key) = (self.file.clone(), key.to_owned());
        WeightsError::ConfigUnsupported { file, key, value, supported: supported.into() }
    }

    /// The first key of `other` that is here too, with another value; `except` is not compared.
    pub(super) fn contradicts<'a>(&self, other: &'a Self, except: &str) -> Option<&'a str> {
        let differs = |key: &str, value: &GgufValue| self.values.get(key).is_some_and(|own| own != value);
        let found = other.values.iter().find(|&(key, value)| key != except && differs(key, value));
        found.map(|(key, _)| key.as_str())
    }

    fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        let missing = || WeightsError::ConfigMissingKey { file: self.file.clone(), key: key.to_owned() };
        value.ok_or_else(missing)
    }

    /// The value of a key that `get` reads; an error that says what is `needed` if it reads nothing.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        needed: &'static str,
        get: impl FnOnce(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let refuse = || WeightsError::ConfigBadType {
            file: self.file.clone(),
            key: key.to_owned(),
            value: value.to_string(),
            needed,
        };
        get(value).map(Some).ok_or_else(refuse)
    }
}
