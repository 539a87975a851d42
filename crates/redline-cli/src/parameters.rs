//! Flags of parameters that lines, routes and Python have too. Help, type and bounds of a flag are those of the parameter's schema.

use std::fmt;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::value::{BadValue, bad};

/// Which parameters a command has flags for.
pub(crate) trait FlagSet {
    /// The parameters.
    type Parameters: Clone + fmt::Debug + DeserializeOwned + JsonSchema + Send + Sync;
    /// The names of those with a flag, in the order of the help.
    const NAMES: &'static [&'static str];
    /// The heading in the help.
    const HEADING: &'static str;
}

/// The heading of flags of sampling, where the model predicts the next token.
pub(crate) const SAMPLING: &str = "Sampling (greedy unless a temperature or a filter is given)";

/// The values that the flags of a set give to parameters.
#[derive(Debug)]
pub(crate) struct ParameterFlags<S: FlagSet>(pub(crate) S::Parameters);

impl<S: FlagSet> Args for ParameterFlags<S> {
    fn augment_args(command: Command) -> Command {
        let schema = schemars::schema_for!(S::Parameters);
        let of = |name: &&'static str| {
            flag(name, &schema.as_value()["properties"][*name]).help_heading(S::HEADING)
        };
        command.args(S::NAMES.iter().map(of))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: FlagSet> FromArgMatches for ParameterFlags<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Text, because an object may have a key twice.
        let given = |name: &&str| {
            matches.value_source(name).filter(|source| *source == ValueSource::CommandLine)?;
            let values: Vec<&str> = matches.get_many::<String>(name)?.map(String::as_str).collect();
            Some(match values[..] {
                [one] => format!("\"{name}\":{one}"),
                _ => format!("\"{name}\":[{}]", values.join(",")),
            })
        };
        let fields: Vec<String> = S::NAMES.iter().filter_map(given).collect();
        serde_json::from_str(&format!("{{{}}}", fields.join(",")))
            .map(Self)
            .map_err(|error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, error))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What a flag takes.
#[derive(Clone, Debug)]
enum Kind {
    /// Nothing: it is given or not.
    Switch,
    /// Texts: it may be given several times.
    Texts,
    /// Token ids.
    Ids,
    /// Numbers by token id.
    Biases(Bounds),
    /// One of these names.
    Name(Vec<String>),
    /// A whole number.
    Whole(Bounds),
    /// A number.
    Number(Bounds),
}

impl Kind {
    fn of(schema: &Value) -> Self {
        let is = |name: &str| match &schema["type"] {
            Value::Array(names) => names.iter().any(|one| one == name),
            one => one == name,
        };
        if is("boolean") {
            Self::Switch
        } else if is("array") {
            Self::Ids
        } else if is("object") {
            Self::Biases(Bounds::of(&schema["additionalProperties"]))
        } else if let Value::Array(names) = &schema["enum"] {
            Self::Name(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        } else if is("integer") {
            Self::Whole(Bounds::of(schema))
        } else if is("number") {
            Self::Number(Bounds::of(schema))
        } else {
            Self::Texts
        }
    }

    fn placeholder(&self) -> &'static str {
        match self {
            Self::Switch => "",
            Self::Texts => "TEXT",
            Self::Ids => "ID,...",
            Self::Biases(_) => "ID=BIAS,...",
            Self::Name(_) => "NAME",
            Self::Whole(_) => "N",
            Self::Number(_) => "X",
        }
    }

