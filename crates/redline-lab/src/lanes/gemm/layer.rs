//! The measured layer: enough copies of its weights to exceed the caches, its inputs, and the check of its outputs.

use redline_kernels::op::linear::{Epilogue, Variant, linear, scratch_words};
use redline_kernels::{Buffer, Exec, Format, Matrix, Rows, RowsMut, Simd, Team, Tier};

use crate::bench::{CallTime, LaneError, Result, calls_within, spread, verify};
use crate::lanes::gemm::linear::{Noise, STRIP, copies};
use crate::limits::LimitError;
use crate::roofline::Work;
use redline_parity::ActivationDifference;
use redline_system::Clock;
use redline_system::digest::digest;

/// Target duration of a sample, which consists of consecutive calls.
const SAMPLE_NS: u64 = 10_000_000;
/// Maximum numbers of outputs and input rows that are checked.
const CHECKED: (usize, usize) = (32, 4);
/// Weights with the spread of freshly initialised ones.
pub(super) const WEIGHTS: Noise = Noise { seed: 1, spread: 0.035 };
pub(super) const INPUTS: Noise = Noise { seed: 2, spread: 1.0 };

/// A linear layer, ready to run with up to a given number of input rows.
pub(super) struct Layer<'a> {
    exec: Exec<'a>,
    /// Copies of the weights, each in its own memory.
    matrices: Vec<Matrix>,
    /// The index of the next matrix.
    next: usize,
    x: Buffer<f32>,
    y: Buffer<f32>,
    scratch: Buffer<u32>,
}

pub(super) struct Checked {
    /// Distance of the sampled outputs to the f32 product of the unquantised weights, relative to that product's
    /// norm.
    pub(super) l2_diff: f64,
    pub(super) digest: String,
}

impl<'a> Layer<'a> {
    /// A layer `[n, k]` for up to `rows` input rows, with enough copies of the weights to fill `bytes`.
    pub(super) fn new(
        exec: Exec<'a>,
        format: Format,
        (n, k): (usize, usize),
        rows: usize,
        bytes: usize,
    ) -> Result<Self> {
        let matrices = copies(WEIGHTS.matrix(exec, format, (n, k))?, bytes)?;
        let mut x = Buffer::zeroed(rows * k)?;
        INPUTS.fill(0, &mut x);
        let scratch = Buffer::zeroed(scratch_words(matrices[0].shape(), rows))?;
        let y = Buffer::zeroed(rows * n.next_multiple_of(STRIP))?;
        Ok(Self { exec, matrices, next: 0, x, y, scratch })
    }

    pub(super) fn format(&self) -> Format {
        self.matrices[0].format()
    }

