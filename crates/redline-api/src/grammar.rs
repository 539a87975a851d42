//! What a generated text has to be: the names that OpenAI, vLLM, SGLang and llama.cpp have for grammars.

use redline_engine::{Grammar, GrammarKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::parts::part;
use crate::json::shape::{self, schemas};
use crate::json::text::JsonText;

/// The field with the schema of a `response_format`.
const OF_FORMAT: &str = "response_format.json_schema.schema";
/// Longest name of a schema in characters.
const MAX_NAME: usize = 64;

part! {
    /// What the text has to be. At most one of these is given, and then the text ends when nothing may follow.
    pub struct GrammarKeys {
        /// The type of the text: `text`; `json_object`; or `json_schema`, with the schema as `json_schema.schema` or beside the type.
        #[schemars(with = "Option<FormatShape>")]
        pub response_format: TextFormat,
        /// A JSON schema, or one as a text: the text is a value that it allows.
        #[schemars(with = "Option<SchemaShape>")]
        pub json_schema: JsonText,
        /// A regular expression that the whole text matches.
        pub regex: String,
        /// Texts, of which the text is one.
        #[schemars(with = "Option<ChoiceShape>")]
        pub choice: Vec<String>,
        /// A grammar in llguidance's variant of Lark, which begins with the rule `start`, or in llama.cpp's GBNF, with the rule `root`.
        pub grammar: String,
        /// The same as `json_schema`, by vLLM's older name.
        #[schemars(with = "Option<SchemaShape>")]
        pub guided_json: JsonText,
        /// The same as `regex`, by vLLM's older name.
        pub guided_regex: String,
        /// The same as `choice`, by vLLM's older name.
        #[schemars(with = "Option<ChoiceShape>")]
        pub guided_choice: Vec<String>,
        /// The same as `grammar`, by vLLM's older name.
        pub guided_grammar: String,
        /// The same as `grammar`, by SGLang's name.
        pub ebnf: String,
        /// One of the above, as vLLM names them.
        pub structured_outputs: StructuredOutputs,
    }
}

/// The type of a text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "TextFormat")]
pub struct TextFormat {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The schema with its name.
    pub json_schema: Option<NamedSchema>,
    /// The schema, beside its type.
    pub schema: Option<JsonText>,
    /// The same as `schema`, by the name of Text Generation Inference.
    pub value: Option<JsonText>,
    /// Its name.
    pub name: Option<String>,
    /// What it is for. Accepted and not used.
    pub description: Option<String>,
    /// Accepted and not used: the text always is a value that the schema allows.
    pub strict: Option<bool>,
}

/// A schema with its name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "NamedSchema")]
pub struct NamedSchema {
    /// The schema.
    pub schema: Option<JsonText>,
    /// Its name: up to 64 letters, digits, `_` and `-`.
    pub name: Option<String>,
    /// What it is for. Accepted and not used.
    pub description: Option<String>,
    /// Accepted and not used: the text always is a value that the schema allows.
    pub strict: Option<bool>,
}

/// Grammars as vLLM names them: one of the first five.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "StructuredOutputs")]
pub struct StructuredOutputs {
    /// A JSON schema, or one as a text.
    #[schemars(with = "Option<SchemaShape>")]
    pub json: Option<JsonText>,
    /// A regular expression.
    pub regex: Option<String>,
    /// Texts to choose from.
    #[schemars(with = "Option<ChoiceShape>")]
    pub choice: Option<Vec<String>>,
    /// A grammar in Lark or GBNF.
    pub grammar: Option<String>,
    /// Any JSON object.
    pub json_object: Option<bool>,
    /// Leave out white space between the parts of JSON.
    pub disable_any_whitespace: Option<bool>,
}

objects!(TextFormat, NamedSchema, StructuredOutputs);

/// The type of a text: see [`TextFormat`].
pub(crate) struct FormatShape;
/// A JSON schema.
struct SchemaShape;
/// Different texts.
struct ChoiceShape;

schemas! {
    FormatShape: |_g| {
        let schema = json!({ "type": ["object", "string", "null"] });
        let mut named = json!({
            "name": { "type": ["string", "null"], "pattern": "^[a-zA-Z0-9_-]{1,64}$" },
            "description": { "type": ["string", "null"] },
            "strict": { "type": ["boolean", "null"] },
            "schema": schema
        });
        let nested = json!({ "type": ["object", "null"], "properties": named, "additionalProperties": false });
        named["type"] = shape::one_of(&["text", "json_object", "json_schema"]);
        (named["json_schema"], named["value"]) = (nested, schema);
        json!({ "type": "object", "properties": named, "required": ["type"], "additionalProperties": false })
    };
    SchemaShape: |_g| json!({ "type": ["object", "string", "boolean"] });
    ChoiceShape: |_g| json!({
        "type": "array", "items": { "type": "string", "minLength": 1 }, "minItems": 1, "maxItems": 10_000
    });
}

/// A grammar, with the field that gives it.
type Given = (&'static str, Grammar);

impl GrammarKeys {
    /// The field that gives a grammar, if one is given.
    pub fn param(&self) -> Option<&'static str> {
        self.given().map(|name| if name == "response_format" { OF_FORMAT } else { name })
    }

    /// The grammar, if one is given, and the field that gives it.
    pub fn grammar(self) -> Result<Option<Given>, ApiError> {
        let mut given = Vec::new();
        if let Some(format) = self.response_format {
            given.extend(format.grammar("response_format", OF_FORMAT)?);
        }
        for (param, schema) in [("json_schema", self.json_schema), ("guided_json", self.guided_json)] {
            given.extend(schema.map(|schema| (param, of_schema(&schema, false))));
        }
        for (param, regex) in [("regex", self.regex), ("guided_regex", self.guided_regex)] {
            given.extend(regex.map(|regex| (param, Grammar::new(GrammarKind::Regex, regex))));
        }
        for (param, choices) in [("choice", self.choice), ("guided_choice", self.guided_choice)] {
            given.extend(choices.map(|choices| (param, of_choices(&choices))));
        }
        let grammars =
            [("grammar", self.grammar), ("guided_grammar", self.guided_grammar), ("ebnf", self.ebnf)];
        for (param, grammar) in grammars {
            given.extend(grammar.map(|grammar| (param, of_rules(grammar))));
        }
        if let Some(outputs) = self.structured_outputs {
            given.push(outputs.grammar()?);
        }
        match given.as_slice() {
            [(first, _), (second, _), ..] => {
                let fact = format!("`{first}` and `{second}` both say what the text has to be");
                Err(refused(second, fact, "give one of them"))
            }
            _ => Ok(given.pop()),
        }
    }
}

impl TextFormat {
    /// Its type, if it is known; else `text`.
    pub(crate) fn known_kind(&self) -> &'static str {
        ["json_object", "json_schema"].into_iter().find(|kind| *kind == self.kind).unwrap_or("text")
    }

    /// The grammar, if the type is not any text. `param` is the field with this format, `of_schema` the field with a schema in it.
    pub(crate) fn grammar(
        self,
        param: &'static str,
        of_schema_param: &'static str,
    ) -> Result<Option<Given>, ApiError> {
        let kind = format!("{param}.type");
        let nested = self.json_schema.unwrap_or_default();
        let schema = nested.schema.or(self.schema).or(self.value);
        if let Some(name) = nested.name.or(self.name).filter(|name| !is_name(name)) {
            let place = format!("{param}.json_schema.name");
            return Err(refused(
                &place,
                format!("the name of the schema is {name:?}"),
                "give 1 to 64 letters, digits, `_` and `-`",
            ));
        }
        match (&*self.kind, schema) {
            ("text", None) => Ok(None),
            ("json_object", None) => Ok(Some((param, Grammar::json_object()))),
            // llama.cpp's clients give a schema with either type.
            ("json_schema" | "json_object", Some(schema)) => {
                Ok(Some((of_schema_param, of_schema(&schema, false))))
            }
            ("json_schema", None) => Err(refused(
                of_schema_param,
                "no schema is given",
                "give `json_schema` = {\"name\": ..., \"schema\": {...}}",
            )),
            ("text", Some(_)) => Err(refused(
                &kind,
                "a schema is given for the type \"text\"",
                "give the type \"json_schema\"",
            )),
            (other, _) => {
                let fact = format!("`{kind}` is {other:?}");
                Err(refused(&kind, fact, "give \"text\", \"json_object\" or \"json_schema\""))
            }
        }
    }
}