    /// The value of an argument as JSON.
    fn json(&self, text: &str) -> Result<String, BadValue> {
        match self {
            Self::Switch => Ok(text.to_owned()),
            Self::Texts => Ok(Value::from(text).to_string()),
            Self::Name(names) => {
                let found = names.iter().find(|name| **name == text.replace('_', "-"));
                found.map_or_else(
                    || bad(format!("`{text}` is not known"), format!("one of {}", names.join(", "))),
                    |name| Ok(Value::from(name.as_str()).to_string()),
                )
            }
            Self::Whole(bounds) => {
                let number = text.parse::<i128>().ok();
                // What JSON has no integer for.
                let number = number.filter(|n| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(n));
                bounds.checked(text, "a whole number", number)
            }
            Self::Number(bounds) => bounds.checked(text, "a number", text.parse::<f32>().ok()),
            Self::Ids => {
                let ids = text.split(',').map(|id| id.trim().parse::<u32>()).collect::<Result<Vec<_>, _>>();
                let hint = "token ids, as `50256,11`";
                ids.map_or_else(
                    |_| bad(format!("`{text}` is no list of token ids"), hint),
                    |ids| Ok(format!("{ids:?}")),
                )
            }
            Self::Biases(bounds) => {
                let hint = format!("{}, as `50256=-100,11=2.5`", bounds.hint("token ids with numbers"));
                let pair = |pair: &str| match pair.split_once('=') {
                    Some((id, bias)) if id.trim().parse::<i64>().is_ok() => {
                        let bias = bounds.checked(bias.trim(), "a number", bias.trim().parse::<f32>().ok());
                        let bias = bias.map_err(|bad| BadValue { hint: hint.clone(), ..bad })?;
                        Ok(format!("\"{}\":{bias}", id.trim()))
                    }
                    _ => bad(format!("`{pair}` is not of the form ID=BIAS"), hint.clone()),
                };
                let pairs = text.split(',').map(pair).collect::<Result<Vec<_>, _>>()?;
                Ok(format!("{{{}}}", pairs.join(",")))
            }
        }
    }
}

/// The smallest and the largest value, each with whether it is allowed itself.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    min: Option<(f64, bool)>,
    max: Option<(f64, bool)>,
}

impl Bounds {
    fn of(schema: &Value) -> Self {
        let bound = |inclusive: &str, exclusive: &str| {
            let inclusive = schema[inclusive].as_f64().map(|bound| (bound, true));
            inclusive.or_else(|| schema[exclusive].as_f64().map(|bound| (bound, false)))
        };
        Self { min: bound("minimum", "exclusiveMinimum"), max: bound("maximum", "exclusiveMaximum") }
    }

    /// A number, written for JSON, if it is one and within the bounds.
    fn checked<T: fmt::Display>(self, text: &str, what: &str, number: Option<T>) -> Result<String, BadValue> {
        let written = number.map(|number| number.to_string());
        let value = written
            .as_deref()
            .and_then(|number| number.parse::<f64>().ok())
            .filter(|value| value.is_finite());
        let (Some(written), Some(value)) = (written, value) else {
            return bad(format!("`{text}` is not {what}"), self.hint(what));
        };
        let above = self.min.is_none_or(|(min, allowed)| value > min || (allowed && value == min));
        let below = self.max.is_none_or(|(max, allowed)| value < max || (allowed && value == max));
        if above && below { Ok(written) } else { bad(format!("{text} is out of range"), self.hint(what)) }
    }

    fn hint(self, what: &str) -> String {
        // The largest number of a type is no limit that says anything.
        match (self.min, self.max.filter(|(max, _)| *max < u64::MAX as f64)) {
            (Some((min, true)), Some((max, true))) => format!("{what} from {min} to {max}"),
            (Some((min, true)), None) => format!("{what} of at least {min}"),
            (Some((min, _)), Some((max, true))) => format!("{what} above {min} and at most {max}"),
            (Some((min, _)), Some((max, _))) => format!("{what} above {min} and below {max}"),
            (Some((min, _)), None) => format!("{what} above {min}"),
            (None, _) => what.to_owned(),
        }
    }
}

/// The flag of a parameter.
fn flag(name: &'static str, schema: &Value) -> Arg {
    let kind = Kind::of(schema);
    let description = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    // What the command says already.
    let help = description.strip_prefix("For models that fill masks: ").unwrap_or(&description);
    let help: String =
        help.chars().take(1).flat_map(char::to_uppercase).chain(help.chars().skip(1)).collect();
    let arg = Arg::new(name).long(name.replace('_', "-")).help(help.trim_end_matches('.').to_owned());
    let arg = match kind {
        Kind::Switch => arg.action(ArgAction::SetTrue),
        Kind::Texts => arg.action(ArgAction::Append).value_name(kind.placeholder()),
        Kind::Biases(_) => arg.value_name(kind.placeholder()).allow_hyphen_values(true),
        _ => arg.value_name(kind.placeholder()).allow_negative_numbers(true),
    };
    arg.value_parser(move |text: &str| kind.json(text))
}

