//! `y = x W^T (+ bias) (activation)`, one row or many.
//!
//! Order per output, float formats: `acc = 0; for k ascending: acc = fma(w, x, acc)`; with bf16 weights, the inputs are rounded
//! to bf16 first, for any number of rows. For integer formats, see `dot.rs`, `sub_dot.rs` and `op/quantise.rs`; then the bf16 products of
//! outlier columns are added to the same sum, ascending. Low-rank updates of a row follow (`lora.rs`). Last `+ bias`, then the
//! activation, with one rounding each. Threads
//! own strips of outputs, and sums that leave the registers are stored as f32, which is exact. So rows, blocks, tiles and
//! threads never affect a result.

mod floats;
mod integers;
mod lora;
mod variant;

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd};

pub use self::integers::grouped::{LayerRows, MAX_LAYERS, can_group, grouped_scratch_words, linear_grouped};
pub use self::lora::{Lora, LoraPart, LoraRows, MAX_PARTS, lora_scratch_words};
pub use self::variant::Variant;
use super::activation::{ActivationFunction, apply};
use crate::matrix::MatrixShape;
use crate::threads::Disjoint;
use crate::{Arithmetic, Exec, Matrix, Rows, RowsMut};

/// Operations on an output after its sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Low-rank updates of rows, in the order of the rows. Several updates of the same rows follow each other.
    pub loras: &'a [LoraRows<'a>],
    /// Added to every row; has at least as many values as the strips have outputs (a multiple of 16).
    pub bias: Option<&'a [f32]>,
    /// Applied last.
    pub activation: ActivationFunction,
}

/// Number of scratch words that [`linear`] needs for `rows` rows of inputs to a matrix of this shape.
pub fn scratch_words(shape: MatrixShape, rows: usize) -> usize {
    match shape.format.arithmetic() {
        Arithmetic::F32 => 0,
        Arithmetic::Bf16 => rows * shape.format.steps(shape.cols),
        Arithmetic::Int8 => integers::scratch_words(shape, rows),
    }
}

/// `y[r] = epilogue(W x[r])`. Rows of `y` are written up to the next multiple of 16 outputs, so `y.stride` must hold that many.
/// `scratch` must hold at least [`scratch_words`] words, and [`lora_scratch_words`] more for updates. Features of `variant` that the
/// tier or format lacks are ignored.
pub fn linear(
    exec: Exec<'_>,
    w: &Matrix,
    x: Rows<'_>,
    y: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
    variant: Variant,
    scratch: &mut [u32],
) {
    assert_eq!(x.rows, y.rows, "rows");
    check(w, x, y, epilogue.bias);
    assert!(scratch.len() >= scratch_words(w.shape(), x.rows), "scratch of {} words", scratch.len());
    if x.rows == 0 {
        return;
    }
    let loras = epilogue.loras;
    lora::check(loras, w, x.rows);
    let outputs = Outputs { y: Disjoint::new(y.data), stride: y.stride, epilogue };
    if w.format().is_integer() {
        integers::run(exec, w, x, outputs, loras, variant, scratch);
    } else {
        floats::run(exec, w, x, outputs, loras, variant, scratch);
    }
}

/// Panics unless rows of `x` are inputs of a layer with these weights, and `y` and the bias hold whole strips.
fn check(w: &Matrix, x: Rows<'_>, y: &RowsMut<'_>, bias: Option<&[f32]>) {
    let padded = w.strips() * LANES;
    assert!(x.width == w.cols() && x.width > 0, "{} inputs per row for {}", x.width, w.cols());
    assert!(
        y.rows == 0 || (y.rows - 1) * y.stride + padded <= y.data.len(),
        "outputs need {padded} values a row"
    );
    assert!(y.stride >= padded || y.rows <= 1, "stride {} holds {padded} outputs", y.stride);
    assert!(bias.is_none_or(|b| b.len() >= padded), "a bias of {padded} values");
}

/// The destination of results.
#[derive(Clone, Copy)]
struct Outputs<'a> {
    y: Disjoint<f32>,
    stride: usize,
    epilogue: Epilogue<'a>,
}

impl Outputs<'_> {
    /// Address of the first output of strip `strip` in row `row`, if these exist. They may be counted from a place before the first
    /// output that does.
    #[inline(always)]
    fn at(&self, row: usize, strip: usize) -> *mut f32 {
        self.y.get().wrapping_add(row * self.stride + strip * LANES)
    }

    /// Whether there is a bias or an activation.
    fn has_epilogue(&self) -> bool {
        self.epilogue.bias.is_some() || self.epilogue.activation != ActivationFunction::None
    }

    /// Applies bias and activation to some strips of some rows, which belong to the calling member.
    fn finish(self, simd: Simd, rows: Range<usize>, strips: Range<usize>) {
        if self.has_epilogue() {
            self.finish_from(&self, simd, rows, strips);
        }
    }

    /// Stores `sums` of some strips of some rows with bias and activation.
    fn finish_from(self, sums: &Self, simd: Simd, rows: Range<usize>, strips: Range<usize>) {
        simd.run(Finish { sums, outputs: self, rows, strips });
    }
}

/// Bias and activation of some strips of some rows. A kernel of its own, so that tiles do not hold a copy of every activation.
struct Finish<'a> {
    sums: &'a Outputs<'a>,
    outputs: Outputs<'a>,
    rows: Range<usize>,
    strips: Range<usize>,
}

impl Kernel for Finish<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { sums, outputs, rows, strips } = self;
        for r in rows {
            for c in strips.clone() {
                // SAFETY: output `c` of row `r` lies within `y` of both, in a strip of this member; the bias holds every strip.
                unsafe {
                    let mut v = s.load(sums.at(r, c));
                    if let Some(bias) = outputs.epilogue.bias {
                        v = s.add(v, s.load(bias.as_ptr().add(c * LANES)));
                    }
                    s.store(outputs.at(r, c), apply(s, outputs.epilogue.activation, v));
                }
            }
        }
    }
}
