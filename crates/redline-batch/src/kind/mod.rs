//! What can be asked of a row: one file each, and a line in [`KINDS`].

mod classify;
mod diffuse;
mod embed;
mod generate;
mod rerank;
mod score;

use std::collections::BTreeMap;
use std::convert::Infallible;

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_api::pump;
use redline_engine::{AnyRequest, Cancel, EngineError, Ticket};
use serde::de::DeserializeOwned;

use crate::cell::{Cell, Holds};
use crate::error::BatchError;
use crate::fields::Fields;
use crate::json::Json;

/// The column that says why a row has no answer, of every kind.
pub(crate) const ERROR: &str = "error";

/// All kinds.
const KINDS: &[&dyn Kind] = &[
    &score::Score,
    &classify::Classify,
    &rerank::Rerank,
    &embed::Embed,
    &generate::Generate,
    &diffuse::Diffuse,
];

/// The names of what can be asked of a row.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name())
}

/// The kind of that name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Kind, BatchError> {
    KINDS.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| BatchError::Kind {
        kind: name.to_owned(),
        known: kinds().collect::<Vec<_>>().join(", "),
    })
}

/// Where the values of an answer are sent, in the order of the kind's columns.
pub(crate) type Done = pump::Done<Result<Vec<Cell>, EngineError>, Infallible>;

/// A key of a request that is about the text of the row.
pub(crate) struct TextKey {
    /// Its name, and others that mean the same.
    pub(crate) names: &'static [&'static str],
    /// Whether it may be left out, because others may take its place.
    pub(crate) is_optional: bool,
}

impl TextKey {
    /// A short text.
    pub(crate) fn trial(&self) -> Json {
        let text = |text: &str| Json::Text(text.to_owned());
        match self.names[0] {
            "messages" => {
                let message = [("role", text("user")), ("content", text("a"))];
                let message = message.map(|(key, value)| (key.to_owned(), value));
                Json::List(vec![Json::Object(message.into())])
            }
            _ => text("a"),
        }
    }
}

/// The request of a row.
#[derive(Clone)]
pub(crate) struct RowRequest {
    /// A line of JSON.
    pub(crate) line: String,
    /// Whether the key that may hold several texts holds a list.
    pub(crate) has_list: bool,
}

impl RowRequest {
    pub(crate) fn new(kind: &dyn Kind, fields: Vec<(&str, Json)>) -> Self {
        let mut has_list = false;
        let fields = fields.into_iter().map(|(key, value)| {
            // Lines know the first name of a key.
            let named = kind.texts().iter().find(|text| text.names.contains(&key));
            let key = named.map_or(key, |text| text.names[0]);
            has_list |= kind.list() == Some(key) && value.is_list();
            (key.to_owned(), value)
        });
        let line = Json::Object(fields.collect()).compact();
        Self { line, has_list }
    }
}

/// Something that can be asked of a row.
pub(crate) trait Kind: Sync {
    /// The name, that of the command.
    fn name(&self) -> &'static str;

    /// The keys that are about the text of a row.
    fn texts(&self) -> &'static [TextKey];

    /// The key that may hold several texts, each with an answer of its own, if there is one.
    fn list(&self) -> Option<&'static str> {
        None
    }

    /// Keys that would change nothing in the results.
    fn refused(&self) -> &'static [&'static str];

    /// The columns of an answer; `lists` says whether [`Self::list`] holds lists.
    fn columns(&self, lists: bool) -> Vec<(&'static str, Holds)>;

    /// The columns of the properties of the text in the first column, if `values`, which are the same for all rows, say that it is an
    /// object in JSON.
    fn fields(&self, _values: &BTreeMap<String, Json>) -> Fields {
        Fields::default()
    }

    /// Whether the answer is a text that the model writes.
    fn writes(&self) -> bool {
        false
    }

    /// Begins the request of a row, which `cancel` ends.
    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError>;
}

/// Why a request was not begun.
pub(crate) enum Refusal {
    /// It is wrong itself: what its row says about it.
    Row(String),
    /// It cannot be begun on this machine, or now.
    Engine(EngineError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Engine(error) if !error.is_certain() => Self::Engine(error),
            error => Self::Row(error.to_string()),
        }
    }
}

/// Reads a request. An error names the key.
fn parse<T: DeserializeOwned>(line: &str) -> Result<T, ApiError> {
    redline_api::json::parse::parse(line).map_err(|bad| {
        let fact = bad.to_string();
        ApiError::Field { param: bad.path, fact, hint: None }
    })
}

/// Submits the request of a row. What `cells` makes of its outcome is sent to `done`.
fn submit<R, T: 'static, P: 'static>(
    on: ChatModel<'_>,
    request: R,
    cancel: &Cancel,
    done: Done,
    cells: impl FnOnce(T) -> Vec<Cell> + Send + 'static,
) -> Result<(), ApiError>
where
    R: AnyRequest<Ticket = Ticket<T, P>>,
{
    let ticket = request.submit(&on.model.engine, cancel)?.outcome_only();
    done.when_ended(ticket, |outcome| outcome.map(cells));
    Ok(())
}
