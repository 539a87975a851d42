//! The register tile: `R` rows times `C` strips of sixteen outputs, k strictly ascending per output.
//!
//! Linear layers, query-key products and probability-value products all use it. A strip is `[steps][16 outputs]`, with one or
//! two k per step, so a step of one strip is one vector load.

use redline_simd::{Isa, LANES};

use crate::format::Mac;

/// Maximum number of rows in a tile.
pub(crate) const TILE_ROWS: usize = 6;
/// Number of strips that a group of tiles processes together.
pub(crate) const GROUP_STRIPS: usize = 4;

/// The memory that a tile reads and writes. Distances are in elements of the pointer's type.
#[derive(Clone, Copy)]
pub(crate) struct TileArgs {
    /// First word of the first strip at the first step.
    pub(crate) w: *const u32,
    /// Words between strips.
    pub(crate) w_stride: usize,
    /// Steps to run.
    pub(crate) steps: usize,
    /// First row's input word at the first step; one word per step.
    pub(crate) x: *const u32,
    /// Words between rows of inputs.
    pub(crate) x_stride: usize,
    /// First output of the first row.
    pub(crate) y: *mut f32,
    /// Outputs between rows.
    pub(crate) y_stride: usize,
    /// Continue from the sums in `y` (exact: they were stored as f32) instead of from zero.
    pub(crate) resume: bool,
    /// Weights that are needed later: each step prefetches one line of each.
    pub(crate) later: Option<[*const u32; 2]>,
}

/// `y[r][c] (+)= sum over steps of w[c] * x[r]`.
///
/// # Safety
/// `rows <= TILE_ROWS`; the pointers of `a` are valid for `rows` rows and `strips` strips over `a.steps` steps, and
/// no other thread touches the outputs.
#[inline(always)]
pub(crate) unsafe fn tiles<S: Isa, M: Mac>(s: S, a: TileArgs, rows: usize, strips: usize) {
    if S::TILE_STRIPS == GROUP_STRIPS {
        let mut done = 0;
        while done < strips {
            let c = (strips - done).min(GROUP_STRIPS);
            // SAFETY: strips `done..done + c` lie within the caller's.
            unsafe {
                let a = a.at_strip(done);
                match c {
                    4 => by_rows::<S, M, 4>(s, a, rows),
                    3 => by_rows::<S, M, 3>(s, a, rows),
                    2 => by_rows::<S, M, 2>(s, a, rows),
                    _ => by_rows::<S, M, 1>(s, a, rows),
                }
            }
            done += c;
        }
    } else {
        for c in 0..strips {
            // SAFETY: strip `c` lies within the caller's.
            unsafe { by_rows::<S, M, 1>(s, a.at_strip(c), rows) }
        }
    }
}

impl TileArgs {
    /// # Safety
    /// Strip `c` exists.
    #[inline(always)]
    unsafe fn at_strip(self, c: usize) -> Self {
        // SAFETY: by contract.
        unsafe { Self { w: self.w.add(c * self.w_stride), y: self.y.add(c * LANES), ..self } }
    }
}

/// # Safety
/// As [`tiles`], with `C` strips.
#[inline(always)]
unsafe fn by_rows<S: Isa, M: Mac, const C: usize>(s: S, a: TileArgs, rows: usize) {
    // SAFETY: by contract.
    unsafe {
        match rows {
            1 => tile::<S, M, 1, C>(s, a),
            2 => tile::<S, M, 2, C>(s, a),
            3 => tile::<S, M, 3, C>(s, a),
            4 => tile::<S, M, 4, C>(s, a),
            5 => tile::<S, M, 5, C>(s, a),
            6 => tile::<S, M, 6, C>(s, a),
            0 => {}
            _ => unreachable!("a tile has at most {TILE_ROWS} rows, not {rows}"),
        }
    }
}

/// # Safety
/// As [`tiles`], with `R` rows and `C` strips.
#[inline(always)]
unsafe fn tile<S: Isa, M: Mac, const R: usize, const C: usize>(s: S, a: TileArgs) {
    // SAFETY: every address lies within the rows, strips and steps that the contract names.
    unsafe {
        let mut acc = [[s.splat(0.0); C]; R];
        if a.resume {
            for r in 0..R {
                for c in 0..C {
                    acc[r][c] = s.load(a.y.add(r * a.y_stride + c * LANES));
                }
            }
        }
        for i in 0..a.steps {
            if let Some(later) = a.later {
                for lines in later {
                    s.prefetch_far(lines.wrapping_add(i * LANES).cast());
                }
            }
            let mut w = [M::weight(s, a.w.add(i * M::WORDS)); C];
            for c in 1..C {
                w[c] = M::weight(s, a.w.add(c * a.w_stride + i * M::WORDS));
            }
            for r in 0..R {
                let x = M::input(s, *a.x.add(r * a.x_stride + i));
                for c in 0..C {
                    acc[r][c] = M::mac(s, acc[r][c], w[c], x);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                s.store(a.y.add(r * a.y_stride + c * LANES), acc[r][c]);
            }
        }
    }
}

/// Rows of tile `t` if `rows` rows are cut into tiles of almost equal size, at most [`TILE_ROWS`] each.
pub(crate) fn tile_rows(rows: usize, t: usize) -> std::ops::Range<usize> {
    let tiles = tile_count(rows);
    rows * t / tiles..rows * (t + 1) / tiles
}

/// Number of tiles that `rows` rows are cut into.
pub(crate) fn tile_count(rows: usize) -> usize {
    rows.div_ceil(TILE_ROWS)
}
