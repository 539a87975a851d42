//! Objects without keys that their schema does not name.

use serde_json::{Map, Value};

use crate::error::GrammarError;
use crate::schema::{Pointer, TOGETHER, visit};

/// Closes the objects of a schema: one whose schema has `properties`, and says nothing about further ones, gets
/// `additionalProperties: false`. The values of the new schema are values of the old one. JSON Schema would let a model add any keys, as
/// small ones do; other servers close objects, too. `None` if there is nothing to close, or if several schemas describe one object.
pub fn closed(schema: &Value) -> Option<Value> {
    let mut closed = schema.clone();
    visit(&mut closed, Pointer::Root, &mut stands_alone).ok()?;
    let mut changes = false;
    let mut close = |keys: &mut Map<String, Value>, _: Pointer<'_>| {
        changes |= close(keys);
        Ok(())
    };
    visit(&mut closed, Pointer::Root, &mut close).ok()?;
    changes.then_some(closed)
}

/// Whether a schema describes its object alone: an error if it does not.
fn stands_alone(keys: &mut Map<String, Value>, pointer: Pointer<'_>) -> Result<(), GrammarError> {
    let has = |names: &[&str]| names.iter().any(|key| keys.contains_key(*key));
    let shares = has(&["properties", "required", "minProperties", "additionalProperties"]) && has(TOGETHER);
    if shares || keys.contains_key("allOf") {
        return Err(GrammarError::new(format!("`{pointer}` is described by several schemas"), ""));
    }
    Ok(())
}

/// Closes an object; whether it was open.
fn close(keys: &mut Map<String, Value>) -> bool {
    let Some(properties) = keys.get("properties").and_then(Value::as_object) else { return false };
    let says = ["additionalProperties", "patternProperties", "minProperties", "unevaluatedProperties"]
        .iter()
        .any(|key| keys.contains_key(*key));
    if says || properties.is_empty() {
        return false;
    }
    // What is required and not described may have any value.
    let required = keys.get("required").and_then(Value::as_array).into_iter().flatten();
    let others = required.filter_map(Value::as_str).filter(|name| !properties.contains_key(*name));
    let others: Vec<String> = others.map(str::to_owned).collect();
    if let Some(Value::Object(properties)) = keys.get_mut("properties") {
        properties.extend(others.into_iter().map(|name| (name, Value::Object(Map::new()))));
    }
    keys.insert("additionalProperties".to_owned(), Value::Bool(false));
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_have_the_keys_that_are_named() {
        let inner = json!({"type": "object", "properties": {"b": {}}, "required": ["b"]});
        let own = closed(&json!({"type": "object", "properties": {"a": inner, "c": {"items": inner}},
            "$defs": {"d": {"properties": {"e": {"anyOf": [inner, {"type": "null"}]}}}}}));
        let inner = json!({"type": "object", "properties": {"b": {}}, "required": ["b"], "additionalProperties": false});
        let expected = json!({"type": "object", "properties": {"a": inner, "c": {"items": inner}},
            "$defs": {"d": {"properties": {"e": {"anyOf": [inner, {"type": "null"}]}}, "additionalProperties": false}},
            "additionalProperties": false});
        assert_eq!(own, Some(expected));
    }

    #[test]
    fn a_key_that_is_required_and_not_described_has_any_value() {
        let expected =
            json!({"properties": {"a": {}, "b": {}}, "required": ["b"], "additionalProperties": false});
        assert_eq!(closed(&json!({"properties": {"a": {}}, "required": ["b"]})), Some(expected));
    }

    #[test]
    fn what_says_more_stays_as_it_is() {
        for open in [
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            json!({"properties": {"a": {}}, "patternProperties": {"^x": {}}}),
            json!({"properties": {"a": {}}, "minProperties": 2}),
            json!({"properties": {}}),
            json!({"type": "object"}),
            json!({"properties": {"a": {}}, "unevaluatedProperties": true}),
            json!({"$ref": "#/$defs/a", "required": ["x"], "$defs": {"a": {"properties": {"a": {}}}}}),
            json!({"enum": [{"properties": {"a": {}}}]}),
            json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            json!({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]}),
            json!({"$ref": "#/$defs/a", "properties": {"b": {}}, "$defs": {"a": {"properties": {"a": {}}}}}),
            json!(true),
        ] {
            assert_eq!(closed(&open), None, "{open}");
        }
    }
}
