//! Linear layers with integer weights: with vector dot products, or for many rows with tile registers if the tier has them.
//! Both follow the same order.

mod lora;
mod tiles;

use std::marker::PhantomData;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd, TILE_BYTES};

use super::lora::{Areas, Finish, LoraRows};
use super::variant::TILES_FROM_ROWS;
use super::{Outputs, Variant};
use crate::Matrix;
use crate::dot::{DotArgs, INPUT_WORDS, dot_tile};
use crate::format::bf16::{self, Bf16Mac};
use crate::format::w4::W4;
use crate::format::w8::W8;
use crate::format::{BLOCK, Format, INPUT_GROUP, Integer};
use crate::matrix::{MatrixShape, Outliers};
use crate::op::quantise::{Arrangement, InputLayout, Places, quantise};
use crate::tile::{self, TileArgs};
use crate::{Exec, Rows};

pub(super) fn scratch_words(shape: MatrixShape, rows: usize) -> usize {
    let outliers = rows * Format::Bf16.steps(shape.outliers);
    let inputs = [dot_layout(shape, rows, 1), tiles::layout(shape, rows)].map(InputLayout::words);
    inputs[0].max(inputs[1]) + LANES + outliers
}

fn dot_layout(shape: MatrixShape, rows: usize, tile_rows: usize) -> InputLayout {
    let (k, summed_k) = (shape.cols, shape.format.summed_k());
    InputLayout { k, summed_k, arrangement: Arrangement::Words, tile_rows, rows }
}

pub(super) fn run(
    exec: Exec<'_>,
    w: &Matrix,
    x: Rows<'_>,
    outputs: Outputs<'_>,
    loras: &[LoraRows<'_>],
    variant: Variant,
    scratch: &mut [u32],
) {
    let (scratch, rest) = scratch.split_at_mut(scratch_words(w.shape(), x.rows));
    let tiles = exec.simd.tiles().filter(|_| variant == Variant::Tiles && x.rows >= TILES_FROM_ROWS);
    let part_of = if variant == Variant::DotHalf { 2 } else { 1 };
    let layout = match tiles {
        Some(_) => tiles::layout(w.shape(), x.rows),
        None => dot_layout(w.shape(), x.rows, exec.simd.run(TileRows).div_ceil(part_of)),
    };
    let apart = scratch.len() - x.rows * w.outliers().map_or(0, Outliers::steps);
    let (inputs, apart) = scratch.split_at_mut(apart);
    // Inputs start at a cache line, so that no vector of them crosses two lines.
    let line = inputs.as_ptr().align_offset(TILE_BYTES).min(LANES);
    let inputs = &mut inputs[line..];
    quantise(exec, layout, w.format(), x, w.outlier_columns(), inputs);
    if let Some(outliers) = w.outliers() {
        gather(x, outliers, apart);
    }
    let (simd, summed_k) = (exec.simd, layout.summed_k);
    let job = Job {
        simd,
        matrix: w,
        layout,
        summed_k,
        inputs,
        starts: None,
        apart,
        outputs,
        resume: false,
        areas: None,
    };
    let run = |job| match tiles {
        Some(tiles) => tiles::run(exec, tiles, variant, job),
        None => {
            exec.team
                .split_strips(w.strips(), 1, variant.distribution(w, x.rows), |strips| part(job, strips));
        }
    };
    if loras.is_empty() {
        run(job);
    } else if tiles.is_none() && x.rows <= lora::BESIDE_ROWS && exec.team.devices() == 1 {
        lora::beside(exec, variant.distribution(w, x.rows), job, loras, rest);
    } else {
        let areas = lora::shrink(exec, tiles, job, loras, rest);
        run(Job { areas: Some(&areas), ..job });
    }
}

/// Number of rows of the largest tile of a tier.
struct TileRows;

impl Kernel for TileRows {
    type Output = usize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::DOT_ROWS
    }
}

/// The inputs of the outlier columns as pairs of bf16, `[rows][steps]`.
fn gather(x: Rows<'_>, outliers: &Outliers, out: &mut [u32]) {
    for (r, words) in out.chunks_exact_mut(outliers.steps()).take(x.rows).enumerate() {
        let row = x.row(r);
        words.fill(0);
        for (i, &col) in outliers.columns.iter().enumerate() {
            bf16::insert(&mut words[i / 2], i, row[col as usize]);
        }
    }
}

