//! Low-rank updates (LoRA): `scale * up (down x)` is added to the sums of some rows of a linear layer.
//!
//! Order per row and update: `t = down x` is a linear layer of the update's format over the same inputs as the layer itself,
//! with integers over the same quantised inputs. `t` is multiplied by the scale, unless that is 1. Then the sums of the layer
//! continue with `up`, in the order of its format: with integers, `t` is quantised like any input. A DoRA update finally
//! multiplies the sums by its gains. Updates of the same row follow each other as listed. Bias and activation come last. Rows
//! without an update skip all of this, so that their bits do not depend on other rows.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, TILE_BYTES};

use super::{Epilogue, Outputs};
use crate::format::{Format, INPUT_GROUP};
use crate::matrix::MatrixShape;
use crate::{Buffer, Matrix, OutOfMemory};

/// Maximum number of parts of an update: as many as projections that share a layer.
pub const MAX_PARTS: usize = 3;
/// Maximum number of rows of the tiles that a row's sums are computed in.
const TILE_ROWS: usize = 16;

/// The update of one projection.
#[derive(Debug)]
pub struct LoraPart {
    /// `[rank, inputs]`
    pub down: Matrix,
    /// `[outputs, rank]`, whole strips of the layer from `first_strip` on; rows that belong to other projections are zero.
    pub up: Matrix,
    /// The first strip of the layer that `up` covers.
    pub first_strip: usize,
}

/// The update of a linear layer by one adapter.
#[derive(Debug)]
pub struct Lora {
    parts: Vec<LoraPart>,
    gains: Option<Buffer<f32>>,
}

impl Lora {
    /// Parts cover different outputs. `gains` has a value for every output of the layer, rounded up to whole strips (DoRA).
    pub fn new(parts: Vec<LoraPart>, gains: Option<Buffer<f32>>) -> Self {
        assert!((1..=MAX_PARTS).contains(&parts.len()), "{} parts", parts.len());
        for LoraPart { down, up, .. } in &parts {
            assert_eq!(down.rows(), up.cols(), "rank");
            assert!(
                down.format().is_integer() == up.format().is_integer(),
                "{} and {}",
                down.format(),
                up.format()
            );
        }
        Self { parts, gains }
    }

    /// The format of both matrices of an update of layers of format `base`.
    pub fn formats(base: Format) -> (Format, Format) {
        if base.is_integer() {
            return (Format::W8 { group: INPUT_GROUP }, Format::W8 { group: 0 });
        }
        (base.adapter_format(), base.adapter_format())
    }

    /// The update of the outputs `ids` of a layer with one projection, in that order.
    pub fn gather(&self, ids: &[u32]) -> Result<Self, OutOfMemory> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for LoraPart { down, up, first_strip } in &self.parts {
            assert_eq!(*first_strip, 0, "outputs of one projection");
            let all: Vec<u32> = (0..down.rows() as u32).collect();
            parts.push(LoraPart { down: down.gather(&all)?, up: up.gather(ids)?, first_strip: 0 });
        }
        let gains = self.gains.as_ref().map(|gains| {
            let mut gathered = Buffer::zeroed(ids.len().next_multiple_of(LANES))?;
            gathered.iter_mut().zip(ids).for_each(|(gain, id)| *gain = gains[*id as usize]);
            Ok(gathered)
        });
        Ok(Self { parts, gains: gains.transpose()? })
    }

    /// The parts.
    pub fn parts(&self) -> &[LoraPart] {
        &self.parts
    }

    /// The gains, if this is a DoRA update.
    pub fn gains(&self) -> Option<&[f32]> {
        self.gains.as_deref()
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.down.bytes() + part.up.bytes()).sum();
        parts + self.gains.as_ref().map_or(0, Buffer::bytes)
    }

    /// Panics unless this updates a layer with these weights.
    fn check(&self, base: &Matrix) {
        for LoraPart { down, up, first_strip } in &self.parts {
            let formats = Self::formats(base.format());
            assert_eq!((down.format(), up.format()), formats, "formats of an update of {}", base.format());
            assert_eq!(down.cols(), base.cols(), "inputs of an update");
            assert_eq!(down.outlier_columns(), base.outlier_columns(), "outlier columns of an update");
            assert!(first_strip + up.strips() <= base.strips(), "outputs of an update");
        }
        assert!(self.gains.as_ref().is_none_or(|gains| gains.len() >= base.strips() * LANES), "gains");
    }
}

