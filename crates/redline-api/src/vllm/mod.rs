//! Routes of vLLM.

pub mod adapters;
pub mod classify;
pub mod pairs;
pub mod tokens;
