//! Inputs of integer layers: int8 per row and group of 128 k, quantised once and read by every strip.
//!
//! Order: `m = max |x|` over the group; `s = m / 127`; `inv = 127 / m`; `q = x * inv` rounded to nearest even. A group below
//! 2^-100 becomes zero, one with a NaN or an infinity gets the scale NaN. A value depends on its own group only.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, TILE_BYTES, TILE_ROWS};

use super::experts::Choice;
use crate::dot::INPUT_WORDS;
use crate::format::{BLOCK, Format, INPUT_GROUP, Minima};
use crate::threads::Disjoint;
use crate::{Exec, Rows};

/// Number of words in a row of a tile register.
const TILE_WORDS: usize = TILE_BYTES / 4;
/// Groups below this magnitude become zero.
pub(crate) const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

/// Arrangement of a tile's bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// `[k/4][rows]` words of four bytes: a dot product broadcasts one word to all lanes. The initial sums follow the scales.
    Words,
    /// `[k/64][16][64]` bytes, with the number of rows of a tile register; unwritten bytes have no effect.
    Tiles,
}

/// Layout of a matrix's inputs in memory: for each tile its bytes ([`Arrangement`]), then `[k/128][rows]` scales, then, if the
/// sums need them, `[groups][rows]` initial sums, and at last what minima are multiplied with: `[groups][rows]` f32, the sums of
/// the inputs times their scale, or `[groups/4][2][rows]` pairs of 16-bit sums of the inputs of four sub-groups, the first and the
/// third, the second and the fourth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputLayout {
    /// Number of k in a row.
    pub(crate) k: usize,
    /// Number of k that are summed as integers before scaling.
    pub(crate) summed_k: usize,
    /// The minima of the weights.
    pub(crate) minima: Minima,
    /// Arrangement of the bytes.
    pub(crate) arrangement: Arrangement,
    /// Rows of the largest tile.
    pub(crate) tile_rows: usize,
    /// Rows of all tiles.
    pub(crate) rows: usize,
}

/// Start of each part of a tile, in words, and the number of rows it has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) bytes: usize,
    pub(crate) scales: usize,
    pub(crate) starts: usize,
    pub(crate) sums: usize,
    pub(crate) rows: usize,
}

impl InputLayout {
    pub(crate) fn blocks(self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    fn byte_words(self) -> usize {
        match self.arrangement {
            Arrangement::Words => self.blocks() * INPUT_WORDS,
            Arrangement::Tiles => self.k.div_ceil(TILE_BYTES) * TILE_WORDS,
        }
    }

    pub(crate) fn groups(self) -> usize {
        self.k.div_ceil(INPUT_GROUP)
    }

    fn starts(self) -> usize {
        match self.arrangement {
            Arrangement::Words => self.k.div_ceil(self.summed_k),
            Arrangement::Tiles => 0,
        }
    }

    /// Number of words per row: bytes, scales, initial sums, sums.
    pub(crate) fn row_words(self) -> usize {
        let sums = match self.minima {
            Minima::None => 0,
            Minima::Floats => self.starts(),
            Minima::Integers => self.starts() / 2,
        };
        self.byte_words() + self.groups() + self.starts() + sums
    }

    /// Number of words of all tiles.
    pub(crate) fn words(self) -> usize {
        match self.arrangement {
            Arrangement::Words => self.rows * self.row_words(),
            Arrangement::Tiles => self.tiles() * TILE_ROWS * self.row_words(),
        }
    }

    pub(crate) fn tiles(self) -> usize {
        self.rows.div_ceil(self.tile_rows)
    }

    /// Rows of tile `t`: tiles of words have almost equal size, those for tile registers as many as these hold.
    #[inline(always)]
    pub(crate) fn tile(self, t: usize) -> Range<usize> {
        match self.arrangement {
            Arrangement::Words => {
                let tiles = self.tiles();
                self.rows * t / tiles..self.rows * (t + 1) / tiles
            }
            Arrangement::Tiles => t * TILE_ROWS..self.rows.min((t + 1) * TILE_ROWS),
        }
    }

    /// The tile that row `row` lies in.
    pub(crate) fn tile_of(self, row: usize) -> usize {
        match self.arrangement {
            Arrangement::Words => ((row + 1) * self.tiles() - 1) / self.rows,
            Arrangement::Tiles => row / TILE_ROWS,
        }
    }

    /// Start of each part of tile `t`.
    #[inline(always)]
    pub(crate) fn places(self, t: usize) -> Places {
        let tile = self.tile(t);
        let rows = match self.arrangement {
            Arrangement::Words => tile.len(),
            Arrangement::Tiles => TILE_ROWS,
        };
        let bytes = tile.start * self.row_words();
        let scales = bytes + rows * self.byte_words();
        let starts = scales + rows * self.groups();
        Places { bytes, scales, starts, sums: starts + rows * self.starts(), rows }
    }

    /// Index of word `word` of row `row` of a tile, counted from the start of its bytes; and the distance to its successors, if
    /// `word` is a multiple of four.
    fn word_at(self, rows: usize, row: usize, word: usize) -> (usize, usize) {
        match self.arrangement {
            Arrangement::Words => (word * rows + row, rows),
            Arrangement::Tiles => ((word / TILE_WORDS * TILE_ROWS + row) * TILE_WORDS + word % TILE_WORDS, 1),
        }
    }
}

/// Quantises the rows `x` into `out`. The columns `skip` (ascending) count as zero. The initial sums cancel the offset of the
/// weights of `format`.
pub(crate) fn quantise(
    exec: Exec<'_>,
    layout: InputLayout,
    format: Format,
    x: Rows<'_>,
    skip: &[u32],
    out: &mut [u32],
) {
    assert!(out.len() >= layout.words() && x.rows == layout.rows && x.width == layout.k);
    let out = Disjoint::new(out);
    let least = if layout.rows >= 8 { 2 } else { usize::MAX };
    exec.team.split(layout.tiles() * layout.groups(), 1, least, |units| {
        exec.simd.run(Groups { layout, format, x: Inputs::All(x), skip, out, units });
    });
}

/// Rows of inputs: all of some, or those that choices name.
#[derive(Clone, Copy)]
pub(crate) enum Inputs<'a> {
    All(Rows<'a>),
    Chosen(Rows<'a>, &'a [Choice]),
}

impl<'a> Inputs<'a> {
    /// Row `r`.
    #[inline(always)]
    fn row(self, r: usize) -> &'a [f32] {
        match self {
            Self::All(x) => x.row(r),
            Self::Chosen(x, choices) => x.row(choices[r].row as usize),
        }
    }

