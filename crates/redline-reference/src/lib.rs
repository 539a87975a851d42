//! The arithmetic of every operation, one value after the other: what the kernels must compute to the bit, whatever their tiles, threads
//! and instructions. Only tests use it. It shares no code with the kernels, and nothing here is fast.
#![forbid(unsafe_code)]

pub mod attention;
pub mod conv;
pub mod delta;
pub mod elementwise;
pub mod experts;
pub mod linear;
pub mod mamba2;
pub mod number;
pub mod vocabulary;