#[cfg(test)]
mod tests {
    use redline_api::diffusion::DiffusionKeys;
    use redline_api::sampling::SamplingParameters;

    use super::*;

    struct Sampling;

    impl FlagSet for Sampling {
        type Parameters = SamplingParameters;
        const NAMES: &'static [&'static str] = SamplingParameters::NAMES;
        const HEADING: &'static str = "Sampling";
    }

    struct Order;

    impl FlagSet for Order {
        type Parameters = DiffusionKeys;
        const NAMES: &'static [&'static str] = DiffusionKeys::NAMES;
        const HEADING: &'static str = "Order";
    }

    fn read<S: FlagSet>(line: &str) -> Result<S::Parameters, clap::Error> {
        let command = ParameterFlags::<S>::augment_args(Command::new("c").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split_whitespace())?;
        ParameterFlags::<S>::from_arg_matches(&matches).map(|flags| flags.0)
    }

    /// Reads flags, and the same as JSON.
    #[track_caller]
    fn is<S: FlagSet<Parameters: PartialEq>>(line: &str, json: &str) {
        assert_eq!(read::<S>(line).unwrap(), serde_json::from_str(json).unwrap(), "{line}");
    }

    #[test]
    fn flags_give_what_lines_give() {
        is::<Sampling>("", "{}");
        is::<Sampling>(
            "--temperature .5 --top-k -1 --seed 18446744073709551615 --presence-penalty -0.1 --logit-bias -3=1.5,7=-100,7=2 --stop a \
             --stop=-b --stop-token-ids 5,6 --ignore-eos --n 2",
            r#"{"temperature":0.5,"top_k":-1,"seed":18446744073709551615,"presence_penalty":-0.1,
                "logit_bias":{"-3":1.5,"7":-100,"7":2},"stop":["a","-b"],"stop_token_ids":[5,6],"ignore_eos":true,
                "n":2}"#,
        );
        is::<Sampling>("--stop [1]", r#"{"stop":"[1]"}"#);
        is::<Order>(
            "--steps 3 --algorithm maskgit_plus --cache dual",
            r#"{"steps":3,"algorithm":"maskgit-plus","cache":"dual"}"#,
        );
    }

    #[test]
    fn values_out_of_range_and_of_other_types_are_refused_with_a_hint() {
        for (line, expect) in [
            ("--temperature -0.1", "-0.1 is out of range: a number from 0 to 100"),
            ("--temperature inf", "`inf` is not a number: a number from 0 to 100"),
            ("--top-p 0", "0 is out of range: a number above 0 and at most 1"),
            ("--n 1.5", "`1.5` is not a whole number: a whole number from 1 to 128"),
            ("--n 129", "129 is out of range: a whole number from 1 to 128"),
            (
                "--logit-bias 3",
                "`3` is not of the form ID=BIAS: token ids with numbers from -100 to 100, as `50256=-100,11=2.5`",
            ),
            ("--stop-token-ids 5,x", "`5,x` is no list of token ids: token ids, as `50256,11`"),
            (
                "--logit-bias 3=101",
                "101 is out of range: token ids with numbers from -100 to 100, as `50256=-100,11=2.5`",
            ),
        ] {
            let error = read::<Sampling>(line).unwrap_err();
            let source = std::error::Error::source(&error).unwrap();
            let bad = source.downcast_ref::<BadValue>().unwrap();
            assert_eq!(format!("{}: {}", bad.fact, bad.hint), expect, "{line}");
        }
        assert!(read::<Order>("--eps 1").is_err() && read::<Order>("--eps 0.999").is_ok());
        assert!(read::<Order>("--algorithm best").is_err());
        assert!(read::<Sampling>("--ignore-eos=no").is_err());
    }
}
