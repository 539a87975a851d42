//! Values of answers, and the columns that hold them.

use std::sync::Arc;

use arrow_array::builder::{Float32Builder, Int64Builder, ListBuilder, StringBuilder, UInt32Builder};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef};
use serde::Serialize;

use crate::json::Json;

/// A column of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name, with the prefix that the request gives.
    pub(crate) name: String,
    pub(crate) holds: Holds,
}

/// What a column holds. Every value may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Text,
    Number,
    Count,
    Numbers,
    /// A list of numbers for each of several items.
    Lists,
    Ids,
    /// Values that a schema describes.
    Value(Scalar),
    /// Lists of them.
    Values(Scalar),
}

/// A value that a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Integer,
    Real,
    Flag,
    /// Anything, which columns that hold one type hold as JSON text.
    Json,
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    Text(String),
    Number(f32),
    Count(usize),
    Numbers(Vec<f32>),
    Lists(Vec<Vec<f32>>),
    Ids(Vec<u32>),
    Value(Json),
    /// There is none, such as the class of a text below the threshold.
    None,
}

impl Holds {
    /// The type of the column in Arrow.
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Number => DataType::Float32,
            Self::Count => DataType::Int64,
            Self::Numbers => DataType::List(element(DataType::Float32)),
            Self::Lists => DataType::List(element(DataType::List(element(DataType::Float32)))),
            Self::Ids => DataType::List(element(DataType::UInt32)),
            Self::Value(of) => of.arrow(),
            Self::Values(of) => DataType::List(element(of.arrow())),
        }
    }

    /// The values as an array. Cells of another kind count as missing.
    pub(crate) fn array<'a>(self, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
        match self {
            Self::Text => {
                let mut to = StringBuilder::new();
                for cell in cells {
                    to.append_option(if let Cell::Text(text) = cell { Some(text) } else { None });
                }
                Arc::new(to.finish())
            }
            Self::Number => {
                let mut to = Float32Builder::new();
                for cell in cells {
                    to.append_option(if let Cell::Number(n) = cell { Some(*n) } else { None });
                }
                Arc::new(to.finish())
            }
            Self::Count => {
                let mut to = Int64Builder::new();
                for cell in cells {
                    to.append_option(if let Cell::Count(n) = cell { i64::try_from(*n).ok() } else { None });
                }
                Arc::new(to.finish())
            }
            Self::Numbers => {
                let mut to = ListBuilder::new(Float32Builder::new()).with_field(element(DataType::Float32));
                for cell in cells {
                    if let Cell::Numbers(numbers) = cell {
                        to.values().append_slice(numbers);
                    }
                    to.append(matches!(cell, Cell::Numbers(_)));
                }
                Arc::new(to.finish())
            }
            Self::Lists => {
                let inner = ListBuilder::new(Float32Builder::new()).with_field(element(DataType::Float32));
                let mut to =
                    ListBuilder::new(inner).with_field(element(DataType::List(element(DataType::Float32))));
                for cell in cells {
                    if let Cell::Lists(lists) = cell {
                        for numbers in lists {
                            to.values().values().append_slice(numbers);
                            to.values().append(true);
                        }
                    }
                    to.append(matches!(cell, Cell::Lists(_)));
                }
                Arc::new(to.finish())
            }
            Self::Ids => {
                let mut to = ListBuilder::new(UInt32Builder::new()).with_field(element(DataType::UInt32));
                for cell in cells {
                    if let Cell::Ids(ids) = cell {
                        to.values().append_slice(ids);
                    }
                    to.append(matches!(cell, Cell::Ids(_)));
                }
                Arc::new(to.finish())
            }
            Self::Value(of) => of.array(cells.map(Cell::json)),
            Self::Values(of) => {
                let (mut elements, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
                for cell in cells {
                    let list = if let Some(Json::List(list)) = cell.json() { Some(list) } else { None };
                    is_there.push(list.is_some());
                    lengths.push(list.map_or(0, Vec::len));
                    elements.extend(list.into_iter().flatten().map(Some));
                }
                let elements = of.array(elements.into_iter());
                let ends = OffsetBuffer::from_lengths(lengths);
                Arc::new(ListArray::new(element(of.arrow()), ends, elements, Some(is_there.into())))
            }
        }
    }
}

impl Scalar {
    /// The type of the column in Arrow.
    fn arrow(self) -> DataType {
        match self {
            Self::Text | Self::Json => DataType::Utf8,
            Self::Integer => DataType::Int64,
            Self::Real => DataType::Float64,
            Self::Flag => DataType::Boolean,
        }
    }

    /// The values as an array. Those of another type, or beyond the numbers of the column, count as missing.
    fn array<'a>(self, values: impl Iterator<Item = Option<&'a Json>>) -> ArrayRef {
        let number = |value: Option<&'a Json>| match value {
            Some(Json::Number(number)) => Some(number),
            _ => None,
        };
        let text = |value: Option<&'a Json>| match value {
            Some(Json::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let flag = |value: Option<&'a Json>| match value {
            Some(Json::Bool(flag)) => Some(*flag),
            _ => None,
        };
        let json = |value: Option<&'a Json>| value.filter(|value| **value != Json::Null).map(Json::compact);
        match self {
            Self::Text => Arc::new(values.map(text).collect::<StringArray>()),
            Self::Integer => Arc::new(values.map(|value| number(value)?.as_i64()).collect::<Int64Array>()),
            Self::Real => Arc::new(values.map(|value| number(value)?.as_f64()).collect::<Float64Array>()),
            Self::Flag => Arc::new(values.map(flag).collect::<BooleanArray>()),
            Self::Json => Arc::new(values.map(json).collect::<StringArray>()),
        }
    }
}

impl Cell {
    /// The value that a schema describes, if it is one.
    fn json(&self) -> Option<&Json> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }
}

/// The field of the elements of a list.
fn element(of: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(of, true))
}

/// The number of values that are there.
pub(crate) fn present(of: &dyn arrow_array::Array) -> u64 {
    (of.len() - of.logical_null_count()) as u64
}
