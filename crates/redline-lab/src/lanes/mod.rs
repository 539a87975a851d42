//! The benchmark lanes: one file each, one line each in [`ALL`].

use std::fmt;

use redline_engine::{Engine, EngineError};

use crate::limits::LimitError;
use crate::stats::NotFinite;
use crate::{Clock, LaneResult, Machine};

pub mod generate;

/// Every lane there is.
pub const ALL: &[Lane] = &[generate::LANE];

/// A benchmark: one question, its flags, and how to answer it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The name on the command line.
    pub name: &'static str,
    /// The question it answers.
    pub asks: &'static str,
    /// Its own flags, besides those that choose model and machine.
    pub flags: &'static [Flag],
    /// Values of its flags with which it runs in a moment, for tests.
    pub smoke: &'static [(&'static str, &'static str)],
    /// Answers the question.
    pub run: fn(&Bench<'_>, &Values) -> Result<LaneResult, LaneError>,
}

/// A flag of a lane; every one takes a value.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// What stands for the value in help.
    pub value: &'static str,
    /// Used where the flag is not given.
    pub default: &'static str,
    /// One line.
    pub help: &'static str,
}

/// What a lane runs with.
pub struct Bench<'a> {
    /// The clock.
    pub clock: &'a Clock,
    /// This computer.
    pub machine: Machine,
    /// Thread counts to run with, in this order.
    pub threads: Vec<usize>,
    /// Loads the model to be measured with that many threads.
    pub load: &'a dyn Fn(usize) -> Result<Engine, EngineError>,
    /// Told after each case, for whoever waits.
    pub progress: &'a dyn Fn(&str),
}

/// The values of a lane's flags.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// The defaults of `flags`, then what was given.
    pub fn new<'a>(flags: &'static [Flag], given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut values: Vec<(&'static str, String)> =
            flags.iter().map(|f| (f.name, f.default.to_owned())).collect();
        for (name, value) in given {
            if let Some(slot) = values.iter_mut().find(|(known, _)| *known == name) {
                value.clone_into(&mut slot.1);
            }
        }
        Self(values)
    }

    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// A count of at least 1.
    pub fn count(&self, name: &'static str) -> Result<usize, LaneError> {
        match self.text(name).parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(LaneError::Usage(format!(
                "`--{name}` is `{}`, but a number of at least 1 is needed",
                self.text(name)
            ))),
        }
    }

    /// One of `choices`.
    pub fn choice(&self, name: &'static str, choices: &[&'static str]) -> Result<&'static str, LaneError> {
        let given = self.text(name);
        choices.iter().copied().find(|c| *c == given).ok_or_else(|| {
            LaneError::Usage(format!("`--{name}` is `{given}`, but one of {} is needed", choices.join(", ")))
        })
    }
}

/// Why a lane has no answer.
#[derive(Debug)]
pub enum LaneError {
    /// A flag's value makes no sense: the caller's mistake.
    Usage(String),
    /// The engine refused or failed.
    Engine(EngineError),
    /// A limit could not be measured.
    Limit(LimitError),
    /// A measurement is no number.
    Samples(NotFinite),
    /// The outputs are wrong, so their speed means nothing.
    Incorrect(String),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(fact) | Self::Incorrect(fact) => f.write_str(fact),
            Self::Engine(e) => e.fmt(f),
            Self::Limit(e) => e.fmt(f),
            Self::Samples(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LaneError {}

impl LaneError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(e) => e.hint(),
            _ => None,
        }
    }
}

impl From<EngineError> for LaneError {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

impl From<LimitError> for LaneError {
    fn from(e: LimitError) -> Self {
        Self::Limit(e)
    }
}

impl From<NotFinite> for LaneError {
    fn from(e: NotFinite) -> Self {
        Self::Samples(e)
    }
}
