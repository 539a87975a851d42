//! Linear layers with integer weights: with vector dot products, or for many rows with tile registers if the tier has them.
//! Both follow the same order.

pub(super) mod grouped;
mod lora;
mod tile;
mod tiles;

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd, TILE_BYTES};

use self::tile::{Tile, run_tile, tile_rows};
use self::tiles::Registers;
use super::lora::{Areas, LoraRows};
use super::variant::TILES_FROM_ROWS;
use super::{Outputs, Variant};
use crate::Matrix;
use crate::format::bf16::{self, Bf16Mac};
use crate::format::{Format, INPUT_GROUP};
use crate::matrix::{MatrixShape, Outliers, Plane};
use crate::op::quantise::{Arrangement, InputLayout, quantise};
use crate::tile::{TILE_ROWS, TileArgs, tiles as float_tiles};
use crate::{Exec, Rows};

pub(super) fn scratch_words(shape: MatrixShape, rows: usize) -> usize {
    let outliers = rows * Format::Bf16.steps(shape.outliers);
    let inputs = [dot_layout(shape, rows, 1), tiles::layout(shape, rows)].map(InputLayout::words);
    inputs[0].max(inputs[1]) + LANES + outliers
}

fn dot_layout(shape: MatrixShape, rows: usize, tile_rows: usize) -> InputLayout {
    let (k, summed_k) = (shape.cols, shape.format.summed_k());
    let minima = shape.format.minima();
    InputLayout { k, summed_k, minima, arrangement: Arrangement::Words, tile_rows, rows }
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
    let tiles = exec
        .simd
        .tiles()
        .filter(|_| w.format().in_tiles() && variant == Variant::Tiles && x.rows >= TILES_FROM_ROWS);
    let part_of = if variant == Variant::DotHalf { 2 } else { 1 };
    let layout = match tiles {
        Some(_) => tiles::layout(w.shape(), x.rows),
        None => dot_layout(w.shape(), x.rows, tile_rows(exec.simd, w.format()).div_ceil(part_of)),
    };
    let apart = scratch.len() - x.rows * w.outliers().map_or(0, |outliers| outliers.steps());
    let (inputs, apart) = scratch.split_at_mut(apart);
    let inputs = from_cache_line(inputs);
    quantise(exec, layout, w.format(), x, w.outlier_columns(), inputs);
    if let Some(outliers) = w.outliers() {
        gather(x, &outliers, apart);
    }
    let job = Job { apart, ..Job::new(exec.simd, w, layout, inputs, outputs) };
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

/// The words from a cache line on, so that no vector of inputs crosses two lines. At most sixteen are left out.
fn from_cache_line(words: &mut [u32]) -> &mut [u32] {
    let line = words.as_ptr().align_offset(TILE_BYTES).min(LANES);
    &mut words[line..]
}

/// The inputs of the outlier columns as pairs of bf16, `[rows][steps]`.
fn gather(x: Rows<'_>, outliers: &Outliers<'_>, out: &mut [u32]) {
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

impl<'a> Job<'a> {
    /// A whole layer without outlier columns and updates.
    fn new(
        simd: Simd,
        matrix: &'a Matrix,
        layout: InputLayout,
        inputs: &'a [u32],
        outputs: Outputs<'a>,
    ) -> Self {
        let summed_k = layout.summed_k;
        Self {
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
        }
    }
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
    let words = matrix.format().plane(Plane::Words, matrix.cols(), 0).bytes;
    let strip_bytes = (words / layout.k.div_ceil(block)).max(1);
    let group = (GROUP_BYTES / strip_bytes).max(1);
    for first in strips.clone().step_by(group) {
        let strips = first..strips.end.min(first + group);
        for start in (0..layout.k).step_by(block) {
            let k = start..layout.k.min(start + block);
            for tile in 0..layout.tiles() {
                run_tile(Tile { job, tile, strips: strips.clone(), k: k.clone() });
            }
        }
    }
}

impl Job<'_> {
    /// Whether anything follows the integer sums.
    fn has_end(&self) -> bool {
        self.has_additions() || self.outputs.has_epilogue()
    }

    /// Whether there are outlier columns or updates.
    fn has_additions(&self) -> bool {
        self.matrix.outliers().is_some() || self.areas.is_some()
    }

    /// What follows the integer sums of some strips of one tile of rows, which belong to the calling member: outlier columns, updates,
    /// bias and activation.
    fn end(self, tile: usize, rows: Range<usize>, strips: &Range<usize>) {
        self.add_outliers_and_updates((tile, rows.clone()), strips, None);
        self.outputs.finish(self.simd, rows, strips.clone());
    }

    /// Adds outlier columns and updates.
    fn add_outliers_and_updates(
        self,
        (tile, rows): (usize, Range<usize>),
        strips: &Range<usize>,
        registers: Option<&mut Registers<'_>>,
    ) {
        if let Some(outliers) = self.matrix.outliers() {
            let (rows, strips) = (rows.clone(), strips.clone());
            self.simd.run(AddOutliers { outliers, inputs: self.apart, outputs: self.outputs, rows, strips });
        }
        if let Some(areas) = self.areas {
            self.update(areas, (tile, rows), strips, registers);
        }
    }
}

/// Continues the sums of some strips with the outlier columns.
struct AddOutliers<'a> {
    outliers: Outliers<'a>,
    /// Inputs of these columns, `[rows][steps]`.
    inputs: &'a [u32],
    outputs: Outputs<'a>,
    rows: Range<usize>,
    strips: Range<usize>,
}

impl Kernel for AddOutliers<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { outliers, inputs, outputs, rows, strips } = self;
        let steps = outliers.steps();
        for strip in strips {
            for first in rows.clone().step_by(TILE_ROWS) {
                // SAFETY: rows, steps and strip lie within inputs, outliers and outputs; the strips belong to this member.
                unsafe {
                    let args = TileArgs {
                        w: outliers.words.as_ptr().add(strip * steps * LANES),
                        w_stride: 0,
                        steps,
                        x: inputs.as_ptr().add(first * steps),
                        x_stride: steps,
                        y: outputs.at(first, strip),
                        y_stride: outputs.stride,
                        resume: true,
                        later: None,
                    };
                    float_tiles::<S, Bf16Mac>(s, args, TILE_ROWS.min(rows.end - first), 1);
                }
            }
        }
    }
}
