//! Linear layers for many rows with tile registers.
//!
//! The first block of rows converts the weights of four strips and a part of k to signed bytes (the panel, kept in the
//! second-level cache), each group just before it is read, and all blocks pass over it. For each group of k, a tile of rows
//! takes two products of two strips each. While one is being multiplied, the one before is scaled and added to f32 sums, which
//! stay in the first-level cache until the part of k is done; the last one of a block beside the first of the next block. With
//! the last group they go to the outputs, unless something follows the integer sums. Meanwhile the weights of the next panel are
//! prefetched, a few lines at a time.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, TILE_BYTES, TILE_ROWS, TileUnit, Tiles};

use super::{Job, Outputs, Variant};
use crate::Exec;
use crate::dot::Scale;
use crate::format::w4::W4;
use crate::format::w8::W8;
use crate::format::{BLOCK, Format, INPUT_GROUP, Integer, Minima, Signed};
use crate::matrix::MatrixShape;
use crate::op::quantise::{Arrangement, InputLayout};
use crate::threads::Disjoint;

/// Number of strips in a panel.
const STRIPS: usize = 4;
/// Number of strips in a product.
const PAIR: usize = 2;
/// Maximum number of k in a panel: whole groups, 128 KiB.
const PANEL_K: usize = 2048;
/// Number of tiles of rows whose f32 sums stay in the first-level cache together.
const BLOCK_TILES: usize = 2;
/// Bytes of a tile's inputs for one multiplication.
const X_STEP: usize = TILE_ROWS * TILE_BYTES;
/// Number of words of a product's sums.
const SUMS: usize = TILE_ROWS * PAIR * LANES;

pub(super) fn layout(shape: MatrixShape, rows: usize) -> InputLayout {
    InputLayout {
        k: shape.cols,
        summed_k: shape.format.summed_k(),
        minima: Minima::None,
        arrangement: Arrangement::Tiles,
        tile_rows: TILE_ROWS,
        rows,
    }
}

pub(super) fn run(exec: Exec<'_>, tiles: Tiles, variant: Variant, job: Job<'_>) {
    exec.team.split_strips(
        job.matrix.strips(),
        STRIPS,
        variant.distribution(job.matrix, job.layout.rows),
        |strips| run_part(tiles, job, strips, 0..job.layout.tiles()),
    );
}

/// Computes some strips of some tiles of rows.
pub(super) fn run_part(machine: Tiles, job: Job<'_>, strips: Range<usize>, tiles: Range<usize>) {
    let depth = job.summed_k.min(TILE_BYTES);
    let part = Part { job, strips, tiles, depth };
    let unit = &mut machine.configure(depth);
    match job.matrix.format() {
        Format::W8 { .. } => machine.run(Of::<W8>(part, unit, W8)),
        Format::W4 { .. } => machine.run(Of::<W4>(part, unit, W4)),
        other => unreachable!("`linear` runs {other} elsewhere"),
    }
}

/// Some strips of some tiles of rows.
struct Part<'a> {
    job: Job<'a>,
    strips: Range<usize>,
    tiles: Range<usize>,
    /// Number of k per multiplication.
    depth: usize,
}

/// A part whose format is known at compile time.
struct Of<'a, I>(Part<'a>, &'a mut TileUnit, I);

/// The contents of a panel.
#[derive(Clone)]
struct Piece {
    strips: Range<usize>,
    k: Range<usize>,
}

/// Signed weights `[k/depth][4 strips][depth/4][16 outputs]` words.
#[repr(C, align(64))]
struct Panel([u32; STRIPS * PANEL_K / 4 * LANES]);

/// f32 sums `[tiles * 16 rows][4 strips][16 outputs]`, and the integers of both pairs of registers.
#[repr(C, align(4096))]
struct Work {
    sums: [f32; BLOCK_TILES * TILE_ROWS * STRIPS * LANES],
    products: [[i32; SUMS]; 2],
}

