//! JSON types of `/v1/decisions`.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::cases::{case, cases, given};
use crate::json::finite::Finite;
use crate::json::limits::{MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS};
use crate::json::named::names;
use crate::json::object::objects;
use crate::json::shape::{self, one_of, schemas, text, text_or_list_of};
use crate::json::text::JsonText;

/// Asks questions about an input.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBody {
    /// The model's name.
    pub model: Option<String>,
    /// What the questions are about.
    pub input: DecisionInput,
    /// The questions.
    #[schemars(length(min = 1, max = MAX_QUESTIONS))]
    pub questions: Vec<DecisionQuestionBody>,
    /// Context that precedes the input.
    pub instructions: Option<String>,
    /// Further variables of the chat template by name.
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// As `cache_salt`.
    pub prompt_cache_key: Option<String>,
    /// How prompts are cached. Accepted and not used: prefixes are cached to the token.
    pub prompt_cache_options: Option<PromptCacheOptions>,
    /// Names the end user. Accepted and not used.
    pub safety_identifier: Option<String>,
    /// Temperature of the probabilities. Nothing but 1 is supported.
    #[schemars(with = "Option<shape::One>")]
    pub temperature: Option<f32>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
}

/// How prompts are cached.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "PromptCacheOptions")]
pub struct PromptCacheOptions {
    /// `implicit` or `explicit`.
    #[schemars(with = "Option<CacheMode>")]
    pub mode: Option<String>,
    /// How long.
    #[schemars(with = "Option<CacheTime>")]
    pub ttl: Option<String>,
}

impl PromptCacheOptions {
    /// The modes.
    pub const MODES: &[&str] = &["implicit", "explicit"];
    /// The lifetimes of cached prompts.
    pub const LIFETIMES: &[&str] = &["30m"];
}

/// The input of a decision: a text, or messages, calls of functions and tools, and their outputs.
#[derive(Clone, Debug)]
pub enum DecisionInput {
    /// A text.
    Text(String),
    /// Items in their order.
    Items(Vec<DecisionItem>),
}

impl<'de> Deserialize<'de> for DecisionInput {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = DecisionInput;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of messages")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<DecisionInput, E> {
                Ok(DecisionInput::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DecisionInput, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(DecisionInput::Items(items))
            }
        }
        from.deserialize_any(Forms)
    }
}

/// An item of an input. The fields that it has follow from its type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = item_cases)]
#[serde(deny_unknown_fields, remote = "DecisionItem")]
pub struct DecisionItem {
    /// Its type; a message if absent.
    #[serde(rename = "type", default)]
    pub kind: DecisionItemKind,
    /// Who wrote a message.
    pub role: Option<DecisionRole>,
    /// What a message says.
    pub content: Option<DecisionText>,
    /// The phase of a message of the assistant. Accepted and not used.
    pub phase: Option<String>,
    /// The name of a function or a tool.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The arguments of a function.
    pub arguments: Option<String>,
    /// The input of a tool.
    pub input: Option<String>,
    /// What a function or a tool gave.
    pub output: Option<DecisionText>,
    /// Connects an output with its call.
    pub call_id: Option<String>,
    /// The item's id. Accepted and not used.
    pub id: Option<String>,
    /// The item's state. Accepted and not used.
    pub status: Option<String>,
}

/// The types of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "DecisionItemKind")]
pub enum DecisionItemKind {
    /// A message.
    #[default]
    Message,
    /// A call of a function.
    FunctionCall,
    /// What a function gave.
    FunctionCallOutput,
    /// A call of a tool.
    CustomToolCall,
    /// What a tool gave.
    CustomToolCallOutput,
}

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "DecisionRole")]
pub enum DecisionRole {
    /// The user.
    User,
    /// The developer.
    Developer,
    /// The system.
    System,
    /// The model.
    Assistant,
}

/// A text, or its parts.
#[derive(Clone, Debug)]
pub enum DecisionText {
    /// The whole text.
    Text(String),
    /// Its parts in their order.
    Parts(Vec<DecisionPart>),
}

impl<'de> Deserialize<'de> for DecisionText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = DecisionText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<DecisionText, E> {
                Ok(DecisionText::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<DecisionText, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(DecisionText::Parts(parts))
            }
        }
        from.deserialize_any(Forms)
    }
}

