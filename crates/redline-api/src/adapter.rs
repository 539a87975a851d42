//! The adapters of a request.

use redline_engine::AdapterChoice;
use redline_wire::{AdapterName, AdapterNames};

/// The adapters that a line names; if it has no such key, those of `defaults`.
pub fn adapters(named: Option<AdapterNames>, defaults: &[AdapterChoice]) -> Vec<AdapterChoice> {
    let choice = |AdapterName { name, scale }| AdapterChoice { name, scale };
    named.map_or_else(|| defaults.to_vec(), |names| names.0.into_iter().map(choice).collect())
}
