//! Attention of one query: spans of 256 keys, merged ascending.

use std::ops::Range;

use crate::elementwise::soft_capped;
use crate::linear::quantised;
use crate::number::{SMALLEST_GROUP, bf16, exp, f16, lanes_from};

/// Number of keys of a span.
const SPAN: usize = 256;
/// Number of dimensions that share a scale if keys and values have four bits.
const GROUP: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvStorage {
    /// f32.
    F32,
    /// bf16, and queries too.
    Bf16,
    /// f16, and queries f32.
    F16,
    /// Integers of 8 bits with a scale for each head.
    W8,
    /// Integers of 4 bits with a scale for each 32 dimensions of a head that was rotated.
    W4,
}

/// The key or the value of one token and head, as it is stored.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Values that were rounded.
    Floats(Vec<f32>),
    /// Groups of dimensions: integers and their scale.
    Groups(Vec<(Vec<i32>, f32)>),
}

impl KvStorage {
    /// The format of this name, of which there must be one.
    pub fn named(name: &str) -> Self {
        match name {
            "f32" => Self::F32,
            "bf16" => Self::Bf16,
            "f16" => Self::F16,
            "w8" => Self::W8,
            "w4" => Self::W4,
            _ => panic!("`{name}` is no format of keys and values"),
        }
    }

    /// Stores a key or a value.
    pub fn store(self, head: &[f32]) -> Stored {
        let rounded = |round: fn(f32) -> f32| Stored::Floats(head.iter().map(|x| round(*x)).collect());
        match self {
            Self::F32 => rounded(|x| x),
            Self::Bf16 => rounded(bf16),
            Self::F16 => rounded(f16),
            Self::W8 => Stored::Groups(vec![quantised(head)]),
            Self::W4 => Stored::Groups(rotated(head).chunks(GROUP).map(levels).collect()),
        }
    }

    /// The product of a query, which is scaled, and a key.
    fn logit(self, q: &[f32], key: &Stored) -> f32 {
        match key {
            Stored::Floats(key) => {
                let query = |x: f32| if self == Self::Bf16 { bf16(x) } else { x };
                q.iter().zip(key).fold(0f32, |acc, (q, k)| k.mul_add(query(*q), acc))
            }
            Stored::Groups(groups) => {
                let (q, q_scale) = quantised(&if self == Self::W4 { rotated(q) } else { q.to_vec() });
                let size = groups.first().map_or(1, |(k, _)| k.len());
                let sums = groups
                    .iter()
                    .zip(q.chunks(size))
                    .map(|((k, scale), q)| (q.iter().zip(k).map(|(q, k)| q * k).sum::<i32>() as f32, *scale));
                if self == Self::W4 {
                    sums.fold(0f32, |acc, (sum, scale)| sum.mul_add(scale, acc)) * q_scale
                } else {
                    sums.map(|(sum, scale)| sum * (scale * q_scale)).sum()
                }
            }
        }
    }
}

/// What the attention of a head depends on besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct AttentionHead<'a> {
    /// How keys and values are stored.
    pub format: KvStorage,
    /// Factor on queries.
    pub scale: f32,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// Numbers that are added to the logits of the keys for this query, after their cap.
    pub bias: Option<&'a [f32]>,
    /// A logit that takes part in the softmax but has no value.
    pub sink: Option<f32>,
}

