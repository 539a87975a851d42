//! Low-rank updates of integer layers: both matrices run as integer layers of their own, on the tiles of the layer that they
//! update.

use std::ops::Range;

use redline_simd::{Isa, Kernel, Tiles};

use super::{Job, Tile, part, run_tile, tiles};
use crate::format::{Format, INPUT_GROUP};
use crate::op::linear::Outputs;
use crate::op::linear::lora::{Areas, Finish, Gains, LoraRows, common, most_parts};
use crate::op::quantise::{Arrangement, Groups, InputLayout};
use crate::threads::{Disjoint, Distribution};
use crate::{Exec, Rows};

/// Number of tiles of rows that share the weights of a panel of tile registers.
const PANEL_TILES: usize = 8;
/// Maximum number of rows whose outputs are updated after all of them were computed ([`beside`]).
pub(super) const BESIDE_ROWS: usize = 16;
/// Minimum number of strips of outputs that a thread updates at a time.
const UPDATED_STRIPS: usize = 128;

/// Computes a layer of a few rows with updates. The strips of the first matrices are computed beside those of the layer, so that no
/// thread waits for them; the outputs, which are few, are updated afterwards. The team is one device.
pub(super) fn beside<'a>(
    exec: Exec<'_>,
    distribution: Distribution,
    job: Job<'_>,
    loras: &'a [LoraRows<'a>],
    scratch: &'a mut [u32],
) {
    let (areas, first) = prepare(job, loras, scratch);
    let layer = Job { outputs: job.outputs.from(0, 0), ..job };
    let (strips, parts) = (job.matrix.strips(), most_parts(loras));
    let rank_strips = loras.iter().flat_map(|lora| lora.lora.parts()).map(|part| part.down.strips());
    let each = rank_strips.max().unwrap_or(0);
    let tiles = job.layout.tiles();
    exec.team.split_strips(strips + loras.len() * parts * each, 1, distribution, |items| {
        if items.start < strips {
            part(layer, items.start..items.end.min(strips));
        }
        for item in items.start.max(strips)..items.end {
            let (update, strip) = ((item - strips) / each, (item - strips) % each);
            down(&areas, first, None, 0..tiles, strip..strip + 1, (update / parts, update % parts));
        }
    });
    for item in 0..loras.len() * parts {
        pack(&areas, first, (item / parts, item % parts));
    }
    // Long stretches of every second matrix are read at a time: each is short beside a layer.
    let distribution = match distribution {
        Distribution::Stealing { least } => Distribution::Stealing { least: least.max(UPDATED_STRIPS) },
        other => other,
    };
    exec.team.split_strips(strips, 1, distribution, |strips| {
        for tile in 0..tiles {
            let rows = job.layout.tile(tile);
            job.update(&areas, rows.clone(), &strips);
            job.simd.run_common(Finish { outputs: job.outputs, rows, strips: strips.clone() });
        }
    });
}

/// Lays out the scratch memory. Returns the areas, and the job that every first matrix begins with.
fn prepare<'a: 'j, 'j>(
    job: Job<'j>,
    loras: &'a [LoraRows<'a>],
    scratch: &'a mut [u32],
) -> (Areas<'a>, Job<'j>) {
    let (starts, scratch) = scratch.split_at_mut(starts_words(job));
    starts_of_bytes(job, starts);
    let starts = &*starts;
    let first = Job { summed_k: INPUT_GROUP, starts: (!starts.is_empty()).then_some(starts), ..job };
    let layout = job.layout;
    (Areas::new(loras, scratch, |rows| tiled(layout, &rows).len()), first)
}