/// What continues the sums of a block with updates: the tile registers, and the weights of a group of a second matrix.
pub(super) struct Registers<'a> {
    unit: &'a mut TileUnit,
    depth: usize,
    panel: *mut u32,
    /// Update, part, first strip and k of the weights in the panel. Many tiles of rows have the same update.
    holds: Option<((usize, usize), usize, usize)>,
}

/// Signed weights of four strips and a group, as in [`Panel`].
#[repr(C, align(64))]
struct GroupPanel([u32; STRIPS * INPUT_GROUP / 4 * LANES]);

impl<I: Signed> Kernel for Of<'_, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self(part, unit, _) = self;
        let (mut panel, mut second) = (MaybeUninit::<Panel>::uninit(), MaybeUninit::<GroupPanel>::uninit());
        let panel = panel.as_mut_ptr().cast::<u32>();
        let mut registers =
            Registers { unit, depth: part.depth, panel: second.as_mut_ptr().cast(), holds: None };
        let mut work = MaybeUninit::<Work>::uninit();
        let mut work = Pending::new(&mut work);
        for p in 0..part.pieces() {
            let piece = part.piece(p);
            let units = part.tiles.len() * piece.k.len().div_ceil(part.job.summed_k);
            let mut ahead = part.ahead::<I>(p + 1, units);
            for tile in part.tiles.clone().step_by(BLOCK_TILES) {
                let tiles = tile..part.tiles.end.min(tile + BLOCK_TILES);
                let block = Block::new(&part, piece.clone(), tiles);
                let fills = tile == part.tiles.start;
                // SAFETY: the piece exists and the panel holds as much, which the first block fills; the strips belong to this member.
                unsafe { block.run::<S, I>(s, &mut registers, (panel, fills), &mut ahead, &mut work) };
            }
        }
        // SAFETY: the registers hold the last products of the second pair, as `run` left them.
        unsafe { work.finish(s, &part, &mut registers) };
    }
}

impl Part<'_> {
    fn cuts(&self) -> usize {
        self.job.layout.k.div_ceil(PANEL_K)
    }

    /// Number of panels of this member.
    fn pieces(&self) -> usize {
        self.strips.len().div_ceil(STRIPS) * self.cuts()
    }

    /// The contents of panel `p`: all k of four strips before the next four strips, so that their outputs stay in the
    /// second-level cache.
    fn piece(&self, p: usize) -> Piece {
        let strip = self.strips.start + p / self.cuts() * STRIPS;
        let k = p % self.cuts() * PANEL_K;
        Piece { strips: strip..self.strips.end.min(strip + STRIPS), k: k..self.job.layout.k.min(k + PANEL_K) }
    }

    /// The weights of panel `p`, to be prefetched in `units` turns; none after the last panel.
    fn ahead<I: Integer>(&self, p: usize, units: usize) -> Ahead {
        if p >= self.pieces() {
            return Ahead { next: std::ptr::null(), lines: 0, strip_lines: 0, strips: 0, turn: 0, done: 0 };
        }
        let Piece { strips, k } = self.piece(p);
        let lines = I::BLOCK_WORDS / LANES;
        let (first, strip_lines) =
            (strips.start * self.job.layout.blocks() + k.start / BLOCK, lines * k.len().div_ceil(BLOCK));
        Ahead {
            next: self.job.matrix.words()[first * I::BLOCK_WORDS..].as_ptr(),
            lines: strip_lines,
            strip_lines: self.job.layout.blocks() * lines,
            strips: strips.len(),
            turn: (strips.len() * strip_lines).div_ceil(units),
            done: 0,
        }
    }

    /// Fills the panel with the weights of `piece`; missing k of the last multiplication are zero.
    ///
    /// # Safety
    /// The piece exists, `panel` is valid for writing a [`Panel`].
    #[inline(always)]
    unsafe fn fill<S: Isa, I: Signed>(&self, s: S, panel: *mut u32, piece: &Piece) {
        let (layout, depth) = (self.job.layout, self.depth);
        let blocks = piece.k.start / BLOCK..piece.k.end.div_ceil(BLOCK);
        let padded = (blocks.len() * BLOCK).next_multiple_of(depth) / BLOCK;
        for (i, strip) in piece.strips.clone().enumerate() {
            for block in 0..padded {
                let k = block * BLOCK;
                // SAFETY: this block of this strip, in the matrix and in the panel.
                unsafe {
                    let to = panel.add(((k / depth * STRIPS + i) * depth + k % depth) / 4 * LANES);
                    if block < blocks.len() {
                        let block = strip * layout.blocks() + blocks.start + block;
                        I::signed(s, self.job.matrix.words().as_ptr().add(block * I::BLOCK_WORDS), to);
                    } else {
                        to.write_bytes(0, BLOCK / 4 * LANES);
                    }
                }
            }
        }
    }

    /// The scales of a strip in a group.
    ///
    /// # Safety
    /// The strip exists.
    #[inline(always)]
    unsafe fn weight_scale<S: Isa>(&self, s: S, strip: usize, group: usize) -> S::F {
        // SAFETY: sixteen scales of a strip that exists.
        unsafe {
            match self.job.matrix.scale(strip, group) {
                Scale::Group(scales) => s.load_f16(scales),
                Scale::Power(scales) => s.load_bf16(scales),
                Scale::Output(scales) => s.load(scales),
            }
        }
    }
}

