//! Every operation on every variant of every tier, compared with a plain implementation of its canonical order.

mod attention;
mod conv;
mod delta;
mod elementwise;
mod experts;
mod formats;
mod grouped;
mod kv;
mod linear;
mod lora;
mod mamba2;
mod probe;
mod refusals;
mod states;
mod stored;
mod values;
mod vocabulary;
