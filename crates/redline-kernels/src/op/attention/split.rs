//! Attention of few query rows over many keys, as in decode: the spans of a tile are computed by several threads, and their
//! results are merged in order.
//!
//! Scratch memory holds, for every tile of every KV head, the merged result of earlier spans and the results of a window of
//! spans. The spans of a window are computed, then merged, then those of the next window are computed.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd};

use super::block::{Block, MAX_ROWS, Part, State, Tile};
use super::{BLOCKS_OF_MEMBER, Job, Work};
use crate::Exec;
use crate::op::kv::Segment;
use crate::threads::{Disjoint, Seat, share};

/// Number of results of tiles that scratch memory holds.
const RESULTS: usize = 256;

/// What a region and the merging of results take, in spans that a thread could compute meanwhile.
const OVERHEAD_SPANS: usize = 2;

/// Number of scratch words with which attention over heads of this dimension can divide spans among threads.
pub fn scratch_words(head_dim: usize) -> usize {
    RESULTS * MAX_ROWS * row_words(head_dim.next_multiple_of(LANES))
}

/// Words of a row's result: a [`State`], then its values.
fn row_words(width: usize) -> usize {
    LANES + width
}

/// The results of spans in scratch memory.
#[derive(Clone, Copy)]
pub(super) struct Results {
    memory: Disjoint<f32>,
    width: usize,
    /// Number of results of a tile: the merged one, then one for each span of a window.
    slots: usize,
}

impl Results {
    /// The state and the values of row `r` of a tile's result.
    ///
    /// # Safety
    /// The result and the row exist, and no other thread uses them.
    #[inline(always)]
    unsafe fn row(self, tile: usize, slot: usize, r: usize) -> (*mut State, *mut f32) {
        let at = ((tile * self.slots + slot) * MAX_ROWS + r) * row_words(self.width);
        // SAFETY: scratch memory holds the result, by contract.
        let state = unsafe { self.memory.get().add(at) };
        // SAFETY: the state takes less than the words that a row has besides its values.
        (state.cast(), unsafe { state.add(LANES) })
    }
}

/// A call of attention whose spans are divided.
pub(super) struct Split<'a> {
    job: &'a Job<'a>,
    segments: &'a [Segment<'a>],
    /// Maximum number of spans of a tile.
    spans: usize,
    /// Number of spans of a window.
    window: usize,
    results: Results,
}

