//! Grouped-query attention over paged keys and values, causal or bidirectional ([`super::kv::AttentionMask`]).
//!
//! Canonical order, per query row and head: the query is scaled (and rounded to the cache's format, except f16; formats of integers
//! have products of their own). Logits: `acc = fma(k, q, acc)`, dimension ascending, then a soft cap if the layer has one
//! ([`super::softcap`]), then `+` the number of the key if the layer has those ([`AttentionBias`]). Spans have 256 keys, counted from
//! position 0. In a span: maximum; `p = exp(s - m)`; `l` in 16 lanes (key mod 16), then the tree; `o[d] = fma(p, v, o[d])`, key
//! ascending, over the keys that this row sees and no others. Spans are merged ascending, the first is copied:
//! `M' = max(M, m); a = exp(M - M'); b = exp(m - M'); L = fma(l, b, L * a); O = fma(o, b, O * a)`; at the end `O / L`. A span without a
//! visible key is skipped. The sink of a head, if the layer has sinks, is merged last, in the same way: as a span with m = the sink,
//! l = 1 and o = 0. It is neither scaled nor capped.
//!
//! Query heads that share a KV head share each load of keys and values. So do neighbouring tokens, and tokens of different
//! sequences with common pages: a block processes several tiles of rows with one page before the next. If there are too few
//! blocks for all threads, the spans of each are divided among them (`split.rs`).

mod bias;
mod block;
mod floats;
mod integers;
mod page;
mod relative;
mod split;
mod tiles;

use std::marker::PhantomData;

use redline_simd::{Isa, Kernel, LANES, Simd, Tiles};

pub use self::bias::{AttentionBias, DistanceBias, DistanceTable};
use self::block::{BLOCK_TILES, Block, Part, ROWS, Tile};
use self::floats::Floats;
use self::integers::{IntegerRows, Integers};
pub use self::relative::relative_bias;
use self::split::Split;
pub use self::split::scratch_words;
use self::tiles::Registers;
use super::kv::{
    FormatVisitor, IntegerEncoding, KvPages, KvShape, PassPages, Segment, assert_segments, rows_of,
};
use crate::format::Mac;
use crate::threads::Disjoint;
use crate::tile::TILE_ROWS;
use crate::{Arithmetic, Exec, Rows, RowsMut};

/// Number of keys in a span.
pub const SPAN: usize = 256;

/// Minimum number of blocks per team member, if there are enough tiles. More blocks balance the load: later rows see more keys.
const BLOCKS_OF_MEMBER: usize = 4;

/// The parameters of attention in a layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape<'a> {
    /// Number of query heads; a multiple of the number of KV heads.
    pub heads: usize,
    /// Factor on the logits (`1 / sqrt(head_dim)` in most families).
    pub scale: f32,
    /// A query sees keys at a distance of less than this, which includes itself; `None`: at any distance. In a causal row, all of
    /// them come before it.
    pub window: Option<usize>,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// Added to the logits, which have been capped.
    pub bias: Option<AttentionBias<'a>>,
    /// One learned logit for each query head, `[heads]`, that takes part in the softmax of its rows but has no value (Xiao et al. 2023).
    pub sinks: Option<&'a [f32]>,
}

/// `out[r] = softmax(q k^T) v` for all heads; `q` and `out` are `[rows, heads * head_dim]`. The keys and values of the batch's
/// own rows must be stored already. `scratch` is any memory, best [`scratch_words`] words.
pub fn attention(
    exec: Exec<'_>,
    shape: AttentionShape<'_>,
    kv: &KvPages,
    layer: usize,
    segments: &[Segment<'_>],
    q: Rows<'_>,
    out: &mut RowsMut<'_>,
    scratch: &mut [u32],
) {
    let kv_shape = kv.shape(layer);
    let KvShape { kv_heads, head_dim, .. } = kv_shape;
    assert!(shape.heads % kv_heads == 0, "{} heads of {head_dim}", shape.heads);
    assert!(q.width == shape.heads * head_dim && out.width == q.width && out.rows == q.rows, "same shape");
    assert!(shape.window != Some(0), "a row sees itself");
    assert!(
        shape.sinks.is_none_or(|sinks| sinks.len() == shape.heads),
        "a sink for each of {} heads",
        shape.heads
    );
    if let Some(bias) = shape.bias {
        bias.check(shape.heads, segments);
    }
    assert_segments(segments);
    assert!(rows_of(segments) <= q.rows, "rows of the batch");
    let (stride, to) = (out.stride, Disjoint::new(out.data));
    let integers = kv_shape.format.arithmetics()[0] == Arithmetic::Int8;
    let tile_rows = if integers { exec.simd.run(IntegerRows) } else { TILE_ROWS };
    let group = shape.heads / kv_heads;
    let job = Job { shape, kv, kv_shape, layer, q, out: to, stride, group, tile_rows };
    let tiles: usize = segments.iter().map(|segment| job.tiles(segment)).sum();
    if let Some(split) = Split::new(&job, segments, tiles, exec.team.size(), scratch) {
        return split.run(exec);
    }
    let size = (tiles * kv_heads / (exec.team.size() * BLOCKS_OF_MEMBER)).clamp(1, BLOCK_TILES);
    let (simd, seating) = (exec.simd, exec.team.seating());
    exec.team.run(|member| {
        for seat in seating.of(member) {
            let mut turn = Turn { next: seat.index, members: seat.members };
            for kv_head in seat.shard(kv_heads, 1) {
                let mut block = Block::new(&job, kv_head);
                for segment in segments {
                    for t in 0..job.tiles(segment) {
                        block.push(Tile::new(&job, segment, t));
                        if block.len() == size {
                            turn.take(simd, &mut block);
                        }
                    }
                }
                if block.len() > 0 {
                    turn.take(simd, &mut block);
                }
            }
        }
    });
}

impl PassPages<'_> {
    /// [`attention`] over these pages.
    ///
    /// # Panics
    /// Also if another micro-batch writes a page of these segments.
    pub fn attention(
        &self,
        exec: Exec<'_>,
        (layer, shape): (usize, AttentionShape<'_>),
        segments: &[Segment<'_>],
        q: Rows<'_>,
        out: &mut RowsMut<'_>,
        scratch: &mut [u32],
    ) {
        attention(exec, shape, self.read(segments), layer, segments, q, out, scratch);
    }
}

/// Assigns blocks in turn to the members of a device.
struct Turn {
    /// Number of blocks until this member's next turn.
    next: usize,
    members: usize,
}

impl Turn {
    /// Runs a block if it is this member's turn, and empties it.
    fn take(&mut self, simd: Simd, block: &mut Block<'_>) {
        if self.next == 0 {
            run(simd, Work { block, part: None });
            self.next = self.members;
        }
        self.next -= 1;
        block.clear();
    }
}

/// A block, and which part of its spans is computed; `None`: all, and its outputs.
struct Work<'a> {
    block: &'a Block<'a>,
    part: Option<Part<'a>>,
}

fn run(simd: Simd, work: Work<'_>) {
    if let Some(machine) = simd.tiles()
        && tiles::fit(work.block)
    {
        return machine.run(OverRegisters { machine, work });
    }
    work.block.shape().format.visit(RunOn { simd, work });
}

/// Work that runs on a tier when the products of its format are known.
struct RunOn<'a> {
    simd: Simd,
    work: Work<'a>,
}

