//! What is asked of every row.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::BatchError;
use crate::kind::Kind;
use crate::table::{Rows, TableColumn};

/// Rows of a file of results, unless the caller says otherwise.
pub const ROWS_PER_FILE: usize = 4096;

/// What is asked of every row: a request in the form of a line of JSON Lines input, whose values come from columns or are the same for
/// all rows.
#[derive(Clone, Debug)]
pub struct TableRequest {
    /// `score`, `classify`, ...: see [`crate::kinds`].
    pub kind: String,
    /// Keys of the request, and the columns that give their values. A key that is about the row's text, such as `text` or `query`, and
    /// is neither here nor in `values`, takes the column of its name, if there is one.
    pub columns: BTreeMap<String, String>,
    /// Keys with a value for all rows.
    pub values: BTreeMap<String, Value>,
    /// The columns of the input that the results repeat; `None`: all.
    pub keep: Option<Vec<String>>,
    /// What the names of the new columns begin with.
    pub prefix: String,
    /// The most rows of a file of results.
    pub rows_per_file: usize,
}

impl TableRequest {
    /// A request of this kind without keys, whose results repeat all columns.
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            columns: BTreeMap::new(),
            values: BTreeMap::new(),
            keep: None,
            prefix: String::new(),
            rows_per_file: ROWS_PER_FILE,
        }
    }

    /// Refuses keys that have no place here, and those that are given twice.
    pub(crate) fn check(&self, kind: &dyn Kind) -> Result<(), BatchError> {
        let refuse = |fact: String, hint: &str| Err(BatchError::Key { fact, hint: hint.to_owned() });
        if self.rows_per_file == 0 {
            return refuse("files of 0 rows".to_owned(), "give each at least one row");
        }
        for key in self.columns.keys() {
            if self.values.contains_key(key) {
                return refuse(format!("`{key}` has both a column and a value"), "give one of them");
            }
        }
        for key in self.columns.keys().chain(self.values.keys()) {
            if key == "timeout_s" {
                let hint =
                    "leave it out: whether a row is in time depends on the machine, and results must not";
                return refuse("`timeout_s` is given".to_owned(), hint);
            }
            if ["id", "item_errors"].contains(&key.as_str()) || kind.refused().contains(&key.as_str()) {
                let hint =
                    "leave it out: every row has one answer, with the columns that the documentation lists";
                return refuse(format!("`{key}` has no effect on the results of `{}`", kind.name()), hint);
            }
        }
        Ok(())
    }

    /// The columns of the keys, with those that are found by their names. The error is the key of a text that has none.
    pub(crate) fn resolved(
        &self,
        kind: &dyn Kind,
        known: &[TableColumn],
    ) -> Result<BTreeMap<String, String>, &'static str> {
        let mut columns = self.columns.clone();
        // Of keys that may take each other's place, one is enough.
        let mut has_choice = false;
        for key in kind.texts() {
            let given = |name: &&str| columns.contains_key(*name) || self.values.contains_key(*name);
            let is_there = |name: &&&str| known.iter().any(|column| column.name == ***name);
            if key.names.iter().any(given) {
                has_choice |= key.is_optional;
            } else if key.is_optional && has_choice {
            } else if let Some(name) = key.names.iter().find(is_there) {
                columns.insert(key.names[0].to_owned(), (*name).to_owned());
                has_choice |= key.is_optional;
            } else if !key.is_optional {
                return Err(key.names[0]);
            }
        }
        match kind.texts().iter().find(|key| key.is_optional) {
            Some(key) if !has_choice => Err(key.names[0]),
            _ => Ok(columns),
        }
    }
}

/// Makes the request of each row.
pub(crate) struct RowRequests {
    columns: BTreeMap<String, String>,
    values: Map<String, Value>,
}

impl RowRequests {
    pub(crate) fn new(columns: BTreeMap<String, String>, values: &BTreeMap<String, Value>) -> Self {
        Self { columns, values: values.iter().map(|(key, value)| (key.clone(), value.clone())).collect() }
    }

    /// The request of a row, as a line of JSON would say it. A missing value is an error if a request of the kind needs it, and is left
    /// out otherwise.
    pub(crate) fn of(&self, kind: &dyn Kind, rows: &Rows, row: usize) -> Result<Value, String> {
        let mut request = self.values.clone();
        for (key, column) in &self.columns {
            match rows.value(row, column).map_err(|reason| format!("column `{column}`: {reason}"))? {
                Value::Null if kind.texts().iter().any(|text| text.names.contains(&key.as_str())) => {
                    return Err(format!("column `{column}` has no value (null)"));
                }
                Value::Null => {}
                value => {
                    request.insert(key.clone(), value);
                }
            }
        }
        Ok(Value::Object(request))
    }

    /// A request with other texts, which shows what is wrong with the values. `None` if other keys come from columns too.
    pub(crate) fn trial(&self, kind: &dyn Kind) -> Option<Value> {
        let mut request = self.values.clone();
        for key in self.columns.keys() {
            let text = kind.texts().iter().find(|text| text.names.contains(&key.as_str()))?;
            request.insert(key.clone(), text.trial());
        }
        Some(Value::Object(request))
    }
}
