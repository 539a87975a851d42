//! Sums over rows as wide as a vocabulary.

use crate::number::{exp, lanes};

/// Number of ids in a chunk.
pub const CHUNK: usize = 4096;

/// `ln(sum e^x)`: the sums of chunks of so many ids, each in lanes, added in order.
pub fn log_sum_exp(row: &[f32], chunk: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sums = row.chunks(chunk).map(|ids| lanes(ids.iter().map(|x| exp(x - max)), |sum, e| sum + e));
    f64::from(max) + libm::log(f64::from(sums.fold(0f32, |total, sum| total + sum)))
}
