//! The register tile of weights with integer scales: `R` rows times one strip of sixteen outputs.
//!
//! Order per output: for every 128 k, ascending, `I` is the exact integer sum over the sub-groups of the scale times the sum of the
//! products; `acc = fma(f32(I), d * s_x, acc)`, where the product of the scales is rounded first. With minima, `M` is the exact
//! integer sum over the sub-groups of the minimum times the sum of the inputs; `acc = fma(f32(M), -dmin * s_x, acc)` follows.

use redline_simd::{Isa, LANES};

use crate::dot::{FAR_WORDS, FEW_ROWS_AHEAD, NEAR_BYTES};
use crate::format::{INPUT_GROUP, SUPER_BLOCK, SubScaled};

/// Scales and minima are prefetched for so many words of sub-groups ahead. They are read a line at a time beside kilobytes of weights,
/// and a product that waits for one from memory would hold up those that follow.
const QUADS_AHEAD: usize = 8;

/// The memory that a tile reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct SubDotArgs {
    /// The strip's words.
    pub(crate) w: *const u32,
    /// The strip's factors `d` and `dmin`, `[k/256][16]` f16; `dmin` is null without minima.
    pub(crate) d: *const u16,
    pub(crate) dmin: *const u16,
    /// The strip's scales and minima of sub-groups, words of four bytes, `[sub-groups/4][16]`.
    pub(crate) scales: *const u32,
    pub(crate) minima: *const u32,
    /// Groups of 128 k, of all k: the first of the part that is computed, and their number.
    pub(crate) first: usize,
    pub(crate) groups: usize,
    /// Words between the end of these groups and the weights that are needed next.
    pub(crate) skip: usize,
    /// Whether a tile of few rows prefetches its weights.
    pub(crate) ask: bool,
    /// The tile's inputs, `[k/4][R]` words of four bytes, from the first group on, as everything below.
    pub(crate) x: *const u32,
    /// Their scales, `[k/128][R]`.
    pub(crate) x_scales: *const f32,
    /// Initial values of the sums of sub-groups, `[sub-groups][R]`: they cancel the offset of the weights.
    pub(crate) starts: *const u32,
    /// Pairs of sums of the inputs, `[sub-groups/4][2][R]`.
    pub(crate) x_sums: *const u32,
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
/// `R <= S::DOT_ROWS`; the pointers of `a` are valid for `R` rows over `a.groups` groups, and no other thread touches the outputs.
#[inline(always)]
pub(crate) unsafe fn sub_dot_tile<S: Isa, I: SubScaled, const R: usize>(s: S, a: SubDotArgs) {
    let quads = INPUT_GROUP / (4 * I::SUB);
    // SAFETY: every address lies within the rows and groups that the contract names; a prefetch may name any.
    unsafe {
        let mut sums = [s.splat(0.0); R];
        if a.resume {
            for r in 0..R {
                sums[r] = s.load(a.y.add(r * a.y_stride));
            }
        }
        let mut at = At { w: a.w, x: a.x, starts: a.starts };
        for group in 0..a.groups {
            let left = (a.groups - group) * (INPUT_GROUP / I::SUB) * I::SUB_WORDS;
            let skip = if left > FAR_WORDS { 0 } else { a.skip };
            let mut total = [s.splat_word(0); R];
            for quad in (a.first + group) * quads..(a.first + group + 1) * quads {
                let scales = s.load_words(a.scales.add(quad * LANES));
                s.prefetch(a.scales.wrapping_add((quad + QUADS_AHEAD) * LANES).cast());
                if !a.dmin.is_null() {
                    s.prefetch(a.minima.wrapping_add((quad + QUADS_AHEAD) * LANES).cast());
                }
                at.add::<S, I, R>(s, &mut total, s.signed_byte::<0>(scales), a.ask, skip);
                at.add::<S, I, R>(s, &mut total, s.signed_byte::<1>(scales), a.ask, skip);
                at.add::<S, I, R>(s, &mut total, s.signed_byte::<2>(scales), a.ask, skip);
                at.add::<S, I, R>(s, &mut total, s.signed_byte::<3>(scales), a.ask, skip);
            }
            let super_block = (a.first + group) / (SUPER_BLOCK / INPUT_GROUP);
            let d = s.load_f16(a.d.add(super_block * LANES));
            s.prefetch(a.d.wrapping_add((super_block + QUADS_AHEAD / 2) * LANES).cast());
            let x_scales = a.x_scales.add(group * R);
            for r in 0..R {
                let scale = s.mul(d, s.splat(*x_scales.add(r)));
                sums[r] = s.fma(s.to_float(total[r]), scale, sums[r]);
            }
            if a.dmin.is_null() {
                continue;
            }
            let mut total = [s.splat_word(0); R];
            for quad in 0..quads {
                let minima = s.load_words(a.minima.add(((a.first + group) * quads + quad) * LANES));
                let bytes = s.splat_word(0x00ff_00ff);
                let even = s.and_words(minima, bytes);
                let odd = s.and_words(s.shift_words_4(s.shift_words_4(minima)), bytes);
                let pairs = a.x_sums.add((group * quads + quad) * 2 * R);
                for r in 0..R {
                    total[r] = s.add_pairs(total[r], even, s.splat_word(*pairs.add(r)));
                    total[r] = s.add_pairs(total[r], odd, s.splat_word(*pairs.add(R + r)));
                }
            }
            let dmin = s.neg(s.load_f16(a.dmin.add(super_block * LANES)));
            s.prefetch(a.dmin.wrapping_add((super_block + QUADS_AHEAD / 2) * LANES).cast());
            for r in 0..R {
                let scale = s.mul(dmin, s.splat(*x_scales.add(r)));
                sums[r] = s.fma(s.to_float(total[r]), scale, sums[r]);
            }
        }
        for r in 0..R {
            s.store(a.y.add(r * a.y_stride), sums[r]);
        }
    }
}

/// The next sub-group.
struct At {
    w: *const u32,
    x: *const u32,
    starts: *const u32,
}

impl At {
    /// Adds the products of the next sub-group times their scale to the sums.
    ///
    /// # Safety
    /// The sub-group exists.
    #[inline(always)]
    unsafe fn add<S: Isa, I: SubScaled, const R: usize>(
        &mut self,
        s: S,
        total: &mut [S::W; R],
        scale: S::W,
        ask: bool,
        skip: usize,
    ) {
        // SAFETY: by contract; a prefetch may name any address.
        unsafe {
            if R >= I::FAR_ROWS {
                let far = self.w.wrapping_add(FAR_WORDS + skip);
                for line in 0..I::SUB_WORDS / LANES {
                    s.prefetch_far(far.wrapping_add(line * LANES).cast());
                    s.prefetch(self.w.wrapping_add(line * LANES).cast::<u8>().wrapping_add(NEAR_BYTES));
                }
            } else if ask {
                for line in 0..I::SUB_WORDS / LANES {
                    s.prefetch(self.w.wrapping_add(line * LANES).cast::<u8>().wrapping_add(FEW_ROWS_AHEAD));
                }
            }
            let mut acc = [s.splat_word(0); R];
            for r in 0..R {
                acc[r] = s.splat_word(*self.starts.add(r));
            }
            I::dot::<S, R>(s, &mut acc, self.w, self.x);
            for r in 0..R {
                total[r] = s.add_words(total[r], s.mul_words(acc[r], scale));
            }
            self.w = self.w.add(I::SUB_WORDS);
            self.x = self.x.add(I::SUB / 4 * R);
            self.starts = self.starts.add(R);
        }
    }
}
