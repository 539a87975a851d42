//! Linear layers for many rows with tile registers.
//!
//! The weights of four strips and a part of k are converted to signed bytes once (the panel, kept in the second-level cache),
//! and blocks of rows pass over it. For each group of k, a tile of rows takes two products of two strips each. While one pair
//! of sums is being multiplied, the other is converted, scaled and added to the f32 sums, which stay in the first-level cache
//! until the part of k is done. Meanwhile the outputs and the weights of the next panel are prefetched, a few lines at a time.

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
use crate::op::quantise::{Arrangement, InputLayout, Places};
use crate::threads::Disjoint;

/// Number of strips in a panel.
const STRIPS: usize = 4;
/// Number of strips in a product.
const PAIR: usize = 2;
/// Maximum number of k in a panel: whole groups, 128 KiB.
const PANEL_K: usize = 2048;
/// Number of tiles of rows whose f32 sums stay in the first-level cache together.
const BLOCK_TILES: usize = 2;
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
        for p in 0..part.pieces() {
            let piece = part.piece(p);
            let units = part.tiles.len() * piece.k.len().div_ceil(part.job.summed_k);
            let mut ahead = part.ahead::<I>(p + 1, units);
            // SAFETY: the piece exists, and the panel holds as much.
            unsafe { part.fill::<S, I>(s, panel, &piece) };
            for tile in part.tiles.clone().step_by(BLOCK_TILES) {
                let tiles = tile..part.tiles.end.min(tile + BLOCK_TILES);
                let block = Block::new(&part, piece.clone(), tiles);
                // SAFETY: the panel was filled with the piece, whose strips belong to this member.
                unsafe { block.run(s, &mut registers, panel, &mut ahead) };
            }
        }
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
        let (x_step, w_step, second) = (TILE_ROWS * TILE_BYTES, STRIPS * depth * LANES, depth * LANES);
        let mut products = MaybeUninit::<Products>::uninit();
        let products = products.as_mut_ptr().cast::<i32>();
        for k in (0..job.layout.k).step_by(INPUT_GROUP) {
            let piece = Piece { strips: strips.clone(), k: k..job.layout.k.min(k + INPUT_GROUP) };
            let steps = piece.k.len().div_ceil(depth);
            let block = Block::only(&part, piece.clone());
            // SAFETY: the panel has room for four strips of a group; inputs, weights and outputs hold these rows, strips and k.
            unsafe {
                if *holds != Some((update, strips.start, k)) {
                    part.fill::<S, W8>(s, *panel, &piece);
                    *holds = Some((update, strips.start, k));
                }
                let sums = job.outputs.at(0, strips.start);
                let x = job.inputs.as_ptr().cast::<u8>().add(k / TILE_BYTES * x_step);
                let w = panel.cast::<u8>();
                unit.multiply::<0>(x, x_step, w, w_step, second, steps);
                if strips.len() > PAIR {
                    unit.multiply::<1>(x, x_step, w.add(PAIR * second), w_step, second, steps);
                }
                unit.store::<0>(products);
                block.scale_some(s, sums, products, Product { tile: 0, k, pair: 0 });
                if strips.len() > PAIR {
                    unit.store::<1>(products);
                    block.scale_some(s, sums, products, Product { tile: 0, k, pair: 1 });
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
    first_tile: usize,
    /// Number of tiles.
    tiles: usize,
    /// The rows of each, and where their inputs lie: kept, because finding them takes divisions.
    rows: [Range<usize>; BLOCK_TILES],
    places: [Places; BLOCK_TILES],
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
    fn new(part: &'a Part<'a>, piece: Piece, tiles: Range<usize>) -> Self {
        let at = |i: usize| (tiles.start + i).min(tiles.end - 1);
        let layout = part.job.layout;
        let rows = std::array::from_fn(|i| layout.tile(at(i)));
        let places = std::array::from_fn(|i| layout.places(at(i)));
        Self { part, piece, first_tile: tiles.start, tiles: tiles.len(), rows, places }
    }

    /// The only tile of a layout.
    fn only(part: &'a Part<'a>, piece: Piece) -> Self {
        let layout = part.job.layout;
        let (rows, places) = ([0..layout.rows, 0..0], [layout.places_of_only_tile(); BLOCK_TILES]);
        Self { part, piece, first_tile: 0, tiles: 1, rows, places }
    }

    /// # Safety
    /// The panel holds the piece, whose strips belong to the calling member; `s` and the unit are of one tier.
    #[inline(always)]
    unsafe fn run<S: Isa>(&self, s: S, registers: &mut Registers<'_>, panel: *const u32, ahead: &mut Ahead) {
        let unit = &mut *registers.unit;
        let Part { job, depth, .. } = *self.part;
        let Piece { strips, k } = &self.piece;
        let layout = job.layout;
        let (x_step, w_step, second) = (TILE_ROWS * TILE_BYTES, STRIPS * depth * LANES, depth * LANES);
        let groups = k.len().div_ceil(job.summed_k);
        let mut work = MaybeUninit::<Work>::uninit();
        // SAFETY: the sums of a block are first taken from the outputs or set to zero; products are read after they
        // were stored; inputs and panel hold every k of every group.
        unsafe {
            let sums = (&raw mut (*work.as_mut_ptr()).sums).cast::<f32>();
            let products = (&raw mut (*work.as_mut_ptr()).products).cast::<i32>();
            self.take(s, sums);
            let mut waiting: Option<Product> = None;
            for group in 0..groups {
                let first = k.start + group * job.summed_k;
                let steps = (k.end - first).min(job.summed_k).div_ceil(depth);
                let w = panel.cast::<u8>().add((first - k.start) / depth * w_step);
                for i in 0..self.tiles {
                    let x = job.inputs.as_ptr().add(self.places[i].bytes).cast::<u8>();
                    let x = x.add(first / TILE_BYTES * x_step + first % TILE_BYTES);
                    unit.multiply::<0>(x, x_step, w, w_step, second, steps);
                    if let Some(product) = waiting.take() {
                        unit.store::<1>(products.add(SUMS));
                        self.scale::<S, PAIR>(s, sums, products.add(SUMS), product);
                    }
                    if strips.len() > PAIR {
                        unit.multiply::<1>(x, x_step, w.add(PAIR * second), w_step, second, steps);
                        waiting = Some(Product { tile: i, k: first, pair: 1 });
                    }
                    unit.store::<0>(products);
                    self.scale::<S, PAIR>(s, sums, products, Product { tile: i, k: first, pair: 0 });
                    ahead.ask(s);
                    self.ask_outputs(
                        s,
                        self.rows[i].clone(),
                        TILE_ROWS * group / groups..TILE_ROWS * (group + 1) / groups,
                    );
                }
            }
            if let Some(product) = waiting {
                unit.store::<1>(products.add(SUMS));
                self.scale::<S, PAIR>(s, sums, products.add(SUMS), product);
            }
            if k.end == layout.k {
                self.end(sums, registers);
            }
            self.give(s, sums);
        }
    }

    /// What follows the integer sums: outlier columns, updates, bias and activation.
    ///
    /// # Safety
    /// `sums` holds a block; the strips belong to the calling member.
    unsafe fn end(&self, sums: *mut f32, registers: &mut Registers<'_>) {
        let (job, strips) = (self.part.job, &self.piece.strips);
        for (i, rows) in self.rows[..self.tiles].iter().enumerate() {
            let stride = STRIPS * LANES;
            // Rows and strips are counted as in the outputs.
            let first = sums
                .wrapping_add(i * TILE_ROWS * stride)
                .wrapping_sub(rows.start * stride + strips.start * LANES);
            let outputs = Outputs { y: Disjoint::at(first), stride, ..job.outputs };
            Job { outputs, ..job }.end((self.first_tile + i, rows.clone()), strips, Some(registers));
        }
    }

    /// Prefetches the outputs of some rows of a tile.
    #[inline(always)]
    fn ask_outputs<S: Isa>(&self, s: S, tile: Range<usize>, rows: Range<usize>) {
        for row in tile.skip(rows.start).take(rows.len()) {
            for strip in self.piece.strips.clone() {
                s.prefetch_write(self.part.job.outputs.at(row, strip).cast());
            }
        }
    }

    /// Loads the sums from the outputs, or sets them to zero at the beginning of k.
    ///
    /// # Safety
    /// `sums` holds a block, of rows and strips that exist.
    #[inline(always)]
    unsafe fn take<S: Isa>(&self, s: S, sums: *mut f32) {
        let job = self.part.job;
        for (i, rows) in self.rows[..self.tiles].iter().enumerate() {
            for (r, row) in rows.clone().enumerate() {
                for c in 0..STRIPS {
                    let strip = self.piece.strips.start + c;
                    let resume = self.piece.k.start > 0 && strip < self.piece.strips.end;
                    // SAFETY: by contract; strips that do not exist are summed too, and their sums left.
                    unsafe {
                        let sum = if resume { s.load(job.outputs.at(row, strip)) } else { s.splat(0.0) };
                        s.store(sums.add(((i * TILE_ROWS + r) * STRIPS + c) * LANES), sum);
                    }
                }
            }
        }
    }

    /// Stores the sums to the outputs.
    ///
    /// # Safety
    /// As [`Block::take`].
    #[inline(always)]
    unsafe fn give<S: Isa>(&self, s: S, sums: *const f32) {
        let job = self.part.job;
        for (i, rows) in self.rows[..self.tiles].iter().enumerate() {
            for (r, row) in rows.clone().enumerate() {
                for (c, strip) in self.piece.strips.clone().enumerate() {
                    // SAFETY: by contract.
                    unsafe {
                        let sum = s.load(sums.add(((i * TILE_ROWS + r) * STRIPS + c) * LANES));
                        s.store(job.outputs.at(row, strip), sum);
                    }
                }
            }
        }
    }

    /// [`Block::scale`], but only of strips that exist.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn scale_some<S: Isa>(&self, s: S, sums: *mut f32, products: *const i32, product: Product) {
        // SAFETY: by contract.
        unsafe {
            if self.piece.strips.len() > product.pair * PAIR + 1 {
                self.scale::<S, PAIR>(s, sums, products, product);
            } else {
                self.scale::<S, 1>(s, sums, products, product);
            }
        }
    }

    /// `sums = fma(f32(products), w * x, sums)`: scales the integers of the first `C` strips of a product and adds them to the f32
    /// sums.
    ///
    /// # Safety
    /// `products` holds the product's sums, `sums` those of the block.
    #[inline(always)]
    unsafe fn scale<S: Isa, const C: usize>(
        &self,
        s: S,
        sums: *mut f32,
        products: *const i32,
        product: Product,
    ) {
        let Places { scales, rows, .. } = self.places[product.tile];
        let first = self.piece.strips.start + product.pair * PAIR;
        let second = (first + 1).min(self.piece.strips.end - 1);
        let group = product.k / self.part.job.summed_k;
        // SAFETY: these strips exist and so do their scales; places by contract.
        unsafe {
            let w = [self.part.weight_scale(s, first, group), self.part.weight_scale(s, second, group)];
            let x = self.part.job.inputs.as_ptr().add(scales + product.k / INPUT_GROUP * rows).cast::<f32>();
            let sums = sums.add((product.tile * TILE_ROWS * STRIPS + product.pair * PAIR) * LANES);
            for r in 0..self.rows[product.tile].len() {
                let x = s.splat(*x.add(r));
                for c in 0..C {
                    let product = s.to_float(s.load_words(products.add((r * PAIR + c) * LANES).cast()));
                    let sum = sums.add((r * STRIPS + c) * LANES);
                    s.store(sum, s.fma(product, s.mul(w[c], x), s.load(sum)));
                }
            }
        }
    }
}