impl FormatVisitor for RunOn<'_> {
    type Output = ();
    fn floats<K: Mac, V: Mac>(self) {
        let over = OverFloats::<K, V> { work: self.work, products: PhantomData };
        self.simd.run_in::<K, _>(over);
    }
    fn integers<F: IntegerEncoding>(self) {
        self.simd.run_in::<F, _>(OverIntegers::<F> { work: self.work, products: PhantomData });
    }
}

/// Work over keys and values that are floats.
struct OverFloats<'a, K, V> {
    work: Work<'a>,
    products: PhantomData<(K, V)>,
}

impl<K: Mac, V: Mac> Kernel for OverFloats<'_, K, V> {
    type Output = ();
    const DOTS_BF16: bool = K::SPLIT;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        self.work.block.run_with(s, &mut Floats::<K, V>::new(), self.work.part);
    }
}

/// Work over keys and values that are integers.
struct OverIntegers<'a, F> {
    work: Work<'a>,
    products: PhantomData<F>,
}

impl<F: IntegerEncoding> Kernel for OverIntegers<'_, F> {
    type Output = ();
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        self.work.block.run_with(s, &mut Integers::<F>::new(), self.work.part);
    }
}

/// Work over keys and values that are bytes, with tile registers.
struct OverRegisters<'a> {
    machine: Tiles,
    work: Work<'a>,
}

impl Kernel for OverRegisters<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let mut registers = Registers::new(self.machine, self.work.block.shape());
        self.work.block.run_with(s, &mut registers, self.work.part);
    }
}

/// Bytes that each thread uses at most of its stack for heads of this shape: queries, logits, unpacked pages, and weighted values of a
/// block, which are those of a span and the merged ones.
pub fn thread_bytes(shape: KvShape) -> usize {
    // Rows are padded to whole vectors.
    let shape = KvShape { head_dim: shape.head_dim.next_multiple_of(LANES), ..shape };
    shape.format.visit(ProductBytes(shape)) + 2 * ROWS * shape.head_dim * size_of::<f32>()
}

/// Bytes of queries, logits and unpacked pages.
struct ProductBytes(KvShape);

impl FormatVisitor for ProductBytes {
    type Output = usize;
    fn floats<K: Mac, V: Mac>(self) -> usize {
        Floats::<K, V>::bytes(self.0.head_dim)
    }
    fn integers<F: IntegerEncoding>(self) -> usize {
        let vectors = Integers::<F>::bytes(self.0.head_dim, self.0.scale_groups());
        if F::FORMAT == tiles::FORMAT { vectors.max(Registers::bytes(self.0)) } else { vectors }
    }
}

/// One call of [`attention`].
struct Job<'a> {
    shape: AttentionShape<'a>,
    kv: &'a KvPages,
    kv_shape: KvShape,
    layer: usize,
    q: Rows<'a>,
    out: Disjoint<f32>,
    stride: usize,
    /// Number of query heads per KV head.
    group: usize,
    /// Maximum number of rows in a tile.
    tile_rows: usize,
}

impl Job<'_> {
    /// Number of tiles of a segment's rows.
    fn tiles(&self, segment: &Segment<'_>) -> usize {
        (segment.rows * self.group).div_ceil(self.tile_rows)
    }
}