/// A part of a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = part_cases)]
#[serde(deny_unknown_fields, remote = "DecisionPart")]
pub struct DecisionPart {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: DecisionPartKind,
    /// The text of a part of type `input_text` or `output_text`.
    pub text: Option<String>,
    /// The object or objects of a part of type `input_json`.
    pub data: Option<JsonText>,
    /// The text of a part of type `refusal`.
    pub refusal: Option<String>,
    /// The image of a part of type `input_image`.
    pub image_url: Option<String>,
    /// The detail of an image.
    pub detail: Option<String>,
    /// Accepted and not used: prefixes are cached to the token.
    pub prompt_cache_breakpoint: Option<JsonText>,
}

/// The types of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "DecisionPartKind")]
pub enum DecisionPartKind {
    /// A text.
    InputText,
    /// JSON.
    InputJson,
    /// An image, which no model here reads.
    InputImage,
    /// A text of the assistant.
    OutputText,
    /// A refusal of the assistant.
    Refusal,
}

/// A question. The fields that it has follow from its type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = question_cases)]
#[serde(deny_unknown_fields, remote = "DecisionQuestionBody")]
pub struct DecisionQuestionBody {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: DecisionKind,
    /// Names it in the answer.
    pub name: Option<String>,
    /// What is asked.
    #[schemars(with = "QuestionText")]
    pub instructions: DecisionText,
    /// The options of a choice.
    #[schemars(length(min = 2, max = MAX_OPTIONS))]
    pub choices: Option<Vec<DecisionChoiceBody>>,
    /// The levels of a score, from the lowest.
    #[schemars(length(min = 2, max = MAX_LEVELS))]
    pub levels: Option<Vec<DecisionLevelBody>>,
}

/// The types of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "DecisionKind")]
pub enum DecisionKind {
    /// Whether a statement is true.
    Predicate,
    /// One of some options.
    Choice,
    /// A level.
    Score,
}

/// An option of a choice.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "DecisionChoiceBody")]
pub struct DecisionChoiceBody {
    /// Its value.
    #[schemars(with = "ChoiceValue")]
    pub value: DecisionValue,
    /// When it applies.
    pub description: Option<String>,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "a value is neither a string nor a boolean")]
pub enum DecisionValue {
    /// A boolean, which is not the text of the same name.
    Bool(bool),
    /// A text.
    Text(String),
}

/// A level of a score.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "DecisionLevelBody")]
pub struct DecisionLevelBody {
    /// Its name.
    #[schemars(length(min = 1))]
    pub label: String,
    /// When it applies.
    pub description: Option<String>,
}

names!(DecisionItemKind, DecisionRole, DecisionPartKind, DecisionKind);

objects!(
    PromptCacheOptions,
    DecisionItem,
    DecisionPart,
    DecisionQuestionBody,
    DecisionChoiceBody,
    DecisionLevelBody
);

/// Answer of `/v1/decisions`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DecisionsAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `decision`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// One answer per question, in their order.
    pub answers: Vec<DecisionAnswer>,
    /// How the answers were read, in the order of the questions.
    pub diagnostics: Vec<DecisionDiagnostics>,
    /// Token counts.
    pub usage: DecisionUsage,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DecisionAnswer {
    /// To a predicate.
    Predicate {
        /// The question's name.
        name: Option<String>,
        /// The probability that the statement is true.
        probability: Finite<f32>,
    },
    /// To a choice.
    Choice {
        /// The question's name.
        name: Option<String>,
        /// The most probable option.
        choice: DecisionValue,
        /// How far its probability lies above chance, from 0 to 1.
        confidence: Finite<f32>,
        /// The probability of each option.
        probabilities: Vec<OptionProbability>,
    },
    /// To a score.
    Score {
        /// The question's name.
        name: Option<String>,
        /// The expected level, counted from 0.
        score: Finite<f32>,
        /// How concentrated the levels are, from 0 to 1.
        confidence: Finite<f32>,
        /// The probability of each level.
        probabilities: Vec<LevelProbability>,
    },
}

/// The probability of an option.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OptionProbability {
    /// The option's value.
    pub value: DecisionValue,
    /// Its probability among the options.
    pub probability: Finite<f32>,
}

/// The probability of a level.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LevelProbability {
    /// The level, counted from 0.
    pub value: usize,
    /// The level's name.
    pub label: String,
    /// Its probability among the levels.
    pub probability: Finite<f32>,
}

/// How an answer was read.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DecisionDiagnostics {
    /// The probability that the model would write one of the labels; `null` if the model does not tell.
    pub label_mass: Option<Finite<f32>>,
    /// Whether a label begins with the most probable token; `null` if the model does not tell.
    pub argmax_is_label: Option<bool>,
}

