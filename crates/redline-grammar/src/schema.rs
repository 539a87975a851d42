//! What is looked at in a JSON schema before it is compiled: its size, what no answer could meet, and keys that are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use crate::error::GrammarError;
use crate::levels;

/// Maximum number of choices, and of values of an `enum`.
pub(crate) const MAX_CHOICES: usize = 10_000;
/// Maximum number of values inside each other.
const MAX_DEPTH: usize = 64;
/// Maximum number of values of all kinds.
const MAX_VALUES: usize = 100_000;
/// Formats of strings that are met. Others are annotations for people, as the standard says, and are left out.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"];
/// Keys that are not met, and not annotations either.
const REFUSED: &[&str] = &[
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
];
/// Keys by which other schemas describe a value, too.
pub(crate) const TOGETHER: &[&str] = &["allOf", "anyOf", "oneOf", "$ref"];
/// Keys whose value is a schema.
const SCHEMA: &[&str] =
    &["additionalProperties", "items", "additionalItems", "not", "if", "then", "else", "contains"];
/// Keys whose value is a list of schemas.
const SCHEMAS: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems", "items"];
/// Keys whose value is an object of schemas.
const NAMED_SCHEMAS: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];

const HINT: &str = "leave it out, and check answers for it";

/// Refuses a schema that is too large, that has keys which are not met, or that no finite answer meets. Leaves out the formats that are
/// annotations, and the options of the library.
pub(crate) fn check(schema: &mut Value) -> Result<(), GrammarError> {
    let mut left = MAX_VALUES;
    measure(schema, 0, &mut left)?;
    levels::check_schema(schema)?;
    if let Value::Object(keys) = schema {
        keys.remove("x-guidance");
    }
    visit(schema, Pointer::Root, &mut clean)?;
    let productive = Productive::of(schema);
    if !productive.value(schema) {
        let fact = "no finite answer meets the schema: something that is required requires itself".to_owned();
        return Err(GrammarError::new(fact, "make one of the properties optional"));
    }
    Ok(())
}

/// Refuses a value that is nested too deeply or has too many parts.
fn measure(value: &Value, depth: usize, left: &mut usize) -> Result<(), GrammarError> {
    if depth > MAX_DEPTH {
        return Err(GrammarError::new(
            "the schema is nested too deeply",
            "nest at most 64 lists and objects",
        ));
    }
    *left = left.checked_sub(1).ok_or_else(|| {
        GrammarError::new("the schema is too large", "give at most 100,000 keys and values")
    })?;
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| measure(value, depth + 1, left)),
        Value::Object(keys) => keys.values().try_for_each(|value| measure(value, depth + 1, left)),
        _ => Ok(()),
    }
}

/// Refuses keys that are not met, and leaves out formats that are annotations.
fn clean(keys: &mut Map<String, Value>, pointer: Pointer<'_>) -> Result<(), GrammarError> {
    if keys.get("uniqueItems") == Some(&Value::Bool(false)) {
        keys.remove("uniqueItems");
    }
    if !TOGETHER.iter().any(|key| keys.contains_key(*key)) {
        // Where no other schema evaluates any, these are the additional ones.
        for (key, plain) in [("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")]
        {
            if let Some(schema) = keys.remove(key) {
                keys.entry(plain).or_insert(schema);
            }
        }
    }
    if let Some(key) = REFUSED.iter().find(|key| keys.contains_key(**key)) {
        return Err(GrammarError::new(format!("`{pointer}/{key}` is not supported"), HINT));
    }
    let is_known = |format: &Value| format.as_str().is_none_or(|format| FORMATS.contains(&format));
    if keys.get("format").is_some_and(|format| !is_known(format)) {
        keys.remove("format");
    }
    if let Some(values) =
        keys.get("enum").and_then(Value::as_array).filter(|values| values.len() > MAX_CHOICES)
    {
        let fact = format!("`{pointer}/enum` has {} values", values.len());
        return Err(GrammarError::new(fact, "give at most 10,000"));
    }
    Ok(())
}

