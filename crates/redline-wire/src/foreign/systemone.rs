//! `/v1/systemone`, as TypeSafe has it, with the additions of vLLM and llama.cpp.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use crate::cases::{case, cases, given};
use crate::limits::{MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS};
use crate::named::names;
use crate::object::objects;
use crate::shape::{self, one_of, schemas};
use crate::{DecisionDiagnostics, Finite, JsonText};

/// Asks questions about a state.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemOneBody {
    /// The model's name.
    pub model: Option<String>,
    /// What the questions are about: a text, an object or an array.
    #[schemars(with = "Content")]
    pub state: JsonText,
    /// The questions by name.
    #[schemars(extend("minProperties" = 1, "maxProperties" = MAX_QUESTIONS, "propertyNames" = { "minLength": 1 }))]
    pub questions: Entries<SystemOneQuestion>,
    /// Context that precedes the state: a text, an object or an array.
    #[schemars(with = "Option<Content>")]
    pub instructions: Option<JsonText>,
    /// Further variables of the chat template by name.
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Images, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub assets: Option<JsonText>,
    /// Images, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub images: Option<JsonText>,
    /// Videos, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub videos: Option<JsonText>,
}

/// A question. The form of its criteria follows from its type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = question_cases)]
#[serde(deny_unknown_fields, remote = "SystemOneQuestion")]
pub struct SystemOneQuestion {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: SystemOneKind,
    /// What is asked: a text, an object or an array.
    #[schemars(with = "Option<SomeContent>")]
    pub instructions: Option<JsonText>,
    /// The possible answers.
    #[schemars(with = "Option<CriteriaForms>")]
    pub criteria: Option<Criteria>,
}

objects!(SystemOneQuestion);
names!(SystemOneKind);

/// The types of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "SystemOneKind")]
pub enum SystemOneKind {
    /// Yes or no.
    Noul,
    /// One of some options.
    Choice,
    /// A level.
    Score,
    /// A place in an image, which no model here reads.
    Box,
}

/// The possible answers to a question.
#[derive(Clone, Debug)]
pub enum Criteria {
    /// Options by name, or what `true` and `false` mean.
    Named(Entries<Option<JsonText>>),
    /// Levels, from the lowest.
    Levels(Vec<JsonText>),
}

impl<'de> Deserialize<'de> for Criteria {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Criteria;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of options or a list of levels")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Criteria, A::Error> {
                entries(map).map(Criteria::Named)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Criteria, A::Error> {
                let mut levels = Vec::new();
                while let Some(level) = seq.next_element()? {
                    levels.push(level);
                }
                Ok(Criteria::Levels(levels))
            }
        }
        from.deserialize_any(Forms)
    }
}

/// An object as its entries, in their order. A key may occur twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T: Serialize> Serialize for Entries<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Entries<T>, A::Error> {
                entries(map)
            }
        }
        from.deserialize_map(Object(PhantomData))
    }
}

fn entries<'de, T: Deserialize<'de>, A: MapAccess<'de>>(mut map: A) -> Result<Entries<T>, A::Error> {
    let mut all = Vec::new();
    while let Some(key) = map.next_key::<String>()? {
        all.push((key, map.next_value()?));
    }
    Ok(Entries(all))
}

/// Answer of `/v1/systemone`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SystemOneAnswers {
    /// Identifies the answer.
    pub id: String,
    /// Always `structured_decision`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The name of the model that answered.
    pub model: String,
    /// The answers by the names of the questions, in their order.
    pub answers: Entries<SystemOneAnswer>,
    /// Token counts.
    pub usage: SystemOneUsage,
    /// How the answers were read.
    pub diagnostics: Entries<DecisionDiagnostics>,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SystemOneAnswer {
    /// To a question of yes or no.
    Noul {
        /// The probability of yes.
        noul: Finite<f32>,
    },
    /// To a choice.
    Choice {
        /// The most probable option.
        choice: String,
        /// The probability of each option.
        probabilities: Entries<Finite<f32>>,
        /// How far the probability of the choice lies above chance, from 0 to 1.
        confidence: Finite<f32>,
    },
    /// To a score.
    Score {
        /// The expected level, counted from 0.
        score: Finite<f32>,
        /// The levels by their number.
        legend: Entries<JsonText>,
        /// The probability of each level by its number.
        probabilities: Entries<Finite<f32>>,
        /// How concentrated the levels are, from 0 to 1.
        confidence: Finite<f32>,
    },
}

