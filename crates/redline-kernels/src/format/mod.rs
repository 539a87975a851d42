//! Weight formats: one file each with a descriptor, one line each in `Format::descriptor`.
//!
//! Every format stores a matrix as strips of sixteen output rows, so that one vector load brings the same k of sixteen outputs.
//! Integer formats have scales beside the words. The formats that GGUF files hold ([`Format::stored`]) are used as they are
//! stored: their values are those of GGML, bit by bit.

pub mod bf16;
pub mod float16;
pub mod float32;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_1;
mod q4_k;
mod q5_1;
mod q5_k;
mod q6_k;
pub mod w4;
pub mod w8;

use std::fmt;

use redline_simd::{Isa, LANES};

use crate::Arithmetic;
pub(crate) use crate::codes::{
    BLOCK, Codes, E2m1, FEWER_ROWS, Integer, NonLinear, Signed, SubNibbles, SubScaled, SubSplit, SubTable,
    WithMinima,
};
pub(crate) use crate::descriptor::{Descriptor, Minima, Scaling};

/// Number of k that share a scale of the activations; a multiple of every group size of weights.
pub(crate) const INPUT_GROUP: usize = 128;
/// Number of k that share a scale in formats with sub-scales.
pub(crate) const SUPER_BLOCK: usize = 256;

/// Every format, with its default group.
const ALL: &[Format] = &[
    float32::FORMAT,
    bf16::FORMAT,
    float16::FORMAT,
    w8::FORMAT,
    w4::FORMAT,
    Format::Q4_1,
    Format::Q5_1,
    Format::Q2K,
    Format::Q3K,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
    Format::Iq4Nl,
    Format::Iq4Xs,
    Format::Mxfp4,
];

/// Format of weights in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// bf16, with magnitudes below 2^-55 flushed to +0; inputs are rounded in the same way.
    Bf16,
    /// f16 (IEEE binary16), widened exactly; inputs are f32.
    F16,
    /// 8-bit integers; inputs are rounded to eight bits per 128 k.
    W8 {
        /// Number of k that share a scale; 0: one scale per output.
        group: usize,
    },
    /// 4-bit integers; inputs as for `W8`.
    W4 {
        /// Number of k that share a scale.
        group: usize,
    },
    /// Integers of four bits with an f16 scale and an f16 minimum per 32 k; inputs as for `W8`, here and below.
    Q4_1,
    /// Integers of five bits, scales as `Q4_1`.
    Q5_1,
    /// Integers of two bits with integer scales and minima per 16 k, times two f16 per 256 k.
    Q2K,
    /// Integers of three bits with integer scales per 16 k, times an f16 per 256 k.
    Q3K,
    /// Integers of four bits with integer scales and minima per 32 k, times two f16 per 256 k.
    Q4K,
    /// Integers of five bits, scales as `Q4K`.
    Q5K,
    /// Integers of six bits, scales as `Q3K`.
    Q6K,
    /// Indices into a table of sixteen integers, with an f16 scale per 32 k.
    Iq4Nl,
    /// Indices into the same table, with integer scales per 32 k, times an f16 per 256 k.
    Iq4Xs,
    /// Four-bit floats, with a power of two as the scale of 32 k.
    Mxfp4,
}

impl fmt::Display for Format {
    /// The name, with the group if it is not the default: `w8`, `w8g0`, `w4g32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            Some(group) if !Self::ALL.contains(self) => write!(f, "{}g{group}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl Format {
    /// The formats that weights can be converted to, with their default groups.
    pub const ALL: &[Format] = &[float32::FORMAT, bf16::FORMAT, w8::FORMAT, w4::FORMAT];