/// Continues the sums of one tile of rows, the outputs of `job`, with some strips of the second matrix of an update. `update` tells
/// updates and their parts apart.
pub(super) fn continue_sums(
    registers: &mut Registers<'_>,
    job: Job<'_>,
    strips: Range<usize>,
    update: (usize, usize),
) {
    assert!(strips.len() <= STRIPS && job.layout.rows <= TILE_ROWS && job.outputs.stride == STRIPS * LANES);
    let part = Part { job, strips, tiles: 0..1, depth: registers.depth };
    registers.unit.machine().run(Continue { part, registers, update });
}

struct Continue<'a, 'r> {
    part: Part<'a>,
    registers: &'a mut Registers<'r>,
    update: (usize, usize),
}

impl Kernel for Continue<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { part, registers: Registers { unit, depth, panel, holds }, update } = self;
        let (job, depth, strips) = (part.job, *depth, part.strips.clone());
        let second = depth * LANES;
        let mut products = MaybeUninit::<Products>::uninit();
        let products = products.as_mut_ptr().cast::<i32>();
        for k in (0..job.layout.k).step_by(INPUT_GROUP) {
            let piece = Piece { strips: strips.clone(), k: k..job.layout.k.min(k + INPUT_GROUP) };
            let steps = piece.k.len().div_ceil(depth);
            let block = Block::new(&part, piece.clone(), 0..1);
            // SAFETY: the panel has room for four strips of a group; inputs, weights and outputs hold these rows, strips and k.
            unsafe {
                if *holds != Some((update, strips.start, k)) {
                    part.fill::<S, W8>(s, *panel, &piece);
                    *holds = Some((update, strips.start, k));
                }
                let place = |pair| Place {
                    at: job.outputs.at(0, strips.start + pair * PAIR),
                    stride: job.outputs.stride,
                };
                let (place0, place1) = (place(0), place(1));
                let x = job.inputs.as_ptr().cast::<u8>().add(k / TILE_BYTES * X_STEP);
                let factors = Factors { x, w: panel.cast(), second, steps };
                multiply::<0>(unit, factors);
                if strips.len() > PAIR {
                    multiply::<1>(unit, factors.of_second_pair());
                }
                unit.store::<0>(products);
                block.scaling(s, (place0, place0), products, Product { tile: 0, k, pair: 0 }).all(s);
                if strips.len() > PAIR {
                    unit.store::<1>(products);
                    block.scaling(s, (place1, place1), products, Product { tile: 0, k, pair: 1 }).all(s);
                }
            }
        }
    }
}

/// The integers of a product.
#[repr(C, align(64))]
struct Products([i32; SUMS]);

