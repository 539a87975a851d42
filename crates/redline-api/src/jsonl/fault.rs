//! The error object for a line that could not be answered.

use serde::{Deserialize, Serialize};

/// Replaces an answer in JSON Lines output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFault {
    /// Always `error`.
    pub object: String,
    /// The line's number in the input, from 1.
    pub line: u64,
    /// The error message, with numbers and place.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl LineFault {
    /// Creates the fault of line `line`.
    pub fn new(line: u64, message: String, hint: Option<String>) -> Self {
        Self { object: "error".to_owned(), line, message, hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_fixed() {
        let fault = LineFault::new(3, "no label".to_owned(), None);
        let json = serde_json::to_string(&fault).unwrap();
        assert_eq!(json, r#"{"object":"error","line":3,"message":"no label","hint":null}"#);
        assert_eq!(serde_json::from_str::<LineFault>(&json).unwrap(), fault);
    }
}
