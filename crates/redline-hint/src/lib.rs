//! Hints: what a caller can do about an error.
//!
//! A library does not know whether its caller types flags, sends JSON or calls a function. So where a hint names a setting or a
//! command, it holds the [`Setting`] or the [`Command`] itself, and the front end spells it, through [`Spelling`].
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

/// Something that a caller can set: of a request, or of how a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Masks of a block.
    BlockLength,
    /// How keys and values of a canvas are reused.
    Cache,
    /// Weight format.
    Format,
    /// The labels of a score request.
    Labels,
    /// How labels of several tokens count.
    LongLabels,
    /// Tokens of the longest sequence.
    MaxContext,
    /// New tokens of a request.
    MaxNewTokens,
    /// Samples of a Monte Carlo estimate.
    McSamples,
    /// Bytes that the model and its requests may take.
    Memory,
    /// Share of columns that integer formats keep apart.
    Outliers,
    /// What is done about a pass without a plan.
    PlanPolicy,
    /// Steps of a diffusion.
    Steps,
    /// Threads of the team.
    Threads,
    /// Instruction tier.
    Tier,
    /// Documents that are ranked.
    TopN,
    /// Which end of a text is cut where it is too long.
    Truncate,
    /// Tokens of a window of text.
    Window,
}

impl Setting {
    /// Every setting.
    pub const ALL: &[Self] = &[
        Self::BlockLength,
        Self::Cache,
        Self::Format,
        Self::Labels,
        Self::LongLabels,
        Self::MaxContext,
        Self::MaxNewTokens,
        Self::McSamples,
        Self::Memory,
        Self::Outliers,
        Self::PlanPolicy,
        Self::Steps,
        Self::Threads,
        Self::Tier,
        Self::TopN,
        Self::Truncate,
        Self::Window,
    ];

    /// The name of the field, as requests and options have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockLength => "block_length",
            Self::Cache => "cache",
            Self::Format => "format",
            Self::Labels => "labels",
            Self::LongLabels => "long_labels",
            Self::MaxContext => "max_context",
            Self::MaxNewTokens => "max_new_tokens",
            Self::McSamples => "mc_samples",
            Self::Memory => "memory",
            Self::Outliers => "outliers",
            Self::PlanPolicy => "plan_policy",
            Self::Steps => "steps",
            Self::Threads => "threads",
            Self::Tier => "tier",
            Self::TopN => "top_n",
            Self::Truncate => "truncate",
            Self::Window => "window",
        }
    }

    /// Advice to leave the setting out, wherever it is given.
    pub fn unset(self) -> Word {
        Word::Unset(self)
    }

    /// The setting with a value to give it.
    pub fn to(self, value: impl fmt::Display) -> Word {
        Word::Setting(self, Some(value.to_string()))
    }
}

/// Something that a caller can have done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Packs a model into a weight format.
    Convert,
    /// Fills masks.
    Diffuse,
    /// Tells what the machine can do.
    Doctor,
    /// Continues a prompt.
    Generate,
    /// Makes plans for every bucket.
    Precompile,
}

impl Command {
    /// Every command.
    pub const ALL: &[Self] = &[Self::Convert, Self::Diffuse, Self::Doctor, Self::Generate, Self::Precompile];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Diffuse => "diffuse",
            Self::Doctor => "doctor",
            Self::Generate => "generate",
            Self::Precompile => "precompile",
        }
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
    /// A command.
    Command(Command),
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
        Self::Command(command)
    }
}

/// What a caller can do about an error. `Display` spells settings as fields: `max_new_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint(Vec<Word>);

/// A [`Hint`] from its parts: texts, settings, commands.
///
/// ```
/// use redline_hint::{Setting, hint};
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

    /// The hint as a front end spells it.
    pub fn spelled(&self, spelling: &dyn Spelling) -> String {
        let word = |word: &Word| match word {
            Word::Text(text) => text.to_string(),
            Word::Setting(setting, value) => spelling.setting(*setting, value.as_deref()),
            Word::Unset(setting) => spelling.unset(*setting),
            Word::Command(command) => spelling.command(*command),
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

    /// A command.
    fn command(&self, command: Command) -> String;
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

    fn command(&self, command: Command) -> String {
        format!("`{}`", command.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    struct Shout;

    impl Spelling for Shout {
        fn setting(&self, setting: Setting, value: Option<&str>) -> String {
            format!("{}!{}", setting.name().to_uppercase(), value.unwrap_or_default())
        }

        fn command(&self, command: Command) -> String {
            command.name().to_uppercase()
        }
    }

    #[test]
    fn each_front_end_spells_settings_and_commands_its_own_way() {
        let or = String::from(", or ");
        let hint =
            hint!["take ", Command::Diffuse, or, Setting::Steps.to(8), " and ", Setting::Cache.unset()];
        assert_eq!(hint.to_string(), "take `diffuse`, or `steps` = 8 and leave out `cache`");
        assert_eq!(hint.spelled(&Shout), "take DIFFUSE, or STEPS!8 and leave out CACHE!");
        assert_eq!(Hint::from("text").spelled(&Shout), Hint::from(String::from("text")).to_string());
    }

    #[test]
    fn names_are_distinct() {
        let settings: BTreeSet<&str> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        let commands: BTreeSet<&str> = Command::ALL.iter().map(|command| command.name()).collect();
        assert_eq!((settings.len(), commands.len()), (Setting::ALL.len(), Command::ALL.len()));
    }
}