impl AttentionHead<'_> {
    /// The output for a query that sees the keys `seen`, of which there is at least one.
    pub fn row(&self, q: &[f32], keys: &[Stored], values: &[Stored], seen: Range<usize>) -> Vec<f32> {
        let q: Vec<f32> = q.iter().map(|x| x * self.scale).collect();
        // The largest logit, the sum of the powers, the weighted values.
        let (mut top, mut sum, mut out) = (f32::NEG_INFINITY, 0f32, vec![0f32; q.len()]);
        let mut is_first = true;
        for start in (0..seen.end).step_by(SPAN) {
            let keys_of_span = start.max(seen.start)..(start + SPAN).min(seen.end);
            if keys_of_span.is_empty() {
                continue;
            }
            let logits = keys_of_span.clone().map(|at| {
                let logit = self.logit(&q, &keys[at]);
                self.bias.map_or(logit, |bias| logit + bias[at])
            });
            let logits: Vec<f32> = logits.collect();
            let m = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let p: Vec<f32> = logits.iter().map(|s| exp(s - m)).collect();
            let l = lanes_from(keys_of_span.start, p.iter().copied(), |sum, p| sum + p);
            let o = weighted(&p, &values[keys_of_span], q.len());
            if is_first {
                (top, sum, out, is_first) = (m, l, o, false);
            } else {
                (top, sum, out) = merged((top, sum, out), (m, l, o));
            }
        }
        if let Some(sink) = self.sink {
            let nothing = vec![0f32; out.len()];
            (_, sum, out) = merged((top, sum, out), (sink, 1.0, nothing));
        }
        let out: Vec<f32> = out.iter().map(|o| o / sum).collect();
        if self.format == KvStorage::W4 { rotated(&out) } else { out }
    }

    fn logit(&self, q: &[f32], key: &Stored) -> f32 {
        let logit = self.format.logit(q, key);
        self.softcap.map_or(logit, |cap| soft_capped(logit, cap))
    }
}

/// The results of two spans, the second one being the later.
fn merged((top, sum, out): (f32, f32, Vec<f32>), (m, l, o): (f32, f32, Vec<f32>)) -> (f32, f32, Vec<f32>) {
    let max = if top < m { m } else { top };
    let (a, b) = (exp(top - max), exp(m - max));
    (max, l.mul_add(b, sum * a), out.iter().zip(&o).map(|(out, o)| o.mul_add(b, out * a)).collect())
}

/// The sum of values weighted with `p`.
fn weighted(p: &[f32], values: &[Stored], width: usize) -> Vec<f32> {
    let mut out = vec![0f32; width];
    let Some(Stored::Groups(groups)) = values.first() else {
        for (p, value) in p.iter().zip(values) {
            if let Stored::Floats(value) = value {
                out.iter_mut().zip(value).for_each(|(o, v)| *o = v.mul_add(*p, *o));
            }
        }
        return out;
    };
    let size = groups.first().map_or(1, |(v, _)| v.len());
    for (group, out) in out.chunks_mut(size).enumerate() {
        let of_group = |value: &Stored| match value {
            Stored::Groups(groups) => groups[group].clone(),
            Stored::Floats(_) => (Vec::new(), 0.0),
        };
        let values: Vec<(Vec<i32>, f32)> = values.iter().map(of_group).collect();
        let w = p.iter().zip(&values).map(|(p, (_, scale))| if *p > 0.0 { p * scale } else { 0.0 });
        let w: Vec<f32> = w.collect();
        let largest = w.iter().copied().fold(0f32, f32::max);
        if largest >= SMALLEST_GROUP {
            let inverse = 16383.0 / largest;
            for (d, out) in out.iter_mut().enumerate() {
                let products =
                    w.iter().zip(&values).map(|(w, (v, _))| (w * inverse).round_ties_even() as i32 * v[d]);
                *out = products.sum::<i32>() as f32 * (largest / 16383.0);
            }
        }
    }
    out
}

/// The normalised Walsh-Hadamard transform.
fn rotated(x: &[f32]) -> Vec<f32> {
    let mut x = x.to_vec();
    let n = x.len();
    let mut h = 1;
    while h < n {
        for i in (0..n).filter(|i| i & h == 0) {
            (x[i], x[i + h]) = (x[i] + x[i + h], x[i] - x[i + h]);
        }
        h *= 2;
    }
    x.iter().map(|x| x * (1.0 / (n as f32).sqrt())).collect()
}

/// One group of 4 bits: odd integers from -15 to 15 and their scale.
fn levels(x: &[f32]) -> (Vec<i32>, f32) {
    let m = x.iter().fold(0f32, |m, x| m.max(x.abs()));
    let scale = bf16(m / 15.75);
    if m < SMALLEST_GROUP || scale == 0.0 {
        return (vec![0; x.len()], 0.0);
    }
    let level = |x: &f32| 2 * x.mul_add(0.5 / scale, -0.5).round_ties_even() as i32 + 1;
    let levels: Vec<i32> = x.iter().map(level).collect();
    assert!(levels.iter().all(|level| (-15..=15).contains(level)), "{levels:?}");
    (levels, scale)
}
