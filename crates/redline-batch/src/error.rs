//! Why a table cannot be worked on.

use std::path::PathBuf;

use redline_api::error::ApiError;
use redline_engine::EngineError;
use redline_settings::{Hint, Setting, hint};
use redline_weights::WeightsError;

/// An error of the work as a whole. What is wrong with a row is told in its column `error` instead.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// Nothing of this name can be asked.
    #[error("`{kind}` cannot be asked of rows")]
    Kind {
        /// The name.
        kind: String,
        /// What can be asked.
        known: String,
    },
    /// There are no files to read.
    #[error("{fact}\n  in `{}`", .path.display())]
    Inputs {
        /// What is missing.
        fact: String,
        /// What to give instead.
        hint: String,
        /// The file or the directory.
        path: PathBuf,
    },
    /// A file is not the table that it should be.
    #[error("{reason}\n  in `{}`", .path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// All inputs together have no row.
    #[error("the {files} input files have no row")]
    Empty {
        /// Number of files.
        files: usize,
    },
    /// A column is missing.
    #[error("there is no column `{column}`\n  in `{}`", .path.display())]
    NoColumn {
        /// Its name.
        column: String,
        /// The columns that there are.
        known: String,
        /// The file.
        path: PathBuf,
    },
    /// A column has a type of which no value of a request is made.
    #[error("{fact}\n  in `{}`", .path.display())]
    ColumnType {
        /// The column with its type, and what is wanted.
        fact: String,
        /// The file.
        path: PathBuf,
    },
    /// No column gives what a row is about.
    #[error("no column is chosen for `{key}`\n  in `{}`", .path.display())]
    NoText {
        /// The key.
        key: String,
        /// The columns that there are.
        known: String,
        /// The file.
        path: PathBuf,
    },
    /// A key of the request cannot be used here.
    #[error("{fact}")]
    Key {
        /// The fact.
        fact: String,
        /// What to do instead.
        hint: String,
    },
    /// A column of the results has the name of one that they repeat.
    #[error("the results would have two columns `{column}`")]
    Twice {
        /// The name.
        column: String,
    },
    /// A property of the answers has the name of another column of the results.
    #[error("the schema has a property `{column}`, and the results have another column of this name")]
    Property {
        /// The name.
        column: String,
    },
    /// The request is wrong whatever the rows.
    #[error(transparent)]
    Request(Box<ApiError>),
    /// The results in the directory are of other work.
    #[error("{fact}\n  in `{}`", .path.display())]
    OtherWork {
        /// What differs.
        fact: String,
        /// The directory of the results.
        path: PathBuf,
    },
    /// An input changed while it was read.
    #[error("the file changed while it was read\n  in `{}`", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// An adapter was loaded or replaced while rows were answered.
    #[error("the adapters of the model changed while rows were answered")]
    Adapters,
    /// Another process works on the shard.
    #[error("{holder} works on shard {shard}\n  in `{}`", .path.display())]
    Locked {
        /// The shard.
        shard: String,
        /// Who does.
        holder: String,
        /// The directory of the results.
        path: PathBuf,
    },
    /// A file or directory could not be read or written.
    #[error("could not {action}: {source}\n  in `{}`", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The engine failed, in a way that depends on this machine or this moment.
    #[error("row {row} of `{}`: {error}", .path.display())]
    Engine {
        /// The input.
        path: PathBuf,
        /// The number of the row, from 1 on.
        row: u64,
        /// What happened.
        error: Box<EngineError>,
    },
    /// The caller cancelled. Files that are written stay.
    #[error("cancelled")]
    Cancelled,
}

impl BatchError {
    /// What the caller can do about it.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Kind { known, .. } => Some(format!("one of {known}").into()),
            Self::Inputs { hint, .. } | Self::Key { hint, .. } => Some(hint.clone().into()),
            Self::NoColumn { known, .. } => Some(format!("columns: {known}").into()),
            Self::NoText { key, known, .. } => Some(hint![
                "choose one with ",
                Setting::Columns.to(format_args!("{key}=NAME")),
                format!("; columns: {known}")
            ]),
            Self::Twice { .. } => Some(hint![
                "put something before the names of the new ones with ",
                Setting::Prefix,
                ", or choose those to repeat with ",
                Setting::Keep
            ]),
            Self::Property { .. } => Some("rename the property".into()),
            Self::Request(error) => error.hint(),
            Self::OtherWork { .. } => {
                Some("write to another directory, or empty this one if its results are of no more use".into())
            }
            Self::Changed { .. } => Some(
                "results so far are of the file as it was: restore it, or write to another directory".into(),
            ),
            Self::Locked { .. } => Some("give every worker a shard of its own, such as 1/2 and 2/2".into()),
            Self::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Some("make room, then run the same again: it goes on where it stopped".into())
            }
            Self::File { .. } => Some("check the path, and that it may be read and written".into()),
            Self::Engine { error, .. } => error.hint(),
            Self::Table { .. } => Some("check that the file is whole, or leave it out".into()),
            Self::Empty { .. } => Some("give a table with at least one row".into()),
            Self::ColumnType { .. } => Some(hint!["choose another column with ", Setting::Columns]),
            Self::Adapters => Some("load adapters before the work begins".into()),
            Self::Cancelled => None,
        }
    }

    /// Whether the call itself is wrong, whatever the rows.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Kind { .. }
                | Self::Inputs { .. }
                | Self::NoColumn { .. }
                | Self::ColumnType { .. }
                | Self::NoText { .. }
                | Self::Key { .. }
                | Self::Twice { .. }
                | Self::Property { .. }
        )
    }

    pub(crate) fn file(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    pub(crate) fn table(path: &std::path::Path, reason: &dyn std::fmt::Display) -> Self {
        Self::Table { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl From<ApiError> for BatchError {
    fn from(error: ApiError) -> Self {
        Self::Request(Box::new(error))
    }
}

impl From<WeightsError> for BatchError {
    fn from(error: WeightsError) -> Self {
        ApiError::Engine(error.into()).into()
    }
}
