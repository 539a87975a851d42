//! Choices as JSON strings: the names of their values.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use redline_settings::Named;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::Serializer;

use crate::json::shape::{one_of, schema};

pub(crate) fn serialize<T: Named, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(value.name())
}

pub(crate) fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_str(Name(PhantomData))
}

struct Name<T>(PhantomData<T>);

impl<T: Named> Visitor<'_> for Name<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of the strings {}", T::NAMES.join(", "))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        T::parse(name).ok_or_else(|| E::unknown_variant(name, T::NAMES))
    }
}

/// A choice, read from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByName<T>(pub T);

impl<'de, T: Named> Deserialize<'de> for ByName<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        deserialize(from).map(Self)
    }
}

impl<T: Named> JsonSchema for ByName<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        OneOf::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        OneOf::<T>::json_schema(generator)
    }
}

/// The schema of the names of a choice.
pub(crate) struct OneOf<T>(PhantomData<T>);

/// A choice that may be absent or `null`.
pub(crate) mod optional {
    use redline_settings::Named;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::Serializer;

    #[expect(clippy::ref_option, reason = "serde passes the field")]
    pub(crate) fn serialize<T: Named, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(value.name()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Named, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        Ok(Option::<super::ByName<T>>::deserialize(from)?.map(|choice| choice.0))
    }
}

impl<T: Named> JsonSchema for OneOf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("OneOf_{}", T::NAMES.join("_")))
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema(one_of(T::NAMES))
    }
}

/// Implements `Deserialize` for enums that have the attribute `#[serde(remote = "...")]` with their own name: from the strings of their
/// values only. Serde's derived implementation would also read an object, and a value of another type would not be told from broken JSON.
macro_rules! names {
    ($($name:ident),+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl ::serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("a string")
                    }
                    fn visit_str<E: ::serde::de::Error>(self, name: &str) -> Result<$name, E> {
                        // The derived function, not this implementation.
                        $name::deserialize(::serde::de::value::StrDeserializer::new(name))
                    }
                }
                from.deserialize_str(Text)
            }
        }
    )+};
}
pub(crate) use names;