/// Cache lines of the next panel's weights, strip after strip.
struct Ahead {
    /// The next strip.
    next: *const u32,
    /// Lines per strip in the panel.
    lines: usize,
    /// Lines per strip in the matrix.
    strip_lines: usize,
    /// Strips that are left.
    strips: usize,
    /// Lines that are prefetched per turn.
    turn: usize,
    /// Lines of the next strip that were prefetched.
    done: usize,
}

impl Ahead {
    #[inline(always)]
    fn ask<S: Isa>(&mut self, s: S) {
        for _ in 0..self.turn {
            if self.strips == 0 {
                return;
            }
            s.prefetch(self.next.wrapping_add(self.done * LANES).cast());
            self.done += 1;
            if self.done == self.lines {
                self.next = self.next.wrapping_add(self.strip_lines * LANES);
                self.strips -= 1;
                self.done = 0;
            }
        }
    }
}

/// Some tiles of rows, to be multiplied with a panel.
struct Block<'a> {
    part: &'a Part<'a>,
    piece: Piece,
    tiles: Range<usize>,
    /// Inputs of the first tile: their bytes and their scales. Those of the other follow after `tile_words`.
    bytes: *const u32,
    scales: *const u32,
    tile_words: usize,
}

/// A block whose sums in the first-level cache are complete when the last products are scaled.
struct Ended {
    strips: Range<usize>,
    tiles: Range<usize>,
}

/// [`Work`], and what the next multiplications are to be accompanied by.
struct Pending<S: Isa> {
    sums: *mut f32,
    products: *mut i32,
    /// The last products: those of the first pair are in memory, those of the second still in the registers.
    last: Option<[Scaling<S>; 2]>,
    ended: Option<Ended>,
}

impl<S: Isa> Pending<S> {
    #[inline(always)]
    fn new(work: &mut MaybeUninit<Work>) -> Self {
        // SAFETY: only addresses are taken.
        let (sums, products) =
            unsafe { (&raw mut (*work.as_mut_ptr()).sums, &raw mut (*work.as_mut_ptr()).products) };
        Self { sums: sums.cast(), products: products.cast(), last: None, ended: None }
    }

    /// Scales the last products and completes their block.
    ///
    /// # Safety
    /// As [`Block::scaling`], and as [`Self::end`].
    #[inline(always)]
    unsafe fn finish(&mut self, s: S, part: &Part<'_>, registers: &mut Registers<'_>) {
        // SAFETY: by contract.
        unsafe {
            if let Some([stored, in_registers]) = self.last.take() {
                registers.unit.store::<1>(self.products.add(SUMS));
                stored.all(s);
                in_registers.all(s);
            }
            self.end(part, registers);
        }
    }

    /// What follows the integer sums of the block that has ended, if one has: outlier columns, updates, bias and activation.
    ///
    /// # Safety
    /// All of its products were scaled; the strips belong to the calling member.
    #[inline(always)]
    unsafe fn end(&mut self, part: &Part<'_>, registers: &mut Registers<'_>) {
        let Some(Ended { strips, tiles }) = self.ended.take() else { return };
        let (job, stride) = (&part.job, STRIPS * LANES);
        let rows = job.layout.tile(tiles.start).start..job.layout.tile(tiles.end - 1).end;
        // Rows and strips are counted as in the outputs.
        let first = self.sums.wrapping_sub(rows.start * stride + strips.start * LANES);
        let sums = Outputs { y: Disjoint::at(first), stride, ..job.outputs };
        if job.has_additions() {
            for tile in tiles {
                let job = Job { outputs: sums, ..*job };
                job.add_outliers_and_updates((tile, job.layout.tile(tile)), &strips, Some(registers));
            }
        }
        job.outputs.finish_from(&sums, job.simd, rows, strips);
    }
}

