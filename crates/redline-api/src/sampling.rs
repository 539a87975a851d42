//! How tokens are chosen: the parameters of lines, routes, flags and Python.

use redline_engine::{DiffuseRequest, GenerateRequest, Penalties, Sampling};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_json::json;

use crate::error::ApiError;
use crate::json::fields::{above_zero, count, refused, stops, within};
use crate::json::input::{LogitBias, Strings};
use crate::json::limits::{
    MAX_BIAS, MAX_CONTINUATIONS, MAX_PENALTY, MAX_STOP_IDS, MAX_TEMPERATURE, MAX_TOP_K,
};
use crate::json::parts::part;
use crate::json::shape::{self, schemas};

part! {
    /// How tokens are chosen, and where the text ends. Absent parameters take their defaults.
    pub struct SamplingParameters {
        /// Temperature; 0 is greedy. Default: 0; 1 if one of the next four is given and the model predicts the next token.
        #[schemars(range(min = 0.0, max = MAX_TEMPERATURE))]
        pub temperature: f32,
        /// Keep the k most probable tokens; 0 and -1 keep all.
        #[schemars(range(min = -1, max = MAX_TOP_K))]
        pub top_k: i64,
        /// Keep the smallest set of tokens whose probability reaches this; 1 keeps all.
        #[schemars(with = "Option<shape::ShareAboveZero>")]
        pub top_p: f32,
        /// Drop tokens whose probability is below this share of that of the most probable one; 0 keeps all.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub min_p: f32,
        /// Keep the tokens whose information content is closest to the entropy, up to this probability; 1 keeps all.
        #[schemars(with = "Option<shape::ShareAboveZero>")]
        pub typical_p: f32,
        /// Seed of the random numbers; the same seed gives the same text. A negative one stands for its two's complement. Default: 0.
        pub seed: Seed,
        /// Divide positive logits of tokens that occurred by this, and multiply others; 1 changes nothing. Also if greedy.
        #[schemars(with = "Option<shape::Repetition>")]
        pub repetition_penalty: f32,
        /// Subtract this from the logits of generated tokens. Also if greedy.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub presence_penalty: f32,
        /// Subtract this from the logit of a token for each time it was generated. Also if greedy.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub frequency_penalty: f32,
        /// Add these numbers to the logits of tokens. Also if greedy.
        pub logit_bias: LogitBias,
        /// Text before whose first occurrence generation stops.
        #[schemars(with = "Option<shape::Stops>")]
        pub stop: Strings,
        /// Tokens that end the text too. Like an end-of-sequence token, such a token has no text.
        #[schemars(with = "Option<shape::StopIds>")]
        pub stop_token_ids: Vec<i64>,
        /// Continue after an end-of-sequence token.
        pub ignore_eos: bool,
        /// Number of new tokens before which no token that ends the text is chosen. Texts of `stop` end it nevertheless. Default: 0.
        pub min_tokens: usize,
        /// Number of continuations, each with its own seed; the first is that of a single one.
        #[schemars(range(min = 1, max = MAX_CONTINUATIONS))]
        pub n: usize,
        /// Number of continuations to generate, of which the `n` with the highest mean log-probability per token are returned.
        #[schemars(range(min = 1, max = MAX_CONTINUATIONS))]
        pub best_of: usize,
    }
}

impl SamplingParameters {
    /// The names of the parameters that concern a single continuation.
    pub const OF_ONE_TEXT: &[&str] = Self::NAMES.split_at(Self::NAMES.len() - 2).0;

    /// The names of the parameters that models which fill masks support.
    pub const OF_CANVASES: &[&str] =
        &["temperature", "top_k", "top_p", "seed", "stop", "stop_token_ids", "ignore_eos"];

