//! Tiles of rows of vector dot products, by format and number of rows.

use std::marker::PhantomData;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd};

use super::Job;
use crate::dot::{DotArgs, INPUT_WORDS, dot_tile};
use crate::format::w4::W4;
use crate::format::w8::W8;
use crate::format::{
    BLOCK, Codes, E2m1, FEWER_ROWS, Format, INPUT_GROUP, Integer, NonLinear, Scaling, SubNibbles, SubScaled,
    SubSplit, SubTable, WithMinima,
};
use crate::matrix::Plane;
use crate::op::quantise::Places;
use crate::sub_dot::{SubDotArgs, sub_dot_tile};

/// Number of rows of the largest tile of a tier.
struct DotRows;

impl Kernel for DotRows {
    type Output = usize;
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::DOT_ROWS
    }
}

/// Number of rows of the largest tile of a format.
pub(super) fn tile_rows(simd: Simd, format: Format) -> usize {
    let rows = simd.run(DotRows);
    if format.in_tiles() { rows } else { rows.min(FEWER_ROWS) }
}

/// Some strips of one tile of rows, over a part of k that begins with a group of inputs.
pub(super) struct Tile<'a> {
    pub(super) job: Job<'a>,
    pub(super) tile: usize,
    pub(super) strips: Range<usize>,
    pub(super) k: Range<usize>,
}

/// A tile whose format and number of rows are known at compile time: each combination is a separate function.
struct TileOfRows<'a, I, const R: usize> {
    tile: Tile<'a>,
    format: PhantomData<I>,
}

/// The same for formats with integer scales.
struct SubTileOfRows<'a, I, const R: usize> {
    tile: Tile<'a>,
    format: PhantomData<I>,
}

/// Runs a tile, and at the end of k what follows its integer sums.
pub(super) fn run_tile(tile: Tile<'_>) {
    let Tile { job, tile: index, .. } = tile;
    let (rows, strips) = (job.layout.tile(index), tile.strips.clone());
    let is_last = tile.k.end == job.layout.k;
    integer_sums(tile);
    if is_last {
        job.end(index, rows, &strips);
    }
}

fn integer_sums(tile: Tile<'_>) {
    let format = tile.job.matrix.format();
    match (format.scaling(), format.codes()) {
        (Scaling::Chosen, Codes::Bytes) => run_sized::<W8>(tile),
        (Scaling::Chosen, Codes::Nibbles { .. }) => run_sized::<W4>(tile),
        (Scaling::Blocks { .. }, Codes::Bytes) => run_sized::<WithMinima<W8>>(tile),
        (Scaling::Blocks { .. }, Codes::Nibbles { .. }) => run_sized::<WithMinima<W4>>(tile),
        (Scaling::Blocks { bf16: false, .. }, Codes::Table(_)) => run_sized::<NonLinear>(tile),
        (Scaling::Blocks { bf16: true, .. }, Codes::Table(_)) => run_sized::<E2m1>(tile),
        (Scaling::Super { .. }, Codes::Split { high: 2, .. }) => run_sub_sized::<SubSplit<2>>(tile),
        (Scaling::Super { .. }, Codes::Split { .. }) => run_sub_sized::<SubSplit<1>>(tile),
        (Scaling::Super { sub: 16, .. }, Codes::Nibbles { .. }) => run_sub_sized::<SubNibbles<16>>(tile),
        (Scaling::Super { .. }, Codes::Nibbles { .. }) => run_sub_sized::<SubNibbles<32>>(tile),
        (Scaling::Super { .. }, Codes::Table(_)) => run_sub_sized::<SubTable>(tile),
        (Scaling::None, _)
        | (_, Codes::F32 | Codes::F16 | Codes::Bf16)
        | (Scaling::Super { .. }, Codes::Bytes)
        | (Scaling::Chosen | Scaling::Blocks { .. }, Codes::Split { .. })
        | (Scaling::Chosen, Codes::Table(_)) => {
            unreachable!("`linear` runs {format} elsewhere")
        }
    }
}

/// Runs a tile by its number of rows.
macro_rules! by_rows {
    ($tile:ident, $name:ident, $format:ty: $($rows:literal)*) => {
        match $tile.job.layout.tile($tile.tile).len() {
            $($rows => {
                let tile = $name::<$format, $rows> { tile: $tile, format: PhantomData };
                tile.tile.job.simd.run_in::<$format, _>(tile)
            })*
            rows => unreachable!("a tile of {} has no {rows} rows", $tile.job.matrix.format()),
        }
    };
}

