//! How values are stored in the words of a strip, and the dot products of a block: the part of an integer tile that depends on it.
//! Types that tiles are instantiated for lie in files of their own: these are separate codegen units, compiled in parallel.

mod minima;
mod sub_nibbles;
mod sub_split;
mod table;

use redline_simd::{Isa, LANES, widen_f16};

pub(crate) use self::minima::WithMinima;
pub(crate) use self::sub_nibbles::SubNibbles;
pub(crate) use self::sub_split::SubSplit;
pub(crate) use self::table::{DOUBLE_E2M1, E2m1, NON_LINEAR, NonLinear, SubTable};

/// Number of k that integer kernels process at a time; rows of integer formats are padded to a multiple of it.
pub(crate) const BLOCK: usize = 32;

/// The kinds of stored values. Integers may be stored with an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// `[k][16]` f32.
    F32,
    /// `[k/2][16][2]` bf16, the first of a pair in the high half.
    Bf16,
    /// `[k][16]` f16.
    F16,
    /// `[k/4][16][4]` bytes, `q + 128`.
    Bytes,
    /// `[k/8][16][4]` bytes. Byte j holds k = 8 i + j in its low half and k = 8 i + 4 + j in its high half.
    Nibbles {
        /// What is added to integers.
        offset: u32,
    },
    /// As `Nibbles`; each is the index of an integer.
    Table(&'static [i8; 16]),
    /// As `Nibbles`, with one or two more bits of each integer. Those of `32 / high` k are a word after the words of these k: byte j holds
    /// the bits of k = 4 i + j from bit `high * i` on.
    Split {
        /// Number of bits.
        high: usize,
        /// What is added to integers.
        offset: u32,
    },
}

/// Offset of stored bytes.
pub(crate) const BYTE_OFFSET: u32 = 128;

/// The place of a half byte in its word.
fn nibble_shift(k: usize) -> usize {
    k % 4 * 8 + k % 8 / 4 * 4
}

impl Codes {
    /// Number of elements of k in one word of a lane, and of f16 in one half. Split integers have other words too.
    pub(crate) fn k_per_step(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Bf16 => 2,
            Self::Bytes => 4,
            Self::Nibbles { .. } | Self::Table(_) | Self::Split { .. } => 8,
        }
    }

    /// Number of steps for `k` elements, of which integers are whole blocks.
    pub(crate) fn steps(self, k: usize) -> usize {
        match self {
            Self::Split { high, .. } => k / 8 + k / 32 * high,
            _ => k.div_ceil(self.k_per_step()),
        }
    }

    /// Bytes of a step of one lane.
    pub(crate) fn lane_bytes(self) -> usize {
        if self == Self::F16 { size_of::<u16>() } else { size_of::<u32>() }
    }

    /// The value of element `k` of a lane, given the words of its strip; for integers, the integer.
    #[inline(always)]
    pub(crate) fn value(self, words: &[u32], k: usize, lane: usize) -> f32 {
        let at = k / self.k_per_step() * LANES + lane;
        match self {
            Self::F32 => f32::from_bits(words[at]),
            Self::Bf16 => f32::from_bits(if k % 2 == 0 { words[at] & 0xffff_0000 } else { words[at] << 16 }),
            Self::F16 => widen_f16((words[at / 2] >> (at % 2 * 16)) as u16),
            Self::Bytes => ((words[at] >> (k % 4 * 8) & 0xff) as i32 - BYTE_OFFSET as i32) as f32,
            Self::Nibbles { offset } => ((words[at] >> nibble_shift(k) & 15) as i32 - offset as i32) as f32,
            Self::Table(table) => f32::from(table[(words[at] >> nibble_shift(k) & 15) as usize]),
            Self::Split { high, offset } => {
                let (block, k) = (k / (32 / high), k % (32 / high));
                let word = |i: usize| words[(block * (4 / high + 1) + i) * LANES + lane];
                let more = word(4 / high) >> (k % 4 * 8 + k / 4 * high) & ((1 << high) - 1);
                ((word(k / 8) >> nibble_shift(k) & 15 | more << 4) as i32 - offset as i32) as f32
            }
        }
    }

    /// The words of `32 / high` split integers of one lane: half bytes, and after them the other bits.
    #[inline(always)]
    pub(crate) fn pack_split<'w>(
        (high, offset): (usize, u32),
        codes: &[i8],
        mut words: impl Iterator<Item = &'w mut u32>,
    ) {
        let mut more = 0;
        for (i, codes) in codes.chunks_exact(8).enumerate() {
            let whole = [0, 1].map(|half| {
                let bytes = four_bytes(&codes[half * 4..]).to_le_bytes();
                u32::from_le_bytes(bytes.map(|byte| byte.wrapping_add(offset as u8)))
            });
            if let Some(word) = words.next() {
                *word = whole[0] & LOW | (whole[1] & LOW) << 4;
            }
            for (half, bytes) in whole.into_iter().enumerate() {
                more |= ((bytes >> 4) & (0x0101_0101 * ((1 << high) - 1))) << (high * (2 * i + half));
            }
        }
        if let Some(word) = words.next() {
            *word = more;
        }
    }

    /// The word that holds these integers, or indices, of one lane: as many as a word holds.
    #[inline(always)]
    pub(crate) fn pack(self, codes: &[i8]) -> u32 {
        match self {
            Self::Bytes => four_bytes(codes) ^ (0x0101_0101 * BYTE_OFFSET),
            Self::Nibbles { offset } => pack_nibbles(codes, offset),
            Self::Table(_) => pack_nibbles(codes, 0),
            Self::Split { .. } => unreachable!("split integers take several words"),
            Self::F32 | Self::Bf16 | Self::F16 => unreachable!("floats have no codes"),
        }
    }

    /// The offset of the stored integers in a tier's dot product.
    pub(crate) fn offset<S: Isa>(self) -> i32 {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => 0,
            Self::Bytes | Self::Table(_) => {
                if S::DOT_U8_OFFSET {
                    BYTE_OFFSET as i32
                } else {
                    0
                }
            }
            Self::Nibbles { offset } | Self::Split { offset, .. } => offset as i32,
        }
    }
}