    /// Checks that values are within the limits of requests.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        within("temperature", self.temperature, 0.0..=MAX_TEMPERATURE)?;
        self.check_top_k()?;
        above_zero("top_p", self.top_p)?;
        within("min_p", self.min_p, 0.0..=1.0)?;
        above_zero("typical_p", self.typical_p)?;
        within("n", self.n, 1..=MAX_CONTINUATIONS)?;
        within("best_of", self.best_of, self.n.unwrap_or(1)..=MAX_CONTINUATIONS)?;
        for (id, bias) in self.logit_bias.iter().flat_map(|bias| &bias.0) {
            within(&format!("logit_bias.{id}"), Some(*bias), -MAX_BIAS..=MAX_BIAS)?;
        }
        within("presence_penalty", self.presence_penalty, -MAX_PENALTY..=MAX_PENALTY)?;
        within("frequency_penalty", self.frequency_penalty, -MAX_PENALTY..=MAX_PENALTY)?;
        if let Some(value) = self.repetition_penalty.filter(|value| !(*value > 0.0 && value.is_finite())) {
            let fact = format!("`repetition_penalty` is {value}");
            return Err(refused("repetition_penalty", fact, "give a number above 0; 1 changes nothing"));
        }
        count("stop_token_ids", self.stop_token_ids.as_ref().map_or(0, Vec::len), 0..=MAX_STOP_IDS)?;
        stops(self.stop.as_ref().map_or(&[], |stop| &stop.0))
    }

    /// Refuses several texts where an answer has one, and to choose the best of several unless that is possible.
    pub(crate) fn check_one_text(&self, may_rank: bool) -> Result<(), ApiError> {
        for (param, count) in [("n", self.n), ("best_of", self.best_of.filter(|_| !may_rank))] {
            if let Some(count) = count.filter(|&count| count > 1) {
                let fact = format!("`{param}` is {count}, and an answer has one text");
                return Err(refused(param, fact, "leave it out"));
            }
        }
        Ok(())
    }

    /// Refuses several greedy continuations, which would all be the same. The error names the parameter.
    pub(crate) fn check_continuations(&self) -> Result<(), ApiError> {
        let continuations = [("n", self.n), ("best_of", self.best_of)];
        let several = continuations
            .into_iter()
            .find_map(|(name, count)| Some((name, count.filter(|&count| count > 1)?)));
        match several {
            Some((param, count)) if self.sampling().temperature == 0.0 => {
                let fact = format!("`{param}` is {count}, and greedy continuations are all the same");
                Err(refused(param, fact, "give a `temperature` above 0"))
            }
            _ => Ok(()),
        }
    }

    /// The engine knows no negative number of tokens, so it does not refuse one.
    fn check_top_k(&self) -> Result<(), ApiError> {
        within("top_k", self.top_k, -1..=MAX_TOP_K).map(drop)
    }

    /// How the engine chooses tokens.
    pub fn sampling(&self) -> Sampling {
        let filters = [self.top_p, self.min_p, self.typical_p];
        let filtered = self.top_k.is_some() || filters.iter().any(Option::is_some);
        let default = Sampling::default();
        Sampling {
            temperature: self.temperature.unwrap_or(if filtered { 1.0 } else { default.temperature }),
            top_k: self.top_k.map_or(default.top_k, |k| k.max(0) as usize),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            typical_p: self.typical_p.unwrap_or(default.typical_p),
            seed: self.seed.map_or(default.seed, |seed| seed.0),
        }
    }

    /// Sets the fields of a request for continuations.
    pub fn apply(self, request: &mut GenerateRequest) -> Result<(), ApiError> {
        self.check_top_k()?;
        request.sampling = self.sampling();
        request.penalties = Penalties {
            repetition: self.repetition_penalty.unwrap_or(1.0),
            frequency: self.frequency_penalty.unwrap_or(0.0),
            presence: self.presence_penalty.unwrap_or(0.0),
            min_tokens: self.min_tokens.unwrap_or(0),
        };
        request.logit_bias = self.logit_bias.unwrap_or_default().0;
        request.n = self.n.unwrap_or(1);
        request.best_of = self.best_of;
        request.stop = self.stop.unwrap_or_default().0;
        request.stop_ids = self.stop_token_ids.unwrap_or_default();
        request.ignore_eos = self.ignore_eos.unwrap_or(false);
        Ok(())
    }

    /// The numbers that models which fill masks do not support: name, value, and the neutral value with which they are accepted.
    pub(crate) fn not_of_canvases(&self) -> [(&'static str, Option<f64>, u8); 8] {
        let (number, count) = (|x: Option<f32>| x.map(f64::from), |x: Option<usize>| x.map(|x| x as f64));
        [
            ("n", count(self.n), 1),
            ("best_of", count(self.best_of), 1),
            ("min_p", number(self.min_p), 0),
            ("typical_p", number(self.typical_p), 1),
            ("presence_penalty", number(self.presence_penalty), 0),
            ("frequency_penalty", number(self.frequency_penalty), 0),
            ("repetition_penalty", number(self.repetition_penalty), 1),
            ("min_tokens", count(self.min_tokens), 0),
        ]
    }

    /// Sets the fields of a request to fill masks. Parameters that such models do not support are accepted only with their neutral
    /// values.
    pub fn apply_to_canvas(self, request: &mut DiffuseRequest) -> Result<(), ApiError> {
        let refused = |param: &str| {
            let hint = match param {
                "n" | "best_of" => "send several requests with different seeds",
                _ => "leave it out",
            };
            refused(param, format!("`{param}` is not supported by models that fill masks"), hint)
        };
        let given = |(name, value, neutral): (_, Option<f64>, u8)| {
            value.filter(|&value| value != f64::from(neutral)).map(|_| name)
        };
        if let Some(param) = self.not_of_canvases().into_iter().find_map(given) {
            return Err(refused(param));
        }
        if self.logit_bias.as_ref().is_some_and(|bias| !bias.0.is_empty()) {
            return Err(refused("logit_bias"));
        }
        self.check_top_k()?;
        // Greedy also with `top_k` or `top_p`.
        request.sampling = Sampling { temperature: self.temperature.unwrap_or(0.0), ..self.sampling() };
        request.stop = self.stop.unwrap_or_default().0;
        request.stop_ids = self.stop_token_ids.unwrap_or_default();
        request.ignore_eos = self.ignore_eos.unwrap_or(false);
        Ok(())
    }
}

