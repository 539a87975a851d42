//! Linear layers with f32, f16 or bf16 weights.

use std::ops::Range;

use redline_simd::{Isa, Kernel, Simd};

use super::lora::{Areas, Gains, LoraPart, LoraRows, Room, Span, common, most_parts};
use super::{Outputs, Variant};
use crate::Matrix;
use crate::format::bf16::{self, Bf16Mac};
use crate::format::float16::HalfMac;
use crate::format::float32::F32Mac;
use crate::format::{Codes, Format, Mac};
use crate::tile::{GROUP_STRIPS, TILE_ROWS, TileArgs, tile_count, tile_rows, tiles};
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
    loras: &[LoraRows<'_>],
    variant: Variant,
    scratch: &mut [u32],
) {
    let (scratch, rest) = scratch.split_at_mut(super::scratch_words(w.shape(), x.rows));
    let (inputs, x_stride) = if w.format() == Format::Bf16 {
        bf16::pack_inputs(exec, x, scratch);
        (scratch.as_ptr(), w.steps())
    } else {
        (x.data.as_ptr().cast::<u32>(), x.stride)
    };
    let block = if variant == Variant::Deep { DEEP_STEPS } else { BLOCK_STEPS };
    let simd = exec.simd;
    let job = Job {
        simd,
        matrix: w,
        x: inputs,
        x_stride,
        rows: x.rows,
        block,
        outputs,
        resume: false,
        areas: None,
    };
    let unit = if x.rows >= GROUPED_ROWS { GROUP_STRIPS } else { 1 };
    let distribution = variant.distribution(w, x.rows);
    let run = |job| {
        let shared = SharedJob(job);
        exec.team.split_strips(w.strips(), unit, distribution, |strips| {
            simd.run(Part { job: shared.get(), strips });
        });
    };
    if loras.is_empty() {
        run(job);
    } else {
        let areas = shrink(exec, job, loras, rest);
        run(Job { areas: Some(&areas), ..job });
    }
}

/// Computes the inputs of the second matrix of every update: `t`, scaled, and rounded if the weights are bf16.
fn shrink<'a>(exec: Exec<'_>, job: Job<'_>, loras: &'a [LoraRows<'a>], scratch: &'a mut [u32]) -> Areas<'a> {
    let areas = Areas::new(loras, scratch, |update| Span { tiles: 0..0, rows: update.range() }, room);
    let shared = SharedJob(job);
    let chunks = job.rows.div_ceil(CHUNK_ROWS);
    let parts = most_parts(loras);
    let per_chunk = loras.len() * parts;
    exec.team.split(chunks * per_chunk, 1, 2, |units| {
        for item in units {
            let rows = item / per_chunk * CHUNK_ROWS..(item / per_chunk + 1) * CHUNK_ROWS;
            shared.get().down(&areas, &rows, (item % per_chunk / parts, item % parts));
        }
    });
    areas
}

fn room(update: &LoraRows<'_>, _: &Span, part: &LoraPart) -> Room {
    let packed_stride = part.up.format().steps(part.up.cols());
    Room { rows: update.rows, packed: update.rows, packed_stride }
}

/// Number of rows of an update that one thread takes.
const CHUNK_ROWS: usize = 8 * TILE_ROWS;

#[derive(Clone, Copy)]
struct Job<'a> {
    simd: Simd,
    matrix: &'a Matrix,
    x: *const u32,
    x_stride: usize,
    rows: usize,
    /// Number of steps of k that stay cached while rows pass over them.
    block: usize,
    outputs: Outputs<'a>,
    /// Continue from the sums in the outputs instead of from zero.
    resume: bool,
    /// Updates, whose inputs have been computed.
    areas: Option<&'a Areas<'a>>,
}

impl<'a> Job<'a> {
    /// The inputs of the second matrix of one part of an update, for some of its rows.
    fn down(self, areas: &Areas<'a>, rows: &Range<usize>, (lora, part): (usize, usize)) {
        let update = areas.loras[lora];
        let own = common(rows, &update.range());
        let Some(part_of) = update.lora.parts().get(part).filter(|_| !own.is_empty()) else { return };
        let area = areas.of(lora, part, room);
        let first = own.start - update.first;
        // SAFETY: the rows exist, and those of the area belong to the calling member.
        let sums = unsafe {
            let sums = area.sums.add(first * area.stride);
            let x = self.x.add(own.start * self.x_stride);
            let outputs = Outputs::of(sums, area.stride);
            let job = Self { matrix: &part_of.down, x, rows: own.len(), outputs, ..self };
            self.simd.run(Part { job, strips: 0..part_of.down.strips() });
            std::slice::from_raw_parts_mut(sums, own.len() * area.stride)
        };
        let rank = part_of.up.cols();
        for (r, t) in sums.chunks_mut(area.stride).map(|t| &mut t[..rank]).enumerate() {
            if update.scale != 1.0 {
                for t in &mut *t {
                    *t *= update.scale;
                }
            }
            // SAFETY: as above.
            let packed = unsafe {
                std::slice::from_raw_parts_mut(
                    area.packed.add((first + r) * area.packed_stride),
                    area.packed_stride,
                )
            };
            if part_of.up.format() == Format::Bf16 {
                bf16::pack_row(t, packed);
            } else {
                packed.iter_mut().zip(t).for_each(|(to, t)| *to = t.to_bits());
            }
        }
    }

    /// Continues the sums of some strips with the updates of all rows.
    fn update(self, areas: &Areas<'a>, strips: &Range<usize>) {
        for (lora, update) in areas.loras.iter().enumerate() {
            for (part, LoraPart { up, first_strip, .. }) in update.lora.parts().iter().enumerate() {
                let own = common(strips, &(*first_strip..first_strip + up.strips()));
                if own.is_empty() {
                    continue;
                }
                let area = areas.of(lora, part, room);
                let outputs = self.outputs.from(update.first, *first_strip);
                let (x, x_stride, rows) = (area.packed.cast_const(), area.packed_stride, update.rows);
                let job = Self { matrix: up, x, x_stride, rows, outputs, resume: true, areas: None, ..self };
                self.simd.run(Part { job, strips: own.start - first_strip..own.end - first_strip });
            }
            if let Some(gains) = update.lora.gains() {
                let (rows, strips) = (update.range(), strips.clone());
                self.simd.run(Gains { outputs: self.outputs, gains, rows, strips });
            }
        }
    }
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
    const DOTS_BF16: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.job.matrix.format().codes() {
            Codes::Bf16 => self.run_format::<S, Bf16Mac>(s),
            Codes::F16 => self.run_format::<S, HalfMac>(s),
            _ => self.run_format::<S, F32Mac>(s),
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
                            resume: job.resume || start > 0,
                            later: later(t, tiles_of_rows).map(|strips| {
                                strips.map(|c| words.wrapping_add(((strip + c) * steps + next) * M::WORDS))
                            }),
                        };
                        tiles::<S, M>(s, args, rows.len(), group);
                    }
                }
                if let Some(areas) = job.areas {
                    job.update(areas, &(strip..strip + group));
                }
                job.outputs.finish(job.simd, 0..job.rows, strip..strip + group);
            }
            strip += group;
        }
    }
}
