//! What distinguishes a format from others.

use crate::Arithmetic;
use crate::codes::Codes;

/// A format.
pub(crate) struct Descriptor {
    /// The name.
    pub(crate) name: &'static str,
    /// The arithmetic of multiplications.
    pub(crate) arithmetic: Arithmetic,
    /// How values or integers are stored.
    pub(crate) codes: Codes,
    /// Numbers of k that may share a scale; 0 is one scale per output. Empty without a choice.
    pub(crate) groups: &'static [usize],
    /// The kind of scales.
    pub(crate) scaling: Scaling,
    /// Largest magnitude of a value.
    pub(crate) largest: f32,
}

/// The kinds of scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaling {
    /// Floats have none.
    None,
    /// f16, one per group of [`crate::Format::group`], or f32, one per output.
    Chosen,
    /// One per 32 k.
    Blocks {
        /// bf16 instead of f16.
        bf16: bool,
        /// An f16 minimum beside each scale, which is added to every value.
        minima: bool,
    },
    /// f16 scales `d` per 256 k, times a signed byte per `sub` k.
    Super {
        /// 16 or 32.
        sub: usize,
        /// f16 factors `dmin` per 256 k, times an unsigned byte per `sub` k, are subtracted from every value.
        minima: bool,
    },
}

/// What is added to the products of integers and scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Minima {
    /// Nothing.
    None,
    /// A float per 32 k.
    Floats,
    /// An integer per sub-group, times a float.
    Integers,
}
