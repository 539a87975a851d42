//! Low-rank updates of integer layers: both matrices run as integer layers of their own, on the tiles of the layer that they
//! update. With tile registers, the second matrix of an update of enough rows continues the layer's sums in the first-level cache.

use std::ops::Range;

use redline_simd::{Isa, Kernel, TILE_BYTES, TILE_ROWS, Tiles};

use super::tile::{Tile, run_tile};
use super::tiles::Registers;
use super::{Job, part, tiles};
use crate::dot::INPUT_WORDS;
use crate::format::{Codes, Format, INPUT_GROUP, Minima};
use crate::op::linear::Outputs;
use crate::op::linear::lora::{Areas, Gains, LoraPart, LoraRows, Room, Span, common, most_parts};
use crate::op::quantise::{Arrangement, Groups, InputLayout, Inputs};
use crate::threads::{Disjoint, Distribution};
use crate::{Exec, Matrix, Rows};

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
        pack(&areas, first, 0..tiles, (item / parts, item % parts));
    }
    // Long stretches of every second matrix are read at a time: each is short beside a layer.
    let distribution = match distribution {
        Distribution::Stealing { least } => Distribution::Stealing { least: least.max(UPDATED_STRIPS) },
        other => other,
    };
    exec.team.split_strips(strips, 1, distribution, |strips| {
        for tile in 0..tiles {
            let rows = job.layout.tile(tile);
            job.update(&areas, (tile, rows.clone()), &strips, None);
            job.outputs.finish(job.simd, rows, strips.clone());
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
    (Areas::new(loras, scratch, |update| span(job.layout, update), Room::of(job.layout)), first)
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
    let most = if unit.is_some() { PANEL_TILES } else { 1 };
    let chunk = layout.tiles().div_ceil(exec.team.size()).min(most);
    let chunks = layout.tiles().div_ceil(chunk);
    let parts = most_parts(loras);
    let per_chunk = loras.len() * parts;
    exec.team.split(chunks * per_chunk, 1, 2, |units| {
        for item in units {
            let tiles = item / per_chunk * chunk..layout.tiles().min((item / per_chunk + 1) * chunk);
            let of = (item % per_chunk / parts, item % parts);
            down(&areas, job, unit, tiles.clone(), 0..usize::MAX, of);
            pack(&areas, job, tiles, of);
        }
    });
    areas
}

/// Number of words of initial sums, if those of the layout belong to another format.
fn starts_words(job: Job<'_>) -> usize {
    let bytes = job.layout.summed_k == INPUT_GROUP && job.matrix.format().codes() == Codes::Bytes;
    if bytes || job.layout.arrangement == Arrangement::Tiles {
        0
    } else {
        job.layout.rows * job.layout.k.div_ceil(INPUT_GROUP)
    }
}

/// Initial sums of weights of eight bits, `[tiles][groups][rows]`, from those of the layout.
fn starts_of_bytes(job: Job<'_>, starts: &mut [u32]) {
    if starts.is_empty() {
        return;
    }
    let Job { layout, inputs, .. } = job;
    let offset = job.simd.run(Offset(Format::W8 { group: 0 }));
    let own = match job.matrix.format() {
        Format::W4 { .. } => job.simd.run(Offset(job.matrix.format())),
        _ => return starts_of_inputs(layout, inputs, offset, starts),
    };
    let factor = (offset / own) as u32;
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

/// Initial sums of weights of this offset, `[tiles][groups][rows]`, from the inputs themselves.
fn starts_of_inputs(layout: InputLayout, inputs: &[u32], offset: i32, starts: &mut [u32]) {
    let groups = layout.k.div_ceil(INPUT_GROUP);
    for tile in 0..layout.tiles() {
        let rows = layout.tile(tile);
        let words = &inputs[layout.places(tile).bytes..][..rows.len() * layout.blocks() * INPUT_WORDS];
        let starts = &mut starts[rows.start * groups..][..rows.len() * groups];
        let of_groups = words.chunks(rows.len() * INPUT_GROUP / 4);
        for (starts, words) in starts.chunks_mut(rows.len()).zip(of_groups) {
            starts.fill(0);
            for words in words.chunks_exact(rows.len()) {
                for (start, word) in starts.iter_mut().zip(words) {
                    let sum: i32 = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed())).iter().sum();
                    *start = start.wrapping_sub((sum * offset).cast_unsigned());
                }
            }
        }
    }
}

/// The offset of a format's weights in the dot product of a tier.
struct Offset(Format);

impl Kernel for Offset {
    type Output = i32;
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> i32 {
        self.0.offset::<S>()
    }
}

fn span(layout: InputLayout, update: &LoraRows<'_>) -> Span {
    let rows = update.range();
    let tiles = layout.tile_of(rows.start)..layout.tile_of(rows.end - 1) + 1;
    let rows = layout.tile(tiles.start).start..layout.tile(tiles.end - 1).end;
    Span { tiles, rows }
}

/// Whether the inputs of the second matrix of an update are packed for tile registers: if these compute the layer, the update has
/// enough rows for them, and a multiplication takes the whole rank or the 64 k for which inputs are arranged.
fn in_tiles(layout: InputLayout, rows: usize, up: &Matrix) -> bool {
    let deep = layout.summed_k >= TILE_BYTES || up.cols() <= layout.summed_k;
    layout.arrangement == Arrangement::Tiles && rows >= TILE_ROWS && deep
}

impl Room {
    fn of(layout: InputLayout) -> impl Fn(&LoraRows<'_>, &Span, &LoraPart) -> Self {
        move |update, span, LoraPart { up, .. }| {
            let in_tiles = in_tiles(layout, update.rows, up);
            let packed = if in_tiles { span.tiles.len() * TILE_ROWS } else { update.rows };
            let packed_stride = packed_layout(up.cols(), 1, in_tiles).row_words();
            Self { rows: span.rows.len(), packed, packed_stride }
        }
    }
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
    let own = areas.span(lora);
    let tiles = common(&tiles, &own.tiles);
    let Some(matrix) = update.lora.parts().get(part).map(|part| &part.down) else { return };
    let strips = common(&strips, &(0..matrix.strips()));
    if tiles.is_empty() || strips.is_empty() {
        return;
    }
    let area = areas.of(lora, part, Room::of(job.layout));
    // Rows are counted from the first of the pass.
    let outputs = Outputs::of(area.sums.wrapping_sub(own.rows.start * area.stride), area.stride);
    let job = Job { matrix, outputs, ..job };
    if let Some(unit) = unit {
        return tiles::run_part(unit, job, strips, tiles);
    }
    for tile in tiles {
        run_tile(Tile { job, tile, strips: strips.clone(), k: 0..job.layout.k });
    }
}

/// Layout of the inputs of the second matrix, for the `rows` rows of an update in one tile.
fn packed_layout(rank: usize, rows: usize, in_tiles: bool) -> InputLayout {
    let (arrangement, tile_rows) =
        if in_tiles { (Arrangement::Tiles, TILE_ROWS) } else { (Arrangement::Words, rows) };
    InputLayout { k: rank, summed_k: INPUT_GROUP, minima: Minima::None, arrangement, tile_rows, rows }
}

/// The first packed row of the rows `run` of an update, those that lie in `tile`.
fn packed_row(areas: &Areas<'_>, lora: usize, tile: usize, run: &Range<usize>, in_tiles: bool) -> usize {
    if in_tiles {
        (tile - areas.span(lora).tiles.start) * TILE_ROWS
    } else {
        run.start - areas.loras[lora].first
    }
}

/// Scales and quantises `t` of one part of an update, for those of its rows that lie in some tiles. The rows of every tile are
/// packed as one tile.
fn pack(areas: &Areas<'_>, job: Job<'_>, tiles: Range<usize>, (lora, part): (usize, usize)) {
    let update = areas.loras[lora];
    let Some(up) = update.lora.parts().get(part).map(|part| &part.up) else { return };
    let rows = update.range();
    let span = areas.span(lora);
    let area = areas.of(lora, part, Room::of(job.layout));
    let in_tiles = in_tiles(job.layout, update.rows, up);
    for tile in common(&tiles, &span.tiles) {
        let run = common(&rows, &job.layout.tile(tile));
        // SAFETY: these rows of the area belong to the calling member.
        let (sums, packed) = unsafe {
            let at = area.sums.add((run.start - span.rows.start) * area.stride);
            (
                std::slice::from_raw_parts_mut(at, run.len() * area.stride),
                area.packed.add(packed_row(areas, lora, tile, &run, in_tiles) * area.packed_stride),
            )
        };
        if update.scale != 1.0 {
            for t in &mut *sums {
                *t *= update.scale;
            }
        }
        let layout = packed_layout(up.cols(), run.len(), in_tiles);
        let x = Inputs::All(Rows::new(sums, run.len(), up.cols(), area.stride));
        let out = Disjoint::at(packed);
        job.simd.run(Groups { layout, format: up.format(), x, skip: &[], out, units: 0..layout.groups() });
    }
}

impl Job<'_> {
    /// Continues the sums of some strips of the rows of a tile with their updates. With `registers`, the outputs are a block's sums.
    pub(super) fn update(
        &self,
        areas: &Areas<'_>,
        (tile, rows): (usize, Range<usize>),
        strips: &Range<usize>,
        mut registers: Option<&mut Registers<'_>>,
    ) {
        for lora in areas.overlapping(&rows) {
            let update = areas.loras[lora];
            let own = common(&update.range(), &rows);
            for part in 0..update.lora.parts().len() {
                self.up(areas, (tile, own.clone()), strips, (lora, part), registers.as_deref_mut());
            }
            if let Some(gains) = update.lora.gains() {
                let strips = strips.clone();
                self.simd.run(Gains { outputs: self.outputs, gains, rows: own, strips });
            }
        }
    }

    /// Continues the sums with one part of an update of some rows of a tile.
    fn up(
        &self,
        areas: &Areas<'_>,
        (tile, run): (usize, Range<usize>),
        strips: &Range<usize>,
        (lora, part): (usize, usize),
        registers: Option<&mut Registers<'_>>,
    ) {
        let update = areas.loras[lora];
        let LoraPart { up, first_strip, .. } = &update.lora.parts()[part];
        let strips = common(strips, &(*first_strip..first_strip + up.strips()));
        if strips.is_empty() {
            return;
        }
        let area = areas.of(lora, part, Room::of(self.layout));
        let in_tiles = in_tiles(self.layout, update.rows, up);
        let layout = packed_layout(up.cols(), run.len(), in_tiles);
        // SAFETY: the rows were packed, and nobody writes them any more.
        let inputs = unsafe {
            let first = packed_row(areas, lora, tile, &run, in_tiles);
            std::slice::from_raw_parts(area.packed.add(first * area.packed_stride), layout.words())
        };
        let job = Job {
            matrix: up,
            layout,
            summed_k: layout.summed_k,
            inputs,
            starts: None,
            apart: &[],
            outputs: self.outputs.from(run.start, *first_strip),
            resume: true,
            areas: None,
            ..*self
        };
        let strips = strips.start - first_strip..strips.end - first_strip;
        match registers.filter(|_| in_tiles) {
            Some(registers) => tiles::continue_sums(registers, job, strips, (lora, part)),
            None => run_tile(Tile { job, tile: 0, strips, k: 0..up.cols() }),
        }
    }
}
