//! Values of the metadata: numbers, booleans, texts, and arrays of one of these.

use std::fmt;

use super::cursor::{Cursor, Part};
use super::fault::GgufFault;
use super::strings::GgufStrings;
use crate::error::Result;

const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Defines the values and arrays of numbers: number of the type in files, name, type.
macro_rules! numbers {
    ($($code:literal $name:ident $type:ident,)*) => {
        /// A value of the metadata of a GGUF file.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)] // the names are the format's own
        pub enum GgufValue {
            $($name($type),)*
            Bool(bool),
            String(String),
            Array(GgufArray),
        }

        /// An array in the metadata of a GGUF file.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)] // the names are the format's own
        pub enum GgufArray {
            $($name(Vec<$type>),)*
            Bool(Vec<bool>),
            String(GgufStrings),
        }

        impl GgufArray {
            /// Number of elements.
            #[allow(clippy::len_without_is_empty)] // nothing needs it
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$name(numbers) => numbers.len(),)*
                    Self::Bool(booleans) => booleans.len(),
                    Self::String(strings) => strings.len(),
                }
            }

            /// Type of the elements, like `u32`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($type),)*
                    Self::Bool(_) => "bool",
                    Self::String(_) => "string",
                }
            }
        }

        impl fmt::Display for GgufValue {
            /// The value and its type; of an array, the number of its elements.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(number) => write!(f, "{number} ({})", stringify!($type)),)*
                    Self::Bool(boolean) => write!(f, "{boolean} (bool)"),
                    Self::String(text) => write!(f, "{text:?} (string)"),
                    Self::Array(array) => write!(f, "an array of {} {}", array.len(), array.type_name()),
                }
            }
        }

        /// Reads a number of this type, or `None` if it is not a type of numbers.
        fn number(cursor: &mut Cursor, code: u32, part: Part) -> Result<Option<GgufValue>> {
            Ok(Some(match code {
                $($code => GgufValue::$name($type::from_le_bytes(cursor.array(part)?)),)*
                _ => return Ok(None),
            }))
        }

        /// Reads an array of numbers of this type, or `None` if it is not a type of numbers.
        fn numbers(cursor: &mut Cursor, code: u32, count: u64, part: Part) -> Result<Option<GgufArray>> {
            Ok(Some(match code {
                $($code => GgufArray::$name(cursor.numbers(count, part, $type::from_le_bytes)?),)*
                _ => return Ok(None),
            }))
        }
    };
}

numbers! {
    0 U8 u8,
    1 I8 i8,
    2 U16 u16,
    3 I16 i16,
    4 U32 u32,
    5 I32 i32,
    6 F32 f32,
    10 U64 u64,
    11 I64 i64,
    12 F64 f64,
}

impl GgufValue {
    /// The value of an integer of any type.
    pub(super) fn integer(&self) -> Option<i128> {
        match *self {
            Self::U8(number) => Some(number.into()),
            Self::I8(number) => Some(number.into()),
            Self::U16(number) => Some(number.into()),
            Self::I16(number) => Some(number.into()),
            Self::U32(number) => Some(number.into()),
            Self::I32(number) => Some(number.into()),
            Self::U64(number) => Some(number.into()),
            Self::I64(number) => Some(number.into()),
            _ => None,
        }
    }

    /// An array of integers of any type, or a single one, if they all fit.
    pub(super) fn integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        let Self::Array(array) = self else { return Some(vec![T::try_from(self.integer()?).ok()?]) };
        match array {
            GgufArray::U8(numbers) => narrow(numbers),
            GgufArray::I8(numbers) => narrow(numbers),
            GgufArray::U16(numbers) => narrow(numbers),
            GgufArray::I16(numbers) => narrow(numbers),
            GgufArray::U32(numbers) => narrow(numbers),
            GgufArray::I32(numbers) => narrow(numbers),
            GgufArray::U64(numbers) => narrow(numbers),
            GgufArray::I64(numbers) => narrow(numbers),
            GgufArray::F32(_) | GgufArray::F64(_) | GgufArray::Bool(_) | GgufArray::String(_) => None,
        }
    }
}

fn narrow<F: Copy + Into<i128>, T: TryFrom<i128>>(numbers: &[F]) -> Option<Vec<T>> {
    numbers.iter().map(|&number| T::try_from(number.into()).ok()).collect()
}

/// Reads type and value of a key.
pub(super) fn read(cursor: &mut Cursor, key: &str) -> Result<GgufValue> {
    let part = Part::Value(key);
    match cursor.u32(part)? {
        BOOL => {
            let [byte] = cursor.array(part)?;
            boolean(cursor, key, byte).map(GgufValue::Bool)
        }
        STRING => cursor.string(part).map(GgufValue::String),
        ARRAY => array(cursor, key).map(GgufValue::Array),
        code => number(cursor, code, part)?.ok_or_else(|| unknown(cursor, key, code)),
    }
}

fn array(cursor: &mut Cursor, key: &str) -> Result<GgufArray> {
    let part = Part::Value(key);
    let (code, count) = (cursor.u32(part)?, cursor.u64(part)?);
    match code {
        BOOL => {
            let bytes = cursor.numbers(count, part, |[byte]: [u8; 1]| byte)?;
            let booleans = bytes.into_iter().map(|byte| boolean(cursor, key, byte));
            booleans.collect::<Result<_>>().map(GgufArray::Bool)
        }
        STRING => cursor.strings(count, part).map(GgufArray::String),
        ARRAY => Err(cursor.refuse(GgufFault::Nested { key: key.to_owned() })),
        code => numbers(cursor, code, count, part)?.ok_or_else(|| unknown(cursor, key, code)),
    }
}

fn boolean(cursor: &Cursor, key: &str, byte: u8) -> Result<bool> {
    match byte {
        0 | 1 => Ok(byte == 1),
        found => Err(cursor.refuse(GgufFault::Boolean { key: key.to_owned(), found })),
    }
}

fn unknown(cursor: &Cursor, key: &str, found: u32) -> crate::WeightsError {
    cursor.refuse(GgufFault::ValueType { key: key.to_owned(), found })
}