#[derive(Clone, Copy)]
struct Job<'a> {
    simd: Simd,
    matrix: &'a Matrix,
    layout: InputLayout,
    /// Number of k that are summed as integers before scaling. It differs from that of the layout if the inputs were laid out for
    /// another matrix.
    summed_k: usize,
    /// Laid out as described by [`InputLayout`].
    inputs: &'a [u32],
    /// Initial sums `[tiles][groups][rows]`, if they are not those of the layout.
    starts: Option<&'a [u32]>,
    /// Inputs of outlier columns.
    apart: &'a [u32],
    outputs: Outputs<'a>,
    /// Continue from the sums in the outputs instead of from zero.
    resume: bool,
    /// Updates, whose inputs have been computed.
    areas: Option<&'a Areas<'a>>,
}

/// Bytes of a tile's inputs that stay in the first-level cache while strips pass over them.
const CACHED_BYTES: usize = 32 << 10;
/// Bytes of weights that stay in the second-level cache while tiles pass over them.
const GROUP_BYTES: usize = 384 << 10;

/// Computes some strips. Weights are read once: one block of k of a group of strips stays in the second-level cache while every
/// tile of rows passes over it; a tile's inputs of that block stay in the first.
fn part(job: Job<'_>, strips: Range<usize>) {
    let Job { matrix, layout, .. } = job;
    let rows = layout.tile(0).len().max(1);
    let whole = layout.k.next_multiple_of(INPUT_GROUP);
    let cut = (CACHED_BYTES / rows / INPUT_GROUP * INPUT_GROUP).max(INPUT_GROUP);
    // A single tile reads every weight once; it is not cut, so that its weights are one stream.
    let block = if layout.tiles() > 1 { cut.min(whole) } else { whole };
    let strip_bytes = (matrix.strip_bytes().words / layout.k.div_ceil(block)).max(1);
    let group = (GROUP_BYTES / strip_bytes).max(1);
    for first in strips.clone().step_by(group) {
        let strips = first..strips.end.min(first + group);
        for start in (0..layout.k).step_by(block) {
            let k = start..layout.k.min(start + block);
            for tile in 0..layout.tiles() {
                run_tile(Tile { job, tile, strips: strips.clone(), k: k.clone() });
                if let Some(areas) = job.areas.filter(|_| k.end == layout.k) {
                    job.update(areas, (tile, layout.tile(tile)), &strips, None);
                    let rows = layout.tile(tile);
                    job.simd.run_common(Finish { outputs: job.outputs, rows, strips: strips.clone() });
                }
            }
        }
    }
}

/// Some strips of one tile of rows, over a part of k that begins with a group of inputs.
struct Tile<'a> {
    job: Job<'a>,
    tile: usize,
    strips: Range<usize>,
    k: Range<usize>,
}

/// A tile whose format and number of rows are known at compile time: each combination is a separate function.
struct TileOfRows<'a, I, const R: usize> {
    tile: Tile<'a>,
    format: PhantomData<I>,
}

fn run_tile(tile: Tile<'_>) {
    match tile.job.matrix.format() {
        Format::W8 { .. } => run_sized::<W8>(tile),
        Format::W4 { .. } => run_sized::<W4>(tile),
        Format::F32 | Format::Bf16 => unreachable!("`linear` runs {} elsewhere", tile.job.matrix.format()),
    }
}

