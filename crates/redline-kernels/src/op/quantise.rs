//! Inputs of integer layers: int8 per row and group of 128 k, quantised once and read by every strip.
//!
//! Order: `m = max |x|` over the group; `s = m / 127`; `inv = 127 / m`; `q = x * inv` rounded to nearest even. A group below
//! 2^-100 becomes zero, one with a NaN or an infinity gets the scale NaN. A value depends on its own group only.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use crate::dot::INPUT_WORDS;
use crate::format::{BLOCK, Format, INPUT_GROUP};
use crate::threads::Disjoint;
use crate::{Exec, Rows};

/// Groups below this magnitude become zero.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

/// How the inputs of a matrix lie in memory: tile after tile, each `[k/4][rows]` words of four bytes, then `[k/128][rows]`
/// scales, then `[groups][rows]` starts of the integer sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputLayout {
    /// k of a row.
    pub(crate) k: usize,
    /// k that are summed as integers.
    pub(crate) summed_k: usize,
    /// Rows of the largest tile.
    pub(crate) tile_rows: usize,
    /// Rows of all tiles.
    pub(crate) rows: usize,
}

impl InputLayout {
    pub(crate) fn blocks(self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    fn byte_words(self) -> usize {
        self.blocks() * INPUT_WORDS
    }

    pub(crate) fn groups(self) -> usize {
        self.k.div_ceil(INPUT_GROUP)
    }

    /// Words per row: bytes, scales, starts.
    pub(crate) fn row_words(self) -> usize {
        self.byte_words() + self.groups() + self.k.div_ceil(self.summed_k)
    }

    pub(crate) fn tiles(self) -> usize {
        self.rows.div_ceil(self.tile_rows)
    }

    /// Rows of tile `t`: all tiles have almost equal size.
    pub(crate) fn tile(self, t: usize) -> Range<usize> {
        let tiles = self.tiles();
        self.rows * t / tiles..self.rows * (t + 1) / tiles
    }

    /// Where bytes, scales and starts of the tile with these rows begin, in words.
    pub(crate) fn places(self, tile: &Range<usize>) -> (usize, usize, usize) {
        let bytes = tile.start * self.row_words();
        let scales = bytes + tile.len() * self.byte_words();
        (bytes, scales, scales + tile.len() * self.groups())
    }
}

/// Quantises the rows `x` into `out`, leaving out the columns `skip` (ascending): they count as zero.
/// How much too high the weights of `format` count enters with the starts of the sums.
pub(crate) fn quantise(
    exec: Exec<'_>,
    layout: InputLayout,
    format: Format,
    x: Rows<'_>,
    skip: &[u32],
    out: &mut [u32],
) {
    assert!(out.len() >= layout.rows * layout.row_words() && x.rows == layout.rows && x.width == layout.k);
    let out = Disjoint::new(out);
    let least = if layout.rows >= 8 { 2 } else { usize::MAX };
    exec.team.split(layout.tiles() * layout.groups(), 1, least, |units| {
        exec.simd.run_common(Groups { layout, format, x, skip, out, units });
    });
}

/// Some groups of some tiles: unit u is group `u % groups` of tile `u / groups`.
struct Groups<'a> {
    layout: InputLayout,
    format: Format,
    x: Rows<'a>,
    skip: &'a [u32],
    out: Disjoint<u32>,
    units: Range<usize>,
}

impl Kernel for Groups<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let offset = self.format.offset::<S>();
        for unit in self.units.clone() {
            let (t, g) = (unit / self.layout.groups(), unit % self.layout.groups());
            let tile = self.layout.tile(t);
            for (i, r) in tile.clone().enumerate() {
                let first = g * INPUT_GROUP;
                let values = &self.x.row(r)[first..self.layout.k.min(first + INPUT_GROUP)];
                let skipped = self.skipped(first..first + values.len());
                if skipped.is_empty() {
                    // SAFETY: this member alone writes group `g` of tile `t`.
                    unsafe { self.group(s, values, &tile, i, g, offset) };
                } else {
                    let mut kept = [0f32; INPUT_GROUP];
                    kept[..values.len()].copy_from_slice(values);
                    for &col in skipped {
                        kept[col as usize - first] = 0.0;
                    }
                    // SAFETY: as above.
                    unsafe { self.group(s, &kept[..values.len()], &tile, i, g, offset) };
                }
            }
        }
    }
}

impl Groups<'_> {
    /// The skipped columns among `cols`.
    fn skipped(&self, cols: Range<usize>) -> &[u32] {
        let at = |col: usize| self.skip.partition_point(|&c| (c as usize) < col);
        &self.skip[at(cols.start)..at(cols.end)]
    }

    /// Quantises group `g` of row `i` of the tile.
    ///
    /// # Safety
    /// No other thread touches that group; `out` holds the layout.
    #[inline(always)]
    unsafe fn group<S: Isa>(
        &self,
        s: S,
        values: &[f32],
        tile: &Range<usize>,
        i: usize,
        g: usize,
        offset: i32,
    ) {
        let rows = tile.len();
        let (bytes, scales, starts) = self.layout.places(tile);
        let mut magnitude = s.splat_word(0);
        for chunk in values.chunks(LANES) {
            magnitude = s.max_magnitude(magnitude, load(s, chunk));
        }
        let m = f32::from_bits(s.max_word(magnitude));
        let (scale, inv) = scale_of(m);
        let inv = s.splat(inv);
        let padded = values.len().next_multiple_of(BLOCK);
        // SAFETY: places within the layout, owned by this thread.
        unsafe {
            self.out.get().add(scales + g * rows + i).write(scale.to_bits());
            let first = g * INPUT_GROUP;
            let mut sum = s.splat_word(0);
            for at in (0..padded).step_by(LANES) {
                let q = if m.is_finite() {
                    s.to_nearest(s.mul(load(s, values.get(at..).unwrap_or_default()), inv))
                } else {
                    s.splat_word(0)
                };
                let to = self.out.get().add(bytes + (first + at) / 4 * rows + i);
                for (step, word) in s.pack_bytes(q).into_iter().enumerate() {
                    to.add(step * rows).write(word);
                }
                sum = s.add_words(sum, q);
                let end = at + LANES;
                if end % self.layout.summed_k == 0 || end == padded {
                    let start = s.sum_words(sum).wrapping_mul(-offset);
                    let group = (first + at) / self.layout.summed_k;
                    self.out.get().add(starts + group * rows + i).write(start as u32);
                    sum = s.splat_word(0);
                }
            }
        }
    }
}

/// The first sixteen values of a slice; the rest +0.
#[inline(always)]
fn load<S: Isa>(s: S, values: &[f32]) -> S::F {
    // SAFETY: as many values as the slice has, at most sixteen.
    unsafe {
        if values.len() >= LANES {
            s.load(values.as_ptr())
        } else {
            s.load_partial(values.as_ptr(), values.len())
        }
    }
}

/// Scale and its inverse for a group of magnitude `m`.
fn scale_of(m: f32) -> (f32, f32) {
    if m < SMALLEST {
        (0.0, 0.0)
    } else if m.is_finite() {
        (m / 127.0, 127.0 / m)
    } else {
        (f32::NAN, 0.0)
    }
}
