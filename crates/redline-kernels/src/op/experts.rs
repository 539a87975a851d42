//! Mixture of experts: the experts of each row, and the weighted sum of what they return.
//!
//! [`choose`]: the chosen experts are the first by (score descending, id ascending); a NaN is above every number, so that it shows in
//! the result. [`Weighting`] says what scores and weights are; sums are one chain by ascending id.
//! [`gate`]: the weight `1 / (1 + exp(-x))` for every row.
//! [`add_weighted`]: `out[row] = fma(y, weight, out[row])`. With the choices by ascending expert, the sum of a row
//! does not depend on other rows.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ops::{Deref, Range};

use redline_simd::{Isa, Kernel, LANES, Simd};

use super::exp::{ExpInPlace, exp};
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// A row that goes to an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Id of the expert.
    pub expert: u32,
    /// Index of the row.
    pub row: u32,
    /// Factor on what the expert returns.
    pub weight: f32,
}

/// How the logits of a row choose and weigh experts. `C` holds values of experts, `[experts]`: a slice, a buffer, or the description of a
/// tensor.
#[derive(Clone, Copy, Debug)]
pub enum Weighting<C> {
    /// Scores are logits. With m the largest of them, a weight is `exp(logit - m) / sum`; the sum goes over the chosen experts if
    /// `normalise`, else over all.
    Softmax {
        /// Whether the weights of a row sum to 1.
        normalise: bool,
        /// A factor on the weight of each expert, after the division.
        factors: Option<C>,
    },
    /// With s = `1 / (1 + exp(-logit))`, a score is `s + correction[expert]`, and a weight is `scale * s`, or `scale * (s / (sum +
    /// epsilon))` with the sum of the chosen experts.
    Sigmoid {
        /// Added to the scores that choose experts, not to their weights: `[experts]` (DeepSeek-V3, 2024).
        correction: Option<C>,
        /// If set, weights are divided by their sum plus this.
        epsilon: Option<f32>,
        /// Factor on weights.
        scale: f32,
    },
}

impl<C> Weighting<C> {
    /// The same with other values.
    ///
    /// # Errors
    /// That of `to`.
    pub fn map<'a, D, E>(&'a self, to: impl FnOnce(&'a C) -> Result<D, E>) -> Result<Weighting<D>, E> {
        Ok(match *self {
            Self::Softmax { normalise, ref factors } => {
                Weighting::Softmax { normalise, factors: factors.as_ref().map(to).transpose()? }
            }
            Self::Sigmoid { ref correction, epsilon, scale } => {
                Weighting::Sigmoid { correction: correction.as_ref().map(to).transpose()?, epsilon, scale }
            }
        })
    }

    /// The same with borrowed values.
    pub fn borrowed(&self) -> Weighting<&[f32]>
    where
        C: Deref<Target = [f32]>,
    {
        let Ok(borrowed) = self.map(|values| Ok::<_, Infallible>(&**values));
        borrowed
    }
}

/// Writes the `top` experts of row r of `logits`, `[rows, experts]`, to `choices[r * top..][..top]`, by ascending id. The logits are
/// overwritten.
pub fn choose(
    exec: Exec<'_>,
    logits: &mut RowsMut<'_>,
    top: usize,
    weighting: Weighting<&[f32]>,
    choices: &mut [Choice],
) {
    let (rows, width, stride) = (logits.rows, logits.width, logits.stride);
    let (Weighting::Softmax { factors: of_experts, .. } | Weighting::Sigmoid { correction: of_experts, .. }) =
        weighting;
    if let Some(values) = of_experts {
        assert!(values.len() == width, "{} values for {width} experts", values.len());
    }
    assert!((1..=width).contains(&top), "{top} of {width} experts");
    assert!(choices.len() >= rows * top, "{} choices for {rows} rows of {top}", choices.len());
    let (from, to) = (Disjoint::new(logits.data), Disjoint::new(choices));
    exec.team.split(rows, 1, 16, |rows| {
        for r in rows {
            // SAFETY: the logits and the choices of a row are accessed by the one member that owns the row.
            let (logits, choices) = unsafe {
                (
                    std::slice::from_raw_parts_mut(from.get().add(r * stride), width),
                    std::slice::from_raw_parts_mut(to.get().add(r * top), top),
                )
            };
            choose_of_row(exec.simd, r as u32, logits, weighting, choices);
        }
    });
}