fn run_sized<I: Integer>(tile: Tile<'_>) {
    let simd = tile.job.simd;
    macro_rules! by_rows {
        ($($rows:literal)*) => {
            match tile.job.layout.tile(tile.tile).len() {
                $($rows => simd.run_common(TileOfRows::<I, $rows> { tile, format: PhantomData }),)*
                rows => unreachable!("a tile has 1 to 16 rows, not {rows}"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

impl<I: Integer, const R: usize> Kernel for TileOfRows<'_, I, R> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        assert!(R <= S::DOT_ROWS, "a tile of this tier has at most {} rows, not {R}", S::DOT_ROWS);
        let Tile { job, tile, strips, k } = self.tile;
        let ask = !redline_simd::follows_streams();
        let Job { matrix, layout, inputs, outputs, .. } = job;
        let rows = layout.tile(tile);
        let Places { bytes, scales: x_scales, starts, .. } = layout.places(tile);
        let (block, group) = (k.start / BLOCK, k.start / job.summed_k);
        let blocks = k.len().div_ceil(BLOCK);
        for strip in strips {
            // SAFETY: `linear` checked that inputs, weights and outputs hold these rows, blocks and strips; the strips
            // belong to this member.
            unsafe {
                let x = inputs.as_ptr();
                let starts = match job.starts {
                    Some(starts) => starts.as_ptr().add(rows.start * layout.k.div_ceil(job.summed_k)),
                    None => x.add(starts),
                };
                let args = DotArgs {
                    w: matrix.words().as_ptr().add((strip * layout.blocks() + block) * I::BLOCK_WORDS),
                    scales: matrix.scales().of_strip(strip, matrix.groups(), group),
                    blocks,
                    skip: (layout.blocks() - blocks) * I::BLOCK_WORDS,
                    ask,
                    group_blocks: job.summed_k / BLOCK,
                    x: x.add(bytes + block * INPUT_WORDS * R),
                    x_scales: x.add(x_scales + k.start / INPUT_GROUP * R).cast(),
                    starts: starts.add(group * R).cast(),
                    y: outputs.at(rows.start, strip),
                    y_stride: outputs.stride,
                    resume: job.resume || k.start > 0,
                };
                dot_tile::<S, I, R>(s, args);
                if k.end < layout.k {
                    continue;
                }
                job.end_sums(s, rows.clone(), strip);
                if job.areas.is_none() {
                    outputs.finish(s, rows.clone(), strip..strip + 1);
                }
            }
        }
    }
}

impl Job<'_> {
    /// What follows the integer sums of one strip: its outlier columns.
    ///
    /// # Safety
    /// The strip belongs to the calling member.
    #[inline(always)]
    unsafe fn end_sums<S: Isa>(&self, s: S, rows: Range<usize>, strip: usize) {
        if let Some(outliers) = self.matrix.outliers() {
            // SAFETY: by contract.
            unsafe { self.add_outliers(s, outliers, rows, strip) };
        }
    }

    /// Continues the sums of one strip with the outlier columns.
    ///
    /// # Safety
    /// The strip belongs to the calling member.
    #[inline(always)]
    unsafe fn add_outliers<S: Isa>(&self, s: S, outliers: &Outliers, rows: Range<usize>, strip: usize) {
        let steps = outliers.steps();
        for first in rows.clone().step_by(tile::TILE_ROWS) {
            // SAFETY: rows, steps and strip lie within inputs, outliers and outputs.
            unsafe {
                let args = TileArgs {
                    w: outliers.words.as_ptr().add(strip * steps * LANES),
                    w_stride: 0,
                    steps,
                    x: self.apart.as_ptr().add(first * steps),
                    x_stride: steps,
                    y: self.outputs.at(first, strip),
                    y_stride: self.outputs.stride,
                    resume: true,
                    later: None,
                };
                tile::tiles::<S, Bf16Mac>(s, args, tile::TILE_ROWS.min(rows.end - first), 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::linear::Epilogue;
    use crate::threads::Disjoint;

    /// Runs the first tile of a matrix of this format, in tiles of `tile_rows` rows.
    fn run_first_tile(format: Format, tile_rows: usize) {
        let matrix = Matrix::zeroed(format, 16, 32).unwrap();
        let layout = dot_layout(matrix.shape(), tile_rows, tile_rows);
        let mut y = vec![0.0; 16 * tile_rows];
        let outputs = Outputs { y: Disjoint::new(&mut y), stride: 16, epilogue: Epilogue::default() };
        let inputs = vec![0; layout.words()];
        let (simd, summed_k) = (Simd::variants()[0], layout.summed_k);
        let matrix = &matrix;
        let inputs = &inputs;
        let job = Job {
            simd,
            matrix,
            layout,
            summed_k,
            inputs,
            starts: None,
            apart: &[],
            outputs,
            resume: false,
            areas: None,
        };
        run_tile(Tile { job, tile: 0, strips: 0..1, k: 0..32 });
    }

    #[test]
    #[should_panic(expected = "`linear` runs bf16 elsewhere")]
    fn a_tile_of_floats_is_refused() {
        run_first_tile(Format::Bf16, 1);
    }

    #[test]
    #[should_panic(expected = "a tile has 1 to 16 rows, not 17")]
    fn a_tile_of_too_many_rows_is_refused() {
        run_first_tile(Format::W8 { group: 0 }, 17);
    }

    #[test]
    #[should_panic(expected = "a tile of this tier has at most")]
    fn a_tile_that_the_tier_does_not_have_is_refused() {
        let most = Simd::variants()[0].run(TileRows);
        assert!(most < 16, "the scalar tier takes {most} rows");
        run_first_tile(Format::W8 { group: 0 }, most + 1);
    }
}
