//! Fields that many requests have in common: parts of their objects.
//!
//! A part is a struct of optional fields. An object reads its own fields and those of its parts in one pass. Unlike `#[serde(flatten)]`,
//! this refuses unknown fields, errors keep their position in the text, and raw JSON values work.

use std::marker::PhantomData;

use serde::de::value::StringDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};

/// Fields that are read with those of an object.
pub(crate) trait Part {
    /// Appends the names of the fields.
    fn names(to: &mut Vec<&'static str>);

    /// Reads the value of a field; `false` if there is no field of this name.
    fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Defines a [`Part`]: each field becomes an option. A name that follows `|` is another name of the field.
macro_rules! part {
    (
        $(#[$of:meta])*
        pub struct $part:ident {
            $($(#[$field_of:meta])* pub $field:ident $(| $alias:literal)*: $value:ty,)*
        }
    ) => {
        $(#[$of])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $part {
            $($(#[$field_of])* $(#[serde(alias = $alias)])* pub $field: Option<$value>,)*
        }

        impl $crate::json::parts::Part for $part {
            fn names(to: &mut Vec<&'static str>) {
                to.extend(Self::NAMES);
            }

            fn read<'de, A: ::serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(stringify!($field) $(| $alias)* => {
                        $crate::json::parts::set(&mut self.$field, stringify!($field), map)?;
                    })*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl $part {
            /// The names of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// These values; where one is absent, that of `others`.
            #[must_use]
            pub fn or(self, others: Self) -> Self {
                Self { $($field: self.$field.or(others.$field),)* }
            }

            /// The name of the first field that is given.
            pub fn given(&self) -> Option<&'static str> {
                let fields = [$((stringify!($field), self.$field.is_some())),*];
                fields.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
            }
        }
    };
}
pub(crate) use part;

/// Implements `Deserialize` for an object with parts: a struct that has the attribute `#[serde(remote = "...")]` with its own name,
/// and whose parts are skipped fields.
macro_rules! with_parts {
    ($($object:ident { $($field:ident: $part:ty),+ $(,)? })+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $object {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                #[derive(Default)]
                struct Parts { $($field: $part),+ }
                impl $crate::json::parts::Part for Parts {
                    fn names(to: &mut Vec<&'static str>) {
                        $(<$part>::names(to);)+
                    }
                    fn read<'de, A: ::serde::de::MapAccess<'de>>(
                        &mut self,
                        name: &str,
                        map: &mut A,
                    ) -> Result<bool, A::Error> {
                        $(if self.$field.read(name, map)? {
                            return Ok(true);
                        })+
                        Ok(false)
                    }
                }
                let mut parts = Parts::default();
                // The derived function, not this implementation.
                let from = $crate::json::parts::WithParts { from, parts: &mut parts };
                let object = $object::deserialize(from)?;
                Ok(Self { $($field: parts.$field,)+ ..object })
            }
        }
    )+};
}
pub(crate) use with_parts;

/// Sets a field. A second value is an error; `null` counts as absent.
pub(crate) fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *field = map.next_value()?;
    Ok(())
}

/// Reads the fields of parts, and leaves the others to the struct that is read.
pub(crate) struct WithParts<'p, D, P> {
    pub(crate) from: D,
    pub(crate) parts: &'p mut P,
}

impl<'de, D: Deserializer<'de>, P: Part> Deserializer<'de> for WithParts<'_, D, P> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.from.deserialize_map(Object { visitor, fields, parts: self.parts })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.from.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Object<'p, V, P> {
    visitor: V,
    fields: &'static [&'static str],
    parts: &'p mut P,
}

impl<'de, V: Visitor<'de>, P: Part> Visitor<'de> for Object<'_, V, P> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(OwnFields { map, fields: self.fields, parts: self.parts, of: PhantomData })
    }
}

/// The entries of an object that are none of its parts.
struct OwnFields<'p, 'de, A, P> {
    map: A,
    fields: &'static [&'static str],
    parts: &'p mut P,
    of: PhantomData<&'de ()>,
}

impl<'de, A: MapAccess<'de>, P: Part> MapAccess<'de> for OwnFields<'_, 'de, A, P> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key::<String>()? {
            if self.fields.contains(&name.as_str()) {
                let name: StringDeserializer<A::Error> = name.into_deserializer();
                return seed.deserialize(name).map(Some);
            }
            if !self.parts.read(&name, &mut self.map)? {
                let mut names = self.fields.to_vec();
                P::names(&mut names);
                let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                return Err(A::Error::custom(format!("unknown field `{name}`, expected one of {names}")));
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