fn run_sized<I: Integer>(tile: Tile<'_>) {
    by_rows!(tile, TileOfRows, I: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

fn run_sub_sized<I: SubScaled>(tile: Tile<'_>) {
    by_rows!(tile, SubTileOfRows, I: 1 2 3 4 5 6 7 8);
}

impl<I: Integer, const R: usize> Kernel for TileOfRows<'_, I, R> {
    type Output = ();
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let most = S::DOT_ROWS.min(I::ROWS);
        assert!(R <= most, "a tile of this tier has at most {most} rows, not {R}");
        let Tile { job, tile, strips, k } = self.tile;
        let ask = !redline_simd::follows_streams();
        let Job { matrix, layout, inputs, outputs, .. } = job;
        let rows = layout.tile(tile);
        let Places { bytes, scales: x_scales, starts, sums, .. } = layout.places(tile);
        let (block, group) = (k.start / BLOCK, k.start / job.summed_k);
        let blocks = k.len().div_ceil(BLOCK);
        for strip in strips {
            // SAFETY: `linear` or `linear_grouped` checked that inputs, weights and outputs hold these rows, blocks and strips; the strips
            // belong to this member.
            unsafe {
                let x = inputs.as_ptr();
                let starts = match job.starts {
                    Some(starts) => starts.as_ptr().add(rows.start * layout.k.div_ceil(job.summed_k)),
                    None => x.add(starts),
                };
                let args = DotArgs {
                    w: matrix.words().as_ptr().add((strip * layout.blocks() + block) * I::BLOCK_WORDS),
                    scales: matrix.scale(strip, group),
                    blocks,
                    skip: (layout.blocks() - blocks) * I::BLOCK_WORDS,
                    ask,
                    group_blocks: job.summed_k / BLOCK,
                    x: x.add(bytes + block * INPUT_WORDS * R),
                    x_scales: x.add(x_scales + k.start / INPUT_GROUP * R).cast(),
                    starts: starts.add(group * R).cast(),
                    minima: minima(job, strip).wrapping_add(group * LANES),
                    x_sums: x.wrapping_add(sums + group * R).cast(),
                    y: outputs.at(rows.start, strip),
                    y_stride: outputs.stride,
                    resume: job.resume || k.start > 0,
                };
                dot_tile::<S, I, R>(s, args);
            }
        }
    }
}

/// The f16 minima of a strip, or the factors of integer minima; null without any.
fn minima(job: Job<'_>, strip: usize) -> *const u16 {
    let minima = job.matrix.strip(Plane::Minima, strip);
    if minima.is_empty() { std::ptr::null() } else { minima.as_ptr().cast() }
}

impl<I: SubScaled, const R: usize> Kernel for SubTileOfRows<'_, I, R> {
    type Output = ();
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        assert!(R <= S::DOT_ROWS, "a tile of this tier has at most {} rows, not {R}", S::DOT_ROWS);
        let Tile { job, tile, strips, k } = self.tile;
        let ask = !redline_simd::follows_streams();
        let Job { matrix, layout, inputs, outputs, .. } = job;
        let rows = layout.tile(tile);
        let Places { bytes, scales: x_scales, starts, sums, .. } = layout.places(tile);
        let (first, groups) = (k.start / INPUT_GROUP, k.len() / INPUT_GROUP);
        let sub = k.start / I::SUB;
        let words = matrix.words();
        for strip in strips {
            let w = words[(strip * (layout.k / I::SUB) + sub) * I::SUB_WORDS..].as_ptr();
            // SAFETY: `linear` or `linear_grouped` checked that inputs, weights and outputs hold these rows, groups and strips; the strips
            // belong to this member.
            unsafe {
                let x = inputs.as_ptr();
                let args = SubDotArgs {
                    w,
                    d: matrix.strip(Plane::Scales, strip).as_ptr().cast(),
                    dmin: minima(job, strip),
                    scales: matrix.strip(Plane::SubScales, strip).as_ptr().cast(),
                    minima: matrix.strip(Plane::SubMinima, strip).as_ptr().cast(),
                    first,
                    groups,
                    skip: (layout.k / I::SUB - k.len() / I::SUB) * I::SUB_WORDS,
                    ask,
                    x: x.add(bytes + k.start / 4 * R),
                    x_scales: x.add(x_scales + first * R).cast(),
                    starts: x.add(starts + sub * R),
                    x_sums: x.wrapping_add(sums + sub / 2 * R),
                    y: outputs.at(rows.start, strip),
                    y_stride: outputs.stride,
                    resume: job.resume || k.start > 0,
                };
                sub_dot_tile::<S, I, R>(s, args);
            }
        }
    }
}