/// The products of a pair of strips with one tile of rows in one group, computed by the tile registers.
#[derive(Clone, Copy)]
struct Product {
    /// Index of the tile in the block.
    tile: usize,
    /// k where the group begins.
    k: usize,
    pair: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn new(part: &'a Part<'a>, piece: Piece, tiles: Range<usize>) -> Self {
        let Job { layout, inputs, .. } = part.job;
        let places = layout.places(tiles.start);
        Self {
            part,
            piece,
            bytes: inputs[places.bytes..].as_ptr(),
            scales: inputs[places.scales..].as_ptr(),
            tile_words: TILE_ROWS * layout.row_words(),
            tiles,
        }
    }

    /// # Safety
    /// The panel holds the piece, or has room for it and `fills` is set; the strips belong to the calling member; `s` and the unit are of
    /// one tier.
    #[inline(always)]
    unsafe fn run<S: Isa, I: Signed>(
        &self,
        s: S,
        registers: &mut Registers<'_>,
        (panel, fills): (*mut u32, bool),
        ahead: &mut Ahead,
        work: &mut Pending<S>,
    ) {
        let Part { job, depth, .. } = *self.part;
        let Piece { strips, k } = &self.piece;
        let second = depth * LANES;
        let groups = k.len().div_ceil(job.summed_k);
        let in_cache = k.end == job.layout.k && job.has_end();
        // SAFETY: the first products are added to zeros or to the outputs, the others to sums that were stored; products are read after
        // they were stored; inputs and panel hold every k of every group. Strips that the piece lacks have any contents in the panel;
        // their products are not scaled.
        unsafe {
            for group in 0..groups {
                let first = k.start + group * job.summed_k;
                let steps = (k.end - first).min(job.summed_k).div_ceil(depth);
                let w = panel.cast::<u8>().add((first - k.start) / depth * STRIPS * second);
                if fills {
                    // Just before it is read, so that it comes from the first-level cache.
                    let k = first..k.end.min(first + job.summed_k);
                    self.part.fill::<S, I>(s, w.cast(), &Piece { strips: strips.clone(), k });
                }
                for i in 0..self.tiles.len() {
                    let x = self.bytes.add(i * self.tile_words).cast::<u8>();
                    let x = x.add(first / TILE_BYTES * X_STEP + first % TILE_BYTES);
                    let factors = Factors { x, w, second, steps };
                    let of = |pair| Product { tile: i, k: first, pair };
                    // Not made by a closure, which would be compiled without the tier's instructions.
                    let own = [
                        self.scaling(s, self.places(work.sums, of(0), in_cache), work.products, of(0)),
                        self.scaling(
                            s,
                            self.places(work.sums, of(1), in_cache),
                            work.products.add(SUMS),
                            of(1),
                        ),
                    ];
                    if strips.len() <= PAIR {
                        // The other pair has no strips that it could overlap with.
                        work.finish(s, self.part, registers);
                        multiply::<0>(registers.unit, factors);
                        registers.unit.store::<0>(work.products);
                        own[0].all(s);
                        ahead.ask(s);
                        continue;
                    }
                    let unit = &mut *registers.unit;
                    // The products of the last tile are scaled meanwhile: first those stored before, then those in registers.
                    match &work.last {
                        Some([stored, in_registers]) => {
                            multiply_and_scale::<S, 0, 1>(s, unit, factors, (stored, in_registers));
                            let factors = factors.of_second_pair();
                            multiply_and_scale::<S, 1, 0>(s, unit, factors, (in_registers, &own[0]));
                        }
                        None => {
                            multiply::<0>(unit, factors);
                            multiply::<1>(unit, factors.of_second_pair());
                            unit.store::<0>(work.products);
                        }
                    }
                    work.last = Some(own);
                    work.end(self.part, registers);
                    ahead.ask(s);
                }
            }
            if in_cache {
                work.ended = Some(Ended { strips: strips.clone(), tiles: self.tiles.clone() });
                if job.has_additions() {
                    // Updates need the registers.
                    work.finish(s, self.part, registers);
                }
            }
        }
    }