fn choose_of_row(
    simd: Simd,
    row: u32,
    logits: &mut [f32],
    weighting: Weighting<&[f32]>,
    choices: &mut [Choice],
) {
    let mut correction = None;
    if let Weighting::Sigmoid { correction: given, .. } = weighting {
        simd.run(Sigmoid(logits));
        correction = given;
    }
    for (expert, &logit) in logits.iter().enumerate() {
        let score = correction.map_or(logit, |values| logit + values[expert]);
        let choice = Choice { expert: expert as u32, row, weight: score };
        let chosen = choices.len().min(expert);
        let at = choices[..chosen].partition_point(|other| !above(score, other.weight));
        if at < choices.len() {
            let end = choices.len().min(chosen + 1);
            choices[at..end].rotate_right(1);
            choices[at] = choice;
        }
    }
    let largest = choices[0].weight;
    choices.sort_unstable_by_key(|choice| choice.expert);
    if let Weighting::Softmax { .. } = weighting {
        for logit in logits.iter_mut() {
            *logit -= largest;
        }
        simd.run(ExpInPlace(logits));
    }
    let of_chosen = || choices.iter().fold(0.0, |sum, choice| sum + logits[choice.expert as usize]);
    let sum = match weighting {
        Weighting::Softmax { normalise: true, .. } => of_chosen(),
        Weighting::Softmax { normalise: false, .. } => logits.iter().fold(0.0, |sum, value| sum + value),
        Weighting::Sigmoid { epsilon, .. } => epsilon.map_or(1.0, |epsilon| of_chosen() + epsilon),
    };
    for choice in choices {
        let expert = choice.expert as usize;
        let factor = match weighting {
            Weighting::Softmax { factors, .. } => factors.map_or(1.0, |factors| factors[expert]),
            Weighting::Sigmoid { scale, .. } => scale,
        };
        choice.weight = factor * (logits[expert] / sum);
    }
}

/// Whether a score precedes another one of a smaller id.
fn above(score: f32, other: f32) -> bool {
    match score.partial_cmp(&other) {
        Some(order) => order == Ordering::Greater,
        None => !other.is_nan(),
    }
}

/// Writes a choice of expert 0 for each row of `x`, `[rows, 1]`, whose weight is the sigmoid of the value.
pub fn gate(exec: Exec<'_>, x: Rows<'_>, choices: &mut [Choice]) {
    assert!(x.width == 1 && choices.len() >= x.rows, "one value and one choice for each of {} rows", x.rows);
    for (r, choice) in choices[..x.rows].iter_mut().enumerate() {
        let mut value = [x.row(r)[0]];
        exec.simd.run(Sigmoid(&mut value));
        *choice = Choice { expert: 0, row: r as u32, weight: value[0] };
    }
}

struct Sigmoid<'a>(&'a mut [f32]);

impl Kernel for Sigmoid<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for chunk in self.0.chunks_mut(LANES) {
            // SAFETY: the chunk holds the lanes that are read and written.
            unsafe {
                let x = s.load_partial(chunk.as_ptr(), chunk.len());
                let sum = s.add(exp(s, s.neg(x)), s.splat(1.0));
                s.store_partial(chunk.as_mut_ptr(), s.div(s.splat(1.0), sum), chunk.len());
            }
        }
    }
}

/// `y[i] = x[choices[i].row]`
pub fn gather(exec: Exec<'_>, choices: &[Choice], x: Rows<'_>, y: &mut RowsMut<'_>) {
    assert!(x.width == y.width && y.rows == choices.len(), "a row of {} values for each choice", x.width);
    let (width, stride) = (y.width, y.stride);
    let to = Disjoint::new(y.data);
    exec.team.split(choices.len(), 1, 16, |range| {
        for i in range {
            // SAFETY: each row is written by the one member that owns it.
            let y = unsafe { std::slice::from_raw_parts_mut(to.get().add(i * stride), width) };
            y.copy_from_slice(x.row(choices[i].row as usize));
        }
    });
}

/// Number of products from which on threads share the sum of rows.
const SHARED_PRODUCTS: usize = 1 << 15;

/// `out[choices[i].row] += choices[i].weight * y[i]`, one rounding per element, in the order of the choices.
pub fn add_weighted(exec: Exec<'_>, choices: &[Choice], y: Rows<'_>, out: &mut RowsMut<'_>) {
    assert!(y.width == out.width && y.rows == choices.len(), "a row of {} values for each choice", out.width);
    assert!(choices.iter().all(|choice| (choice.row as usize) < out.rows), "rows below {}", out.rows);
    let (width, stride) = (out.width, out.stride);
    let out = Disjoint::new(out.data);
    // Several choices may name one row, so members own columns.
    let least = SHARED_PRODUCTS / (choices.len() * LANES).max(1);
    exec.team.split(width.div_ceil(LANES), 1, least, |strips| {
        let columns = strips.start * LANES..width.min(strips.end * LANES);
        exec.simd.run(AddWeighted { choices, y, out, stride, columns });
    });
}

/// Some columns of all rows.
struct AddWeighted<'a> {
    choices: &'a [Choice],
    y: Rows<'a>,
    out: Disjoint<f32>,
    /// Distance between the starts of rows of `out`.
    stride: usize,
    columns: Range<usize>,
}

impl Kernel for AddWeighted<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for (i, choice) in self.choices.iter().enumerate() {
            let weight = s.splat(choice.weight);
            let y = self.y.row(i);
            for at in self.columns.clone().step_by(LANES) {
                let n = (self.columns.end - at).min(LANES);
                // SAFETY: the row exists, and this member owns its columns; `n` of them remain from `at`.
                unsafe {
                    let out = self.out.get().add(choice.row as usize * self.stride + at);
                    let y = s.load_partial(y.as_ptr().add(at), n);
                    s.store_partial(out, s.fma(y, weight, s.load_partial(out, n)), n);
                }
            }
        }
    }
}
