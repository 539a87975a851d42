//! Variants of running a linear layer. All give the same bits; which one is fastest depends on the machine, the shape and the
//! number of rows, and can be measured.

use redline_simd::Simd;

use crate::Matrix;
use crate::threads::Distribution;
use crate::tile::TILE_ROWS;

/// Number of rows from which on tile registers are used; with fewer, vector dot products wait less for their weights.
pub(super) const TILES_FROM_ROWS: usize = 25;

/// A way to run a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Integers: vector dot products, as many rows at a time as the tier's registers hold.
    Dot,
    /// Integers: vector dot products, half as many rows at a time, so that inputs of more k stay cached.
    DotHalf,
    /// Integers: tile registers.
    Tiles,
    /// Floats: blocks of 256 steps of k stay cached while all rows pass over them.
    Blocked,
    /// Floats: blocks of 1024 steps.
    Deep,
    /// [`Variant::Dot`] on the calling thread alone, for layers too small to be worth waking other threads.
    DotAlone,
    /// [`Variant::Blocked`] on the calling thread alone.
    BlockedAlone,
}

/// Number of rows above which half as many rows at a time is a different variant on the widest tier.
const HALF_ROWS: usize = 8;
/// Maximum size of a layer for which one thread may suffice, in bytes of weights times rows.
const SMALL: usize = 1 << 20;
/// Minimum size of a piece worth claiming, in bytes of weights: some microseconds of work for up to eight rows.
const PIECE_BYTES: usize = 128 << 10;

impl Variant {
    /// All variants.
    pub const ALL: &[Variant] = &[
        Self::Dot,
        Self::DotHalf,
        Self::Tiles,
        Self::Blocked,
        Self::Deep,
        Self::DotAlone,
        Self::BlockedAlone,
    ];

    /// Maximum number of variants that [`Variant::candidates`] returns.
    pub const MAX_CANDIDATES: usize = 3;

    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::DotHalf => "dot-half",
            Self::Tiles => "tiles",
            Self::Blocked => "blocked",
            Self::Deep => "deep",
            Self::DotAlone => "dot-alone",
            Self::BlockedAlone => "blocked-alone",
        }
    }

    /// Finds a variant by name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|variant| variant.name() == name)
    }

    /// Estimates the variant for `rows` rows without measuring.
    pub fn estimate(simd: Simd, matrix: &Matrix, rows: usize) -> Self {
        if !matrix.format().is_integer() {
            Self::Blocked
        } else if Self::in_tiles(simd, matrix, rows) {
            Self::Tiles
        } else {
            Self::Dot
        }
    }

    /// Whether tile registers may compute the layer.
    fn in_tiles(simd: Simd, matrix: &Matrix, rows: usize) -> bool {
        matrix.format().in_tiles() && simd.tiles().is_some() && rows >= TILES_FROM_ROWS
    }

    /// The variants worth measuring for up to `rows` rows with `threads` threads: the estimate first, at most three.
    pub fn candidates(simd: Simd, matrix: &Matrix, rows: usize, threads: usize) -> Vec<Self> {
        let integer = matrix.format().is_integer();
        let worth = |variant: &Self| match variant {
            Self::Dot => integer,
            Self::DotHalf => matrix.format().in_tiles() && rows > HALF_ROWS,
            Self::Tiles => Self::in_tiles(simd, matrix, rows),
            Self::Blocked => !integer,
            Self::Deep => !integer && rows > TILE_ROWS,
            Self::DotAlone | Self::BlockedAlone => {
                let small = matrix.bytes().saturating_mul(rows) <= SMALL;
                threads > 1 && small && integer == (*variant == Self::DotAlone)
            }
        };
        let estimate = Self::estimate(simd, matrix, rows);
        let others = Self::ALL.iter().copied().filter(|variant| *variant != estimate && worth(variant));
        std::iter::once(estimate).chain(others).take(Self::MAX_CANDIDATES).collect()
    }

    /// How the strips of a matrix are shared out for `rows` rows. Tile registers prefetch the weights of the next strips, so a
    /// member's strips must be consecutive.
    pub(super) fn distribution(self, matrix: &Matrix, rows: usize) -> Distribution {
        match self {
            Self::DotAlone | Self::BlockedAlone => Distribution::Alone,
            Self::Tiles => Distribution::Static,
            Self::Dot | Self::DotHalf | Self::Blocked | Self::Deep => {
                // Up to eight rows take about as long as reading the weights.
                let strip = matrix.bytes() / matrix.strips().max(1) * rows.div_ceil(8);
                Distribution::Stealing { least: PIECE_BYTES.div_ceil(strip.max(1)) }
            }
        }
    }
}