/// Token counts in the form of OpenAI's newer routes.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DecisionUsage {
    /// Tokens of the prompts; what all questions share counts once.
    pub input_tokens: usize,
    /// Where they came from.
    pub input_tokens_details: DecisionInputDetails,
    /// Always 0.
    pub output_tokens: usize,
    /// Details of the output.
    pub output_tokens_details: DecisionOutputDetails,
    /// The sum of both.
    pub total_tokens: usize,
}

/// Where input tokens came from.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DecisionInputDetails {
    /// Tokens that a cache held.
    pub cached_tokens: usize,
    /// Shared tokens that were stored for later requests.
    pub cache_write_tokens: usize,
}

/// Details of the output.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct DecisionOutputDetails {
    /// Always 0.
    pub reasoning_tokens: usize,
}

/// The value of an option of a request, which is not empty.
struct ChoiceValue;
/// What is asked: a text or parts.
struct QuestionText;
/// A mode of the prompt cache.
struct CacheMode;
/// A lifetime of cached prompts.
struct CacheTime;

/// The types of parts that questions and messages of users have.
const OF_QUESTIONS: &[&str] = &["input_text", "input_json"];
/// Those that other messages to the model, and outputs, have.
const OF_SYSTEM: &[&str] = &["input_text"];
/// Those that messages of the model have.
const OF_ASSISTANT: &[&str] = &["output_text", "refusal"];

schemas! {
    ChoiceValue: |_g| json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "minLength": 1 }] });
    QuestionText: |generator| {
        let part = generator.subschema_for::<DecisionPart>();
        let parts = json!({ "type": "array", "items": { "allOf": [part, of_kinds(OF_QUESTIONS)] }, "minItems": 1 });
        json!({ "anyOf": [{ "type": "string", "minLength": 1 }, parts] })
    };
    CacheMode: |_g| one_of(PromptCacheOptions::MODES);
    CacheTime: |_g| one_of(PromptCacheOptions::LIFETIMES);
    DecisionText: |generator| text_or_list_of(generator.subschema_for::<DecisionPart>());
    DecisionInput: |generator| {
        let items = json!({ "type": "array", "items": generator.subschema_for::<DecisionItem>(), "minItems": 1 });
        json!({ "anyOf": [text(), items] })
    };
}

/// An object of one of these types.
fn of_kinds(kinds: &[&str]) -> Value {
    case([("type", one_of(kinds))], &[])
}

/// A text, or parts of these types.
fn text_of(kinds: &[&str]) -> Value {
    text_or_list_of(of_kinds(kinds))
}

/// What a part has, by its type.
fn part_cases(schema: &mut Schema) {
    let text = case([("type", one_of(&["input_text", "output_text"])), ("text", given())], &[]);
    let value = json!({ "type": ["array", "object"] });
    let data = case([("type", one_of(&["input_json"])), ("data", value)], &[]);
    let refusal = case([("type", one_of(&["refusal"])), ("refusal", given())], &[]);
    cases(schema, [text, data, refusal]);
}

/// What an item has, by its type, and what a message says, by its role.
fn item_cases(schema: &mut Schema) {
    let of_calls = ["name", "arguments", "input", "output", "call_id"];
    let message = |roles: &[&str], kinds: &[&str]| {
        let mut of = case([("role", one_of(roles)), ("content", text_of(kinds))], &of_calls);
        of["properties"]["type"] = one_of(&["message"]);
        of
    };
    let call = |kind: &str, argument: &str, other: &str| {
        let required =
            [("type", one_of(&[kind])), ("name", given()), (argument, given()), ("call_id", given())];
        case(required, &["role", "content", other, "output"])
    };
    let outputs = ["function_call_output", "custom_tool_call_output"];
    let output = [("type", one_of(&outputs)), ("output", text_of(OF_SYSTEM)), ("call_id", given())];
    cases(
        schema,
        [
            message(&["user"], OF_QUESTIONS),
            message(&["system", "developer"], OF_SYSTEM),
            message(&["assistant"], OF_ASSISTANT),
            call("function_call", "arguments", "input"),
            call("custom_tool_call", "input", "arguments"),
            case(output, &["role", "content", "name", "arguments", "input"]),
        ],
    );
}

/// What a question has, by its type.
fn question_cases(schema: &mut Schema) {
    let of = |kind: &str| ("type", one_of(&[kind]));
    cases(
        schema,
        [
            case([of("predicate")], &["choices", "levels"]),
            case([of("choice"), ("choices", given())], &["levels"]),
            case([of("score"), ("levels", given())], &["choices"]),
        ],
    );
}