/// The place of a value in a schema; as text, a JSON pointer.
#[derive(Clone, Copy)]
pub(crate) enum Pointer<'a> {
    Root,
    Key(&'a Pointer<'a>, &'a str),
    Index(&'a Pointer<'a>, usize),
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("#"),
            Self::Key(of, key) => write!(f, "{of}/{}", key.replace('~', "~0").replace('/', "~1")),
            Self::Index(of, index) => write!(f, "{of}/{index}"),
        }
    }
}

/// Looks at an object that is a schema, whose place is given.
pub(crate) type Visitor<'v> =
    dyn FnMut(&mut Map<String, Value>, Pointer<'_>) -> Result<(), GrammarError> + 'v;

/// Calls `of` for each object that is a schema, with its place.
pub(crate) fn visit(
    schema: &mut Value,
    place: Pointer<'_>,
    of: &mut Visitor<'_>,
) -> Result<(), GrammarError> {
    let Value::Object(keys) = schema else { return Ok(()) };
    of(keys, place)?;
    for (key, value) in keys {
        let place = Pointer::Key(&place, key);
        match value {
            Value::Array(values) if SCHEMAS.contains(&key.as_str()) => {
                for (index, value) in values.iter_mut().enumerate() {
                    visit(value, Pointer::Index(&place, index), of)?;
                }
            }
            Value::Object(named) if NAMED_SCHEMAS.contains(&key.as_str()) => {
                for (name, value) in named {
                    visit(value, Pointer::Key(&place, name), of)?;
                }
            }
            _ if SCHEMA.contains(&key.as_str()) => visit(value, place, of)?,
            _ => {}
        }
    }
    Ok(())
}

/// The references of a schema that some finite value meets: the least set for which that is consistent.
struct Productive<'a> {
    root: &'a Value,
    references: BTreeMap<&'a str, bool>,
}

impl<'a> Productive<'a> {
    fn of(root: &'a Value) -> Self {
        let inside = |value| {
            let mut references = BTreeSet::new();
            levels::collect(value, &mut references);
            references
        };
        let references: BTreeMap<&str, bool> =
            inside(root).into_iter().map(|reference| (reference, false)).collect();
        let mut open: Vec<&str> = references.keys().copied().collect();
        let mut productive = Self { root, references };
        // The references whose schemas contain one.
        let mut around: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for &reference in &open {
            for inner in productive.target(reference).map(inside).into_iter().flatten() {
                around.entry(inner).or_default().push(reference);
            }
        }
        while let Some(reference) = open.pop() {
            let is_met = productive.target(reference).is_none_or(|schema| productive.value(schema));
            if is_met && productive.references.insert(reference, true) == Some(false) {
                open.extend(around.get(reference).into_iter().flatten());
            }
        }
        productive
    }

    /// What a reference refers to; `None` if that is not a place in the schema, which the compiler refuses or knows.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Whether some finite value meets a schema.
    fn value(&self, schema: &Value) -> bool {
        let Value::Object(keys) = schema else { return schema != &Value::Bool(false) };
        let reference = keys.get("$ref").and_then(Value::as_str);
        let of_list = |key: &str| keys.get(key).and_then(Value::as_array);
        reference.is_none_or(|reference| self.references.get(reference).copied().unwrap_or(true))
            && of_list("allOf").is_none_or(|all| all.iter().all(|schema| self.value(schema)))
            && ["anyOf", "oneOf"]
                .iter()
                .all(|key| of_list(key).is_none_or(|any| any.iter().any(|schema| self.value(schema))))
            && of_list("enum").is_none_or(|values| !values.is_empty())
            && self.some_type(keys)
    }

    /// Whether some finite value of one of the types that `keys` allow meets them.
    fn some_type(&self, keys: &Map<String, Value>) -> bool {
        let is_type = |name: &str| match keys.get("type") {
            Some(Value::String(only)) => only == name,
            Some(Value::Array(names)) => names.iter().any(|other| other == name),
            _ => true,
        };
        let others = ["string", "number", "integer", "boolean", "null"];
        others.into_iter().any(is_type)
            || (is_type("object") && self.object(keys))
            || (is_type("array") && self.array(keys))
            || !["object", "array"].into_iter().any(is_type)
    }

