//! The flags of a lane and their values.

use std::path::PathBuf;

use super::LaneError;

/// Earlier names of flags, and their names in the seeds' programs, with underscores or dashes.
pub const ALIASES: &[(&str, &[&str])] = &[
    ("num-runs", &["trials", "repeats", "calls", "num-trials", "benchmark-repetitions"]),
    ("warmup-runs", &["warmup", "warmups"]),
    ("batch", &["batch-size", "batch-sizes"]),
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

impl Flag {
    /// The flag for the number of timed runs per case.
    pub const fn runs(default: &'static str) -> Self {
        Self { name: "num-runs", value: "N", default, help: "Timed runs of each case, in each process" }
    }

    /// The flag for the number of warm-up runs per case.
    pub const fn warmups(default: &'static str) -> Self {
        let help = "Runs of each case before, at least: more until nothing happens for the first time";
        Self { name: "warmup-runs", value: "N", default, help }
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

    /// The value as text.
    pub fn text(&self, name: &str) -> &str {
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

    /// Counts of at least 1, such as `1,2,4`.
    pub fn counts(&self, name: &'static str) -> Result<Vec<usize>, LaneError> {
        let number = |part: &str| part.trim().parse().ok().filter(|&n| n > 0);
        let counts: Option<Vec<usize>> = self.text(name).split(',').map(number).collect();
        counts.ok_or_else(|| {
            let fact = format!("`--{name}` is `{}`, but numbers of at least 1 are needed", self.text(name));
            LaneError::Usage(format!("{fact}, such as 1,2,4"))
        })
    }

    /// A count of at least 1; `None` for `auto`.
    pub fn count_or_auto(&self, name: &'static str) -> Result<Option<usize>, LaneError> {
        if self.text(name) == "auto" { Ok(None) } else { self.count(name).map(Some) }
    }

    /// A number of at least 0.
    pub fn number(&self, name: &'static str) -> Result<f64, LaneError> {
        match self.text(name).parse::<f64>() {
            Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
            _ => Err(LaneError::Usage(format!(
                "`--{name}` is `{}`, but a number of at least 0 is needed",
                self.text(name)
            ))),
        }
    }

    /// A file; `None` for `none`.
    pub fn file(&self, name: &'static str) -> Option<PathBuf> {
        Some(self.text(name)).filter(|text| *text != "none").map(PathBuf::from)
    }

    /// Whether a switch is on.
    pub fn switch(&self, name: &'static str) -> Result<bool, LaneError> {
        Ok(self.choice(name, &["true", "false"])? == "true")
    }

    /// One of `choices`.
    pub fn choice(&self, name: &'static str, choices: &[&'static str]) -> Result<&'static str, LaneError> {
        let given = self.text(name);
        choices.iter().copied().find(|c| *c == given).ok_or_else(|| {
            LaneError::Usage(format!("`--{name}` is `{given}`, but one of {} is needed", choices.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_from_one() {
        const FLAGS: &[Flag] = &[Flag { name: "n", value: "N", default: "3", help: "" }];
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
}
