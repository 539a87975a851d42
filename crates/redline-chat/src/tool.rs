//! The tools that a model may call.

use serde_json::{Map, Value};

/// A tool that a model may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments; `None` if it has none.
    pub parameters: Option<Value>,
    /// Whether the schema has to be met where calls are demanded, or is refused. Otherwise what cannot be met is left out.
    pub strict: bool,
}

/// The tools of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools(pub Vec<Tool>);

/// Most named arguments of a tool whose calls are demanded.
const MAX_ARGUMENTS: usize = 256;
/// Longest name of an argument in bytes.
const MAX_NAME: usize = 128;

/// The types of JSON that a value may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Types {
    /// Whether it may be a string.
    pub(crate) string: bool,
    /// Whether it may be something else.
    pub(crate) other: bool,
}

/// Levels of references and alternatives of a schema that are followed.
const MAX_DEPTH: usize = 8;
/// Schemas that are looked at to find the types of an argument.
const MAX_SCHEMAS: usize = 256;

impl Tools {
    /// Whether there is a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// The types of an argument; anything if the tool does not say.
    pub(crate) fn types(&self, tool: &str, argument: &str) -> Types {
        let schema = self.0.iter().find(|one| one.name == tool).and_then(|one| one.parameters.as_ref());
        let of = schema.and_then(|root| Some((root, root.get("properties")?.get(argument)?)));
        of.map_or(Types { string: true, other: true }, |(root, schema)| {
            types_within(root, schema, MAX_DEPTH, &mut { MAX_SCHEMAS })
        })
    }
}

impl Tool {
    /// The schema of the arguments, an object.
    pub(crate) fn schema(&self) -> Value {
        let nothing =
            || serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": false });
        self.parameters.clone().unwrap_or_else(nothing)
    }

    /// The named arguments with their schemas, and whether each is required. `None` if there are too many, or a name cannot be written in
    /// the formats that write names as they are.
    pub(crate) fn arguments(&self) -> Option<Vec<(String, Value, bool)>> {
        let schema = self.schema();
        let required = |name: &str| {
            let list = schema.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(name)))
        };
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Some(Vec::new());
        };
        if properties.len() > MAX_ARGUMENTS || !properties.keys().all(|name| is_plain_name(name)) {
            return None;
        }
        let with_definitions = |of: &Value| {
            let Value::Object(of) = of else { return of.clone() };
            if !Value::from(of.clone()).to_string().contains("$ref") {
                return Value::from(of.clone());
            }
            let kept = ["$defs", "definitions"].into_iter();
            let kept = kept.filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())));
            Value::Object(of.clone().into_iter().chain(kept).collect::<Map<_, _>>())
        };
        let all = properties.iter().map(|(name, of)| (name.clone(), with_definitions(of), required(name)));
        Some(all.collect())
    }
}

/// Whether a name can be written without quotation marks.
pub(crate) fn is_plain_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(|c| c.is_alphanumeric() || "_.-$".contains(c))
}

/// The types that values of a schema have. References begin at the schema itself.
pub(crate) fn types(schema: &Value) -> Types {
    types_within(schema, schema, MAX_DEPTH, &mut { MAX_SCHEMAS })
}

fn types_within(root: &Value, schema: &Value, depth: usize, left: &mut usize) -> Types {
    let any = Types { string: true, other: true };
    *left = left.saturating_sub(1);
    if depth == 0 || *left == 0 {
        return any;
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(any, |target| types_within(root, target, depth - 1, left));
    }
    let of_name = |name: &str| Types { string: name == "string", other: name != "string" };
    let of_value = |value: &Value| Types { string: value.is_string(), other: !value.is_string() };
    let union = |all: &mut dyn Iterator<Item = Types>| {
        all.fold(Types::default(), |a, b| Types { string: a.string || b.string, other: a.other || b.other })
    };
    match (schema.get("type"), schema.get("const"), schema.get("enum")) {
        (Some(Value::String(name)), ..) => return of_name(name),
        (Some(Value::Array(names)), ..) => {
            return union(&mut names.iter().filter_map(Value::as_str).map(of_name));
        }
        (_, Some(value), _) => return of_value(value),
        (_, _, Some(Value::Array(values))) => return union(&mut values.iter().map(of_value)),
        _ => {}
    }
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    alternatives.map_or(any, |all| union(&mut all.iter().map(|one| types_within(root, one, depth - 1, left))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_found_through_references_and_alternatives() {
        let of = |schema: Value| {
            let Types { string, other } = types(&schema);
            (string, other)
        };
        assert_eq!(of(json!({ "type": "string" })), (true, false));
        assert_eq!(of(json!({ "enum": ["a", 1] })), (true, true));
        assert_eq!(of(json!({ "anyOf": [{ "type": "string" }, { "const": "b" }] })), (true, false));
        assert_eq!(
            of(json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": ["integer", "null"] } } })),
            (false, true)
        );
        assert_eq!(of(json!({})), (true, true));
    }

    /// Alternatives of alternatives take no longer than a few.
    #[test]
    fn alternatives_without_end_are_anything() {
        let again = vec![json!({ "$ref": "#/$defs/a" }); 300];
        let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": again } } });
        assert_eq!(types(&schema), Types { string: true, other: true });
    }

    #[test]
    fn arguments_are_few_and_have_plain_names() {
        let tool = |properties: Value| Tool {
            parameters: Some(json!({ "properties": properties })),
            ..Tool::default()
        };
        assert_eq!(tool(json!({ "a": {}, "b_1": {} })).arguments().map(|all| all.len()), Some(2));
        assert_eq!(tool(json!({ "a>b": {} })).arguments(), None);
        let many: Map<String, Value> = (0..257).map(|index| (format!("a{index}"), json!({}))).collect();
        assert_eq!(tool(Value::from(many)).arguments(), None);
    }
}
