//! The integer register tile: `R` rows times one strip of sixteen outputs.
//!
//! Order per output: for every group of k, ascending, `I` is the exact integer sum of the products; then
//! `acc = fma(f32(I), s_w * s_x, acc)`, where the product of the scales is rounded first. The order does not depend on the number
//! of rows, so decode, small batches and prefill give the same bits.

use redline_simd::{Isa, LANES};

use crate::format::{BLOCK, INPUT_GROUP, Integer};

/// Tiles of few rows are bound by memory: they prefetch the weights this many bytes ahead, if the hardware does not.
pub(crate) const FEW_ROWS_AHEAD: usize = 3072;
/// Tiles of more rows overlap computation with two prefetches: this many words ahead into the second-level cache, and then some
/// bytes ahead from there into the first, which can track only a few lines that come from memory.
pub(crate) const FAR_WORDS: usize = 2048;
pub(crate) const NEAR_BYTES: usize = 512;
/// Number of input words per row and block.
pub(crate) const INPUT_WORDS: usize = BLOCK / 4;

/// The scales of a strip.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// f16, `[groups][16]`.
    Group(*const u16),
    /// bf16, `[groups][16]`.
    Power(*const u16),
    /// f32, `[16]`.
    Output(*const f32),
}

/// The memory that a tile reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct DotArgs {
    /// The strip's words.
    pub(crate) w: *const u32,
    /// The strip's scales.
    pub(crate) scales: Scale,
    /// Blocks of k.
    pub(crate) blocks: usize,
    /// Words between the end of these blocks and the weights that are needed next.
    pub(crate) skip: usize,
    /// Whether a tile of few rows prefetches its weights.
    pub(crate) ask: bool,
    /// Number of blocks that are summed as integers before scaling.
    pub(crate) group_blocks: usize,
    /// The tile's inputs, `[k/4][R]` words of four bytes.
    pub(crate) x: *const u32,
    /// Their scales, `[k/128][R]`.
    pub(crate) x_scales: *const f32,
    /// Initial values of the sums, `[groups][R]`: they cancel the offset of the weights.
    pub(crate) starts: *const i32,
    /// The strip's f16 minima, `[groups][16]`, and the scaled sums of the inputs, `[groups][R]`; read only with minima.
    pub(crate) minima: *const u16,
    pub(crate) x_sums: *const f32,
    /// First output of the first row.
    pub(crate) y: *mut f32,
    /// Outputs between rows.
    pub(crate) y_stride: usize,
    /// Continue from the sums in `y` (exact: they were stored as f32) instead of from zero.
    pub(crate) resume: bool,
}

/// Runs a tile of `R` rows.
///
/// # Safety
/// `R <= S::DOT_ROWS`; the pointers of `a` are valid for `R` rows over `a.blocks` blocks, and no other thread touches
/// the outputs.
#[inline(always)]
pub(crate) unsafe fn dot_tile<S: Isa, I: Integer, const R: usize>(s: S, a: DotArgs) {
    // SAFETY: by contract.
    unsafe {
        match (S::DOT_CHAINS, R) {
            (1, _) | (_, 5..) => tile::<S, I, R, 1>(s, a),
            (_, 1) => tile::<S, I, R, 4>(s, a),
            _ if 2 * R > S::DOT_ROWS => tile::<S, I, R, 1>(s, a),
            _ => tile::<S, I, R, 2>(s, a),
        }
    }
}

/// # Safety
/// As [`dot_tile`]; `C` chains of integers per output.
#[inline(always)]
unsafe fn tile<S: Isa, I: Integer, const R: usize, const C: usize>(s: S, a: DotArgs) {
    // SAFETY: every address lies within the rows and blocks that the contract names; a prefetch may name any.
    unsafe {
        let mut sums = [s.splat(0.0); R];
        if a.resume {
            for r in 0..R {
                sums[r] = s.load(a.y.add(r * a.y_stride));
            }
        }
        let (mut w, mut x) = (a.w, a.x);
        let (mut block, mut group) = (0, 0);
        while block < a.blocks {
            let mut acc = [[s.splat_word(0); R]; C];
            for r in 0..R {
                acc[0][r] = s.splat_word(*a.starts.add(group * R + r) as u32);
            }
            let blocks = a.group_blocks.min(a.blocks - block);
            for i in 0..blocks {
                if R >= I::FAR_ROWS {
                    let within = (a.blocks - block - i) * I::BLOCK_WORDS > FAR_WORDS;
                    let far = w.wrapping_add(FAR_WORDS + if within { 0 } else { a.skip });
                    for line in 0..I::BLOCK_WORDS / LANES {
                        s.prefetch_far(far.wrapping_add(line * LANES).cast());
                        s.prefetch(w.wrapping_add(line * LANES).cast::<u8>().wrapping_add(NEAR_BYTES));
                    }
                } else if a.ask {
                    for line in 0..I::BLOCK_WORDS / LANES {
                        s.prefetch(w.wrapping_add(line * LANES).cast::<u8>().wrapping_add(FEW_ROWS_AHEAD));
                    }
                }
                I::dot::<S, R, C>(s, &mut acc, w, x);
                w = w.add(I::BLOCK_WORDS);
                x = x.add(INPUT_WORDS * R);
            }
            let scale = match a.scales {
                Scale::Group(scales) => s.load_f16(scales.add(group * LANES)),
                Scale::Power(scales) => s.load_bf16(scales.add(group * LANES)),
                Scale::Output(scales) => s.load(scales),
            };
            let x_scales = a.x_scales.add(block / (INPUT_GROUP / BLOCK) * R);
            for r in 0..R {
                let mut sum = acc[0][r];
                for c in 1..C {
                    sum = s.add_words(sum, acc[c][r]);
                }
                let scale = s.mul(scale, s.splat(*x_scales.add(r)));
                sums[r] = s.fma(s.to_float(sum), scale, sums[r]);
            }
            if I::MINIMA {
                let minima = s.load_f16(a.minima.add(group * LANES));
                for r in 0..R {
                    sums[r] = s.fma(minima, s.splat(*a.x_sums.add(group * R + r)), sums[r]);
                }
            }
            block += blocks;
            group += 1;
        }
        for r in 0..R {
            s.store(a.y.add(r * a.y_stride), sums[r]);
        }
    }
}
