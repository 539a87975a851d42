//! The flags of a lane and their values.

use std::path::PathBuf;

use super::{LaneError, Result};

/// Earlier names of flags, and their names in the seeds' programs, with underscores or dashes.
pub const ALIASES: &[(&str, &[&str])] = &[
    ("num-runs", &["trials", "repeats", "calls", "num-trials", "benchmark-repetitions"]),
    ("warmup-runs", &["warmup", "warmups"]),
    ("batch", &["batch-size", "batch-sizes"]),
    ("new-tokens", &["max-new-tokens"]),
    ("m", &["rows"]),
    ("length", &["seq-length", "seq-lengths", "prompt-lengths"]),
    ("test", &["specific-test"]),
    // Flags of machine and model, which belong to no lane.
    ("isa", &["force-path"]),
    ("tp", &["tp-size"]),
    ("device", &["backend"]),
    ("model", &["model-path"]),
];

/// The help of the flags that most lanes have.
pub(crate) const RUNS: &str = "Timed runs of each case, in each process";
pub(crate) const WARMUPS: &str =
    "Runs of each case before, at least: more until nothing happens for the first time";
pub(crate) const PROMPT: &str = "Text of the prompts, instead of ids of a given number; each prompt after the first begins one token later \
                                 and goes round";

/// A flag of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    /// The placeholder for the value in help; empty for a switch, whose value is `true` or `false`.
    pub value: &'static str,
    /// The default value.
    pub default: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Returns an error for a value that the lane does not accept.
    pub check: fn(&Self, &str) -> Result<()>,
}

/// Declares the flags of a lane: `Flags`, with a field for the value of each, and `Flags::ALL`, the table of them. A line has the field
/// with its type, the name, the placeholder, the default and the help, and what parses the value unless its type says so ([`FlagValue`]).
macro_rules! flags {
    ($vis:vis struct Flags; $(
        $field:ident: $type:ty =
            $name:literal, $value:literal, $default:literal, $help:expr $(, $parse:expr)?;
    )*) => {
        /// The values of the flags.
        #[derive(Clone, Debug)]
        $vis struct Flags {
            $($vis $field: $type,)*
        }

        impl Flags {
            /// All flags, in the order of the help.
            $vis const ALL: [$crate::bench::Flag; [$($name),*].len()] = [$($crate::bench::Flag {
                name: $name,
                value: $value,
                default: $default,
                help: $help,
                check: |flag, text| {
                    let parse: $crate::bench::Parse<$type> = $crate::bench::flags!(@parse $type $(, $parse)?);
                    parse(flag, text).map(drop)
                },
            }),*];

            $vis fn of(values: &$crate::bench::Values) -> $crate::bench::Result<Self> {
                let [$($field),*] = &Self::ALL;
                Ok(Self { $($field: {
                    let parse: $crate::bench::Parse<$type> = $crate::bench::flags!(@parse $type $(, $parse)?);
                    parse($field, values.text($field))?
                }),* })
            }

            /// The defaults, with these values instead of some.
            #[cfg(test)]
            #[allow(dead_code, reason = "not every lane needs it")]
            $vis fn with(given: &[(&'static str, &str)]) -> $crate::bench::Result<Self> {
                Self::of(&$crate::bench::Values::new(&Self::ALL, given.iter().copied())?)
            }
        }
    };
    (@parse $type:ty) => { <$type as $crate::bench::FlagValue>::parse };
    (@parse $type:ty, $parse:expr) => { $parse };
}
pub(crate) use flags;

/// What parses the value of a flag.
pub(crate) type Parse<T> = fn(&Flag, &str) -> Result<T>;

/// The type of a flag's value.
pub(crate) trait FlagValue: Sized {
    fn parse(flag: &Flag, text: &str) -> Result<Self>;
}

/// A count of at least 1.
impl FlagValue for usize {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        let count = text.parse().ok().filter(|&n| n > 0);
        count.ok_or_else(|| flag.invalid(text, "a number of at least 1 is needed"))
    }
}

/// A whole number, which may be 0.
impl FlagValue for u64 {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        text.parse().map_err(|_| flag.invalid(text, "a whole number is needed"))
    }
}

/// A number of at least 0.
impl FlagValue for f64 {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        let number = text.parse().ok().filter(|x: &Self| *x >= 0.0 && x.is_finite());
        number.ok_or_else(|| flag.invalid(text, "a number of at least 0 is needed"))
    }
}

impl FlagValue for bool {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        flag.choice(text, &[("true", true), ("false", false)])
    }
}

impl FlagValue for String {
    fn parse(_: &Flag, text: &str) -> Result<Self> {
        Ok(text.to_owned())
    }
}

impl FlagValue for PathBuf {
    fn parse(_: &Flag, text: &str) -> Result<Self> {
        Ok(text.into())
    }
}