/// The low half of every byte of a word.
const LOW: u32 = 0x0f0f_0f0f;

/// The first four codes, the first in the lowest byte.
#[inline(always)]
fn four_bytes(codes: &[i8]) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|k| codes[k].cast_unsigned()))
}

/// Eight codes plus an offset, of which four bits are kept; no byte overflows into the next.
#[inline(always)]
fn pack_nibbles(codes: &[i8], offset: u32) -> u32 {
    let low = |codes: &[i8]| ((four_bytes(codes) & LOW) + 0x0101_0101 * offset) & LOW;
    low(&codes[..4]) | low(&codes[4..]) << 4
}

/// Dot products of one block: the part of an integer tile that depends on the format.
pub(crate) trait Integer: 'static {
    /// Number of words of a strip per block of k.
    const BLOCK_WORDS: usize;
    /// Number of rows from which on computing takes about as long as reading the weights.
    const FAR_ROWS: usize;
    /// Maximum number of rows of a tile.
    const ROWS: usize = 16;
    /// Whether a float is added to the values of each block.
    const MINIMA: bool = false;
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
}

/// Integers that tile registers can multiply.
pub(crate) trait Signed: Integer {
    /// Writes the values of one block's weights as signed bytes `[8][16 outputs][4]`, without the storage offset.
    ///
    /// # Safety
    /// `w` is valid for reading [`Integer::BLOCK_WORDS`] words, `to` for writing 128.
    unsafe fn signed<S: Isa>(s: S, w: *const u32, to: *mut u32);
}

/// Dot products of a sub-group: the part of a tile with integer scales that depends on the format.
pub(crate) trait SubScaled: 'static {
    /// Number of k of a sub-group.
    const SUB: usize;
    /// Number of words of a strip per sub-group.
    const SUB_WORDS: usize;
    /// As [`Integer::FAR_ROWS`].
    const FAR_ROWS: usize;
    /// Adds the products of one sub-group to the sums.
    ///
    /// # Safety
    /// `w` is valid for reading [`SubScaled::SUB_WORDS`] words, `x` for `R * SUB / 4`.
    unsafe fn dot<S: Isa, const R: usize>(s: S, acc: &mut [S::W; R], w: *const u32, x: *const u32);
}

/// Number of words of a strip per block, given the number of weights per word.
pub(crate) const fn block_words(weights: usize) -> usize {
    BLOCK / weights * LANES
}

/// Maximum number of rows of tiles whose values need more registers than a sum each.
pub(crate) const FEWER_ROWS: usize = 8;
