//! One test of llama-bench as a record of named values, independent of the format.

use serde_json::{Map, Value};

use super::super::{FilePosition, MAX_NAMES, Result, values};
use super::{COLUMNS, Column, Kind};

/// Fields of JSON after the columns; files of llama-bench have no `engine`.
pub(super) const MORE: [&str; 4] = ["samples_ns", "samples_ts", "engine", "engine_version"];

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) place: FilePosition,
    pub(super) fields: Map<String, Value>,
}

impl Record {
    /// Creates a record; too many names are an error.
    pub(super) fn new(place: FilePosition, fields: Map<String, Value>) -> Result<Self> {
        if fields.len() > MAX_NAMES {
            let fact = format!("{} fields, more than {MAX_NAMES}", fields.len());
            return Err(place.error(fact, "is this the right file?"));
        }
        Ok(Self { place, fields })
    }

    /// A non-empty text; a number is returned as written.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = match self.fields.get(name)? {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        (!text.is_empty()).then_some(text)
    }

    /// A number; `None` if it is missing.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        self.fields.get(name).map_or(Ok(None), |value| values::number_of(self.place, name, value))
    }

    /// A number of at least 0; `None` if it is missing.
    pub(super) fn not_negative(&self, name: &str) -> Result<Option<f64>> {
        self.number(name)?.map(|value| values::not_negative(self.place, name, value)).transpose()
    }

    /// A count; `None` if it is missing.
    pub(super) fn count(&self, name: &str) -> Result<Option<u64>> {
        self.number(name)?.map(|value| values::count(self.place, name, value)).transpose()
    }

    /// A list of non-negative numbers; empty if it is missing.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let Some(value) = self.fields.get(name).filter(|value| !value.is_null()) else {
            return Ok(Vec::new());
        };
        let fault = |fact: String| self.place.error(fact, "samples are numbers: is the file whole?");
        let list = value.as_array().ok_or_else(|| fault(format!("`{name}` is no list")))?;
        let number = |(i, value): (usize, &Value)| {
            let name = format!("{name}[{i}]");
            let number = values::number_of(self.place, &name, value)?;
            values::not_negative(self.place, &name, number.ok_or_else(|| fault(format!("`{name}` is null")))?)
        };
        list.iter().enumerate().map(number).collect()
    }

    /// A cell of a text-only format; `None` if the value is unknown.
    pub(super) fn cell(&self, name: &str) -> Option<String> {
        match self.fields.get(name)? {
            Value::Null => None,
            Value::Bool(yes) => Some(u8::from(*yes).to_string()),
            value => Some(values::text(value)),
        }
    }

    /// The settings of the test that are known, in the order of the columns, then those of later versions.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&String, &Value)> {
        let known = COLUMNS.iter().filter(|column| column.setting);
        let known = known.filter_map(|column| self.fields.get_key_value(column.name));
        let is_column = |name: &str| COLUMNS.iter().any(|column| column.name == name);
        let others =
            self.fields.iter().filter(move |(name, _)| !is_column(name) && !MORE.contains(&name.as_str()));
        let known_value = |value: &Value| match value {
            Value::String(text) => !text.is_empty(),
            value => value.is_number() || value.is_boolean(),
        };
        known.chain(others).filter(move |(_, value)| known_value(value))
    }
}

impl Column {
    /// Converts the value of a parameter to the JSON type of the column.
    pub(super) fn typed(&self, value: &Value) -> Value {
        let number = || value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        match self.kind {
            Kind::Text => values::text(value).into(),
            Kind::Integer => number().map(|n| n as i64).into(),
            Kind::Real => number().into(),
            Kind::Switch => value.as_bool().or_else(|| number().map(|n| n != 0.0)).into(),
        }
    }
}
