//! How many parts of a grammar may lie within each other. The library compiles rules and schemas by recursion, and a stack that is too
//! small for that would end the process.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::GrammarError;

/// Maximum number of rules and brackets of a grammar in Lark, without its JSON schemas.
const MAX_RULES: usize = 16_384;
/// Maximum number of levels of a JSON schema.
const MAX_LEVELS: usize = 4096;
/// Bytes of the stack of a thread that compiles grammars within these limits. Only what is used takes memory.
pub(crate) const STACK_BYTES: usize = if cfg!(debug_assertions) { 512 << 20 } else { 128 << 20 };

/// Refuses a grammar in Lark with too many rules, or with a JSON schema of too many levels.
pub(crate) fn check(lark: &str) -> Result<(), GrammarError> {
    let (mut rest, mut rules) = (lark, 0_usize);
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '"' => after_quoted(after, '"'),
            '#' => after.trim_start_matches(|c| c != '\n'),
            '/' if after.starts_with('/') => after.trim_start_matches(|c| c != '\n'),
            '/' => after_quoted(after, '/'),
            // A token by its name or number.
            '<' => {
                after.find(|c: char| "<>".contains(c) || c.is_whitespace()).map_or(after, |end| &after[end..])
            }
            '%' if after.starts_with("json") => {
                let json = &after["json".len()..];
                let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
                match values.next() {
                    Some(Ok(schema)) => {
                        check_schema(&schema)?;
                        &json[values.byte_offset()..]
                    }
                    // The compiler says what is wrong.
                    _ => json,
                }
            }
            ':' | '(' | '[' | '{' => {
                rules += 1;
                after
            }
            _ => after,
        };
    }
    if rules <= MAX_RULES {
        return Ok(());
    }
    let fact = format!("the grammar has {rules} rules and brackets");
    Err(GrammarError::new(fact, "give at most 16,384"))
}

/// What comes after the next of these marks that has no backslash before it.
fn after_quoted(text: &str, mark: char) -> &str {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = c == mark && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.map_or("", |end| &text[end + mark.len_utf8()..])
}

/// Refuses a JSON schema with too many levels: those of the schema itself, and of each place that it refers to, because these may lead to
/// each other.
pub(crate) fn check_schema(schema: &Value) -> Result<(), GrammarError> {
    let mut references = BTreeSet::new();
    collect(schema, &mut references);
    let target = |reference: &&str| schema.pointer(reference.strip_prefix('#')?);
    let levels: usize = references.iter().filter_map(target).map(levels).sum();
    let levels = levels + self::levels(schema);
    if levels <= MAX_LEVELS {
        return Ok(());
    }
    let fact = format!("the schema may have {levels} levels, those of all its references together");
    Err(GrammarError::new(fact, "refer to fewer and simpler definitions: at most 4,096 levels"))
}

/// Number of lists and objects within each other.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(levels).max().unwrap_or(0),
        Value::Object(keys) => 1 + keys.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// The references anywhere in a value.
pub(crate) fn collect<'a>(value: &'a Value, references: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
        Value::Object(keys) => {
            references.extend(keys.get("$ref").and_then(Value::as_str));
            keys.values().for_each(|value| collect(value, references));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_outside_of_texts() {
        let many = "x: \"a\" -> b ".repeat(MAX_RULES + 1);
        assert!(check(&many).unwrap_err().fact.contains("16385 rules"));
        // What hides rules from a careless reader.
        for before in [
            "<\"> ",
            "/x\n/ ",
            "/a\\/b/ ",
            "\"a\\\"b\" ",
            "# \"\n",
            "// /\n",
            "<[1-2]> ",
            "%json {\"a\": \"{\"} ",
        ] {
            assert!(check(&format!("{before}{many}")).is_err(), "{before}");
        }
        for text in ["\"(\\\"(\"", "/[(:{]\\/:/", "# (:\n", "// (:\n", "%json {\"a\":{\"b\":[{}]}}"] {
            assert!(check(&text.repeat(MAX_RULES + 1)).is_ok(), "{text}");
        }
    }

    #[test]
    fn levels_are_those_of_all_references() {
        let chain = |count: usize, inner: &str| {
            let definitions: Vec<String> = (0..count)
                .map(|i| {
                    format!(
                        "\"d{i}\":{{\"items\":{}}}",
                        inner.replace('?', &format!("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1))
                    )
                })
                .collect();
            let text = format!(
                "{{\"$ref\":\"#/$defs/d0\",\"$defs\":{{{},\"d{count}\":{{}}}}}}",
                definitions.join(",")
            );
            check_schema(&serde_json::from_str(&text).unwrap())
        };
        assert!(chain(1000, "?").is_ok() && chain(3000, "?").is_err());
        assert!(chain(1100, "{\"items\":{\"items\":?}}").is_err());
        let circle = serde_json::json!({ "$ref": "#/a", "a": { "items": { "$ref": "#" } } });
        assert!(check_schema(&circle).is_ok());
    }
}