    /// Where the f32 sums of a product are read and written: zeros or outputs at first, sums in the first-level cache, and the outputs at
    /// the end of the panel, unless `in_cache`.
    #[inline(always)]
    fn places(&self, sums: *mut f32, product: Product, in_cache: bool) -> (Place, Place) {
        let (job, Piece { strips, k }) = (&self.part.job, &self.piece);
        let Product { tile, k: first, pair } = product;
        let sums = sums.wrapping_add((tile * TILE_ROWS * STRIPS + pair * PAIR) * LANES);
        let in_sums = Place { at: sums, stride: STRIPS * LANES };
        let row = job.layout.tile(self.tiles.start + tile).start;
        let at = job.outputs.at(row, strips.start + pair * PAIR);
        let in_outputs = Place { at, stride: job.outputs.stride };
        let from = if first > k.start {
            in_sums
        } else if first > 0 {
            in_outputs
        } else {
            Place { at: ZEROS.0.as_ptr().cast_mut(), stride: 0 }
        };
        let is_last = first + job.summed_k >= k.end;
        (from, if is_last && !in_cache { in_outputs } else { in_sums })
    }

    /// How a product is scaled, and added to f32 sums.
    ///
    /// # Safety
    /// When they are scaled, `products` holds the product's integers; sums are read and written where they exist.
    #[inline(always)]
    unsafe fn scaling<S: Isa>(
        &self,
        s: S,
        (from, to): (Place, Place),
        products: *const i32,
        product: Product,
    ) -> Scaling<S> {
        let Range { start, end } = self.piece.strips;
        let first = start + product.pair * PAIR;
        let strips = end.saturating_sub(first).min(PAIR);
        let (first, second) = (first.min(end - 1), (first + 1).min(end - 1));
        let group = product.k / self.part.job.summed_k;
        // SAFETY: these strips exist and so do their scales, and those of this tile of inputs.
        unsafe {
            Scaling {
                w: [self.part.weight_scale(s, first, group), self.part.weight_scale(s, second, group)],
                x: self
                    .scales
                    .add(product.tile * self.tile_words + product.k / INPUT_GROUP * TILE_ROWS)
                    .cast(),
                rows: self.part.job.layout.tile(self.tiles.start + product.tile).len(),
                strips,
                from,
                to,
                products,
            }
        }
    }
}

/// Where f32 sums lie: rows `stride` values apart.
#[derive(Clone, Copy)]
struct Place {
    at: *mut f32,
    stride: usize,
}

/// What the first group is added to.
#[repr(C, align(64))]
struct Zeros([f32; PAIR * LANES]);
static ZEROS: Zeros = Zeros([0.0; PAIR * LANES]);

/// The integers of a product, their scales, and the f32 sums that they are added to.
struct Scaling<S: Isa> {
    w: [S::F; PAIR],
    x: *const f32,
    rows: usize,
    /// Strips that exist: 0 to 2.
    strips: usize,
    from: Place,
    to: Place,
    products: *const i32,
}

impl<S: Isa> Scaling<S> {
    /// Scales all rows.
    ///
    /// # Safety
    /// As [`Block::scaling`].
    #[inline(always)]
    unsafe fn all(&self, s: S) {
        // SAFETY: by contract.
        unsafe { self.rows(s, 0..self.rows) };
    }

    /// `to = fma(f32(products), w * x, from)` for some rows.
    ///
    /// # Safety
    /// As [`Block::scaling`].
    #[inline(always)]
    unsafe fn rows(&self, s: S, rows: Range<usize>) {
        // SAFETY: by contract.
        unsafe {
            if self.strips == PAIR {
                for r in rows {
                    self.row::<PAIR>(s, r);
                }
            } else if self.strips == 1 {
                for r in rows {
                    self.row::<1>(s, r);
                }
            }
        }
    }

