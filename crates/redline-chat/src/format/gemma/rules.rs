//! The rules of calls whose texts are between marks, and whose keys have no quotation marks.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::error::{ChatFormatError, Subject};
use crate::rules::{Rules, literal};
use crate::tool::is_plain_name;

/// Keys that say nothing about values, or that hold schemas which are referred to.
const SILENT: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$comment",
];
const TYPES: &[&str] = &["string", "integer", "number", "boolean", "null", "array", "object"];
/// A schema of any value.
static ANYTHING: Value = Value::Bool(true);
/// Most references in a row.
const MAX_REFERENCES: usize = 16;
/// Most items that are counted.
const MAX_ITEMS: u64 = 10_000;

/// The rule `calls`, with the marks before and after a call, and around a text.
pub(super) fn add(rules: &mut Rules<'_>, [open, quote, close]: [&str; 3]) -> Result<(), ChatFormatError> {
    let (open, close) = (rules.mark(open), rules.mark(close));
    let call = rules.alternatives("call", |rules, tool| {
        let mut root = rules.tool(tool).schema();
        // Also circles without an end.
        if let Err(error) = redline_grammar::json_value(&root) {
            if rules.tool(tool).strict {
                return Err(ChatFormatError::of_grammar(error, Subject::Tool(tool)));
            }
            root = json!({ "type": "object" });
        }
        let name = literal(&format!("call:{}", rules.tool(tool).name));
        let (known, undefined) = (HashMap::new(), Vec::new());
        let mut values = Values { rules, tool, quote, root: &root, known, undefined };
        let arguments = values.arguments()?;
        values.define_referred()?;
        Ok(format!("{name} {arguments}"))
    })?;
    rules.calls(&format!("{open} {call} {close}"), "");
    Ok(())
}

/// Writes the values of a tool's schema.
struct Values<'v, 'r> {
    rules: &'v mut Rules<'r>,
    tool: usize,
    /// The mark before and after a text.
    quote: &'v str,
    root: &'v Value,
    /// The rules of references, and of any value, whose reference is empty.
    known: HashMap<String, String>,
    /// Those of them that are not defined yet, with what they lead to.
    undefined: Vec<(String, &'v Value)>,
}

impl<'v> Values<'v, '_> {
    /// A schema that is not met: an error of a strict tool.
    fn not_met(&self, fact: impl FnOnce() -> String) -> Result<(), ChatFormatError> {
        if !self.rules.tool(self.tool).strict {
            return Ok(());
        }
        let hint = "leave it out, and check arguments for it";
        Err(ChatFormatError { fact: fact(), subject: Subject::Tool(self.tool), hint })
    }

    /// Whether a schema has no other keys than these, and those that say nothing.
    fn only(&self, schema: &Map<String, Value>, keys: &[&str]) -> Result<(), ChatFormatError> {
        let other = schema.keys().find(|key| !keys.contains(&&***key) && !SILENT.contains(&&***key));
        other.map_or(Ok(()), |key| {
            self.not_met(|| format!("`{key}` is not supported in the calls of this model"))
        })
    }

    /// The rule of what a reference leads to, or of any value if it is empty. It is defined later: it may contain itself, and rules that
    /// lead to each other take no stack.
    fn referred(&mut self, reference: &str, target: &'v Value) -> String {
        if let Some(name) = self.known.get(reference) {
            return name.clone();
        }
        let name = self.rules.new_name("value");
        self.known.insert(reference.to_owned(), name.clone());
        self.undefined.push((name.clone(), target));
        name
    }

    /// Defines the rules that were referred to, and those that these refer to.
    fn define_referred(&mut self) -> Result<(), ChatFormatError> {
        while let Some((name, target)) = self.undefined.pop() {
            let body = match target {
                Value::Bool(true) => self.of_types(&Map::new(), TYPES)?,
                target => self.value(target)?,
            };
            self.rules.define(&name, &body);
        }
        Ok(())
    }

    fn any(&mut self) -> String {
        self.referred("", &ANYTHING)
    }

