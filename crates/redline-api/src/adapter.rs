//! The adapters that a request names.

use std::fmt;

use redline_engine::AdapterChoice;
use redline_settings::LARGEST_ADAPTER_SCALE;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::json;

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::shape::{schemas, text_or_list_of};

/// The name of the model without adapters.
pub(crate) const BASE: &str = "base";

/// The adapters of a request, applied one after the other: a name, or a list of names and of objects with `name` and `scale`. The
/// name `base` is the model without adapters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdapterNames(pub Vec<AdapterName>);

impl AdapterNames {
    /// The adapters, if their scales are within the limits of requests.
    pub fn checked(&self) -> Result<Vec<AdapterChoice>, ApiError> {
        let fits = |scale: f32| scale.abs() <= LARGEST_ADAPTER_SCALE;
        if let Some(at) = self.0.iter().position(|one| !fits(one.scale)) {
            let param = format!("adapter[{at}].scale");
            let fact = format!("`{param}` is {:e}", self.0[at].scale);
            let hint = format!(
                "give a number from -{LARGEST_ADAPTER_SCALE} to {LARGEST_ADAPTER_SCALE}; 1 is the adapter as it was trained"
            );
            return Err(refused(&param, fact, hint));
        }
        Ok(adapters(Some(self.clone()), &[]))
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterName {
    /// The name.
    pub name: String,
    /// Factor on the adapter's updates.
    pub scale: f32,
}

/// An element of the list.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "an element of `adapter` is a name, or an object with `name` and `scale`")]
enum Element {
    Name(String),
    Scaled(Scaled),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, remote = "Scaled")]
struct Scaled {
    name: String,
    #[serde(default = "one")]
    scale: f32,
}

objects!(Scaled);

fn one() -> f32 {
    1.0
}

impl<'de> Deserialize<'de> for AdapterNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Forms)
    }
}

struct Forms;

impl<'de> Visitor<'de> for Forms {
    type Value = AdapterNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an adapter, or a list of names and of objects with `name` and `scale`")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<AdapterNames, E> {
        let one = AdapterName { name: name.to_owned(), scale: 1.0 };
        Ok(AdapterNames(if name == BASE { Vec::new() } else { vec![one] }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<AdapterNames, A::Error> {
        let mut names = Vec::new();
        while let Some(element) = seq.next_element()? {
            let (name, scale) = match element {
                Element::Name(name) => (name, 1.0),
                Element::Scaled(Scaled { name, scale }) => (name, scale),
            };
            if name == BASE {
                return Err(A::Error::custom("`base` is the model without adapters: it cannot be combined"));
            }
            names.push(AdapterName { name, scale });
        }
        Ok(AdapterNames(names))
    }
}

schemas! {
    AdapterNames: |_g| {
        let name = json!({ "type": "string", "not": { "const": BASE } });
        text_or_list_of(json!({ "anyOf": [
            name,
            {
                "type": "object",
                "properties": {
                    "name": name,
                    "scale": {
                        "type": "number", "minimum": -LARGEST_ADAPTER_SCALE, "maximum": LARGEST_ADAPTER_SCALE, "default": 1
                    }
                },
                "required": ["name"],
                "additionalProperties": false
            }
        ] }))
    };
}

/// The adapters that a line names; if it has no such key, those of `defaults`.
pub fn adapters(named: Option<AdapterNames>, defaults: &[AdapterChoice]) -> Vec<AdapterChoice> {
    let choice = |AdapterName { name, scale }| AdapterChoice { name, scale };
    named.map_or_else(|| defaults.to_vec(), |names| names.0.into_iter().map(choice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_list_of_names_with_scales() {
        let read = |text: &str| {
            let names = serde_json::from_str::<AdapterNames>(text).map_err(|e| e.to_string())?;
            Ok::<_, String>(names.0.into_iter().map(|of| (of.name, of.scale)).collect::<Vec<_>>())
        };
        let named = |name: &str, scale| (name.to_owned(), scale);
        assert_eq!(read(r#""tone""#), Ok(vec![named("tone", 1.0)]));
        assert_eq!(read(r#""base""#), Ok(vec![]));
        assert_eq!(read("[]"), Ok(vec![]));
        let list = r#"["a", {"name": "b", "scale": -0.5}, {"name": "c"}]"#;
        assert_eq!(read(list), Ok(vec![named("a", 1.0), named("b", -0.5), named("c", 1.0)]));
        assert!(read(r#"["a", "base"]"#).unwrap_err().contains("cannot be combined"));
        assert!(read("7").unwrap_err().contains("the name of an adapter, or a list"));
        assert!(read("[7]").unwrap_err().contains("a name, or an object"));
        assert!(read(r#"[{"name": "a", "scales": 1}]"#).is_err());
    }
}
