//! Short convolutions.

use crate::elementwise::silu;

/// `c * conv(b * x)` for rows of `b | c | x`, each of `channels` values, from the first of a sequence on. `weights` are `[taps, channels]`,
/// the oldest first; the last `after` ones are for later rows.
pub fn convolved(
    rows: &[impl AsRef<[f32]>],
    channels: usize,
    weights: &[f32],
    bias: Option<&[f32]>,
    after: usize,
) -> Vec<Vec<f32>> {
    let taps = weights.len() / channels;
    let value = |t: usize, part: usize, c: usize| rows[t].as_ref()[part * channels + c];
    let convolved = |t: usize, c: usize| {
        let mut acc = 0f32;
        for j in 0..taps {
            let at = (t + after + j + 1).checked_sub(taps).filter(|at| *at < rows.len());
            let input = at.map_or(0.0, |at| value(at, 0, c) * value(at, 2, c));
            acc = weights[j * channels + c].mul_add(input, acc);
        }
        value(t, 1, c) * bias.map_or(acc, |bias| acc + bias[c])
    };
    (0..rows.len()).map(|t| (0..channels).map(|c| convolved(t, c)).collect()).collect()
}

/// `silu(conv(x))` for rows of `channels` values, from the first of a sequence on. `weights` are as in [`convolved`].
pub fn convolved_silu(rows: &[impl AsRef<[f32]>], weights: &[f32], bias: Option<&[f32]>) -> Vec<Vec<f32>> {
    let channels = rows.first().map_or(1, |row| row.as_ref().len());
    let taps = weights.len() / channels;
    let output = |t: usize, c: usize| {
        let mut acc = 0f32;
        for j in 0..taps {
            let input = (t + j + 1).checked_sub(taps).map_or(0.0, |at| rows[at].as_ref()[c]);
            acc = weights[j * channels + c].mul_add(input, acc);
        }
        silu(bias.map_or(acc, |bias| acc + bias[c]))
    };
    (0..rows.len()).map(|t| (0..channels).map(|c| output(t, c)).collect()).collect()
}