    /// What distinguishes the format.
    pub(crate) fn descriptor(self) -> &'static Descriptor {
        match self {
            Self::F32 => &float32::DESCRIPTOR,
            Self::Bf16 => &bf16::DESCRIPTOR,
            Self::F16 => &float16::DESCRIPTOR,
            Self::W8 { .. } => &w8::DESCRIPTOR,
            Self::W4 { .. } => &w4::DESCRIPTOR,
            Self::Q4_1 => &q4_1::DESCRIPTOR,
            Self::Q5_1 => &q5_1::DESCRIPTOR,
            Self::Q2K => &q2_k::DESCRIPTOR,
            Self::Q3K => &q3_k::DESCRIPTOR,
            Self::Q4K => &q4_k::DESCRIPTOR,
            Self::Q5K => &q5_k::DESCRIPTOR,
            Self::Q6K => &q6_k::DESCRIPTOR,
            Self::Iq4Nl => &iq4_nl::DESCRIPTOR,
            Self::Iq4Xs => &iq4_xs::DESCRIPTOR,
            Self::Mxfp4 => &mxfp4::DESCRIPTOR,
        }
    }

    /// The name used by `--format`; for a format that comes from files only, GGML's name in lower case.
    pub fn name(self) -> &'static str {
        self.descriptor().name
    }

    /// Finds a format of [`Format::ALL`] by name, with its default group.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// The format that holds the values of a type of GGML, whose name may be written in either case, exactly as stored. Formats
    /// beside [`Format::ALL`] come from files only.
    pub fn stored(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "q4_0" => Some(Self::W4 { group: 32 }),
            "q5_0" | "q8_0" => Some(Self::W8 { group: 32 }),
            // Tiny values become zero.
            "bf16" => None,
            name => ALL.iter().copied().find(|format| format.group().is_none() && format.name() == name),
        }
    }

    /// Whether a matrix of this format can be packed from values ([`crate::Matrix::set_rows`]).
    pub fn takes_values(self) -> bool {
        !self.is_integer() || self.group().is_some()
    }

    /// Groups that this format may have; empty for formats without a choice.
    pub fn groups(self) -> &'static [usize] {
        self.descriptor().groups
    }

    /// The same format with another group, one of [`Format::groups`].
    pub fn with_group(self, group: usize) -> Option<Self> {
        let format = match self {
            Self::W8 { .. } => Self::W8 { group },
            Self::W4 { .. } => Self::W4 { group },
            _ => return None,
        };
        self.groups().contains(&group).then_some(format)
    }

    /// Number of k that share a scale, 0 for one scale per output; `None` for formats without a choice of it.
    pub fn group(self) -> Option<usize> {
        match self {
            Self::W8 { group } | Self::W4 { group } => Some(group),
            _ => None,
        }
    }

    /// Whether weights are integers with scales.
    pub fn is_integer(self) -> bool {
        self.arithmetic() == Arithmetic::Int8
    }

    /// The arithmetic of multiplications.
    pub fn arithmetic(self) -> Arithmetic {
        self.descriptor().arithmetic
    }

    /// Largest magnitude of a weight that the format can hold.
    pub fn largest(self) -> f32 {
        match self {
            // Rounded scale times integer must not exceed `f32::MAX`.
            Self::W8 { group: 0 } => f32::from_bits(0x7f7f_ff00),
            _ => self.descriptor().largest,
        }
    }

    /// The format of the matrices of adapters for a layer of this format.
    pub fn adapter_format(self) -> Self {
        match self {
            Self::F32 | Self::F16 => Self::F32,
            Self::Bf16 | Self::W8 { .. } | Self::W4 { .. } => self,
            _ => w8::FORMAT,
        }
    }

    /// Whether tile registers can multiply such weights.
    pub(crate) fn in_tiles(self) -> bool {
        self.group().is_some()
    }

    /// How the integers are stored.
    pub(crate) fn codes(self) -> Codes {
        self.descriptor().codes
    }

    /// The kind of scales.
    pub(crate) fn scaling(self) -> Scaling {
        self.descriptor().scaling
    }

    /// Number of k that a row must be a multiple of.
    pub fn multiple(self) -> usize {
        match self.scaling() {
            Scaling::None | Scaling::Chosen => 1,
            Scaling::Blocks { .. } => BLOCK,
            Scaling::Super { .. } => SUPER_BLOCK,
        }
    }

    /// Number of steps for `k` elements: of the words that inputs are packed in, for floats.
    pub fn steps(self, k: usize) -> usize {
        let padded = if self.is_integer() { k.next_multiple_of(BLOCK) } else { k };
        self.codes().steps(padded)
    }

    /// Number of weight groups for `k` elements, each with an own scale; 0 without scales.
    pub(crate) fn groups_in(self, k: usize) -> usize {
        match (self.scaling(), self.group()) {
            (Scaling::None, _) => 0,
            (Scaling::Chosen, None | Some(0)) => 1,
            (Scaling::Chosen, Some(group)) => k.div_ceil(group),
            (Scaling::Blocks { .. }, _) => k.div_ceil(BLOCK),
            (Scaling::Super { .. }, _) => k.div_ceil(SUPER_BLOCK),
        }
    }

    /// Number of k after which integer sums are scaled: the smaller of the group sizes of weights and inputs.
    pub(crate) fn summed_k(self) -> usize {
        match (self.scaling(), self.group()) {
            (Scaling::None, _) | (Scaling::Chosen, None | Some(0)) => INPUT_GROUP,
            (Scaling::Chosen, Some(group)) => group,
            (Scaling::Blocks { .. }, _) => BLOCK,
            (Scaling::Super { sub, .. }, _) => sub,
        }
    }

    /// Minima beside the scales.
    pub(crate) fn minima(self) -> Minima {
        match self.scaling() {
            Scaling::Blocks { minima: true, .. } => Minima::Floats,
            Scaling::Super { minima: true, .. } => Minima::Integers,
            _ => Minima::None,
        }
    }

    /// The offset of the stored integers in a tier's dot product.
    pub(crate) fn offset<S: Isa>(self) -> i32 {
        self.codes().offset::<S>()
    }
}

