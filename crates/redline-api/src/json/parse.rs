//! Reads JSON, with errors that name the key.

use serde::de::DeserializeOwned;

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

/// Reads a value from JSON.
///
/// # Errors
/// Names the key, and not the place in the text, which the caller may never have seen.
pub fn parse<T: DeserializeOwned>(json: &str) -> Result<T, BadJson> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
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
        assert!(told(r#"{"text":"a","colour":1}"#).contains("unknown field `colour`"));
        assert_eq!(told("{}"), "missing field `text`");
        assert!(parse::<ClassifyLine>(r#"{"text":"a"}"#).is_ok());
    }
}
