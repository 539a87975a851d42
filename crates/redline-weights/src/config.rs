//! A JSON configuration file (`config.json`, `generation_config.json`, ...) read key by key.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Result, WeightsError};
use crate::file::read_file;
use crate::json::{Unique, with_infinities};

/// The longest configuration file that is read, in bytes.
const MAX_CONFIG: u64 = 4 << 20;
/// The UTF-8 byte order mark. JSON does not allow it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A JSON object with typed getters whose errors name the file and the key.
///
/// An absent key and a `null` are the same. A key of the wrong type is always an error, even if there is a default. A
/// duplicate key is an error when the file is read.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    file: PathBuf,
    /// The path of this object in the file, with a final dot: `rope_scaling.`.
    prefix: String,
    values: Map<String, Value>,
}

impl ConfigFile {
    /// Reads the file at `path`, at most 4 MiB.
    pub fn open(path: &Path) -> Result<Self> {
        Self::parse(path, &read_file(path, MAX_CONFIG)?)
    }

    /// Reads a list of objects from the file at `path`, at most 4 MiB.
    pub fn open_list(path: &Path) -> Result<Vec<Self>> {
        let list = match parse(path, &read_file(path, MAX_CONFIG)?)? {
            Value::Array(list) => list,
            other => return Err(not_an_object(path, &other)),
        };
        let object = |(index, value)| match value {
            Value::Object(values) => Ok(Self { file: path.to_owned(), prefix: format!("{index}."), values }),
            other => Err(not_an_object(path, &other)),
        };
        list.into_iter().enumerate().map(object).collect()
    }

