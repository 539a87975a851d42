//! Weight formats: one file each, one line each in [`Format::ALL`].
//!
//! Every format stores a matrix as strips of sixteen output rows, `[steps][16]` words, so that one vector load
//! brings the same step of sixteen outputs. Integer formats have scales beside the words.

pub mod bf16;
pub mod float32;
pub mod w4;
pub mod w8;

use std::fmt;

use redline_simd::{Isa, LANES};

use crate::Arithmetic;

/// Number of k that integer kernels process at a time; rows of integer formats are padded to a multiple of it.
pub(crate) const BLOCK: usize = 32;
/// Number of k that share a scale of the activations; a multiple of every group size of weights.
pub(crate) const INPUT_GROUP: usize = 128;

/// Format of weights in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// bf16, with magnitudes below 2^-55 flushed to +0; inputs are rounded in the same way.
    Bf16,
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
    /// All formats, with their default groups.
    pub const ALL: &[Format] = &[float32::FORMAT, bf16::FORMAT, w8::FORMAT, w4::FORMAT];

    /// The name used by `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::W8 { .. } => "w8",
            Self::W4 { .. } => "w4",
        }
    }

    /// Finds a format by name, with its default group.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Groups that this format may have; empty for formats without scales.
    pub fn groups(self) -> &'static [usize] {
        match self {
            Self::F32 | Self::Bf16 => &[],
            Self::W8 { .. } => w8::GROUPS,
            Self::W4 { .. } => w4::GROUPS,
        }
    }

    /// The same format with another group, one of [`Format::groups`].
    pub fn with_group(self, group: usize) -> Option<Self> {
        if !self.groups().contains(&group) {
            return None;
        }
        Some(match self {
            Self::W8 { .. } => Self::W8 { group },
            Self::W4 { .. } => Self::W4 { group },
            Self::F32 | Self::Bf16 => return None,
        })
    }

    /// Number of k that share a scale, 0 for one scale per output; `None` for formats without scales.
    pub fn group(self) -> Option<usize> {
        match self {
            Self::F32 | Self::Bf16 => None,
            Self::W8 { group } | Self::W4 { group } => Some(group),
        }
    }

    /// Whether weights are integers with scales.
    pub fn is_integer(self) -> bool {
        self.group().is_some()
    }

    /// The arithmetic of multiplications.
    pub fn arithmetic(self) -> Arithmetic {
        match self {
            Self::F32 => Arithmetic::F32,
            Self::Bf16 => Arithmetic::Bf16,
            Self::W8 { .. } | Self::W4 { .. } => Arithmetic::Int8,
        }
    }

    /// Largest magnitude of a weight that the format can hold.
    pub fn largest(self) -> f32 {
        const LARGEST_F16: f32 = 65504.0;
        match self {
            Self::F32 => f32::MAX,
            // Rounded scale times integer must not exceed `f32::MAX`.
            Self::W8 { group: 0 } => f32::from_bits(0x7f7f_ff00),
            Self::Bf16 => bf16::widen(0x7f7f),
            Self::W8 { .. } => w8::LARGEST * LARGEST_F16,
            Self::W4 { .. } => w4::RANGE.1 * LARGEST_F16,
        }
    }

    /// Number of elements of k in one word.
    pub(crate) fn k_per_step(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
            Self::W8 { .. } => 4,
            Self::W4 { .. } => 8,
        }
    }

    /// Number of steps for `k` elements.
    pub fn steps(self, k: usize) -> usize {
        let padded = if self.is_integer() { k.next_multiple_of(BLOCK) } else { k };
        padded.div_ceil(self.k_per_step())
    }

    /// Number of weight groups for `k` elements; 0 without scales.
    pub(crate) fn groups_in(self, k: usize) -> usize {
        match self.group() {
            None => 0,
            Some(0) => 1,
            Some(group) => k.div_ceil(group),
        }
    }

    /// Number of k after which integer sums are scaled: the smaller of the group sizes of weights and inputs.
    pub(crate) fn summed_k(self) -> usize {
        match self.group() {
            None | Some(0) => INPUT_GROUP,
            Some(group) => group,
        }
    }

    /// The offset of the stored integers in a tier's dot product.
    pub(crate) fn offset<S: Isa>(self) -> i32 {
        match self {
            Self::F32 | Self::Bf16 => 0,
            Self::W8 { .. } => w8::W8::offset::<S>(),
            Self::W4 { .. } => w4::W4::offset::<S>(),
        }
    }

    /// Stores a value at element `k` of a strip's lane; `word` is the word of that step and lane. For integer formats, the
    /// value is the integer.
    #[inline(always)]
    pub(crate) fn insert(self, word: &mut u32, k: usize, value: f32) {
        match self {
            Self::F32 => float32::insert(word, value),
            Self::Bf16 => bf16::insert(word, k, value),
            Self::W8 { .. } => w8::insert(word, k, value as i32),
            Self::W4 { .. } => w4::insert(word, k, value as i32),
        }
    }

    /// The value of element `k`, from the word of its step; for integer formats, the integer.
    #[inline(always)]
    pub(crate) fn extract(self, word: u32, k: usize) -> f32 {
        match self {
            Self::F32 => float32::extract(word),
            Self::Bf16 => bf16::extract(word, k),
            Self::W8 { .. } => w8::extract(word, k),
            Self::W4 { .. } => w4::extract(word, k),
        }
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

/// Dot products of one block: the part of an integer tile that depends on the format.
pub(crate) trait Integer: 'static {
    /// Number of words of a strip per block of k.
    const BLOCK_WORDS: usize;
    /// Number of rows from which on computing takes about as long as reading the weights.
    const FAR_ROWS: usize;
    /// The offset of the weights in [`Integer::dot`].
    fn offset<S: Isa>() -> i32;
    /// Adds the products of one block to the sums.
    ///
    /// # Safety
    /// `w` is valid for reading [`Integer::BLOCK_WORDS`] words, `x` for `R * BLOCK / 4`.
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    );
    /// Writes the values of one block's weights as signed bytes `[8][16 outputs][4]`, without the storage offset.
    ///
    /// # Safety
    /// `w` is valid for reading [`Integer::BLOCK_WORDS`] words, `to` for writing 128.
    unsafe fn signed<S: Isa>(s: S, w: *const u32, to: *mut u32);
}

/// Number of words of a strip per block, given the number of weights per word.
const fn block_words(weights: usize) -> usize {
    BLOCK / weights * LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_not_the_default_is_shown() {
        let shown: Vec<String> = Format::ALL.iter().map(Format::to_string).collect();
        assert_eq!(shown, ["f32", "bf16", "w8", "w4"]);
        let with = |format: Format, group| format.with_group(group).unwrap().to_string();
        assert_eq!((with(w8::FORMAT, 0), with(w8::FORMAT, 128)), ("w8g0".into(), "w8".into()));
        assert_eq!((with(w4::FORMAT, 32), with(w4::FORMAT, 64)), ("w4g32".into(), "w4".into()));
    }

    #[test]
    fn the_largest_weight_takes_the_largest_integer_and_scale() {
        assert_eq!(float32::FORMAT.largest(), f32::MAX);
        assert_eq!(bf16::FORMAT.largest().to_bits(), f32::MAX.to_bits() & 0xffff_0000);
        assert_eq!(w8::FORMAT.largest(), 127.0 * 65504.0);
        for &group in w4::GROUPS {
            assert_eq!(w4::FORMAT.with_group(group).unwrap().largest(), 7.0 * 65504.0);
        }
    }
}