/// A seed of random numbers: a whole number of 64 bits, with or without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Seed;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number of 64 bits")
            }
            fn visit_u64<E: Error>(self, seed: u64) -> Result<Seed, E> {
                Ok(Seed(seed))
            }
            fn visit_i64<E: Error>(self, seed: i64) -> Result<Seed, E> {
                Ok(Seed(seed as u64))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Seed, E> {
                Err(E::invalid_type(Unexpected::Float(number), &self))
            }
        }
        from.deserialize_u64(Number)
    }
}

schemas! {
    Seed: |_g| json!({ "type": "integer", "minimum": i64::MIN, "maximum": u64::MAX });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> SamplingParameters {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn greedy_unless_asked_otherwise() {
        for (json, temperature) in [
            ("{}", 0.0),
            (r#"{"seed":7}"#, 0.0),
            (r#"{"top_k":5}"#, 1.0),
            (r#"{"top_p":0.5}"#, 1.0),
            (r#"{"min_p":0.1}"#, 1.0),
            (r#"{"typical_p":0.9}"#, 1.0),
            (r#"{"temperature":0,"top_k":5}"#, 0.0),
            (r#"{"temperature":0.5}"#, 0.5),
        ] {
            assert_eq!(of(json).sampling().temperature, temperature, "{json}");
        }
    }

    #[test]
    fn each_value_reaches_the_request_and_wins_over_another() {
        let json = r#"{"temperature":0.5,"top_k":7,"top_p":0.75,"min_p":0.125,"typical_p":0.25,"seed":-1,"repetition_penalty":1.5,
            "presence_penalty":-0.5,"frequency_penalty":0.25,"logit_bias":{"-3":1.5,"7":-100},"n":2,"best_of":4,"stop":["x","y"],
            "stop_token_ids":[8,9],"ignore_eos":true,"min_tokens":3}"#;
        let others = r#"{"temperature":1,"top_k":1,"top_p":1,"min_p":1,"typical_p":1,"seed":1,"repetition_penalty":1,
            "presence_penalty":1,"frequency_penalty":1,"logit_bias":{},"n":1,"best_of":1,"stop":[],"stop_token_ids":[],"ignore_eos":false,
            "min_tokens":1}"#;
        let plain = || GenerateRequest::new(redline_engine::Prompt::Ids(vec![1]), 3);
        let expected = GenerateRequest {
            sampling: Sampling {
                temperature: 0.5,
                top_k: 7,
                top_p: 0.75,
                min_p: 0.125,
                typical_p: 0.25,
                seed: u64::MAX,
            },
            penalties: Penalties { repetition: 1.5, frequency: 0.25, presence: -0.5, min_tokens: 3 },
            logit_bias: vec![(-3, 1.5), (7, -100.0)],
            n: 2,
            best_of: Some(4),
            stop: vec!["x".to_owned(), "y".to_owned()],
            stop_ids: vec![8, 9],
            ignore_eos: true,
            ..plain()
        };
        for parameters in [of(json), of(json).or(of(others)), of("{}").or(of(json))] {
            let mut request = plain();
            parameters.apply(&mut request).unwrap();
            assert_eq!(format!("{request:#?}"), format!("{expected:#?}"));
        }
        let mut request = plain();
        of("{}").apply(&mut request).unwrap();
        assert_eq!(format!("{request:#?}"), format!("{:#?}", plain()));
    }

    #[test]
    fn a_negative_number_of_tokens_is_refused_for_lines_too() {
        let mut request = GenerateRequest::new(redline_engine::Prompt::Ids(vec![1]), 3);
        assert!(of(r#"{"top_k":-1}"#).apply(&mut request).is_ok() && request.sampling.top_k == 0);
        assert!(of(r#"{"top_k":-2}"#).apply(&mut request).is_err());
        let mut canvas = DiffuseRequest::new(redline_engine::Prompt::Ids(vec![1]), 3);
        assert!(of(r#"{"top_k":-2}"#).apply_to_canvas(&mut canvas).is_err());
    }

    #[test]
    fn the_lists_of_names_are_complete() {
        assert_eq!(
            SamplingParameters::NAMES.strip_prefix(SamplingParameters::OF_ONE_TEXT),
            Some(&["n", "best_of"][..])
        );
        let others = SamplingParameters::default().not_of_canvases();
        let others = others.iter().map(|(name, ..)| *name).chain(["logit_bias"]);
        let mut all: Vec<_> = others.chain(SamplingParameters::OF_CANVASES.iter().copied()).collect();
        let mut names = SamplingParameters::NAMES.to_vec();
        all.sort_unstable();
        names.sort_unstable();
        assert_eq!(all, names);
    }

    #[test]
    fn limits_hold_their_ends() {
        for (name, taken, refused) in [
            ("temperature", &["0", "100"][..], &["-0.001", "100.1"][..]),
            ("top_k", &["-1", "0", "4294967295"], &["-2", "4294967296"]),
            ("top_p", &["0.001", "1"], &["0", "1.001"]),
            ("min_p", &["0", "1"], &["-0.001", "1.001"]),
            ("typical_p", &["0.001", "1"], &["0", "1.001"]),
            ("seed", &["-9223372036854775808", "18446744073709551615"], &["1.5", "18446744073709551616"]),
            ("repetition_penalty", &["0.001", "3"], &["0", "-1"]),
            ("presence_penalty", &["-2", "2"], &["-2.001", "2.001"]),
            ("frequency_penalty", &["-2", "2"], &["-2.001", "2.001"]),
            ("logit_bias", &[r#"{"1":100}"#, "{}"], &[r#"{"1":100.5}"#, "[]"]),
            ("n", &["1", "128"], &["0", "129"]),
            ("best_of", &["1", "128"], &["0", "129"]),
            ("stop", &[r#""x""#, "[]"], &[r#""""#, "1"]),
            ("stop_token_ids", &["[1,2]", "[]"], &["1", "[1.5]"]),
            ("ignore_eos", &["true"], &["1"]),
            ("min_tokens", &["0", "7"], &["-1"]),
            ("other", &[], &["1"]),
        ] {
            let read = |json: &&str| {
                let read = serde_json::from_str::<SamplingParameters>(&format!("{{\"{name}\":{json}}}"));
                read.map_err(|error| error.to_string()).and_then(|one| {
                    one.check()
                        .map_err(|error| format!("{error}; {}", error.hint().unwrap()))
                        .map(|()| one.given())
                })
            };
            for json in taken {
                assert_eq!(read(json), Ok(Some(name)), "{json}");
            }
            for json in refused {
                assert!(read(json).is_err(), "{name} = {json}");
            }
        }
        assert!(of(r#"{"n":3,"best_of":2}"#).check().is_err());
        assert!(
            of(r#"{"n":2}"#).check_continuations().is_err()
                && of(r#"{"n":2,"top_k":2}"#).check_continuations().is_ok()
        );
    }
}
