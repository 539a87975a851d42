//! Operations, one file each. Each file documents its canonical order.

pub mod activation;
pub mod add;
pub mod argmax;
pub mod attention;
pub mod conv;
pub mod delta;
pub mod embedding;
pub mod exp;
pub mod experts;
pub(crate) mod hadamard;
pub mod heads;
pub mod kv;
pub mod linear;
pub mod mamba2;
pub mod norm;
pub mod probe;
pub(crate) mod quantise;
pub mod rope;
pub mod scale;
pub mod softcap;
pub mod softmax;
mod softplus;
pub mod summary;
