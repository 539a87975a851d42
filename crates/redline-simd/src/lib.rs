//! The vector instructions of the machine behind one trait, chosen at run time.
//!
//! This is the only crate that uses `core::arch`. It works on vectors of sixteen 32-bit lanes and knows no tensors. A kernel is
//! written once against [`Isa`]; [`Simd::run`] runs it on a detected tier. Every operation of [`Isa`] gives the same bits on
//! every tier (except for NaN payloads), so a whole model does too.

mod detect;
pub mod isa;
mod probe;

pub use detect::{Simd, Tier, Unavailable, vector_extensions};
pub use isa::amx::{AttentionUnit, TILE_BYTES, TILE_ROWS, TileUnit, Tiles};
pub use isa::scalar::widen_f16;
pub use isa::{Isa, Kernel, LANES};
pub use probe::{
    CAN_EVICT, evict, float_environment_is_default, follows_streams, processor, set_default_float_environment,
};