    /// Whether both choose the same rows. They choose from the same ones.
    pub(crate) fn same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Chosen(_, a), Self::Chosen(_, b)) => a.iter().map(|a| a.row).eq(b.iter().map(|b| b.row)),
            _ => false,
        }
    }
}

/// Some groups of some tiles: unit u is group `u % groups` of tile `u / groups`.
pub(crate) struct Groups<'a> {
    pub(crate) layout: InputLayout,
    pub(crate) format: Format,
    pub(crate) x: Inputs<'a>,
    pub(crate) skip: &'a [u32],
    /// Room for the whole layout.
    pub(crate) out: Disjoint<u32>,
    pub(crate) units: Range<usize>,
}

impl Kernel for Groups<'_> {
    type Output = ();
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let offset = self.format.offset::<S>();
        let all = self.layout.groups();
        let mut first = self.units.start;
        while first < self.units.end {
            let t = first / all;
            let end = self.units.end.min((t + 1) * all);
            let places = self.layout.places(t);
            for (i, r) in self.layout.tile(t).enumerate() {
                for unit in first..end {
                    // SAFETY: this member alone writes these groups of tile `t`.
                    unsafe { self.group(s, self.x.row(r), places, i, unit % all, offset) };
                }
            }
            first = end;
        }
    }
}

