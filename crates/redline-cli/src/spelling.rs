//! Spells hints for the command line: settings become flags, commands are written as typed. Converts errors with hints to
//! failures.

use std::fmt;

use redline_api::error::ApiError;
use redline_engine::EngineError;
use redline_engine::settings::{Command, Hint, Setting, Spelling};

use crate::env;
use crate::env::Variable;
use crate::message::{Failure, Message};

/// Spells settings as flags.
struct Flags;

/// The flag of a setting.
fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Adapter => "--adapter",
        Setting::AdapterMemory => "--adapter-memory",
        Setting::BestOf => "--best-of",
        Setting::BlockLength => "--block-length",
        Setting::Cache => "--cache",
        Setting::Calibrate => "--calibrate",
        Setting::Chat => "--chat",
        Setting::ChatTemplate => "--chat-template",
        Setting::Columns => "--column",
        Setting::Format => "--format",
        Setting::Keep => "--keep",
        Setting::KvFormat => "--kv-format",
        Setting::LabelEnd => "--label-end",
        Setting::Labels => "--label",
        Setting::LongLabels => "--long-labels",
        Setting::MaxContext => "--max-context",
        Setting::MaxNewTokens => "--max-new-tokens",
        Setting::McSamples => "--mc-samples",
        Setting::Memory => "--memory",
        Setting::Mmap => "--mmap",
        Setting::Outliers => "--outliers",
        Setting::PlanPolicy => "--plan-policy",
        Setting::Pooling => "--pooling",
        Setting::Prefix => "--prefix",
        Setting::Query => "--query",
        Setting::Steps => "--steps",
        Setting::Temperature => "--temperature",
        Setting::Threads => "--threads",
        Setting::Tier => "--isa",
        Setting::TopN => "--top-n",
        Setting::Truncate => "--truncate",
        Setting::Window => "--window",
    }
}

/// The environment variable of a setting.
fn variable(setting: Setting) -> Option<&'static Variable> {
    let flag = flag(setting);
    env::VARIABLES.iter().copied().find(|variable| variable.help == flag)
}

impl Spelling for Flags {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        match (setting, value) {
            (Setting::Labels, _) => "`--label` or `--label-id`".to_owned(),
            (_, Some(value)) => format!("`{} {value}`", flag(setting)),
            (_, None) => format!("`{}`", flag(setting)),
        }
    }

    fn unset(&self, setting: Setting) -> String {
        match variable(setting) {
            Some(Variable { name, .. }) => format!("leave out `{}` (and {name})", flag(setting)),
            None => format!("leave out `{}`", flag(setting)),
        }
    }

    fn command(&self, command: Command, argument: Option<&str>) -> String {
        match argument {
            Some(argument) => format!("`redline {} {argument}`", command.name()),
            None => format!("`redline {}`", command.name()),
        }
    }
}

/// Spells a hint for the command line.
pub(crate) fn spelled(hint: Option<Hint>) -> Option<String> {
    hint.map(|hint| hint.spelled(&Flags))
}

impl Failure {
    /// Failed work, with a library's hint.
    pub(crate) fn advised(error: &dyn fmt::Display, hint: Option<Hint>) -> Self {
        Self::failed(error.to_string(), spelled(hint))
    }

    /// A request that is invalid for every model: a usage error.
    pub(crate) fn senseless(error: EngineError) -> Self {
        Self::usage(error.to_string(), spelled(error.hint()).unwrap_or_default())
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        if let ApiError::Engine(error) = error {
            return error.into();
        }
        let hint = spelled(error.hint());
        if error.is_usage() {
            return Self::usage(error.to_string(), hint.unwrap_or_default());
        }
        Self::failed(error.to_string(), hint)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        if let EngineError::Stopped = error {
            return Self::Stopped(Message { fact: error.to_string(), hint: spelled(error.hint()) });
        }
        Self::advised(&error, error.hint())
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::settings::hint;

    use super::*;
    use crate::command;

    #[test]
    fn settings_are_flags_and_commands_are_typed() {
        let hint =
            hint!["take ", Command::Diffuse, " with ", Setting::Steps.to(8), "; ", Setting::Format.unset()];
        let expect = "take `redline diffuse` with `--steps 8`; leave out `--format` (and REDLINE_FORMAT)";
        assert_eq!(spelled(Some(hint)).as_deref(), Some(expect));
        assert_eq!(
            spelled(Some(hint![Setting::Outliers.unset()])).as_deref(),
            Some("leave out `--outliers`")
        );
        assert_eq!(spelled(None), None);
    }

    #[test]
    fn every_flag_and_every_command_is_there() {
        let cli = command::tree();
        let flags: Vec<String> = cli
            .get_subcommands()
            .flat_map(clap::Command::get_arguments)
            .filter_map(|argument| argument.get_long().map(|long| format!("--{long}")))
            .collect();
        for &setting in Setting::ALL {
            assert!(flags.iter().any(|other| other == flag(setting)), "{setting:?}");
        }
        for command in Command::ALL {
            assert!(cli.find_subcommand(command.name()).is_some(), "{command:?}");
        }
    }

    #[test]
    fn a_flag_is_called_as_its_setting() {
        let dashed = |name: &str| {
            let dash = |c: char| [c.is_ascii_uppercase().then_some('-'), Some(c.to_ascii_lowercase())];
            format!("-{}", name.chars().flat_map(dash).flatten().collect::<String>())
        };
        for &setting in Setting::ALL {
            let expected = match setting {
                Setting::Columns => "--column".to_owned(),
                Setting::Labels => "--label".to_owned(),
                Setting::Tier => "--isa".to_owned(),
                setting => dashed(&format!("{setting:?}")),
            };
            assert_eq!(flag(setting), expected);
        }
    }
}
