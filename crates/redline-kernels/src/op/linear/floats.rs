//! Linear layers with f32 or bf16 weights.

use std::ops::Range;

use redline_simd::{Isa, Kernel};

use super::{Outputs, Variant};
use crate::Matrix;
use crate::format::bf16::{self, Bf16Mac};
use crate::format::float32::F32Mac;
use crate::format::{Format, Mac};
use crate::tile::{GROUP_STRIPS, TileArgs, tile_count, tile_rows, tiles};
use crate::{Exec, Rows};

/// Number of steps of k that a group of strips keeps in the second-level cache while all rows pass over it.
const BLOCK_STEPS: usize = 256;
/// The same for the variant with fewer, larger blocks.
const DEEP_STEPS: usize = 1024;
/// Number of rows from which on threads take whole groups of strips.
const GROUPED_ROWS: usize = 8;

pub(super) fn run(
    exec: Exec<'_>,
    w: &Matrix,
    x: Rows<'_>,
    outputs: Outputs<'_>,
    variant: Variant,
    scratch: &mut [u32],
) {
    let (inputs, x_stride) = if w.format() == Format::Bf16 {
        bf16::pack_inputs(exec, x, scratch);
        (scratch.as_ptr(), w.steps())
    } else {
        (x.data.as_ptr().cast::<u32>(), x.stride)
    };
    let block = if variant == Variant::Deep { DEEP_STEPS } else { BLOCK_STEPS };
    let job = Job { matrix: w, x: inputs, x_stride, rows: x.rows, block, outputs };
    let shared = SharedJob(job);
    let unit = if x.rows >= GROUPED_ROWS { GROUP_STRIPS } else { 1 };
    let (simd, distribution) = (exec.simd, variant.distribution(w, x.rows));
    exec.team
        .split_strips(w.strips(), unit, distribution, |strips| simd.run(Part { job: shared.get(), strips }));
}

#[derive(Clone, Copy)]
struct Job<'a> {
    matrix: &'a Matrix,
    x: *const u32,
    x_stride: usize,
    rows: usize,
    /// Number of steps of k that stay cached while rows pass over them.
    block: usize,
    outputs: Outputs<'a>,
}

struct SharedJob<'a>(Job<'a>);

// SAFETY: weights and inputs are only read; outputs are written by strips, each owned by one member.
unsafe impl Sync for SharedJob<'_> {}

impl<'a> SharedJob<'a> {
    fn get(&self) -> Job<'a> {
        self.0
    }
}

struct Part<'a> {
    job: Job<'a>,
    strips: Range<usize>,
}

impl Kernel for Part<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        if self.job.matrix.format() == Format::Bf16 {
            self.run_format::<S, Bf16Mac>(s);
        } else {
            self.run_format::<S, F32Mac>(s);
        }
    }
}

/// The strips whose next weights tile `t` of `tiles` prefetches while it computes. A single tile is bound by memory anyway and
/// prefetches nothing.
fn later(t: usize, tiles: usize) -> Option<[usize; 2]> {
    match (tiles, t) {
        (2, _) => Some([2 * t, 2 * t + 1]),
        (3, 0) => Some([0, 1]),
        (3, _) => Some([t + 1, t + 1]),
        (4.., 0..GROUP_STRIPS) => Some([t, t]),
        _ => None,
    }
}

impl Part<'_> {
    #[inline(always)]
    fn run_format<S: Isa, M: Mac>(self, s: S) {
        let job = self.job;
        let steps = job.matrix.steps();
        let words = job.matrix.words().as_ptr();
        let tiles_of_rows = tile_count(job.rows);
        let block = if tiles_of_rows > 1 { job.block } else { steps.max(1) };
        let mut strip = self.strips.start;
        while strip < self.strips.end {
            let group = (self.strips.end - strip).min(GROUP_STRIPS);
            // SAFETY: `linear` checked that inputs, weights and outputs hold these rows, steps and strips.
            unsafe {
                for start in (0..steps).step_by(block) {
                    // The next block of these strips, or the first block of the next strips.
                    let next = if start + block < steps { start + block } else { GROUP_STRIPS * steps };
                    for t in 0..tiles_of_rows {
                        let rows = tile_rows(job.rows, t);
                        let args = TileArgs {
                            w: words.add((strip * steps + start) * M::WORDS),
                            w_stride: steps * M::WORDS,
                            steps: block.min(steps - start),
                            x: job.x.add(rows.start * job.x_stride + start),
                            x_stride: job.x_stride,
                            y: job.outputs.at(rows.start, strip),
                            y_stride: job.outputs.stride,
                            resume: start > 0,
                            later: later(t, tiles_of_rows).map(|strips| {
                                strips.map(|c| words.wrapping_add(((strip + c) * steps + next) * M::WORDS))
                            }),
                        };
                        tiles::<S, M>(s, args, rows.len(), group);
                    }
                }
                job.outputs.finish(s, 0..job.rows, strip..strip + group);
            }
            strip += group;
        }
    }
}