    /// Numbers of outputs and inputs.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.matrices[0].rows(), self.matrices[0].cols())
    }

    pub(super) fn cycled_bytes(&self) -> usize {
        self.matrices.len() * self.matrices[0].bytes()
    }

    /// The minimum work of a call with `m` rows. Inputs and outputs are not counted, because they may stay in caches.
    pub(super) fn work(&self, m: usize) -> Work {
        let (n, k) = self.shape();
        Work {
            bytes: self.matrices[0].bytes() as f64,
            operations: 2.0 * m as f64 * n as f64 * k as f64,
            attention: 0.0,
        }
    }

    /// Runs the next matrix with the first `m` rows of inputs.
    fn call(&mut self, m: usize) {
        let (n, k) = self.shape();
        let mut y = RowsMut::new(&mut self.y, m, n, n.next_multiple_of(STRIP));
        let x = Rows::new(&self.x, m, k, k);
        let matrix = &self.matrices[self.next];
        let variant = Variant::estimate(self.exec.simd, matrix, m);
        linear(self.exec, matrix, x, &mut y, Epilogue::default(), variant, &mut self.scratch);
        self.next = (self.next + 1) % self.matrices.len();
    }

    /// Compares sampled outputs with the scalar tier, bit for bit, and with the f32 product.
    pub(super) fn check(&mut self, m: usize) -> Result<Checked> {
        let ((n, k), used) = (self.shape(), self.next);
        self.call(m);
        let (outputs, rows) = (spread(CHECKED.0, n), spread(CHECKED.1, m));
        let stride = n.next_multiple_of(STRIP);
        let at = |&r: &usize| outputs.iter().map(move |o| r * stride + o);
        let sampled: Vec<f32> = rows.iter().flat_map(at).map(|i| self.y[i]).collect();
        let ids: Vec<u32> = outputs.iter().map(|&o| o as u32).collect();
        let expected = self.scalar(&self.matrices[used].gather(&ids)?, &rows)?;
        for (i, (own, scalar)) in sampled.iter().zip(&expected).enumerate() {
            let (row, output, format) = (rows[i / outputs.len()], outputs[i % outputs.len()], self.format());
            verify(own.to_bits() == scalar.to_bits(), || {
                let fact = format!("output {output} of row {row} is {own}, but {scalar} on the scalar tier");
                format!("{fact}\n  in {format} {n} x {k}, m = {m}")
            })?;
        }
        let mut exact = Matrix::zeroed(Format::F32, outputs.len(), k)?;
        let mut row = vec![0f32; k];
        for (i, &output) in outputs.iter().enumerate() {
            WEIGHTS.fill(output * k, &mut row);
            exact.set_rows(self.exec, i, &row);
        }
        let mut difference = ActivationDifference::default();
        difference.add(&sampled, &self.scalar(&exact, &rows)?);
        let l2_diff = difference.nmse().sqrt();
        Ok(Checked { l2_diff, digest: digest(sampled.iter().flat_map(|y| y.to_bits().to_le_bytes())) })
    }

    /// The outputs of a matrix for some input rows, on one thread of the scalar tier.
    fn scalar(&self, matrix: &Matrix, rows: &[usize]) -> Result<Vec<f32>> {
        let team = Team::new(1).map_err(LimitError::Threads)?;
        let simd = Simd::new(Tier::Scalar).map_err(|e| LaneError::Incorrect(e.to_string()))?;
        let (n, k) = (matrix.rows(), matrix.cols());
        let x: Vec<f32> = rows.iter().flat_map(|&r| &self.x[r * k..][..k]).copied().collect();
        let stride = n.next_multiple_of(STRIP);
        let mut y = vec![0f32; rows.len() * stride];
        let mut scratch = vec![0u32; scratch_words(matrix.shape(), rows.len())];
        let (x, mut out) = (Rows::new(&x, rows.len(), k, k), RowsMut::new(&mut y, rows.len(), n, stride));
        let variant = Variant::estimate(simd, matrix, rows.len());
        let exec = Exec { simd, team: &team };
        linear(exec, matrix, x, &mut out, Epilogue::default(), variant, &mut scratch);
        Ok(y.chunks(stride).flat_map(|row| &row[..n]).copied().collect())
    }

    /// The number of calls with `m` rows in a sample: a power of two.
    pub(super) fn calls(&mut self, m: usize, clock: &Clock) -> usize {
        calls_within(clock, SAMPLE_NS, || self.call(m))
    }

    /// Measures one sample.
    pub(super) fn sample(&mut self, m: usize, calls: usize, clock: &Clock) -> CallTime {
        CallTime::of(clock, calls, || self.call(m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::slowing_clock;

    fn with_layer<T>(format: Format, bytes: usize, f: impl FnOnce(&mut Layer<'_>) -> T) -> T {
        let team = Team::new(2).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        f(&mut Layer::new(exec, format, (40, 96), 5, bytes).unwrap())
    }

    #[test]
    fn work_is_weights_once_and_a_product_per_row() {
        with_layer(Format::F32, 1, |layer| {
            // Strips of sixteen: 48 rows of 96 f32.
            let expected =
                Work { bytes: 48.0 * 96.0 * 4.0, operations: 2.0 * 5.0 * 40.0 * 96.0, attention: 0.0 };
            assert_eq!(layer.work(5), expected);
            assert_eq!(layer.cycled_bytes(), 48 * 96 * 4);
        });
        let w4 = Format::parse("w4").unwrap();
        with_layer(w4, 100_000, |layer| {
            // Four bits per value, and an f16 for every group of 64; 96 values have two groups.
            let one = 48 * 96 / 2 + 48 * 2 * 2;
            assert_eq!((layer.work(1).bytes, layer.work(1).operations), (f64::from(one), 2.0 * 40.0 * 96.0));
            assert!((100_000..100_000 + one as usize).contains(&layer.cycled_bytes()));
        });
    }

    #[test]
    fn matrices_take_turns() {
        with_layer(Format::F32, 100_000, |layer| {
            assert_eq!(layer.calls(2, &slowing_clock()), 32);
            layer.sample(2, 7, &slowing_clock());
            assert_eq!(layer.next, (63 + 7) % layer.matrices.len());
        });
    }

    #[test]
    fn outputs_are_compared_with_the_scalar_tier_and_the_unquantised_product() {
        let mut before = 0.0;
        for name in ["f32", "bf16", "w8", "w4"] {
            with_layer(Format::parse(name).unwrap(), 40_000, |layer| {
                let checked = layer.check(3).unwrap();
                assert!(checked.l2_diff >= before && checked.l2_diff < 0.2, "{name}: {}", checked.l2_diff);
                assert_eq!(checked.l2_diff == 0.0, name == "f32");
                // The root of the squared share, which is below a hundredth for w4.
                assert!(name != "w4" || checked.l2_diff > 0.03, "{}", checked.l2_diff);
                assert_eq!(layer.check(3).unwrap().digest, checked.digest, "the copies are alike");
                assert_ne!(layer.check(5).unwrap().digest, checked.digest);
                before = checked.l2_diff;
            });
        }
    }
}