    /// # Safety
    /// As [`Block::scaling`].
    #[inline(always)]
    unsafe fn row<const C: usize>(&self, s: S, r: usize) {
        // SAFETY: by contract.
        unsafe {
            let x = s.splat(*self.x.add(r));
            for c in 0..C {
                let product = s.to_float(s.load_words(self.products.add((r * PAIR + c) * LANES).cast()));
                let sum = s.load(self.from.at.add(r * self.from.stride + c * LANES));
                let to = self.to.at.add(r * self.to.stride + c * LANES);
                s.store(to, s.fma(product, s.mul(self.w[c], x), sum));
            }
        }
    }
}

/// What is multiplied: the inputs of a tile of rows, and two strips of a panel, over some steps.
#[derive(Clone, Copy)]
struct Factors {
    x: *const u8,
    w: *const u8,
    /// Bytes between strips.
    second: usize,
    steps: usize,
}

impl Factors {
    /// The same inputs with the next two strips.
    #[inline(always)]
    fn of_second_pair(self) -> Self {
        Self { w: self.w.wrapping_add(PAIR * self.second), ..self }
    }

    /// Loads the inputs of a step.
    ///
    /// # Safety
    /// The step exists.
    #[inline(always)]
    unsafe fn load(self, unit: &mut TileUnit, step: usize) {
        // SAFETY: by contract.
        unsafe { unit.load(self.x.add(step * X_STEP)) };
    }

    /// Adds the products of the loaded inputs with strip `C` to the sums of pair `P` of the registers.
    ///
    /// # Safety
    /// As [`Self::load`], with the same step.
    #[inline(always)]
    unsafe fn add<const P: usize, const C: usize>(self, unit: &mut TileUnit, step: usize) {
        // SAFETY: by contract.
        unsafe { unit.add::<P, C>(self.w.add((step * STRIPS + C) * self.second)) };
    }
}

/// Sums of pair `P` of the registers = the products of `factors`.
///
/// # Safety
/// Inputs and panel hold them.
#[inline(always)]
unsafe fn multiply<const P: usize>(unit: &mut TileUnit, factors: Factors) {
    unit.clear::<P>();
    for step in 0..factors.steps {
        // SAFETY: by contract.
        unsafe {
            factors.load(unit, step);
            factors.add::<P, 0>(unit, step);
            factors.add::<P, 1>(unit, step);
        }
    }
}

/// [`multiply`] while a product of the tile before is scaled: some rows after every multiplication, so that registers and vectors
/// work together. Meanwhile the sums of the other pair `O` of registers are stored, to be scaled next.
///
/// # Safety
/// As there, with a step at least, and as [`Block::scaling`]; the products of `next` are in another place than those of `scaling`.
#[inline(always)]
unsafe fn multiply_and_scale<S: Isa, const P: usize, const O: usize>(
    s: S,
    unit: &mut TileUnit,
    factors: Factors,
    (scaling, next): (&Scaling<S>, &Scaling<S>),
) {
    const ROWS: usize = TILE_ROWS / 4;
    unit.clear::<P>();
    // SAFETY: by contract.
    unsafe {
        if factors.steps == 2 && scaling.rows == TILE_ROWS {
            factors.load(unit, 0);
            factors.add::<P, 0>(unit, 0);
            scaling.rows(s, 0..ROWS);
            factors.add::<P, 1>(unit, 0);
            scaling.rows(s, ROWS..2 * ROWS);
            unit.store::<O>(next.products.cast_mut());
            factors.load(unit, 1);
            factors.add::<P, 0>(unit, 1);
            scaling.rows(s, 2 * ROWS..3 * ROWS);
            factors.add::<P, 1>(unit, 1);
            scaling.rows(s, 3 * ROWS..TILE_ROWS);
        } else {
            let half = scaling.rows / 2;
            factors.load(unit, 0);
            factors.add::<P, 0>(unit, 0);
            scaling.rows(s, 0..half);
            unit.store::<O>(next.products.cast_mut());
            factors.add::<P, 1>(unit, 0);
            scaling.rows(s, half..scaling.rows);
            for step in 1..factors.steps {
                factors.load(unit, step);
                factors.add::<P, 0>(unit, step);
                factors.add::<P, 1>(unit, step);
            }
        }
    }
}
