//! Describes errors of JSON that a user wrote, without the words of the parser.

use serde_json::error::Category;

/// Maximum number of characters of a value in a message.
const LONGEST: usize = 80;

/// What is wrong, without the place.
pub(crate) fn explained(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        Category::Io => text.to_owned(),
        Category::Eof => "the JSON value is not complete".to_owned(),
        Category::Syntax => format!("not valid JSON: {}", reason(text)),
        Category::Data => data(text),
    }
}

/// The parser's reason for refusing a text.
fn reason(text: &str) -> &str {
    match text {
        "expected value" | "expected ident" => "expected a value",
        "trailing characters" => "more text follows the value",
        "key must be a string" => "a key must be in quotation marks",
        "recursion limit exceeded" => "it is nested too deeply",
        other => other,
    }
}

/// A value that cannot be used.
fn data(text: &str) -> String {
    if let Some(rest) = text.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    let typed = text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: "));
    match typed.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("found {}, expected {}", shortened(value(found)), kind(expected)),
        None => text.to_owned(),
    }
}

/// Names a value as JSON does.
fn value(found: &str) -> &str {
    match found {
        "sequence" => "a list",
        "map" => "an object",
        "unit value" => "null",
        other => other,
    }
}

/// Names the values of a type as JSON does.
fn kind(expected: &str) -> &str {
    match expected {
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other if other.starts_with("struct ") => "an object",
        other => redline_api::json::parse::json_type(other),
    }
}

/// The beginning of a value, marked if it was cut.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use redline_api::jsonl::classify::ClassifyLine;
    use redline_api::jsonl::generate::GenerateLine;
    use serde::de::DeserializeOwned;

    use super::*;

    fn of<T: DeserializeOwned>(json: &str) -> String {
        explained(&serde_json::from_str::<T>(json).err().expect("an error"))
    }

    #[test]
    fn no_type_of_the_program_is_named() {
        for (json, expect) in [
            (r#"{"max_new_tokens":"a"}"#, r#"found string "a", expected a whole number of at least 0"#),
            (r#"{"max_new_tokens":-1}"#, "found integer `-1`, expected a whole number of at least 0"),
            (r#"{"n":1.5}"#, "found floating point `1.5`, expected a whole number of at least 0"),
            (r#"{"temperature":[]}"#, "found a list, expected a number"),
            (r#"{"ignore_eos":0}"#, "found integer `0`, expected true or false"),
            (r#"{"prompt":{}}"#, "found an object, expected a string or a list of token ids"),
            (r#"{"messages":"x"}"#, r#"found string "x", expected a list"#),
            (r#"{"prompt":"x","max":1}"#, "unknown field `max`, expected one of `id`, `prompt`"),
        ] {
            let told = of::<GenerateLine>(json);
            assert!(told.starts_with(expect), "{json}: {told}");
        }
        assert_eq!(of::<ClassifyLine>("3"), "found integer `3`, expected an object");
        let told = of::<ClassifyLine>(r#"{"truncate":"middle"}"#);
        assert!(told.starts_with("unknown value `middle`, expected "), "{told}");
        let told = of::<GenerateLine>(&format!(r#"{{"n":"{}"}}"#, "é".repeat(1000)));
        assert_eq!(told.chars().count(), "found , expected a whole number of at least 0".len() + LONGEST + 1);
    }

    #[test]
    fn a_text_that_is_not_json_is_told_why() {
        for (json, expect) in [
            ("nonsense", "not valid JSON: expected a value"),
            ("x", "not valid JSON: expected a value"),
            ("{}{}", "not valid JSON: more text follows the value"),
            ("{1:2}", "not valid JSON: a key must be in quotation marks"),
            ("{\"prompt\":\"x", "the JSON value is not complete"),
            ("", "the JSON value is not complete"),
        ] {
            assert_eq!(of::<GenerateLine>(json), expect, "{json}");
        }
    }
}
