//! Hints: what a caller can do about an error.
//!
//! A library does not know whether its caller types flags, sends JSON or calls a function. So where a hint names a setting or a
//! command, it holds the [`Setting`] or the [`Command`] itself, and the front end spells it, through [`Spelling`].

use std::borrow::Cow;
use std::fmt;

use crate::{Command, Setting};

impl Setting {
    /// Advice to leave the setting out, wherever it is given.
    pub fn unset(self) -> Word {
        Word::Unset(self)
    }

    /// The setting with a value to give it.
    pub fn to(self, value: impl fmt::Display) -> Word {
        Word::Setting(self, Some(value.to_string()))
    }
}

impl Command {
    /// The command with its main argument.
    pub fn of(self, argument: impl fmt::Display) -> Word {
        Word::Command(self, Some(argument.to_string()))
    }
}

/// A part of a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// As it is.
    Text(Cow<'static, str>),
    /// A setting, perhaps with a value.
    Setting(Setting, Option<String>),
    /// To leave a setting out.
    Unset(Setting),
    /// A command, perhaps with its main argument.
    Command(Command, Option<String>),
}

impl From<&'static str> for Word {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Setting> for Word {
    fn from(setting: Setting) -> Self {
        Self::Setting(setting, None)
    }
}

impl From<Command> for Word {
    fn from(command: Command) -> Self {
        Self::Command(command, None)
    }
}

/// What a caller can do about an error. `Display` spells settings as fields: `max_new_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint(Vec<Word>);

/// A [`Hint`] from its parts: texts, settings, commands.
///
/// ```
/// use redline_settings::{Setting, hint};
/// let hint = hint!["shorten the prompt, or give more ", Setting::Memory];
/// assert_eq!(hint.to_string(), "shorten the prompt, or give more `memory`");
/// ```
#[macro_export]
macro_rules! hint {
    ($($word:expr),+ $(,)?) => { $crate::Hint::new(vec![$($crate::Word::from($word)),+]) };
}

impl Hint {
    /// From its parts; see [`hint!`].
    pub fn new(words: Vec<Word>) -> Self {
        Self(words)
    }

    /// Whether the hint names a setting.
    pub fn names(&self, setting: Setting) -> bool {
        self.0.iter().any(|word| matches!(word, Word::Setting(named, _) if *named == setting))
    }

    /// The hint as a front end spells it.
    pub fn spelled(&self, spelling: &dyn Spelling) -> String {
        let word = |word: &Word| match word {
            Word::Text(text) => text.to_string(),
            Word::Setting(setting, value) => spelling.setting(*setting, value.as_deref()),
            Word::Unset(setting) => spelling.unset(*setting),
            Word::Command(command, argument) => spelling.command(*command, argument.as_deref()),
        };
        self.0.iter().map(word).collect()
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        hint![text]
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        hint![text]
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(&FieldNames))
    }
}

/// How a front end calls what hints name.
pub trait Spelling {
    /// A setting, with the value that it is to be given, if there is one.
    fn setting(&self, setting: Setting, value: Option<&str>) -> String;

    /// The advice to leave a setting out.
    fn unset(&self, setting: Setting) -> String {
        format!("leave out {}", self.setting(setting, None))
    }

    /// A command, with its main argument if there is one.
    fn command(&self, command: Command, argument: Option<&str>) -> String;
}

/// Settings as fields of a request, commands as functions.
#[derive(Clone, Copy, Debug)]
pub struct FieldNames;

impl Spelling for FieldNames {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        match value {
            Some(value) => format!("`{}` = {value}", setting.name()),
            None => format!("`{}`", setting.name()),
        }
    }

    fn command(&self, command: Command, argument: Option<&str>) -> String {
        match argument {
            Some(argument) => format!("`{} {argument}`", command.name()),
            None => format!("`{}`", command.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shout;

    impl Spelling for Shout {
        fn setting(&self, setting: Setting, value: Option<&str>) -> String {
            format!("{}!{}", setting.name().to_uppercase(), value.unwrap_or_default())
        }

        fn command(&self, command: Command, argument: Option<&str>) -> String {
            format!("{}?{}", command.name().to_uppercase(), argument.unwrap_or_default())
        }
    }

    #[test]
    fn each_front_end_spells_settings_and_commands_its_own_way() {
        let or = String::from(", or ");
        let hint =
            hint!["take ", Command::Diffuse, or, Setting::Steps.to(8), " and ", Setting::Cache.unset()];
        assert_eq!(hint.to_string(), "take `diffuse`, or `steps` = 8 and leave out `cache`");
        assert_eq!(hint.spelled(&Shout), "take DIFFUSE?, or STEPS!8 and leave out CACHE!");
        let hint = hint![Command::Pull.of("a/b")];
        assert_eq!((hint.to_string(), hint.spelled(&Shout)), ("`pull a/b`".into(), "PULL?a/b".into()));
        assert_eq!(Hint::from("text").spelled(&Shout), Hint::from(String::from("text")).to_string());
    }
}
