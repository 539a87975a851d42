//! The flags of a lane and their values.

use std::path::PathBuf;

use super::{LaneError, Result, Runs};

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
}

/// A flag that still needs its [`help`](Flag::help).
pub(crate) const fn flag(name: &'static str, value: &'static str, default: &'static str) -> Flag {
    Flag { name, value, default, help: "" }
}

impl Flag {
    pub(crate) const fn runs(default: &'static str) -> Self {
        flag("num-runs", "N", default).help("Timed runs of each case, in each process")
    }

    pub(crate) const fn warmups(default: &'static str) -> Self {
        flag("warmup-runs", "N", default)
            .help("Runs of each case before, at least: more until nothing happens for the first time")
    }

    /// A text that is read instead of ids of a given number.
    pub(crate) const fn prompt() -> Self {
        flag("prompt", "TEXT", "none")
            .help("Text of the prompts, instead of ids of a given number; each prompt after the first begins one token later and \
                   goes round")
    }

    pub(crate) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }
}

/// The values of a lane's flags.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<(&'static str, String)>);

impl Values {
    /// Combines the defaults of `flags` with the given values.
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

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The error for a value other than what is `needed`.
    pub(crate) fn invalid(&self, name: &str, needed: &str) -> LaneError {
        LaneError::Usage(format!("`--{name}` is `{}`, but {needed}", self.text(name)))
    }

    pub(crate) fn count(&self, name: &str) -> Result<usize> {
        let count = self.text(name).parse().ok().filter(|&n| n > 0);
        count.ok_or_else(|| self.invalid(name, "a number of at least 1 is needed"))
    }

    /// A whole number, which may be 0.
    pub(crate) fn whole(&self, name: &str) -> Result<usize> {
        self.text(name).parse().map_err(|_| self.invalid(name, "a whole number is needed"))
    }

    /// Counts of at least 1, such as `1,2,4`.
    pub(crate) fn counts(&self, name: &str) -> Result<Vec<usize>> {
        let needed = "numbers of at least 1 are needed, such as 1,2,4";
        self.list(name, needed, |part| part.parse().ok().filter(|&n| n > 0))
    }

    /// Values between commas, each of which `parse` knows.
    pub(crate) fn list<T>(
        &self,
        name: &str,
        needed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>> {
        let values: Option<Vec<T>> = self.text(name).split(',').map(|part| parse(part.trim())).collect();
        values.ok_or_else(|| self.invalid(name, needed))
    }

    /// A count of at least 1; `None` for `auto`.
    pub(crate) fn count_or_auto(&self, name: &str) -> Result<Option<usize>> {
        if self.text(name) == "auto" { Ok(None) } else { self.count(name).map(Some) }
    }

    pub(crate) fn runs(&self) -> Result<Runs> {
        Ok(Runs { timed: self.count("num-runs")?, warmups: self.count("warmup-runs")? })
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        let number = self.text(name).parse::<f64>().ok().filter(|x| *x >= 0.0 && x.is_finite());
        number.ok_or_else(|| self.invalid(name, "a number of at least 0 is needed"))
    }

    /// A text; `None` for `none`.
    pub(crate) fn some_text(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| *text != "none")
    }

    /// A file; `None` for `none`.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.some_text(name).map(PathBuf::from)
    }

    pub(crate) fn switch(&self, name: &str) -> Result<bool> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// What the value stands for among `choices`.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T> {
        let chosen = choices.iter().find(|(choice, _)| *choice == self.text(name));
        chosen.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            self.invalid(name, &format!("one of {} is needed", names.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_from_one() {
        const FLAGS: &[Flag] = &[flag("n", "N", "3")];
        let with = |text| Values::new(FLAGS, [("n", text)]);
        assert_eq!(with("1, 2,3").counts("n").unwrap(), [1, 2, 3]);
        assert_eq!(
            (with("auto").count_or_auto("n").unwrap(), with("7").count_or_auto("n").unwrap()),
            (None, Some(7))
        );
        assert!(with("true").switch("n").unwrap() && !with("false").switch("n").unwrap());
        for bad in ["", "0", "1,", "1,0", "-1", "x", "99999999999999999999999"] {
            let LaneError::Usage(fact) = with(bad).counts("n").unwrap_err() else { panic!("{bad}") };
            assert!(fact.contains("`--n`") && fact.contains(&format!("`{bad}`")), "{fact}");
            assert!(with(bad).count("n").is_err() && with(bad).count_or_auto("n").is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_finite_and_not_negative() {
        const FLAGS: &[Flag] = &[flag("x", "X", "0.5")];
        let with = |text| Values::new(FLAGS, [("x", text)]).number("x");
        assert_eq!((with("0").unwrap(), with("2.5e-1").unwrap()), (0.0, 0.25));
        assert_eq!(Values::new(FLAGS, []).number("x").unwrap(), 0.5);
        for bad in ["inf", "1e999", "nan", "-1", "-0.5", "", "x", "1,2"] {
            let Err(LaneError::Usage(fact)) = with(bad) else { panic!("{bad}") };
            assert!(fact.contains(&format!("`--x` is `{bad}`")) && fact.contains("at least 0"), "{fact}");
        }
    }
}
