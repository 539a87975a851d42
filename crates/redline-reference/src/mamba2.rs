//! Mamba-2.

use crate::elementwise::softplus;
use crate::number::exp;

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Mamba2Heads {
    /// Heads.
    pub heads: usize,
    /// Values of an input and of an output.
    pub head_dim: usize,
    /// Groups of heads.
    pub groups: usize,
    /// Values of a B and of a C.
    pub state_dim: usize,
}

/// Step and decay of a head.
pub fn step_and_decay(x: f32, decay: f32, bias: f32, (low, high): (f32, f32)) -> (f32, f32) {
    let mut step = softplus(x + bias);
    if step < low {
        step = low;
    }
    if step > high {
        step = high;
    }
    (step, exp(decay * step))
}

/// The outputs of all rows of a sequence. A row is the inputs of all heads, then B, then C of all groups; `steps` are the steps of all
/// heads of a row, then their decays.
pub fn outputs(
    of: Mamba2Heads,
    rows: &[impl AsRef<[f32]>],
    steps: &[impl AsRef<[f32]>],
    skip: &[f32],
) -> Vec<Vec<f32>> {
    let Mamba2Heads { heads, head_dim, groups, state_dim } = of;
    let values = heads * head_dim;
    let mut out = vec![vec![0f32; values]; rows.len()];
    for column in 0..values {
        let head = column / head_dim;
        let group = head * groups / heads;
        let mut state = vec![0f32; state_dim];
        for (t, (row, steps)) in rows.iter().zip(steps).enumerate() {
            let (row, steps) = (row.as_ref(), steps.as_ref());
            let (step, decay, x) = (steps[head], steps[heads + head], row[column]);
            let b = &row[values + group * state_dim..][..state_dim];
            let c = &row[values + (groups + group) * state_dim..][..state_dim];
            let scaled = step * x;
            let mut y = 0f32;
            for n in 0..state_dim {
                state[n] = b[n].mul_add(scaled, decay * state[n]);
                y = state[n].mul_add(c[n], y);
            }
            out[t][column] = skip[head].mul_add(x, y);
        }
    }
    out
}
