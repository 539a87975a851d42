//! Errors as Python exceptions: the fact, and the hint with settings spelled as arguments of Python.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::PyType;
use redline_api::error::ApiError;
use redline_engine::EngineError;
use redline_settings::{Command, Hint, Setting, Spelling};

/// The classes of `redline.errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The model cannot be loaded.
    Load,
    /// The request is invalid.
    Request,
    /// The request took too long.
    Timeout,
    /// Anything else.
    Other,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "LoadError",
            Self::Request => "RequestError",
            Self::Timeout => "RequestTimeout",
            Self::Other => "RedlineError",
        }
    }

    /// The class of an engine's error.
    fn of(error: &EngineError) -> Self {
        match error {
            EngineError::Request { .. } | EngineError::NoAdapter { .. } | EngineError::NoTokenizer(_) => {
                Self::Request
            }
            EngineError::Late { .. } | EngineError::Expired { .. } => Self::Timeout,
            _ => Self::Other,
        }
    }
}

/// The hint of a thread that could not be started.
pub(crate) const MORE_THREADS: &str = "allow more threads (`ulimit -u`, or the limit of the container)";

/// An error on its way to Python.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    class: Class,
    fact: String,
    hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(class: Class, fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { class, fact: fact.into(), hint: Some(hint.into()) }
    }

    /// An error of a library, with its hint.
    pub(crate) fn advised(class: Class, error: &dyn fmt::Display, hint: Option<Hint>) -> Self {
        Self { class, fact: error.to_string(), hint: hint.map(|hint| hint.spelled(&Arguments)) }
    }

    /// The error, of loading a model.
    pub(crate) fn while_loading(self) -> Self {
        Self { class: Class::Load, ..self }
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self::advised(Class::of(&error), &error, error.hint())
    }
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Engine(error) => error.into(),
            // The library's hint speaks of one request among many.
            ApiError::NoLabel => {
                Self::new(Class::Request, error.to_string(), "give `labels` or `label_token_ids`")
            }
            error => Self::advised(Class::Request, &error, error.hint()),
        }
    }
}

impl From<Fault> for PyErr {
    fn from(Fault { class, fact, hint }: Fault) -> Self {
        Python::attach(|py| {
            let class = py.import("redline.errors").and_then(|module| module.getattr(class.name()));
            match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
                Ok(class) => Self::from_type(class, (fact, hint)),
                Err(error) => error,
            }
        })
    }
}

/// Spells settings as arguments, and commands as methods.
struct Arguments;

impl Spelling for Arguments {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        let name = match setting {
            Setting::Labels => return "`labels` or `label_token_ids`".to_owned(),
            Setting::Tier => "isa",
            Setting::Chat => return "`chat=True`".to_owned(),
            Setting::Columns => {
                let pair = value.and_then(|value| value.split_once('='));
                return match pair {
                    Some((key, column)) => format!("`columns={{\"{key}\": \"{column}\"}}`"),
                    None => "`columns`".to_owned(),
                };
            }
            Setting::PlanPolicy => return "`--plan-policy` of the command line".to_owned(),
            other => other.name(),
        };
        match value {
            Some(value) if value.parse::<f64>().is_ok() => format!("`{name}={value}`"),
            Some(value) => format!("`{name}=\"{value}\"`"),
            None => format!("`{name}`"),
        }
    }

    fn command(&self, command: Command, argument: Option<&str>) -> String {
        match (command, argument) {
            (Command::Diffuse | Command::Embed | Command::Generate, None) => {
                format!("`Engine.{}`", command.name())
            }
            (_, Some(argument)) => format!("`redline {} {argument}` on the command line", command.name()),
            (_, None) => format!("`redline {}` on the command line", command.name()),
        }
    }
}