impl<'a> Split<'a> {
    /// Divides the spans of a call that has `tiles` tiles for each KV head; `None` if that would gain nothing or needs more
    /// scratch memory.
    pub(super) fn new(
        job: &'a Job<'a>,
        segments: &'a [Segment<'a>],
        tiles: usize,
        members: usize,
        scratch: &mut [u32],
    ) -> Option<Self> {
        let (kv_heads, width) = (job.kv_shape.kv_heads, Block::new(job, 0).width());
        let blocks = tiles * kv_heads;
        if members == 1 || blocks == 0 || blocks >= members * BLOCKS_OF_MEMBER {
            return None;
        }
        let spans = || all_tiles(job, segments).map(|tile| Block::of(job, 0, tile).spans().len());
        let heads = std::iter::repeat_n((), kv_heads).flat_map(|()| spans());
        let longest = (0..members).map(|member| heads.clone().skip(member).step_by(members).sum()).max();
        let (all, longest) = (heads.sum::<usize>(), longest.unwrap_or(0));
        let slots = scratch.len() / (MAX_ROWS * row_words(width)) / blocks;
        if slots < 3 || longest <= all.div_ceil(members) + OVERHEAD_SPANS {
            return None;
        }
        let memory = Disjoint::new(scratch).cast();
        let results = Results { memory, width, slots };
        Some(Self { job, segments, spans: spans().max().unwrap_or(0), window: slots - 1, results })
    }

    /// Computes the outputs.
    pub(super) fn run(&self, exec: Exec<'_>) {
        let (simd, seating) = (exec.simd, exec.team.seating());
        for first in (0..self.spans).step_by(self.window) {
            exec.team.run(|member| seating.of(member).for_each(|seat| self.compute(simd, seat, first)));
            exec.team.run(|member| seating.of(member).for_each(|seat| self.merge(simd, seat, first)));
        }
    }

    /// Every tile of the KV heads of a device, with its number and its spans in the window from `first` on.
    fn tiles(&self, seat: Seat, first: usize) -> impl Iterator<Item = (usize, Block<'a>, Range<usize>)> {
        let Self { job, segments, window, .. } = *self;
        seat.shard(job.kv_shape.kv_heads, 1).flat_map(move |kv_head| {
            all_tiles(job, segments).enumerate().map(move |(index, tile)| {
                let block = Block::of(job, kv_head, tile);
                let spans = block.spans();
                let begin = (spans.start + first).min(spans.end);
                let window = begin..spans.end.min(begin + window);
                (index * job.kv_shape.kv_heads + kv_head, block, window)
            })
        })
    }

    /// Computes a member's part of the spans of a window.
    fn compute(&self, simd: Simd, seat: Seat, first: usize) {
        let all = self.tiles(seat, first).map(|(.., spans)| spans.len()).sum();
        let own = share(all, 1, seat.index, seat.members);
        let mut next = 0;
        for (tile, block, spans) in self.tiles(seat, first) {
            let within = |n: usize| spans.start + n.clamp(next, next + spans.len()) - next;
            let mine = within(own.start)..within(own.end);
            next += spans.len();
            if !mine.is_empty() {
                let write = |span: usize, r: usize| {
                    // SAFETY: this member alone computes this span of this tile.
                    unsafe { self.results.row(tile, 1 + span - spans.start, r) }
                };
                super::run(simd, Work { block: &block, part: Some(Part { spans: mine, to: &write }) });
            }
        }
    }

    /// Merges a member's part of the rows of a window. After the last window, writes their outputs.
    fn merge(&self, simd: Simd, seat: Seat, first: usize) {
        let rows = |block: &Block<'_>, spans: &Range<usize>| {
            if spans.is_empty() { 0 } else { block.tile(0).rows }
        };
        let all = self.tiles(seat, first).map(|(_, block, spans)| rows(&block, &spans)).sum();
        let own = share(all, 1, seat.index, seat.members);
        let mut next = 0;
        for (tile, block, spans) in self.tiles(seat, first) {
            let count = rows(&block, &spans);
            let within = |n: usize| n.clamp(next, next + count) - next;
            let mine = within(own.start)..within(own.end);
            next += count;
            if !mine.is_empty() {
                simd.run(Merge {
                    results: self.results,
                    tile,
                    block: &block,
                    rows: mine,
                    begins: first == 0,
                    count: spans.len(),
                    ends: spans.end == block.spans().end,
                });
            }
        }
    }
}

/// All tiles of a KV head.
fn all_tiles<'a>(job: &'a Job<'a>, segments: &'a [Segment<'a>]) -> impl Iterator<Item = Tile<'a>> + Clone {
    segments.iter().flat_map(|segment| (0..job.tiles(segment)).map(|t| Tile::new(job, segment, t)))
}

/// Merges the results of some rows of a tile.
struct Merge<'a> {
    results: Results,
    tile: usize,
    block: &'a Block<'a>,
    rows: Range<usize>,
    /// Whether this is the first window of the tile.
    begins: bool,
    /// Number of spans in the window.
    count: usize,
    /// Whether this is the last window of the tile.
    ends: bool,
}

impl Kernel for Merge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for r in self.rows {
            // SAFETY: the window was computed for all rows of the tile; this member alone merges this row.
            unsafe {
                let (state, merged) = self.results.row(self.tile, 0, r);
                if self.begins {
                    state.write(State::default());
                }
                for slot in 1..=self.count {
                    let (result, o) = self.results.row(self.tile, slot, r);
                    if let Some(top) = (*result).top() {
                        self.block.merge(s, top, o, merged, &mut *state);
                    }
                }
                if self.ends {
                    self.block.write_out(s, 0, r, merged, *state);
                }
            }
        }
    }
}