    fn object(&self, keys: &Map<String, Value>) -> bool {
        let required = keys.get("required").and_then(Value::as_array).into_iter().flatten();
        required.filter_map(Value::as_str).all(|name| {
            let own = keys.get("properties").and_then(|properties| properties.get(name));
            own.or_else(|| keys.get("additionalProperties")).is_none_or(|schema| self.value(schema))
        })
    }

    fn array(&self, keys: &Map<String, Value>) -> bool {
        let least = keys.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let prefix = keys.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let first = prefix.iter().take(usize::try_from(least).unwrap_or(usize::MAX));
        let others = keys.get("items").filter(|_| least > prefix.len() as u64);
        first.chain(others).all(|schema| self.value(schema))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(mut schema: Value) -> String {
        check(&mut schema).unwrap_err().fact
    }

    #[test]
    fn what_is_not_met_is_named_with_its_place() {
        let not = json!({"properties": {"a/b": {"anyOf": [{}, {"not": {}}]}}});
        assert_eq!(refused(not), "`#/properties/a~1b/anyOf/1/not` is not supported");
        assert_eq!(
            refused(json!({"$defs": {"x": {"uniqueItems": true}}})),
            "`#/$defs/x/uniqueItems` is not supported"
        );
        // As names of properties, and where they ask for nothing, the same words are accepted.
        check(&mut json!({"properties": {"not": {}, "if": {"uniqueItems": false}}, "enum": [{"not": 1}]}))
            .unwrap();
    }

    #[test]
    fn what_no_other_schema_evaluates_is_additional() {
        let mut schema = json!({"properties": {"a": {}}, "unevaluatedProperties": false,
            "$defs": {"b": {"prefixItems": [{}], "unevaluatedItems": {"type": "string"}},
                "c": {"additionalProperties": true, "unevaluatedProperties": false}}});
        check(&mut schema).unwrap();
        let expected = json!({"properties": {"a": {}}, "additionalProperties": false,
            "$defs": {"b": {"prefixItems": [{}], "items": {"type": "string"}}, "c": {"additionalProperties": true}}});
        assert_eq!(schema, expected);
        for key in ["unevaluatedProperties", "unevaluatedItems"] {
            assert!(refused(json!({key: false, "anyOf": [{"properties": {"a": {}}}]})).contains(key));
        }
        // `false` forbids something, unless no item is to be unlike the others.
        for key in ["contains", "propertyNames", "if", "not"] {
            assert!(refused(json!({key: false})).contains(key), "{key}");
        }
    }

    #[test]
    fn annotations_are_left_out() {
        let mut schema = json!({"x-guidance": {"lenient": true}, "items": {"format": "path", "type": "string"},
            "properties": {"format": {"format": "date"}}});
        check(&mut schema).unwrap();
        assert_eq!(
            schema,
            json!({"items": {"type": "string"}, "properties": {"format": {"format": "date"}}})
        );
    }

    #[test]
    fn a_schema_that_never_ends_is_refused() {
        let itself = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        assert!(refused(itself).contains("no finite answer"));
        let by_turns = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1},
            "b": {"type": "object", "required": ["x"], "additionalProperties": {"$ref": "#/$defs/a"}}}});
        assert!(refused(by_turns).contains("no finite answer"));
        for finite in [
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            json!({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
            json!({"type": "array", "items": {"$ref": "#"}}),
            json!({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"$ref": "#"}}}),
        ] {
            check(&mut finite.clone()).unwrap_or_else(|error| panic!("{finite}: {error}"));
        }
    }

    #[test]
    fn a_schema_has_limits() {
        let deep = (0..70).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(refused(deep).contains("nested too deeply"));
        assert!(refused(json!({"enum": vec![1; 100_001]})).contains("too large"));
        assert!(refused(json!({"enum": vec![1; 10_001]})).contains("10001 values"));
    }
}