impl Groups<'_> {
    /// Quantises group `g` of row `i` of the tile.
    ///
    /// # Safety
    /// No other thread touches that group; `out` holds the layout.
    #[inline(always)]
    unsafe fn group<S: Isa>(&self, s: S, row: &[f32], places: Places, i: usize, g: usize, offset: i32) {
        let first = g * INPUT_GROUP;
        let cols = first..row.len().min(first + INPUT_GROUP);
        let mut kept;
        let values = if self.skip.is_empty() {
            &row[cols]
        } else {
            kept = [0f32; INPUT_GROUP];
            kept[..cols.len()].copy_from_slice(&row[cols.clone()]);
            let from = self.skip.partition_point(|&col| (col as usize) < first);
            for &col in self.skip[from..].iter().take_while(|&&col| (col as usize) < cols.end) {
                kept[col as usize - first] = 0.0;
            }
            &kept[..cols.len()]
        };
        // SAFETY: by contract.
        unsafe {
            // The compiler unrolls the loops of a whole group.
            match <&[f32; INPUT_GROUP]>::try_from(values) {
                Ok(whole) => self.pack(s, whole, places, i, g, offset),
                Err(_) => self.pack(s, values, places, i, g, offset),
            }
        }
    }

    /// Quantises `values`, those of group `g` of row `i` of the tile.
    ///
    /// # Safety
    /// As [`Self::group`].
    #[inline(always)]
    unsafe fn pack<S: Isa>(&self, s: S, values: &[f32], places: Places, i: usize, g: usize, offset: i32) {
        let Places { bytes, scales, starts, sums, rows } = places;
        let first = g * INPUT_GROUP;
        let scaled = GroupScale::new(s, values);
        let padded = values.len().next_multiple_of(BLOCK);
        // SAFETY: places within the layout, owned by this thread.
        unsafe {
            self.out.get().add(scales + g * rows + i).write(scaled.scale.to_bits());
            let mut sum = s.splat_word(0);
            for at in (0..padded).step_by(LANES) {
                let q = scaled.round(s, values.get(at..).unwrap_or_default());
                let (word, apart) = self.layout.word_at(rows, i, (first + at) / 4);
                let (to, packed) = (self.out.get().add(bytes + word), s.pack_bytes(q));
                if self.layout.arrangement == Arrangement::Tiles {
                    to.cast::<[u32; LANES / 4]>().write(packed);
                    continue;
                }
                for (step, bytes_of_four) in packed.into_iter().enumerate() {
                    to.add(step * apart).write(bytes_of_four);
                }
                sum = s.add_words(sum, q);
                let end = at + LANES;
                if end % self.layout.summed_k == 0 || end == padded {
                    let exact = s.sum_words(sum);
                    let group = (first + at) / self.layout.summed_k;
                    let start = exact.wrapping_mul(-offset);
                    self.out.get().add(starts + group * rows + i).write(start as u32);
                    match self.layout.minima {
                        Minima::None => {}
                        Minima::Floats => {
                            let sum = (exact as f32 * scaled.scale).to_bits();
                            self.out.get().add(sums + group * rows + i).write(sum);
                        }
                        Minima::Integers => {
                            let pair = self.out.get().add(sums + (group / 4 * 2 + group % 2) * rows + i);
                            let half = pair.cast::<i16>().add(group % 4 / 2);
                            half.write(exact as i16);
                        }
                    }
                    sum = s.splat_word(0);
                }
            }
        }
    }
}

/// How the values of a group become integers.
#[derive(Clone, Copy)]
pub(crate) struct GroupScale<S: Isa> {
    pub(crate) scale: f32,
    inverse: S::F,
    is_finite: bool,
}

impl<S: Isa> GroupScale<S> {
    #[inline(always)]
    pub(crate) fn new(s: S, values: &[f32]) -> Self {
        let m = magnitude(s, values);
        let (scale, inverse) = scale_of(m, 127.0);
        Self { scale, inverse: s.splat(inverse), is_finite: m.is_finite() }
    }

    /// The integers of the first sixteen of `values`; those that are missing are 0.
    #[inline(always)]
    pub(crate) fn round(self, s: S, values: &[f32]) -> S::W {
        if self.is_finite { s.to_nearest(s.mul(load(s, values), self.inverse)) } else { s.splat_word(0) }
    }
}

/// The largest magnitude, with infinity above all numbers and NaN above infinity.
#[inline(always)]
pub(crate) fn magnitude<S: Isa>(s: S, x: &[f32]) -> f32 {
    let mut magnitude = s.splat_word(0);
    for chunk in x.chunks(LANES) {
        magnitude = s.max_magnitude(magnitude, load(s, chunk));
    }
    f32::from_bits(s.max_word(magnitude))
}

/// The first sixteen values of a slice, padded with +0.
#[inline(always)]
pub(crate) fn load<S: Isa>(s: S, values: &[f32]) -> S::F {
    // SAFETY: as many values as the slice has, at most sixteen.
    unsafe {
        if values.len() >= LANES {
            s.load(values.as_ptr())
        } else {
            s.load_partial(values.as_ptr(), values.len())
        }
    }
}

/// Scale and its inverse for a group of magnitude `m`, if the largest integer is `largest`.
#[inline(always)]
pub(crate) fn scale_of(m: f32, largest: f32) -> (f32, f32) {
    if m < SMALLEST {
        (0.0, 0.0)
    } else if m.is_finite() {
        (m / largest, largest / m)
    } else {
        (f32::NAN, 0.0)
    }
}
