//! Statistics of the residual stream after each layer, to find where two runs diverge or values become non-finite.

use redline_kernels::Rows;

/// The residual stream after the embedding (`layer` is `None`) or after a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The layer, from 0.
    pub layer: Option<usize>,
    /// Number of rows of the pass.
    pub rows: usize,
    /// Smallest finite value.
    pub min: f32,
    /// Largest finite value.
    pub max: f32,
    /// Mean of the finite values.
    pub mean: f64,
    /// Root of the mean square of the finite values.
    pub rms: f64,
    /// Number of values that are infinite or NaN.
    pub non_finite: usize,
    /// Depends on every bit of every row.
    pub digest: u64,
}

impl Observation {
    /// Computes the statistics over all rows.
    pub fn of(layer: Option<usize>, x: Rows<'_>, rows: usize) -> Self {
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        let (mut sum, mut squares, mut finite, mut all) = (0f64, 0f64, 0usize, 0usize);
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for r in 0..rows {
            for &value in x.row(r) {
                // FNV-1a over words.
                digest = (digest ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
                all += 1;
                if value.is_finite() {
                    (min, max) = (min.min(value), max.max(value));
                    sum += f64::from(value);
                    squares += f64::from(value) * f64::from(value);
                    finite += 1;
                }
            }
        }
        let count = finite.max(1) as f64;
        let (mean, rms) = (sum / count, libm::sqrt(squares / count));
        if finite == 0 {
            (min, max) = (0.0, 0.0);
        }
        Self { layer, rows, min, max, mean, rms, non_finite: all - finite, digest }
    }
}

/// The observations of one pass, in memory that is reserved beforehand.
#[derive(Clone, Debug, Default)]
pub struct Observations(Vec<Observation>);

impl Observations {
    /// Reserves room for a model of `layers` layers.
    pub fn of_layers(layers: usize) -> Self {
        Self(Vec::with_capacity(layers + 1))
    }

    /// Removes the observations of the previous pass.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an observation if there is room.
    pub(crate) fn push(&mut self, observation: Observation) {
        if self.0.len() < self.0.capacity() {
            self.0.push(observation);
        }
    }

    /// All observations, in the order of the layers.
    pub fn all(&self) -> &[Observation] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_counted_apart() {
        let values = [1.0f32, -3.0, f32::NAN, 9.0, 2.0, f32::INFINITY, 0.0, 9.0];
        let seen = Observation::of(Some(1), Rows::new(&values, 2, 3, 4), 2);
        assert_eq!((seen.min, seen.max, seen.non_finite, seen.rows), (-3.0, 2.0, 2, 2));
        assert_eq!((seen.mean, seen.rms), (0.0, (14.0f64 / 4.0).sqrt()));
        let other = Observation::of(Some(1), Rows::new(&values[4..], 1, 3, 4), 1);
        assert_ne!(seen.digest, other.digest);
        let none = Observation::of(None, Rows::new(&[f32::NAN], 1, 1, 1), 1);
        assert_eq!((none.min, none.max, none.mean, none.non_finite), (0.0, 0.0, 0.0, 1));
    }

    #[test]
    fn a_digest_depends_on_every_bit_of_every_row() {
        let values = [1.0f32, -2.0, 0.0, f32::NAN, 3.5, f32::INFINITY];
        let digest = |values: &[f32]| Observation::of(None, Rows::new(values, 2, 3, 3), 2).digest;
        let mut seen = vec![digest(&values)];
        for at in 0..values.len() {
            for bit in 0..32 {
                let mut changed = values;
                changed[at] = f32::from_bits(changed[at].to_bits() ^ (1 << bit));
                let other = digest(&changed);
                assert!(!seen.contains(&other), "bit {bit} of value {at}");
                seen.push(other);
            }
        }
    }
}
