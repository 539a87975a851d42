//! What the JSON of requests and answers has in common: values, rules, schemas and errors.

pub mod cases;
pub mod entries;
pub mod fields;
pub mod finite;
pub mod id;
pub mod input;
pub mod limits;
pub mod named;
pub mod object;
pub mod parse;
pub(crate) mod parts;
pub mod shape;
pub mod text;
pub mod vector;
pub mod version;
pub mod whole;
