//! The gated delta rule.

use crate::elementwise::softplus;
use crate::number::exp;

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub struct DeltaHeads {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Values of a query and of a key.
    pub key_dim: usize,
    /// Values of a value.
    pub value_dim: usize,
    /// Whether neighbouring value heads have different heads of keys.
    pub is_interleaved: bool,
}

/// Strength and decay of a head.
pub fn strength_and_decay(b: f32, a: f32, decay: f32, bias: f32) -> (f32, f32) {
    (1.0 / (exp(-b) + 1.0), exp(decay * softplus(a + bias)))
}

/// A vector divided by its length, times a factor.
pub fn l2_norm(x: &[f32], eps: f32, factor: f32) -> Vec<f32> {
    let sum = crate::number::lanes(x.iter().copied(), |acc, x| x.mul_add(x, acc));
    let r = 1.0 / (sum + eps).sqrt();
    x.iter().map(|x| x * r * factor).collect()
}

/// The outputs of all rows of a sequence. A row is queries, keys and values of all heads; `gates` are the strengths of all heads of a row,
/// then their decays.
pub fn outputs(heads: DeltaHeads, rows: &[impl AsRef<[f32]>], gates: &[impl AsRef<[f32]>]) -> Vec<Vec<f32>> {
    let DeltaHeads { key_heads, value_heads, key_dim, value_dim, is_interleaved } = heads;
    let (keys, ratio) = (key_heads * key_dim, value_heads / key_heads);
    let mut out = vec![vec![0f32; value_heads * value_dim]; rows.len()];
    for head in 0..value_heads {
        let key_head = if is_interleaved { head % key_heads } else { head / ratio };
        for j in 0..value_dim {
            // A column of the matrix.
            let mut column = vec![0f32; key_dim];
            for (t, (row, gates)) in rows.iter().zip(gates).enumerate() {
                let (row, gates) = (row.as_ref(), gates.as_ref());
                let (beta, decay) = (gates[head], gates[value_heads + head]);
                let q = &row[key_head * key_dim..][..key_dim];
                let k = &row[keys + key_head * key_dim..][..key_dim];
                let v = row[2 * keys + head * value_dim + j];
                let u = (-decay).mul_add(in_chains(&column, k), v) * beta;
                for (s, k) in column.iter_mut().zip(k) {
                    *s = k.mul_add(u, decay * *s);
                }
                out[t][head * value_dim + j] = in_chains(&column, q);
            }
        }
    }
    out
}

/// A sum of products in four chains.
fn in_chains(a: &[f32], b: &[f32]) -> f32 {
    let mut chains = [0f32; 4];
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        chains[i % 4] = a.mul_add(*b, chains[i % 4]);
    }
    (chains[0] + chains[2]) + (chains[1] + chains[3])
}