/// Computes the inputs of the second matrix of every update: `t`, scaled and quantised.
pub(super) fn shrink<'a>(
    exec: Exec<'_>,
    unit: Option<Tiles>,
    job: Job<'_>,
    loras: &'a [LoraRows<'a>],
    scratch: &'a mut [u32],
) -> Areas<'a> {
    let layout = job.layout;
    let (areas, job) = prepare(job, loras, scratch);
    let chunk = if unit.is_some() { PANEL_TILES } else { 1 };
    let chunks = layout.tiles().div_ceil(chunk);
    let parts = most_parts(loras);
    let per_chunk = loras.len() * parts;
    exec.team.split(chunks * per_chunk, 1, 2, |units| {
        for item in units {
            let tiles = item / per_chunk * chunk..layout.tiles().min((item / per_chunk + 1) * chunk);
            down(&areas, job, unit, tiles, 0..usize::MAX, (item % per_chunk / parts, item % parts));
        }
    });
    // A few rows take less time than waking the other threads.
    exec.team.split(loras.len() * parts, 1, if layout.rows < 8 { usize::MAX } else { 2 }, |units| {
        for item in units {
            pack(&areas, job, (item / parts, item % parts));
        }
    });
    areas
}

/// Number of words of initial sums, if those of the layout belong to another format.
fn starts_words(job: Job<'_>) -> usize {
    let own =
        matches!(job.matrix.format(), Format::W8 { .. }) || job.layout.arrangement == Arrangement::Tiles;
    if own { 0 } else { job.layout.rows * job.layout.k.div_ceil(INPUT_GROUP) }
}

/// Initial sums of weights of eight bits, `[tiles][groups][rows]`, from those of the layout.
fn starts_of_bytes(job: Job<'_>, starts: &mut [u32]) {
    if starts.is_empty() {
        return;
    }
    let Job { layout, inputs, .. } = job;
    let own = job.simd.run(Offset(job.matrix.format()));
    let factor = (job.simd.run(Offset(Format::W8 { group: 0 })) / own) as u32;
    let (groups, parts) = (layout.k.div_ceil(INPUT_GROUP), INPUT_GROUP / layout.summed_k);
    for tile in 0..layout.tiles() {
        let rows = layout.tile(tile);
        let from = &inputs[layout.places(tile).starts..][..rows.len() * layout.k.div_ceil(layout.summed_k)];
        let to = &mut starts[rows.start * groups..][..rows.len() * groups];
        for (to, from) in to.chunks_mut(rows.len()).zip(from.chunks(rows.len() * parts)) {
            for (r, to) in to.iter_mut().enumerate() {
                let sum =
                    from.iter().skip(r).step_by(rows.len()).fold(0u32, |sum, &start| sum.wrapping_add(start));
                *to = sum.wrapping_mul(factor);
            }
        }
    }
}

/// The offset of a format's weights in the dot product of a tier.
struct Offset(Format);

impl Kernel for Offset {
    type Output = i32;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> i32 {
        self.0.offset::<S>()
    }
}

/// The tile that a row lies in.
fn tile_of(layout: InputLayout, row: usize) -> usize {
    ((row + 1) * layout.tiles() - 1) / layout.rows
}

/// The rows of all tiles that some rows lie in.
fn tiled(layout: InputLayout, rows: &Range<usize>) -> Range<usize> {
    layout.tile(tile_of(layout, rows.start)).start..layout.tile(tile_of(layout, rows.end - 1)).end
}

/// Some strips of `t` of one part of an update, for those of its rows that lie in some tiles.
fn down(
    areas: &Areas<'_>,
    job: Job<'_>,
    unit: Option<Tiles>,
    tiles: Range<usize>,
    strips: Range<usize>,
    (lora, part): (usize, usize),
) {
    let update = areas.loras[lora];
    let rows = update.range();
    let own = tile_of(job.layout, rows.start)..tile_of(job.layout, rows.end - 1) + 1;
    let tiles = common(&tiles, &own);
    let Some(matrix) = update.lora.parts().get(part).map(|part| &part.down) else { return };
    let strips = common(&strips, &(0..matrix.strips()));
    if tiles.is_empty() || strips.is_empty() {
        return;
    }
    let first = job.layout.tile(own.start).start;
    let area = areas.of(lora, part, tiled(job.layout, &rows).len());
    // Rows are counted from the first of the pass.
    let outputs = Outputs::of(area.sums.wrapping_sub(first * area.stride), area.stride);
    let job = Job { matrix, outputs, ..job };
    if let Some(unit) = unit {
        return tiles::run_part(unit, job, strips, tiles);
    }
    for tile in tiles {
        run_tile(Tile { job, tile, strips: strips.clone(), k: 0..job.layout.k });
    }
}