    /// Reads JSON held in memory; `origin` stands for its path in messages.
    pub fn from_bytes(origin: &str, json: &[u8]) -> Result<Self> {
        Self::parse(Path::new(origin), json)
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All keys, including `null` ones.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A size or count.
    pub fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key).and_then(|value| self.needed(key, value))
    }

    /// A size or count, `default` when absent.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    /// A size or count, if given.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number of 0 or more", |value| value.as_u64()?.try_into().ok())
    }

    /// A number rounded to `f32`; a number too large for `f32` is an error.
    pub fn f32(&self, key: &str) -> Result<f32> {
        self.opt_f32(key).and_then(|value| self.needed(key, value))
    }

    /// A number rounded to `f32`, `default` when absent.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    /// A number rounded to `f32`, if given.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        let narrow = |value: &Value| value.as_f64().map(|wide| wide as f32).filter(|value| value.is_finite());
        self.typed(key, "a number in the range of f32", narrow)
    }

    /// A number.
    pub fn f64(&self, key: &str) -> Result<f64> {
        self.opt_f64(key).and_then(|value| self.needed(key, value))
    }

    /// A number, `default` when absent.
    pub fn f64_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.opt_f64(key)?.unwrap_or(default))
    }

    /// A number, if given.
    pub fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// `true` or `false`, `default` when absent.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.opt_bool(key)?.unwrap_or(default))
    }

    /// `true` or `false`, if given.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<&str> {
        self.opt_str(key).and_then(|value| self.needed(key, value))
    }

    /// A string, if given.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list of strings, empty when absent.
    pub fn strings(&self, key: &str) -> Result<Vec<String>> {
        let all =
            |value: &Value| value.as_array()?.iter().map(|item| Some(item.as_str()?.to_owned())).collect();
        Ok(self.typed(key, "a list of strings", all)?.unwrap_or_default())
    }

    /// A list of numbers, empty when absent.
    pub fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        self.numbers_by(key, Value::as_f64)
    }

    /// A list of numbers that may be infinite, empty when absent. JSON has no infinity; Python writes `Infinity`, and transformers 5 an
    /// object.
    pub fn numbers_or_infinity(&self, key: &str) -> Result<Vec<f64>> {
        let infinity = |value: &Value| {
            let is_infinite = *value == "∞" || value.get("__float__").is_some_and(|name| *name == "Infinity");
            is_infinite.then_some(f64::INFINITY)
        };
        self.numbers_by(key, |value| value.as_f64().or_else(|| infinity(value)))
    }

    fn numbers_by(&self, key: &str, number: impl Fn(&Value) -> Option<f64>) -> Result<Vec<f64>> {
        let all = |value: &Value| value.as_array()?.iter().map(&number).collect();
        Ok(self.typed(key, "a list of numbers", all)?.unwrap_or_default())
    }

    /// Token ids: one number or a list of them, empty when absent.
    pub fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| value.as_u64()?.try_into().ok();
        let all = |value: &Value| match value {
            Value::Array(list) => list.iter().map(id).collect(),
            one => Some(vec![id(one)?]),
        };
        Ok(self.typed(key, "a token id or a list of token ids", all)?.unwrap_or_default())
    }

    /// A nested object, if given; its errors name `key.inner`.
    pub fn object(&self, key: &str) -> Result<Option<Self>> {
        let values = self.typed(key, "an object", Value::as_object)?;
        let inner = |values: &Map<_, _>| (self.file.clone(), format!("{}.", self.name(key)), values.clone());
        Ok(values.map(inner).map(|(file, prefix, values)| Self { file, prefix, values }))
    }

    /// The error for an unsupported value. `supported` says what is supported, like "`silu`" or "an absent
    /// `rope_scaling`".
    pub fn refuse(&self, key: &str, supported: impl Into<String>) -> WeightsError {
        let value = self.values.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
        let (file, key) = (self.file.clone(), self.name(key));
        WeightsError::ConfigUnsupported { file, key, value, supported: supported.into() }
    }

    /// The value of a key, including `null`.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Whether the value of a key is absent, `null`, `false`, or an empty text, list or object.
    pub(crate) fn is_empty(&self, key: &str) -> bool {
        match self.values.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(object)) => object.is_empty(),
            Some(Value::Bool(true) | Value::Number(_)) => false,
        }
    }

    /// Parses the content of `file`.
    pub(crate) fn parse(file: &Path, json: &[u8]) -> Result<Self> {
        match parse(file, json)? {
            Value::Object(values) => Ok(Self { file: file.to_owned(), prefix: String::new(), values }),
            other => Err(not_an_object(file, &other)),
        }
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| WeightsError::ConfigMissingKey { file: self.file.clone(), key: self.name(key) })
    }

    /// The value of a key that `get` reads; an error that says what is `needed` if it reads nothing.
    pub(crate) fn typed<'a, T>(
        &'a self,
        key: &str,
        needed: &'static str,
        get: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.values.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        let refuse = || WeightsError::ConfigBadType {
            file: self.file.clone(),
            key: self.name(key),
            value: value.to_string(),
            needed,
        };
        get(value).map(Some).ok_or_else(refuse)
    }
}
/// Any JSON value.
fn parse(file: &Path, json: &[u8]) -> Result<Value> {
    if json.starts_with(BYTE_ORDER_MARK) {
        return Err(WeightsError::ByteOrderMark { file: file.to_owned() });
    }
    let refuse = |error: serde_json::Error| WeightsError::ConfigJson {
        file: file.to_owned(),
        message: error.to_string(),
    };
    let Unique(value) = serde_json::from_slice(&with_infinities(json)).map_err(refuse)?;
    Ok(value)
}

fn not_an_object(file: &Path, found: &Value) -> WeightsError {
    WeightsError::ConfigJson { file: file.to_owned(), message: found.to_string() }
}

/// A JSON object in the making.
#[derive(Debug, Clone, Default)]
pub struct ConfigObject(Map<String, Value>);

impl ConfigObject {
    /// Sets a key, to a number, a text, a truth value, a list, another object, or to nothing.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Removes a key and returns its value, if there is one.
    pub fn remove(&mut self, key: &str) -> Option<impl Into<Value> + use<>> {
        self.0.remove(key)
    }

    /// Removes a key, and returns its value if that is an object.
    pub fn take_object(&mut self, key: &str) -> Option<Self> {
        match self.0.remove(key) {
            Some(Value::Object(object)) => Some(Self(object)),
            _ => None,
        }
    }

    /// The text of the object, with a line for each key.
    pub fn to_json(&self) -> Vec<u8> {
        format!("{:#}\n", Value::Object(self.0.clone())).into_bytes()
    }
}

impl From<ConfigObject> for Value {
    fn from(object: ConfigObject) -> Self {
        Self::Object(object.0)
    }
}
