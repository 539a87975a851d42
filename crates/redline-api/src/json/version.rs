//! The version of the documents that answer a request.

use serde::de::{Deserialize, Deserializer, Error, Unexpected};
use serde::ser::{Serialize, Serializer};

/// The version of a document's form: the number 1 in JSON. It changes when a key is removed or changes its meaning; a new key leaves
/// it as it is. Any other number is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaVersion;

impl SchemaVersion {
    /// The number in JSON.
    pub const NUMBER: u32 = 1;
}

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u32(Self::NUMBER)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u32::deserialize(from)? {
            Self::NUMBER => Ok(Self),
            other => Err(D::Error::invalid_value(Unexpected::Unsigned(other.into()), &"version 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_number_and_no_other_is_read() {
        assert_eq!(serde_json::to_string(&SchemaVersion).unwrap(), "1");
        assert_eq!(serde_json::from_str::<SchemaVersion>("1").unwrap(), SchemaVersion);
        let refused = |json| serde_json::from_str::<SchemaVersion>(json).unwrap_err().to_string();
        assert!(refused("2").contains("invalid value: integer `2`, expected version 1"), "{}", refused("2"));
        assert!(refused("\"1\"").contains("invalid type"));
    }
}