/// An update of some consecutive rows.
#[derive(Clone, Copy, Debug)]
pub struct LoraRows<'a> {
    /// The update.
    pub lora: &'a Lora,
    /// Factor on the update.
    pub scale: f32,
    /// First row.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
}

impl LoraRows<'_> {
    /// The rows.
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }
}

/// Number of scratch words that [`super::linear`] needs, in addition to [`super::scratch_words`], for updates of `rows` rows of a
/// layer of this shape. `rank` is the maximum of the sum of the ranks of an update's parts, each rounded up to a multiple of 16,
/// and `updates` the maximum number of updates of a row.
pub fn lora_scratch_words(shape: MatrixShape, rows: usize, rank: usize, updates: usize) -> usize {
    if rank == 0 || updates == 0 {
        return 0;
    }
    // Sums of the tile that a row is in, the packed row, its starts and its span. Updates of at least sixteen rows may be packed for
    // tile registers, with room for all rows of the tiles that they lie in. n such rows lie in tiles with room for fewer
    // than 3 n, so a row takes the room of three; that is more than a row takes that is packed otherwise.
    let packed = 3 * (MAX_PARTS * (TILE_BYTES / 4 + 1) + rank / 4 + rank / INPUT_GROUP + 1);
    let each = TILE_ROWS * rank + packed + SPAN_WORDS;
    rows * (updates * each + shape.cols.div_ceil(INPUT_GROUP)) + LANES
}

/// The number of parts of the update with the most.
pub(super) fn most_parts(loras: &[LoraRows<'_>]) -> usize {
    loras.iter().map(|lora| lora.lora.parts().len()).max().unwrap_or(0)
}

/// Checks updates against the layer: whole rows, in their order.
pub(super) fn check(loras: &[LoraRows<'_>], base: &Matrix, rows: usize) {
    let mut last = 0..0;
    for lora in loras {
        lora.lora.check(base);
        let range = lora.range();
        assert!(range == last || range.start >= last.end, "updates of rows {last:?} and {range:?}");
        assert!(!range.is_empty() && range.end <= rows, "an update of rows {range:?} of {rows}");
        last = range;
    }
}

/// The scratch memory of updates. An update's area holds for each of its parts the sums `t`, `[rows][strips of the rank * 16]`, for the
/// rows of all tiles that its rows lie in, and then its packed rows: whole tiles of them if they are packed for tile registers.
#[derive(Clone, Copy)]
pub(super) struct Areas<'a> {
    pub(super) loras: &'a [LoraRows<'a>],
    /// For each update where its area begins, and its [`Span`].
    spans: &'a [[u32; SPAN_WORDS]],
    words: *mut u32,
}

/// Number of words of a span, and of the place of its area.
const SPAN_WORDS: usize = 5;

/// The tiles that the rows of an update lie in and the rows of those tiles; if rows are not cut into tiles, none and its own rows.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) tiles: Range<usize>,
    pub(super) rows: Range<usize>,
}

// SAFETY: users write disjoint words of an area, each owned by one member of a team.
unsafe impl Sync for Areas<'_> {}
// SAFETY: as above.
unsafe impl Send for Areas<'_> {}

/// The size of the memory of one part of an update.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Rows of sums.
    pub(super) rows: usize,
    /// Packed rows.
    pub(super) packed: usize,
    /// Words between packed rows.
    pub(super) packed_stride: usize,
}

/// Where the values of one part of an update lie.
#[derive(Clone, Copy)]
pub(super) struct Area {
    /// Sums of the first row.
    pub(super) sums: *mut f32,
    /// Sums between rows.
    pub(super) stride: usize,
    /// The first packed row.
    pub(super) packed: *mut u32,
    /// Words between packed rows.
    pub(super) packed_stride: usize,
}