/// Multiply-accumulate of one step: the part of a float tile that depends on the format.
pub(crate) trait Mac: 'static {
    /// Number of u32 words of a strip per step.
    const WORDS: usize;
    /// Whether words of weights are pairs of halves.
    const SPLIT: bool = false;
    /// Whether every tile widens the weights to f32.
    const WIDENS: bool = false;
    /// Sixteen weights (or weight pairs) in a register.
    type Weight<S: Isa>: Copy;
    /// One input word in all lanes.
    type Input<S: Isa>: Copy;
    /// # Safety
    /// `p` is valid for reading [`Mac::WORDS`] words.
    unsafe fn weight<S: Isa>(s: S, p: *const u32) -> Self::Weight<S>;
    fn input<S: Isa>(s: S, word: u32) -> Self::Input<S>;
    fn mac<S: Isa>(s: S, acc: S::F, w: Self::Weight<S>, x: Self::Input<S>) -> S::F;
}

/// Values that are f32, or are widened to it exactly, times f32 inputs.
pub(crate) trait Widened: 'static {
    /// Number of words of sixteen values.
    const WORDS: usize;
    /// Reads sixteen values.
    ///
    /// # Safety
    /// `p` is valid for reading [`Widened::WORDS`] words.
    unsafe fn load<S: Isa>(s: S, p: *const u32) -> S::F;
}

impl<W: Widened> Mac for W {
    const WORDS: usize = W::WORDS;
    const WIDENS: bool = W::WORDS < LANES;
    type Weight<S: Isa> = S::F;
    type Input<S: Isa> = S::F;
    #[inline(always)]
    unsafe fn weight<S: Isa>(s: S, p: *const u32) -> S::F {
        // SAFETY: by contract.
        unsafe { W::load(s, p) }
    }
    #[inline(always)]
    fn input<S: Isa>(s: S, word: u32) -> S::F {
        s.splat(f32::from_bits(word))
    }
    #[inline(always)]
    fn mac<S: Isa>(s: S, acc: S::F, w: S::F, x: S::F) -> S::F {
        s.fma(w, x, acc)
    }
}
