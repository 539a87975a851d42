//! Every operation on every variant of every tier against a plain reading of its canonical order.

mod attention;
mod elementwise;
mod kv;
mod linear;
mod probe;
mod values;
mod vocabulary;
