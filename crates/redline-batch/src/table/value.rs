//! Values of Arrow columns as JSON.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, downcast_dictionary_array};
use arrow_schema::{DataType, Field};
use serde_json::Number;

use super::{Shape, TableColumn};
use crate::json::Json;

/// The column of a schema.
pub(super) fn column(field: &Field) -> TableColumn {
    TableColumn {
        name: field.name().clone(),
        holds: field.data_type().to_string(),
        shape: shape(field.data_type()),
    }
}

fn shape(of: &DataType) -> Shape {
    use DataType as D;
    match of {
        D::Utf8 | D::LargeUtf8 | D::Utf8View => Shape::Text,
        D::List(element) | D::LargeList(element) | D::FixedSizeList(element, _) => {
            if shape(element.data_type()) == Shape::Unreadable { Shape::Unreadable } else { Shape::List }
        }
        D::Dictionary(_, values) => shape(values),
        D::Struct(fields) => {
            let unreadable = fields.iter().any(|field| shape(field.data_type()) == Shape::Unreadable);
            if unreadable { Shape::Unreadable } else { Shape::Other }
        }
        D::Null => Shape::Any,
        D::Boolean | D::Float16 | D::Float32 | D::Float64 => Shape::Other,
        of if of.is_integer() => Shape::Other,
        _ => Shape::Unreadable,
    }
}

/// A value; null if it is missing.
pub(super) fn json(array: &dyn Array, row: usize) -> Result<Json, String> {
    use DataType as D;
    if array.is_null(row) {
        return Ok(Json::Null);
    }
    match array.data_type() {
        D::Null => Ok(Json::Null),
        D::Boolean => Ok(Json::Bool(array.as_boolean().value(row))),
        D::Int8 => Ok(Json::Number(primitive::<Int8Type>(array, row).into())),
        D::Int16 => Ok(Json::Number(primitive::<Int16Type>(array, row).into())),
        D::Int32 => Ok(Json::Number(primitive::<Int32Type>(array, row).into())),
        D::Int64 => Ok(Json::Number(primitive::<Int64Type>(array, row).into())),
        D::UInt8 => Ok(Json::Number(primitive::<UInt8Type>(array, row).into())),
        D::UInt16 => Ok(Json::Number(primitive::<UInt16Type>(array, row).into())),
        D::UInt32 => Ok(Json::Number(primitive::<UInt32Type>(array, row).into())),
        D::UInt64 => Ok(Json::Number(primitive::<UInt64Type>(array, row).into())),
        D::Float16 => float(primitive::<Float16Type>(array, row).to_f64()),
        D::Float32 => float(primitive::<Float32Type>(array, row).into()),
        D::Float64 => float(primitive::<Float64Type>(array, row)),
        D::Utf8 => Ok(Json::Text(array.as_string::<i32>().value(row).to_owned())),
        D::LargeUtf8 => Ok(Json::Text(array.as_string::<i64>().value(row).to_owned())),
        D::Utf8View => Ok(Json::Text(array.as_string_view().value(row).to_owned())),
        D::List(_) => list(array.as_list::<i32>().value(row).as_ref()),
        D::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref()),
        D::FixedSizeList(..) => list(array.as_fixed_size_list().value(row).as_ref()),
        D::Struct(fields) => {
            let mut object = Vec::new();
            for (field, values) in fields.iter().zip(array.as_struct().columns()) {
                // A field that a structure lacks is one that its JSON does not have.
                let value = json(values.as_ref(), row)?;
                if value != Json::Null {
                    object.push((field.name().clone(), value));
                }
            }
            Ok(Json::Object(object))
        }
        D::Dictionary(..) => downcast_dictionary_array!(
            array => match array.key(row) {
                Some(key) => json(array.values().as_ref(), key),
                None => Ok(Json::Null),
            },
            other => Err(format!("{other} cannot be read"))
        ),
        other => Err(format!("{other} cannot be read")),
    }
}

fn list(values: &dyn Array) -> Result<Json, String> {
    (0..values.len()).map(|index| json(values, index)).collect::<Result<Vec<_>, _>>().map(Json::List)
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn float(value: f64) -> Result<Json, String> {
    Number::from_f64(value)
        .map(Json::Number)
        .ok_or_else(|| format!("{value} is no number that a request can have"))
}