/// Token counts.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct SystemOneUsage {
    /// Tokens of the prompts; what all questions share counts once.
    pub input_tokens: usize,
    /// Always 0.
    pub output_tokens: usize,
}

/// A text, an object or an array.
struct Content;
/// A text, an object or an array that is not empty.
struct SomeContent;
/// Options by name, or levels.
struct CriteriaForms;

/// A text, an object or an array that is not empty.
fn some_content() -> Value {
    json!({ "type": ["string", "object", "array"], "minLength": 1, "minProperties": 1, "minItems": 1 })
}

/// A description, which may be left out.
fn description() -> Value {
    json!({ "type": ["string", "object", "array", "null"] })
}

schemas! {
    Content: |_g| json!({ "type": ["string", "object", "array"] });
    SomeContent: |_g| some_content();
    CriteriaForms: |_g| json!({ "anyOf": [
        { "type": "object", "additionalProperties": description() },
        { "type": "array", "items": some_content() }
    ] });
}

/// The criteria of a question, by its type. A question of yes or no says what is asked, or what yes or no means.
fn question_cases(schema: &mut Schema) {
    let of = |kind: &str| ("type", one_of(&[kind]));
    let outcomes = json!({
        "type": ["object", "null"],
        "properties": { "true": description(), "false": description() },
        "additionalProperties": false
    });
    let described = |outcome: &str| {
        let description = json!({ "type": ["string", "object", "array"], "minLength": 1 });
        case([(outcome, description)], &[])
    };
    let some_described = json!({ "allOf": [
        outcomes, { "type": "object", "anyOf": [described("true"), described("false")] }
    ] });
    let mut with_instructions = case([of("noul"), ("instructions", given())], &[]);
    with_instructions["properties"]["criteria"] = outcomes;
    let options = json!({
        "type": "object", "minProperties": 1, "maxProperties": MAX_OPTIONS, "propertyNames": { "minLength": 1 }
    });
    let levels = json!({ "type": "array", "minItems": 2, "maxItems": MAX_LEVELS });
    cases(
        schema,
        [
            with_instructions,
            case([of("noul"), ("criteria", some_described)], &[]),
            case([of("choice"), ("criteria", options)], &[]),
            case([of("score"), ("criteria", levels)], &[]),
        ],
    );
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Entries_for_{}", T::schema_name()))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_the_order_of_their_entries() {
        let json = r#"{"b":1,"a":2,"b":3}"#;
        let object: Entries<u8> = serde_json::from_str(json).unwrap();
        assert_eq!(
            object.0.iter().map(|(name, n)| (name.as_str(), *n)).collect::<Vec<_>>(),
            [("b", 1), ("a", 2), ("b", 3)]
        );
        assert_eq!(serde_json::to_string(&object).unwrap(), json);
        assert!(
            serde_json::from_str::<Entries<u8>>("[]").unwrap_err().to_string().contains("expected an object")
        );
    }

    #[test]
    fn criteria_are_an_object_or_a_list() {
        let of = |json: &str| serde_json::from_str::<Criteria>(json).map_err(|error| error.to_string());
        assert!(
            matches!(of(r#"{"a":null,"b":"x"}"#), Ok(Criteria::Named(Entries(all))) if all.len() == 2 && all[0].1.is_none())
        );
        assert!(
            matches!(of(r#"["a",{"b":1}]"#), Ok(Criteria::Levels(all)) if all[1].as_str() == r#"{"b":1}"#)
        );
        assert!(of("7").unwrap_err().contains("an object of options or a list of levels"));
    }
}
