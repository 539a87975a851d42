//! Structs that are read from JSON objects only.

/// Implements `Deserialize` for structs that have the attribute `#[serde(remote = "...")]` with their own name. Serde's derived
/// implementation would also read an array, as the values of the fields in their order.
macro_rules! objects {
    ($($name:ident),+) => {$(
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Object;
                impl<'de> ::serde::de::Visitor<'de> for Object {
                    type Value = $name;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        // The derived function, not this implementation.
                        $name::deserialize(::serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                from.deserialize_map(Object)
            }
        }
    )+};
}
pub(crate) use objects;
