//! The vector instructions of the machine behind one trait, chosen at run time.
//!
//! This is the only crate that names `core::arch`. It knows vectors of sixteen 32-bit lanes and nothing of
//! tensors. A kernel is written once against [`Isa`]; [`Simd::run`] runs it on a tier that the machine
//! was found to have. Every operation of [`Isa`] gives the same bits on every tier (NaN payloads excepted), which is
//! what lets a whole model give the same bits.

mod detect;
pub mod isa;
mod probe;

pub use detect::{Simd, Tier, Unavailable};
pub use isa::amx::{TILE_BYTES, TILE_ROWS, TileUnit, Tiles};
pub use isa::scalar::widen_f16;
pub use isa::{Isa, Kernel, LANES};
pub use probe::{float_environment_is_default, follows_streams, processor, set_default_float_environment};