impl StructuredOutputs {
    fn grammar(self) -> Result<Given, ApiError> {
        let compact = self.disable_any_whitespace == Some(true);
        let mut given = Vec::new();
        given.extend(self.json.map(|schema| ("structured_outputs.json", of_schema(&schema, compact))));
        let of_regex = |regex| ("structured_outputs.regex", Grammar::new(GrammarKind::Regex, regex));
        given.extend(self.regex.map(of_regex));
        given.extend(self.choice.map(|choices| ("structured_outputs.choice", of_choices(&choices))));
        given.extend(self.grammar.map(|grammar| ("structured_outputs.grammar", of_rules(grammar))));
        if self.json_object == Some(true) {
            let object = JsonText::object(r#"{"type":"object"}"#);
            given.push(("structured_outputs.json_object", of_schema(&object, compact)));
        }
        match (given.pop(), given.is_empty()) {
            (Some(given), true) => Ok(given),
            _ => {
                let fact = "`structured_outputs` does not have exactly one grammar";
                let hint = "give one of `json`, `regex`, `choice`, `grammar`, `json_object`";
                Err(refused("structured_outputs", fact, hint))
            }
        }
    }
}

/// The grammar of a schema, which may be the text of one.
pub(crate) fn of_schema(schema: &JsonText, compact: bool) -> Grammar {
    let text = schema.as_str().starts_with('"').then(|| schema.content()).flatten();
    Grammar::of_schema(text.unwrap_or_else(|| schema.as_str().to_owned()), compact)
}

fn of_choices(choices: &[String]) -> Grammar {
    Grammar::new(GrammarKind::Choice, json!(choices).to_string())
}

/// A grammar in Lark, or as llama.cpp writes them, whose rules have another sign.
fn of_rules(grammar: String) -> Grammar {
    let kind = if grammar.contains("::=") { GrammarKind::Gbnf } else { GrammarKind::Lark };
    Grammar::new(kind, grammar)
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<Option<Given>, String> {
        let keys: GrammarKeys = serde_json::from_str(json).map_err(|error| error.to_string())?;
        keys.grammar().map_err(|error| error.to_string())
    }

    #[test]
    fn every_name_of_a_grammar_is_read() {
        use GrammarKind::{Choice, CompactJsonSchema, Gbnf, JsonSchema, Lark, Regex};
        let schema = "response_format.json_schema.schema";
        for (json, param, kind, source) in [
            (
                r#"{"response_format":{"type":"json_object"}}"#,
                "response_format",
                JsonSchema,
                r#"{"type":"object"}"#,
            ),
            (
                r#"{"response_format":{"type":"json_schema","json_schema":{"name":"a-B_1","strict":true,"schema":{"b":1, "a":2}}}}"#,
                schema,
                JsonSchema,
                r#"{"b":1, "a":2}"#,
            ),
            (
                r#"{"response_format":{"type":"json_object","schema":{"a":1}}}"#,
                schema,
                JsonSchema,
                r#"{"a":1}"#,
            ),
            (r#"{"json_schema":"{\"a\": 1}"}"#, "json_schema", JsonSchema, r#"{"a": 1}"#),
            (r#"{"guided_json":{"a":1}}"#, "guided_json", JsonSchema, r#"{"a":1}"#),
            (r#"{"regex":"a+"}"#, "regex", Regex, "a+"),
            (r#"{"guided_choice":["a","é"]}"#, "guided_choice", Choice, r#"["a","é"]"#),
            (r#"{"ebnf":"start: \"a\""}"#, "ebnf", Lark, "start: \"a\""),
            (r#"{"grammar":"root ::= \"a\""}"#, "grammar", Gbnf, "root ::= \"a\""),
            (r#"{"structured_outputs":{"regex":"a"}}"#, "structured_outputs.regex", Regex, "a"),
            (
                r#"{"structured_outputs":{"json_object":true,"disable_any_whitespace":true}}"#,
                "structured_outputs.json_object",
                CompactJsonSchema,
                r#"{"type":"object"}"#,
            ),
        ] {
            assert_eq!(of(json), Ok(Some((param, Grammar::new(kind, source)))), "{json}");
        }
        for none in ["{}", r#"{"response_format":{"type":"text"}}"#, r#"{"regex":null}"#] {
            assert_eq!(of(none), Ok(None), "{none}");
        }
    }

    #[test]
    fn what_makes_no_grammar_is_refused() {
        for (json, expected) in [
            (r#"{"response_format":{"type":"json_schema"}}"#, "no schema is given"),
            (
                r#"{"response_format":{"type":"structural_tag"}}"#,
                "`response_format.type` is \"structural_tag\"",
            ),
            (r#"{"response_format":{"type":"text","schema":{}}}"#, "a schema is given for the type \"text\""),
            (
                r#"{"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}}"#,
                "\"a b\"",
            ),
            (r#"{"response_format":{"kind":"text"}}"#, "unknown field `kind`"),
            (r#"{"response_format":["text"]}"#, "expected an object"),
            (r#"{"regex":"a","choice":["b"]}"#, "`regex` and `choice` both"),
            (r#"{"structured_outputs":{}}"#, "exactly one"),
            (r#"{"structured_outputs":{"regex":"a","json_object":true}}"#, "exactly one"),
            (r#"{"regex":"a","guided_regex":"b"}"#, "`regex` and `guided_regex` both"),
        ] {
            let error = of(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
