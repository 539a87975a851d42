//! Documents that commands of the laboratory and of models print.

pub mod adapter;
pub mod parity;
pub mod plan;
pub mod profile;
pub mod trace;
