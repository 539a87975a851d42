//! The columns of an answer in JSON whose schema is known: one for each property of its object.

use crate::cell::{Cell, Holds, Scalar};
use crate::json::Json;

/// References that are followed to find the type of a property.
const MAX_REFERENCES: usize = 8;

/// The properties of an object, in the order of the schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(String, Holds)>);

impl Fields {
    /// The properties that the schema of an object has. Other schemas have none.
    pub(crate) fn of_schema(schema: &Json) -> Self {
        let of_object = resolved(schema, schema);
        let Some(Json::Object(properties)) = of_object.get("properties") else { return Self::default() };
        let holds = |(name, value): &(String, Json)| (name.clone(), holds(value, schema));
        Self(properties.iter().map(holds).collect())
    }

    /// Their columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, Holds)> {
        self.0.iter().map(|(name, holds)| (name.as_str(), *holds))
    }

    /// Their values in an answer; none if it was cut short.
    pub(crate) fn cells(&self, answer: &str) -> Vec<Cell> {
        let answer: Json = serde_json::from_str(answer).unwrap_or(Json::Null);
        let value = |(name, _): &(String, Holds)| answer.get(name).cloned().map_or(Cell::None, Cell::Value);
        self.0.iter().map(value).collect()
    }
}

/// The schema that a reference within `root` stands for.
fn resolved<'a>(mut schema: &'a Json, root: &'a Json) -> &'a Json {
    for _ in 0..MAX_REFERENCES {
        let Some(Json::Text(reference)) = schema.get("$ref") else { break };
        let Some(path) = reference.strip_prefix('#') else { break };
        let step = |at: &'a Json, key: &str| at.get(&key.replace("~1", "/").replace("~0", "~"));
        match path.split('/').skip(1).try_fold(root, step) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

/// What a column of values that a schema allows holds.
fn holds(schema: &Json, root: &Json) -> Holds {
    let mut types = Vec::new();
    collect(schema, root, 0, &mut types);
    let first = types.first().copied();
    if types.iter().all(|found| Some(*found) == first) {
        return first.unwrap_or(Holds::Value(Scalar::Json));
    }
    let is_number = |holds: &Holds| matches!(holds, Holds::Value(Scalar::Integer | Scalar::Real));
    Holds::Value(if types.iter().all(is_number) { Scalar::Real } else { Scalar::Json })
}

/// Adds what the values that a schema allows are, apart from null.
fn collect(schema: &Json, root: &Json, depth: usize, to: &mut Vec<Holds>) {
    let schema = resolved(schema, root);
    let any = Holds::Value(Scalar::Json);
    if depth == MAX_REFERENCES {
        return to.push(any);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Json::List(branches)) = schema.get(key) {
            return branches.iter().for_each(|branch| collect(branch, root, depth + 1, to));
        }
    }
    if let Some(Json::List(values)) = schema.get("enum") {
        return to.extend(values.iter().filter_map(of_value));
    }
    if let Some(value) = schema.get("const") {
        return to.extend(of_value(value));
    }
    let of_name = |name: &Json| match name {
        Json::Text(name) => match name.as_str() {
            "null" => None,
            "string" => Some(Holds::Value(Scalar::Text)),
            "integer" => Some(Holds::Value(Scalar::Integer)),
            "number" => Some(Holds::Value(Scalar::Real)),
            "boolean" => Some(Holds::Value(Scalar::Flag)),
            "array" => match schema.get("items").map(|items| holds(items, root)) {
                Some(Holds::Value(of)) if schema.get("prefixItems").is_none() => Some(Holds::Values(of)),
                _ => Some(any),
            },
            _ => Some(any),
        },
        _ => Some(any),
    };
    match schema.get("type") {
        Some(Json::List(names)) => to.extend(names.iter().filter_map(of_name)),
        Some(name) => to.extend(of_name(name)),
        None => to.push(any),
    }
}

/// What a value is, apart from null.
fn of_value(value: &Json) -> Option<Holds> {
    Some(Holds::Value(match value {
        Json::Null => return None,
        Json::Bool(_) => Scalar::Flag,
        Json::Number(number) if number.is_f64() => Scalar::Real,
        Json::Number(_) => Scalar::Integer,
        Json::Text(_) => Scalar::Text,
        Json::List(_) | Json::Object(_) => Scalar::Json,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(schema: &str) -> Fields {
        Fields::of_schema(&serde_json::from_str(schema).unwrap())
    }

    fn of_property(schema: &str) -> Holds {
        let fields = fields(&format!(
            r##"{{"properties":{{"p":{schema}}},"$defs":{{"a~/b":{{"type":"boolean"}},"loop":{{"$ref":"#/$defs/loop"}}}}}}"##
        ));
        fields.0[0].1
    }

    #[test]
    fn a_column_holds_what_its_schema_allows() {
        let value = Holds::Value;
        for (schema, expected) in [
            (r#"{"type":"string","maxLength":3}"#, value(Scalar::Text)),
            (r#"{"type":["null","integer"]}"#, value(Scalar::Integer)),
            (r#"{"anyOf":[{"type":"integer"},{"type":"number"},{"type":"null"}]}"#, value(Scalar::Real)),
            (r#"{"oneOf":[{"type":"integer"},{"type":"string"}]}"#, value(Scalar::Json)),
            (r#"{"enum":["a",null,"b"]}"#, value(Scalar::Text)),
            (r#"{"enum":["a",1]}"#, value(Scalar::Json)),
            (r#"{"enum":[1,2.5]}"#, value(Scalar::Real)),
            (r#"{"const":true}"#, value(Scalar::Flag)),
            (r#"{"const":null}"#, value(Scalar::Json)),
            (r#"{"const":{"a":1}}"#, value(Scalar::Json)),
            (r#"{"type":"object"}"#, value(Scalar::Json)),
            (r#"{"type":"array","items":{"type":"number"}}"#, Holds::Values(Scalar::Real)),
            (r#"{"type":"array","items":{"type":"array","items":{"type":"number"}}}"#, value(Scalar::Json)),
            (r#"{"type":"array","items":{"type":"number"},"prefixItems":[{}]}"#, value(Scalar::Json)),
            (r#"{"type":"array"}"#, value(Scalar::Json)),
            (r##"{"$ref":"#/$defs/a~0~1b"}"##, value(Scalar::Flag)),
            (r##"{"$ref":"#/$defs/loop"}"##, value(Scalar::Json)),
            (r##"{"$ref":"#/$defs/none"}"##, value(Scalar::Json)),
            ("true", value(Scalar::Json)),
        ] {
            assert_eq!(of_property(schema), expected, "{schema}");
        }
        let nested = "{\"anyOf\":[".repeat(40) + "{\"type\":\"string\"}" + &"]}".repeat(40);
        assert_eq!(of_property(&nested), value(Scalar::Json));
    }

    #[test]
    fn properties_keep_their_order_and_may_be_behind_a_reference() {
        let schema = r##"{"$ref":"#/$defs/A","$defs":{"A":{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}}}}}"##;
        let fields = fields(schema);
        let names: Vec<_> = fields.columns().map(|(name, _)| name).collect();
        assert_eq!(names, ["z", "a"]);
        let number = |n: i64| Cell::Value(Json::Number(n.into()));
        assert_eq!(fields.cells(r#"{"a": 1, "z": null, "b": 2}"#), [Cell::Value(Json::Null), number(1)]);
        assert_eq!(fields.cells(r#"{"a": 1, "z": "x"#), [Cell::None, Cell::None]);
        assert_eq!(fields.cells("[1]"), [Cell::None, Cell::None]);
        assert_eq!(Fields::of_schema(&Json::Bool(true)), Fields::default());
    }
}