    /// The arguments of a call, an object.
    fn arguments(&mut self) -> Result<String, ChatFormatError> {
        let mut schema = self.root;
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { break };
            schema = self.target(reference)?;
        }
        match schema.as_object() {
            Some(keys) if keys.get("type").is_none_or(|name| name == "object") => self.object(keys),
            _ => {
                self.not_met(|| "its schema is not of type \"object\"".to_owned())?;
                self.object(&Map::new())
            }
        }
    }

    /// What a reference leads to.
    fn target(&self, reference: &str) -> Result<&'v Value, ChatFormatError> {
        let root: &'v Value = self.root;
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        if target.is_none() {
            self.not_met(|| format!("`{reference}` leads nowhere"))?;
        }
        Ok(target.unwrap_or(&ANYTHING))
    }

    /// The values of a schema.
    fn value(&mut self, schema: &Value) -> Result<String, ChatFormatError> {
        self.rules.check_size()?;
        let Some(keys) = schema.as_object() else {
            if *schema == Value::Bool(false) {
                self.not_met(|| "the schema `false`, which no value meets, is not supported".to_owned())?;
            }
            return Ok(self.any());
        };
        if let Some(reference) = keys.get("$ref").and_then(Value::as_str) {
            self.only(keys, &["$ref"])?;
            let target = self.target(reference)?;
            return Ok(self.referred(reference, target));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            let Some(schemas) = keys.get(key).and_then(Value::as_array) else { continue };
            self.only(keys, &[key, "type"])?;
            if key == "allOf" && schemas.len() > 1 {
                self.not_met(|| {
                    "`allOf` of several schemas is not supported in the calls of this model".to_owned()
                })?;
            }
            // Of schemas that hold together, without `strict`, the first.
            let count = if key == "allOf" { 1 } else { schemas.len() };
            let all: Result<Vec<String>, _> =
                schemas.iter().take(count).map(|schema| self.value(schema)).collect();
            return self.alternatives(all?);
        }
        let listed = keys.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        if let Some(all) = listed.or_else(|| keys.get("const").map(std::slice::from_ref)) {
            self.only(keys, &["enum", "const", "type"])?;
            let is_of_type = |value: &&Value| match keys.get("type") {
                Some(Value::String(name)) => is_of(value, name),
                Some(Value::Array(names)) => {
                    names.iter().any(|name| name.as_str().is_some_and(|name| is_of(value, name)))
                }
                _ => true,
            };
            let all = all.iter().filter(is_of_type).map(|value| self.written(value)).collect();
            return self.alternatives(all);
        }
        let types = match keys.get("type") {
            Some(Value::String(name)) => vec![name.as_str()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ if keys.contains_key("properties") => vec!["object"],
            _ if keys.contains_key("items") => vec!["array"],
            _ => {
                self.only(keys, &[])?;
                return Ok(self.any());
            }
        };
        self.of_types(keys, &types)
    }

    fn alternatives(&self, all: Vec<String>) -> Result<String, ChatFormatError> {
        if all.is_empty() {
            let fact =
                "one of its lists (`enum`, `anyOf`, `oneOf`, `allOf`, `type`) has no value of its type"
                    .to_owned();
            return Err(ChatFormatError {
                fact,
                subject: Subject::Tool(self.tool),
                hint: "list at least one",
            });
        }
        Ok(format!("({})", all.join(" | ")))
    }

    /// The values of a schema that have one of these types.
    fn of_types(&mut self, keys: &Map<String, Value>, types: &[&str]) -> Result<String, ChatFormatError> {
        let all = types.iter().map(|name| match *name {
            "string" => {
                let quote = self.rules.mark(self.quote);
                let text =
                    self.rules.plain_text(self.tool, self.root, &Value::from(keys.clone()), self.quote)?;
                Ok(format!("{quote} {text}"))
            }
            "array" => self.list(keys),
            "object" => self.object(keys),
            name => {
                let mut keys = keys.clone();
                keys.insert("type".to_owned(), json!(name));
                self.rules.json(self.tool, &Value::from(keys))
            }
        });
        let all: Result<Vec<String>, _> = all.collect();
        self.alternatives(all?)
    }

    fn list(&mut self, keys: &Map<String, Value>) -> Result<String, ChatFormatError> {
        self.only(keys, &["type", "items", "minItems", "maxItems"])?;
        let item = self.value(keys.get("items").unwrap_or(&ANYTHING))?;
        let least = keys.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let most = keys.get("maxItems").and_then(Value::as_u64);
        if most.is_some_and(|most| most < least) || least.max(most.unwrap_or(0)) > MAX_ITEMS {
            self.not_met(|| format!("`minItems` {least} and `maxItems` {most:?} are not supported"))?;
            return self.list(&keys.clone().into_iter().filter(|(key, _)| key == "items").collect());
        }
        if most == Some(0) {
            return Ok(r#""[]""#.to_owned());
        }
        let most = most.map_or_else(String::new, |most| (most - 1).to_string());
        let items = format!(r#"{item} ("," {item}){{{},{most}}}"#, least.saturating_sub(1));
        Ok(if least == 0 { format!(r#""[" ({items})? "]""#) } else { format!(r#""[" {items} "]""#) })
    }

    fn object(&mut self, keys: &Map<String, Value>) -> Result<String, ChatFormatError> {
        // More properties than those with names may be left out, unless there are no others.
        self.only(keys, &["type", "properties", "required", "additionalProperties"])?;
        let none = Map::new();
        let properties = keys.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: Vec<&str> = keys
            .get("required")
            .and_then(Value::as_array)
            .map_or_else(Vec::new, |all| all.iter().filter_map(Value::as_str).collect());
        let unnamed = required.iter().filter(|name| !properties.contains_key(**name));
        let mut all = Vec::new();
        let named = properties.iter().map(|(name, schema)| (name.as_str(), schema));
        for (name, schema) in named.chain(unnamed.map(|name| (*name, &ANYTHING))) {
            if !is_plain_name(name) {
                let fact =
                    format!("a property {name:?} has other characters than letters, digits, `_`, `.`, `-`");
                return Err(ChatFormatError {
                    fact,
                    subject: Subject::Tool(self.tool),
                    hint: "give `tool_choice` = \"auto\", or simpler names",
                });
            }
            let value = self.value(schema)?;
            all.push((format!("{} {value}", literal(&format!("{name}:"))), required.contains(&name)));
        }
        let more = keys.get("additionalProperties");
        if !all.is_empty() || more == Some(&Value::Bool(false)) {
            return Ok(format!(r#""{{" {} "}}""#, self.rules.sequence(&all, ",")));
        }
        let value = self.value(more.unwrap_or(&ANYTHING))?;
        let pair = format!(r#"/[A-Za-z0-9_.$\-]{{1,128}}/ ":" {value}"#);
        Ok(format!(r#""{{" ({pair} ("," {pair})*)? "}}""#))
    }

    /// A value as it is written.
    fn written(&self, value: &Value) -> String {
        let list = |open: &str, all: Vec<String>, close: &str| {
            let separated = all.join(r#" "," "#);
            format!("{} {separated} {}", literal(open), literal(close))
        };
        match value {
            Value::String(text) => {
                let quote = self.rules.mark(self.quote);
                format!("{quote} {} {quote}", literal(text))
            }
            Value::Array(items) => list("[", items.iter().map(|item| self.written(item)).collect(), "]"),
            Value::Object(keys) => {
                let pair = |(key, value): (&String, &Value)| {
                    format!("{} {}", literal(&format!("{key}:")), self.written(value))
                };
                list("{", keys.iter().map(pair).collect(), "}")
            }
            value => literal(&value.to_string()),
        }
    }
}

/// Whether a value has a type of JSON Schema.
fn is_of(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => {
            name == "number"
                || name == "integer"
                    && (!number.is_f64() || number.as_f64().is_some_and(|n| n.fract() == 0.0))
        }
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
    }
}
