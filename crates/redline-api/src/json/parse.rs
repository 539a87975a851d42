//! Reads JSON, with errors that name the key.

use serde::de::DeserializeOwned;

use crate::json::whole::WholeNumbers;

/// Why a text is not the JSON that it should be. `Display` names the key, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadJson {
    /// The key, such as `stop[2]`; empty for the text as a whole.
    pub path: String,
    /// What is wrong.
    pub fact: String,
}

impl std::fmt::Display for BadJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.fact),
            path => write!(f, "`{path}`: {}", self.fact),
        }
    }
}

/// A message of the parser in which types are called as JSON calls them, and an unknown field is compared to those that are
/// known.
pub fn in_json_terms(message: &str) -> String {
    let Some((found, rest)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let (expected, place) = rest.find(" at line ").map_or((rest, ""), |at| rest.split_at(at));
    match suggested(found, expected) {
        Some(field) => format!("{found}; did you mean `{field}`?"),
        None => format!("{found}, expected {}{place}", json_type(expected)),
    }
}

/// The known field that was probably meant.
fn suggested<'a>(found: &str, expected: &'a str) -> Option<&'a str> {
    let unknown = found.strip_prefix("unknown field `")?.strip_suffix('`')?;
    nearest(unknown, expected.split('`').skip(1).step_by(2))
}

/// The name that was probably meant: the one that takes the fewest edits, and at most one for every four characters.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |name: &&str| strsim::osa_distance(given, name);
    let meant = names.into_iter().min_by_key(edits)?;
    let length = given.trim_start_matches('-').len();
    (edits(&meant) <= (length / 4).max(usize::from(length > 2))).then_some(meant)
}

/// What a type is called in JSON; other words stay as they are.
pub fn json_type(name: &str) -> &str {
    match name {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a map" => "an object",
        other => other,
    }
}

/// Reads a value from JSON.
///
/// # Errors
/// Names the key, and not the place in the text, which the caller may never have seen.
pub fn parse<T: DeserializeOwned>(json: &str) -> Result<T, BadJson> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(WholeNumbers(&mut deserializer)).map_err(|error| {
        let path = error.path().to_string();
        let message = in_json_terms(&error.inner().to_string());
        let fact = message.rsplit_once(" at line ").map_or(message.as_str(), |(fact, _)| fact).to_owned();
        BadJson { path: if path == "." { String::new() } else { path }, fact }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonl::classify::ClassifyLine;

    #[test]
    fn an_error_names_the_key() {
        let told = |json: &str| parse::<ClassifyLine>(json).unwrap_err().to_string();
        assert_eq!(
            told(r#"{"text":"a","classes":[1]}"#),
            "`classes[0]`: invalid type: integer `1`, expected a string"
        );
        assert!(
            told(r#"{"text":"a","colour":1}"#).starts_with("unknown field `colour`, expected one of `id`")
        );
        assert_eq!(told(r#"{"text":"a","clases":[]}"#), "unknown field `clases`; did you mean `classes`?");
        assert_eq!(told("{}"), "missing field `text`");
        assert!(parse::<ClassifyLine>(r#"{"text":"a"}"#).is_ok());
    }
}
