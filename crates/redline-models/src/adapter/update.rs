//! The update of one weight, as the weight lies in its file.

use redline_weights::LowRank;

use super::source::transposed;

/// The update of a weight of `[rows, columns]`.
pub(super) struct Update {
    rank: usize,
    columns: usize,
    /// `[rows, rank]`
    left: Vec<f32>,
    /// `[rank, columns]`
    right: Vec<f32>,
    factor: f32,
    gains: Gains,
    /// A row of `left` times `right`.
    delta: Vec<f32>,
}

/// What rescales the updated weight (DoRA, Liu et al. 2024).
enum Gains {
    None,
    /// The length of every row.
    Rows(Vec<f32>),
    /// The length of every column, and the sum of its squares so far.
    Columns(Vec<f32>, Vec<f64>),
}

impl Update {
    /// `transposed` says that the weight is stored as `[inputs, outputs]`; an embedding is, with tokens as inputs.
    pub(super) fn new(low_rank: LowRank, stored_transposed: bool, scale: f32) -> Self {
        let LowRank { rank, a, b, scaling, magnitude, .. } = low_rank;
        let columns = if stored_transposed { b.len() } else { a.len() } / rank.max(1);
        let (left, right) =
            if stored_transposed { (transposed(&a, rank), transposed(&b, columns)) } else { (b, a) };
        let gains = match magnitude {
            None => Gains::None,
            Some(lengths) if stored_transposed => Gains::Columns(lengths, vec![0.0; columns]),
            Some(lengths) => Gains::Rows(lengths),
        };
        Self { rank, columns, left, right, factor: scaling * scale, gains, delta: vec![0.0; columns] }
    }

    /// Whether all rows must pass through [`Self::add_squares`] before any through [`Self::apply`].
    pub(super) fn needs_squares(&self) -> bool {
        matches!(self.gains, Gains::Columns(..))
    }

    /// Adds the squares of rows `first..` to the lengths of the columns; `values` is overwritten.
    pub(super) fn add_squares(&mut self, first: usize, values: &mut [f32]) {
        for (row, values) in (first..).zip(values.chunks_exact_mut(self.columns)) {
            self.add(row, values);
            if let Gains::Columns(_, squares) = &mut self.gains {
                squares.iter_mut().zip(values).for_each(|(sum, w)| *sum += f64::from(*w) * f64::from(*w));
            }
        }
    }

    /// Updates rows `first..` of the weight.
    pub(super) fn apply(&mut self, first: usize, values: &mut [f32]) {
        for (row, values) in (first..).zip(values.chunks_exact_mut(self.columns)) {
            self.add(row, values);
            match &self.gains {
                Gains::None => {}
                Gains::Rows(lengths) => {
                    let squares = values.iter().map(|w| f64::from(*w) * f64::from(*w)).sum();
                    let gain = gain(lengths[row], squares);
                    for w in values.iter_mut() {
                        *w *= gain;
                    }
                }
                Gains::Columns(lengths, squares) => {
                    for ((w, length), squares) in values.iter_mut().zip(lengths).zip(squares) {
                        *w *= gain(*length, *squares);
                    }
                }
            }
        }
    }

    /// Adds the low-rank product to a row. A product of zero leaves every bit alone, the sign of a zero too.
    fn add(&mut self, row: usize, values: &mut [f32]) {
        self.delta.fill(0.0);
        let left = &self.left[row * self.rank..(row + 1) * self.rank];
        for (l, right) in left.iter().zip(self.right.chunks_exact(self.columns)) {
            self.delta.iter_mut().zip(right).for_each(|(d, r)| *d += l * r);
        }
        for (w, d) in values.iter_mut().zip(&self.delta) {
            let d = self.factor * d;
            *w = if d == 0.0 { *w } else { *w + d };
        }
    }
}

/// `length / |w|`, where `squares` is the sum of the squares of w.
fn gain(length: f32, squares: f64) -> f32 {
    (f64::from(length) / squares.sqrt()) as f32
}
