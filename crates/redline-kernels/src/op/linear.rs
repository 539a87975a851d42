//! `y = x W^T (+ bias) (activation)`, one row or many.
//!
//! Order per output: `acc = 0; for k ascending: acc = fma(w, x, acc)`; then `+ bias`; then the activation; one rounding
//! each. With bf16 weights the inputs are rounded to bf16 first, in all regimes. Sums that leave the registers
//! between blocks of k are stored as f32, which is exact; threads own strips of outputs; so rows, blocks, tiles and
//! threads never show in a result.

use redline_simd::{Isa, Kernel, LANES};

use super::activation::{Activation, apply};
use crate::format::bf16::{self, Bf16Mac};
use crate::format::float32::F32Mac;
use crate::format::{Format, Mac, Matrix};
use crate::threads::Disjoint;
use crate::tile::{GROUP_STRIPS, TileArgs, tile_count, tile_rows, tiles};
use crate::{Exec, Rows, RowsMut};

/// Steps of k that a group of strips keeps in the second-level cache while all rows pass over it.
const BLOCK_STEPS: usize = 256;
/// From this many rows on, threads take whole groups of strips.
const GROUPED_ROWS: usize = 8;

/// What happens to an output after its sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row; at least as many values as the strips have outputs (a multiple of 16).
    pub bias: Option<&'a [f32]>,
    /// Applied last.
    pub activation: Activation,
}

/// Words of scratch that [`linear`] needs for `rows` rows of `k` inputs.
pub fn scratch_words(format: Format, rows: usize, k: usize) -> usize {
    match format {
        Format::F32 => 0,
        Format::Bf16 => rows * format.steps(k),
    }
}

/// `y[r] = epilogue(W x[r])`. Rows of `y` are written up to the next multiple of 16 outputs, so `y.stride` must
/// hold that many. `scratch` holds at least [`scratch_words`] words.
pub fn linear(
    exec: Exec<'_>,
    w: &Matrix,
    x: Rows<'_>,
    y: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
    scratch: &mut [u32],
) {
    let padded = w.strips() * LANES;
    assert_eq!(x.width, w.cols(), "inputs per row");
    assert_eq!(x.rows, y.rows, "rows");
    assert!(
        y.rows == 0 || (y.rows - 1) * y.stride + padded <= y.data.len(),
        "outputs need {padded} values a row"
    );
    assert!(y.stride >= padded || y.rows <= 1, "stride {} holds {padded} outputs", y.stride);
    assert!(epilogue.bias.is_none_or(|b| b.len() >= padded), "a bias of {padded} values");
    let (inputs, x_stride) = match w.format() {
        Format::F32 => (x.data.as_ptr().cast::<u32>(), x.stride),
        Format::Bf16 => {
            bf16::pack_inputs(exec, x, scratch);
            (scratch.as_ptr(), w.steps())
        }
    };
    let job = Job {
        format: w.format(),
        w: w.words().as_ptr(),
        steps: w.steps(),
        x: inputs,
        x_stride,
        rows: x.rows,
        y: Disjoint::new(y.data),
        y_stride: y.stride,
        epilogue,
    };
    let shared = SharedJob(job);
    let unit = if x.rows >= GROUPED_ROWS { GROUP_STRIPS } else { 1 };
    exec.team.split(w.strips(), unit, 2, |strips| exec.simd.run(Part { job: shared.get(), strips }));
}

#[derive(Clone, Copy)]
struct Job<'a> {
    format: Format,
    w: *const u32,
    steps: usize,
    x: *const u32,
    x_stride: usize,
    rows: usize,
    y: Disjoint<f32>,
    y_stride: usize,
    epilogue: Epilogue<'a>,
}

struct SharedJob<'a>(Job<'a>);

// SAFETY: weights and inputs are only read; outputs are written by strips, each owned by one member.
unsafe impl Sync for SharedJob<'_> {}

impl<'a> SharedJob<'a> {
    fn get(&self) -> Job<'a> {
        self.0
    }
}

struct Part<'a> {
    job: Job<'a>,
    strips: std::ops::Range<usize>,
}

impl Kernel for Part<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.job.format {
            Format::F32 => self.run_format::<S, F32Mac>(s),
            Format::Bf16 => self.run_format::<S, Bf16Mac>(s),
        }
    }
}

impl Part<'_> {
    #[inline(always)]
    fn run_format<S: Isa, M: Mac>(self, s: S) {
        let job = self.job;
        let tiles_of_rows = tile_count(job.rows);
        let block = if tiles_of_rows > 1 { BLOCK_STEPS } else { job.steps.max(1) };
        let mut strip = self.strips.start;
        while strip < self.strips.end {
            let group = (self.strips.end - strip).min(GROUP_STRIPS);
            // SAFETY: `linear` checked that inputs, weights and outputs hold these rows, steps and strips.
            unsafe {
                for start in (0..job.steps).step_by(block) {
                    for t in 0..tiles_of_rows {
                        let rows = tile_rows(job.rows, t);
                        let args = TileArgs {
                            w: job.w.add((strip * job.steps + start) * M::WORDS),
                            w_stride: job.steps * M::WORDS,
                            steps: block.min(job.steps - start),
                            x: job.x.add(rows.start * job.x_stride + start),
                            x_stride: job.x_stride,
                            y: job.y.get().add(rows.start * job.y_stride + strip * LANES),
                            y_stride: job.y_stride,
                            resume: start > 0,
                        };
                        tiles::<S, M>(s, args, rows.len(), group);
                    }
                }
                job.finish(s, strip, group);
            }
            strip += group;
        }
    }
}

impl Job<'_> {
    /// Bias and activation of `count` strips, all rows.
    ///
    /// # Safety
    /// The strips belong to the calling member.
    #[inline(always)]
    unsafe fn finish<S: Isa>(&self, s: S, strip: usize, count: usize) {
        if self.epilogue.bias.is_none() && self.epilogue.activation == Activation::None {
            return;
        }
        for r in 0..self.rows {
            for c in strip..strip + count {
                // SAFETY: output `c` of row `r` lies within `y`; the bias holds every strip.
                unsafe {
                    let at = self.y.get().add(r * self.y_stride + c * LANES);
                    let mut v = s.load(at);
                    if let Some(bias) = self.epilogue.bias {
                        v = s.add(v, s.load(bias.as_ptr().add(c * LANES)));
                    }
                    s.store(at, apply(s, self.epilogue.activation, v));
                }
            }
        }
    }
}
