//! One test of llama-bench as a record of named values, independent of the format.

use serde_json::{Map, Value};

use super::super::{BadFile, MAX_NAMES, Place, values};
use super::{COLUMNS, Kind};

/// A record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Its position in the file.
    pub(super) place: Place,
    /// Its values by name.
    pub(super) fields: Map<String, Value>,
}

impl Record {
    /// Creates a record; too many names are an error.
    pub(super) fn new(place: Place, fields: Map<String, Value>) -> Result<Self, BadFile> {
        if fields.len() > MAX_NAMES {
            let fact = format!("{} fields, more than {MAX_NAMES}", fields.len());
            return Err(BadFile::at(place, fact, "is this the right file?"));
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
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, BadFile> {
        self.fields.get(name).map_or(Ok(None), |value| values::number_of(self.place, name, value))
    }

    /// A count; `None` if it is missing.
    pub(super) fn count(&self, name: &str) -> Result<Option<u64>, BadFile> {
        self.number(name)?.map(|value| values::count(self.place, name, value)).transpose()
    }

    /// A list of non-negative numbers; `None` if it is missing.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>, BadFile> {
        let Some(value) = self.fields.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        let fault = |fact: String| BadFile::at(self.place, fact, "samples are numbers: is the file whole?");
        let list = value.as_array().ok_or_else(|| fault(format!("`{name}` is no list")))?;
        let number = |(i, value): (usize, &Value)| {
            let name = format!("{name}[{i}]");
            let number = values::number_of(self.place, &name, value)?;
            values::not_negative(self.place, &name, number.ok_or_else(|| fault(format!("`{name}` is null")))?)
        };
        list.iter().enumerate().map(number).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// A cell of a text-only format; `None` if the value is unknown.
    pub(super) fn cell(&self, name: &str) -> Option<String> {
        match self.fields.get(name)? {
            Value::Null => None,
            Value::Bool(yes) => Some(u8::from(*yes).to_string()),
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Values whose names are not columns.
    pub(super) fn others(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.fields.iter().filter(|(name, _)| !COLUMNS.iter().any(|(column, _)| column == name))
    }
}

/// Converts the value of a parameter to the JSON type of a column.
pub(super) fn typed(kind: Kind, value: &Value) -> Value {
    let number = || value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    match kind {
        Kind::Text => value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned).into(),
        Kind::Integer => number().map_or(Value::Null, |n| (n as i64).into()),
        Kind::Real => number().map_or(Value::Null, Value::from),
        Kind::Switch => {
            value.as_bool().or_else(|| number().map(|n| n != 0.0)).map_or(Value::Null, Value::from)
        }
    }
}
