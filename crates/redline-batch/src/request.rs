//! What is asked of every row.

use std::collections::BTreeMap;

use crate::error::BatchError;
use crate::json::Json;
use crate::kind::{Kind, RowRequest};
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
    pub values: BTreeMap<String, Json>,
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
        let mut keep: Vec<_> = self.keep.iter().flatten().collect();
        keep.sort_unstable();
        if let Some(twice) = keep.iter().zip(keep.iter().skip(1)).find(|(one, next)| one == next) {
            return refuse(format!("column `{}` is to be kept twice", twice.0), "name it once");
        }
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
            if ["id", "item_errors", "receipt"].contains(&key.as_str())
                || kind.refused().contains(&key.as_str())
            {
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
    values: BTreeMap<String, Json>,
}

impl RowRequests {
    pub(crate) fn new(columns: BTreeMap<String, String>, values: &BTreeMap<String, Json>) -> Self {
        Self { columns, values: values.clone() }
    }

    /// The request of a row, as a line of JSON says it. A missing value is an error if it is the text that a request is about, and is left
    /// out otherwise.
    pub(crate) fn of(&self, kind: &dyn Kind, rows: &Rows, row: usize) -> Result<RowRequest, String> {
        let mut fields: Vec<(&str, Json)> =
            self.values.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        for (key, column) in &self.columns {
            match rows.value(row, column).map_err(|reason| format!("column `{column}`: {reason}"))? {
                Json::Null if kind.texts().iter().any(|text| text.names.contains(&key.as_str())) => {
                    return Err(format!("column `{column}` has no value (null)"));
                }
                Json::Null => {}
                value => fields.push((key, value)),
            }
        }
        Ok(RowRequest::new(kind, fields))
    }

    /// A short request with other texts, which shows what is wrong with the values. `None` if other keys come from columns too.
    pub(crate) fn trial(&self, kind: &dyn Kind) -> Option<RowRequest> {
        let mut fields: Vec<(&str, Json)> = Vec::new();
        for (key, value) in &self.values {
            // One token tells as much as many.
            let is_long =
                key == NEW_TOKENS && matches!(value, Json::Number(number) if number.as_u64() > Some(1));
            fields.push((key, if is_long { Json::Number(1.into()) } else { value.clone() }));
        }
        if kind.writes() && !self.values.contains_key(NEW_TOKENS) && !self.columns.contains_key(NEW_TOKENS) {
            fields.push((NEW_TOKENS, Json::Number(1.into())));
        }
        for key in self.columns.keys() {
            let text = kind.texts().iter().find(|text| text.names.contains(&key.as_str()))?;
            fields.push((key, text.trial()));
        }
        Some(RowRequest::new(kind, fields))
    }
}

/// The key of the number of new tokens.
const NEW_TOKENS: &str = "max_new_tokens";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::named;

    #[test]
    fn a_line_has_the_values_as_they_were_given() {
        let values = r#"{"tools":[{"type":"function","function":{"name":"f","a":0.1}}],"max_new_tokens":9}"#;
        let values: BTreeMap<String, Json> = serde_json::from_str(values).unwrap();
        let columns = [("prompt".to_owned(), "text".to_owned())].into();
        let trial = RowRequests::new(columns, &values).trial(named("generate").unwrap()).unwrap();
        let expected = r#"{"max_new_tokens":1,"tools":[{"type":"function","function":{"name":"f","a":0.1}}],"prompt":"a"}"#;
        assert_eq!((trial.line.as_str(), trial.has_list), (expected, false));
        // Another name of a key, and a list.
        let values = [("item".to_owned(), Json::List(Vec::new()))].into();
        let columns = [("query".to_owned(), "text".to_owned())].into();
        let trial = RowRequests::new(columns, &values).trial(named("score").unwrap()).unwrap();
        assert_eq!((trial.line.as_str(), trial.has_list), (r#"{"items":[],"query":"a"}"#, true));
        // What other keys hold only the rows say.
        let columns = [("temperature".to_owned(), "t".to_owned())].into();
        assert!(RowRequests::new(columns, &BTreeMap::new()).trial(named("generate").unwrap()).is_none());
    }
}