impl<'a> Areas<'a> {
    /// Places the areas in `scratch`.
    pub(super) fn new(
        loras: &'a [LoraRows<'a>],
        scratch: &'a mut [u32],
        span: impl Fn(&LoraRows<'_>) -> Span,
        room: impl Fn(&LoraRows<'_>, &Span, &LoraPart) -> Room,
    ) -> Self {
        let (spans, words) = scratch.split_at_mut(loras.len() * SPAN_WORDS);
        let (spans, _) = spans.as_chunks_mut();
        // Rows of tile registers start at cache lines, so that none crosses two.
        let line = words.as_ptr().align_offset(TILE_BYTES).min(LANES);
        let words = &mut words[line..];
        let mut end = 0;
        for (lora, place) in loras.iter().zip(&mut *spans) {
            let span = span(lora);
            let Span { tiles, rows } = &span;
            *place = [end, tiles.start, tiles.end, rows.start, rows.end]
                .map(|word| u32::try_from(word).expect("scratch memory of less than 2^32 words"));
            end += lora.lora.parts().iter().map(|part| room(lora, &span, part).words(part)).sum::<usize>();
        }
        assert!(end <= words.len(), "scratch of {} words for {end}", words.len());
        Self { loras, spans, words: words.as_mut_ptr() }
    }

    /// The span of update `lora`.
    pub(super) fn span(&self, lora: usize) -> Span {
        let [_, tiles @ .., first, end] = self.spans[lora].map(|word| word as usize);
        Span { tiles: tiles[0]..tiles[1], rows: first..end }
    }

    /// The area of a part of update `lora`. `room` is that of [`Areas::new`].
    pub(super) fn of(
        &self,
        lora: usize,
        part: usize,
        room: impl Fn(&LoraRows<'_>, &Span, &LoraPart) -> Room,
    ) -> Area {
        let (update, span) = (&self.loras[lora], self.span(lora));
        let parts = update.lora.parts();
        let before = parts[..part].iter().map(|part| room(update, &span, part).words(part)).sum::<usize>();
        let (at, part) = (self.spans[lora][0] as usize + before, &parts[part]);
        let (stride, room) = (part.down.strips() * LANES, room(update, &span, part));
        // SAFETY: `new` checked that all areas lie within the scratch memory.
        unsafe {
            let at = self.words.add(at);
            let packed = at.add(room.rows * stride);
            Area { sums: at.cast(), stride, packed, packed_stride: room.packed_stride }
        }
    }

    /// The indices of the updates of some of `rows`.
    pub(super) fn overlapping(&self, rows: &Range<usize>) -> Range<usize> {
        let first = self.loras.partition_point(|lora| lora.range().end <= rows.start);
        let count = self.loras[first..].partition_point(|lora| lora.first < rows.end);
        first..first + count
    }
}

impl Room {
    /// Words of sums and packed rows.
    fn words(self, part: &LoraPart) -> usize {
        self.rows * part.down.strips() * LANES + self.packed * self.packed_stride
    }
}

/// The part of both ranges.
pub(super) fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The gains of a DoRA update, applied to some strips of some rows.
pub(super) struct Gains<'a> {
    pub(super) outputs: Outputs<'a>,
    pub(super) gains: &'a [f32],
    pub(super) rows: Range<usize>,
    pub(super) strips: Range<usize>,
}

impl Kernel for Gains<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for row in self.rows {
            for strip in self.strips.clone() {
                // SAFETY: strips of this member; the update was checked against the layer.
                unsafe {
                    let at = self.outputs.at(row, strip);
                    s.store(at, s.mul(s.load(at), s.load(self.gains[strip * LANES..][..LANES].as_ptr())));
                }
            }
        }
    }
}

impl<'a> Outputs<'a> {
    /// The same outputs from a row and a strip on, without bias and activation.
    pub(super) fn from(self, row: usize, strip: usize) -> Self {
        let y = crate::threads::Disjoint::at(self.at(row, strip));
        Self { y, epilogue: Epilogue::default(), ..self }
    }

    /// Outputs at `first`, `stride` values apart.
    pub(super) fn of(first: *mut f32, stride: usize) -> Outputs<'a> {
        Outputs { y: crate::threads::Disjoint::at(first), stride, epilogue: Epilogue::default() }
    }
}