/// Counts of at least 1, such as `1,2,4`.
impl FlagValue for Vec<usize> {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        let needed = "numbers of at least 1 are needed, such as 1,2,4";
        flag.list(text, needed, |part| part.parse().ok().filter(|&n| n > 0))
    }
}

/// `None` for the default, such as `auto` or `none`.
impl<T: FlagValue> FlagValue for Option<T> {
    fn parse(flag: &Flag, text: &str) -> Result<Self> {
        optional(flag, text, T::parse)
    }
}

/// `None` for the default.
pub(crate) fn optional<T>(flag: &Flag, text: &str, parse: Parse<T>) -> Result<Option<T>> {
    if text == flag.default { Ok(None) } else { parse(flag, text).map(Some) }
}

/// A number above 0.
pub(crate) fn positive(flag: &Flag, text: &str) -> Result<f64> {
    let number = f64::parse(flag, text)?;
    if number > 0.0 { Ok(number) } else { Err(flag.invalid(text, "a number above 0 is needed")) }
}

/// Counts as they are given.
pub(crate) fn listed(counts: &[usize]) -> String {
    counts.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

impl Flag {
    /// The error for a value other than what is `needed`.
    pub(crate) fn invalid(&self, text: &str, needed: &str) -> LaneError {
        LaneError::Usage(format!("`--{}` is `{text}`, but {needed}", self.name))
    }

    /// Values between commas, each of which `parse` knows.
    pub(crate) fn list<T>(
        &self,
        text: &str,
        needed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>> {
        let values: Option<Vec<T>> = text.split(',').map(|part| parse(part.trim())).collect();
        values.ok_or_else(|| self.invalid(text, needed))
    }

    /// What the value stands for among `choices`.
    pub(crate) fn choice<T: Copy>(&self, text: &str, choices: &[(&str, T)]) -> Result<T> {
        let chosen = choices.iter().find(|(choice, _)| *choice == text);
        chosen.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            self.invalid(text, &format!("one of {} is needed", names.join(", ")))
        })
    }
}

/// The values of a lane's flags, all of which the lane accepts.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// Combines the defaults of `flags` with the given values, the last of which counts. An error for a value that its flag does not
    /// accept.
    pub fn new<'a>(
        flags: &'static [Flag],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let mut values: Vec<(&'static str, String)> =
            flags.iter().map(|flag| (flag.name, flag.default.to_owned())).collect();
        for (name, value) in given {
            if let Some(slot) = values.iter_mut().find(|(known, _)| *known == name) {
                value.clone_into(&mut slot.1);
            }
        }
        flags.iter().zip(&values).try_for_each(|(flag, (_, value))| (flag.check)(flag, value))?;
        Ok(Self(values))
    }

    /// The value of a flag; its default in a lane that does not have it.
    pub(crate) fn text(&self, flag: &Flag) -> &str {
        self.0.iter().find(|(name, _)| *name == flag.name).map_or(flag.default, |(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    flags! {
        struct Flags;
        counts: Vec<usize> = "counts", "N,..", "3", "";
        count: usize = "count", "N", "3", "";
        auto: Option<usize> = "auto", "N", "auto", "";
        whole: u64 = "whole", "N", "0", "";
        x: f64 = "x", "X", "0.5", "";
        above: f64 = "above", "X", "1", "", positive;
        switch: bool = "switch", "", "false", "";
    }

    #[track_caller]
    fn refused(name: &'static str, bad: &str, needed: &str) {
        let Err(LaneError::Usage(fact)) = Flags::with(&[(name, bad)]) else { panic!("--{name}={bad}") };
        assert!(fact.starts_with(&format!("`--{name}` is `{bad}`, but ")) && fact.contains(needed), "{fact}");
    }

    #[test]
    fn a_value_has_the_type_of_its_flag() {
        let flags = Flags::with(&[]).unwrap();
        assert_eq!((flags.counts, flags.count, flags.auto, flags.whole), (vec![3], 3, None, 0));
        assert_eq!((flags.x, flags.above, flags.switch), (0.5, 1.0, false));
        let given = [("counts", "1, 2,3"), ("auto", "7"), ("x", "2.5e-1"), ("switch", "true"), ("x", "0")];
        let flags = Flags::with(&given).unwrap();
        assert_eq!((flags.counts, flags.auto, flags.switch), (vec![1, 2, 3], Some(7), true));
        assert_eq!(flags.x, 0.0, "the last one counts");
    }

    #[test]
    fn values_of_other_types_are_refused() {
        for bad in ["", "0", "1,", "1,0", "-1", "x", "99999999999999999999999"] {
            for name in ["counts", "count", "auto"] {
                refused(name, bad, "at least 1");
            }
        }
        for bad in ["inf", "1e999", "nan", "-1", "-0.5", "", "x", "1,2"] {
            refused("x", bad, "at least 0");
            refused("above", bad, "at least 0");
        }
        refused("above", "0", "above 0");
        refused("whole", "-1", "a whole number");
        refused("switch", "yes", "one of true, false");
    }
}