/// Layout of `rows` rows of inputs of the second matrix.
fn packed_layout(rank: usize, rows: usize) -> InputLayout {
    InputLayout { k: rank, summed_k: INPUT_GROUP, arrangement: Arrangement::Words, tile_rows: rows, rows }
}

/// Scales and quantises `t` of one part of an update. The rows of every tile are packed as one tile.
fn pack(areas: &Areas<'_>, job: Job<'_>, (lora, part): (usize, usize)) {
    let update = areas.loras[lora];
    let Some(up) = update.lora.parts().get(part).map(|part| &part.up) else { return };
    let rows = update.range();
    let all = tiled(job.layout, &rows);
    let area = areas.of(lora, part, all.len());
    for tile in tile_of(job.layout, rows.start)..=tile_of(job.layout, rows.end - 1) {
        let run = common(&rows, &job.layout.tile(tile));
        // SAFETY: these rows of the area belong to the calling member.
        let (sums, packed) = unsafe {
            let at = area.sums.add((run.start - all.start) * area.stride);
            (
                std::slice::from_raw_parts_mut(at, run.len() * area.stride),
                area.packed.add((run.start - rows.start) * area.packed_stride),
            )
        };
        if update.scale != 1.0 {
            for t in &mut *sums {
                *t *= update.scale;
            }
        }
        let layout = packed_layout(up.cols(), run.len());
        let x = Rows::new(sums, run.len(), up.cols(), area.stride);
        let out = Disjoint::at(packed);
        job.simd.run_common(Groups {
            layout,
            format: up.format(),
            x,
            skip: &[],
            out,
            units: 0..layout.groups(),
        });
    }
}

impl Job<'_> {
    /// Continues the sums of some strips of some tiles of rows with their updates.
    pub(super) fn update(&self, areas: &Areas<'_>, rows: Range<usize>, strips: &Range<usize>) {
        for lora in areas.overlapping(&rows) {
            let update = areas.loras[lora];
            let own = common(&update.range(), &rows);
            for part in 0..update.lora.parts().len() {
                self.up(areas, own.clone(), strips, (lora, part));
            }
            if let Some(gains) = update.lora.gains() {
                let strips = strips.clone();
                self.simd.run_common(Gains { outputs: self.outputs, gains, rows: own, strips });
            }
        }
    }

    /// Continues the sums with one part of an update of some rows.
    fn up(&self, areas: &Areas<'_>, rows: Range<usize>, strips: &Range<usize>, (lora, part): (usize, usize)) {
        let update = areas.loras[lora];
        let (up, first_strip) = {
            let part = &update.lora.parts()[part];
            (&part.up, part.first_strip)
        };
        let strips = common(strips, &(first_strip..first_strip + up.strips()));
        if strips.is_empty() {
            return;
        }
        let area = areas.of(lora, part, tiled(self.layout, &update.range()).len());
        for tile in tile_of(self.layout, rows.start)..=tile_of(self.layout, rows.end - 1) {
            let run = common(&rows, &self.layout.tile(tile));
            let layout = packed_layout(up.cols(), run.len());
            // SAFETY: the rows were packed, and nobody writes them any more.
            let inputs = unsafe {
                let at = area.packed.add((run.start - update.first) * area.packed_stride);
                std::slice::from_raw_parts(at, layout.words())
            };
            let job = Job {
                matrix: up,
                layout,
                summed_k: layout.summed_k,
                inputs,
                starts: None,
                apart: &[],
                outputs: self.outputs.from(run.start, first_strip),
                resume: true,
                areas: None,
                ..*self
            };
            let strips = strips.start - first_strip..strips.end - first_strip;
            run_tile(Tile { job, tile: 0, strips, k: 0..up.cols() });
        }
    }
}
