//! Linear layers: sums of products of weights and inputs, and how weights become integers.

use crate::number::{SMALLEST_GROUP, bf16, f16};

/// Number of inputs that share a scale.
const INPUT_GROUP: usize = 128;
/// Divisors of the largest magnitude of a group of four bits that are tried as its scale.
const DIVISORS: [f32; 22] = [
    -8.5, -8.0, -7.75, -7.5, -7.25, -7.0, -6.75, -6.5, -6.25, -6.0, -5.5, 5.5, 6.0, 6.25, 6.5, 6.75, 7.0,
    7.25, 7.5, 7.75, 8.0, 8.5,
];

/// How the weights of a layer are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// f32.
    F32,
    /// bf16, and inputs too.
    Bf16,
    /// f16, and inputs f32.
    F16,
    /// Integers of 8 bits with an f16 scale for each group of this size; 0: an f32 scale for each output.
    W8(usize),
    /// Integers of 4 bits with an f16 scale for each group of this size.
    W4(usize),
}

impl WeightFormat {
    /// The format of this name and group, if it is one of these.
    pub fn named(name: &str, group: Option<usize>) -> Option<Self> {
        match (name, group) {
            ("f32", None) => Some(Self::F32),
            ("bf16", None) => Some(Self::Bf16),
            ("f16", None) => Some(Self::F16),
            ("w8", Some(group)) => Some(Self::W8(group)),
            ("w4", Some(group)) => Some(Self::W4(group)),
            _ => None,
        }
    }
}

/// The weights of one output.
#[derive(Clone, Debug)]
pub struct OutputWeights {
    format: WeightFormat,
    /// Rounded to the format, if it is one of floats.
    values: Vec<f32>,
    /// As integers, in groups with a scale.
    groups: Vec<(Vec<i32>, f32)>,
}

impl OutputWeights {
    /// The format.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Stores weights.
    pub fn new(format: WeightFormat, values: &[f32]) -> Self {
        let rounded = match format {
            WeightFormat::F32 => values.to_vec(),
            WeightFormat::Bf16 => values.iter().map(|w| bf16(*w)).collect(),
            WeightFormat::F16 => values.iter().map(|w| f16(*w)).collect(),
            WeightFormat::W8(_) | WeightFormat::W4(_) => Vec::new(),
        };
        let groups = match format {
            WeightFormat::F32 | WeightFormat::Bf16 | WeightFormat::F16 => Vec::new(),
            WeightFormat::W8(0) => vec![integers(values, largest(values) / 127.0, (-127.0, 127.0))],
            WeightFormat::W8(group) => values
                .chunks(group)
                .map(|group| integers(group, f16(largest(group) / 127.0), (-127.0, 127.0)))
                .collect(),
            WeightFormat::W4(group) => {
                values.chunks(group).map(|group| integers(group, least_error(group), FOUR_BITS)).collect()
            }
        };
        Self { format, values: rounded, groups }
    }

    /// The output for one row of inputs, without bias.
    pub fn dot(&self, x: &Inputs) -> f32 {
        match self.format {
            WeightFormat::F32 | WeightFormat::F16 => chain(0.0, &self.values, &x.values),
            WeightFormat::Bf16 => chain(0.0, &self.values, &x.bf16),
            WeightFormat::W8(_) | WeightFormat::W4(_) => {
                let group = self.groups.first().map_or(1, |(q, _)| q.len());
                let of = |k: usize| &self.groups[k / group];
                integer_sum(0.0, x, group, |k| of(k).0[k % group], |k| of(k).1)
            }
        }
    }

    /// The weights as a layer sees them.
    pub fn widened(&self) -> Vec<f32> {
        match self.format {
            WeightFormat::F32 | WeightFormat::Bf16 | WeightFormat::F16 => self.values.clone(),
            WeightFormat::W8(_) | WeightFormat::W4(_) => {
                self.groups.iter().flat_map(|(q, scale)| q.iter().map(move |q| *q as f32 * scale)).collect()
            }
        }
    }
}

/// A row of inputs.
#[derive(Clone, Debug)]
pub struct Inputs {
    values: Vec<f32>,
    /// Rounded.
    bf16: Vec<f32>,
    /// As integers, in groups with a scale.
    groups: Vec<(Vec<i32>, f32)>,
}

impl Inputs {
    /// A row, as it is and as the formats round it.
    pub fn new(values: &[f32]) -> Self {
        let bf16 = values.iter().map(|x| bf16(*x)).collect();
        let groups = values.chunks(INPUT_GROUP).map(quantised).collect();
        Self { values: values.to_vec(), bf16, groups }
    }
}

/// Continues `acc` with the products of weights and inputs, k ascending.
pub fn chain(acc: f32, w: &[f32], x: &[f32]) -> f32 {
    w.iter().zip(x).fold(acc, |acc, (w, x)| w.mul_add(*x, acc))
}

/// Continues `acc` with the products of integer weights, of which `group` share a scale, and of inputs.
pub fn integer_sum(
    mut acc: f32,
    x: &Inputs,
    group: usize,
    weight: impl Fn(usize) -> i32,
    scale: impl Fn(usize) -> f32,
) -> f32 {
    for (inputs, (q, s)) in (0..).step_by(INPUT_GROUP).zip(&x.groups) {
        if s.is_nan() {
            return *s;
        }
        let end = inputs + q.len();
        // Groups of weights are as long as those of inputs, or shorter, or all.
        for first in (inputs..end).step_by(group.min(INPUT_GROUP)) {
            let products = (first..(first + group).min(end)).map(|k| weight(k) * q[k - inputs]);
            acc = (products.sum::<i32>() as f32).mul_add(scale(first) * s, acc);
        }
    }
    acc
}

/// A group of values as integers of 8 bits, and its scale: NaN if a value is not finite.
pub fn quantised(x: &[f32]) -> (Vec<i32>, f32) {
    let m = x.iter().fold(0f32, |m, x| if x.abs() > m || x.is_nan() { x.abs() } else { m });
    if !m.is_finite() {
        return (vec![0; x.len()], f32::NAN);
    }
    if m < SMALLEST_GROUP {
        return (vec![0; x.len()], 0.0);
    }
    let inverse = 127.0 / m;
    (x.iter().map(|x| (x * inverse).round_ties_even() as i32).collect(), m / 127.0)
}

/// The smallest and the largest integer of four bits.
const FOUR_BITS: (f32, f32) = (-8.0, 7.0);

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |m, x| m.max(x.abs()))
}

/// Values as the nearest multiples of a scale within a range.
fn integers(x: &[f32], scale: f32, (low, high): (f32, f32)) -> (Vec<i32>, f32) {
    // Scales near 0 have no inverse.
    let inverse = if scale.abs() > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    let nearest = |x: &f32| (x * inverse).clamp(low, high).round_ties_even() as i32;
    (x.iter().map(nearest).collect(), scale)
}

/// The scale of a group of four bits with the least sum of squared errors: the best one of those that the divisors give, then improved
/// twice by least squares.
fn least_error(x: &[f32]) -> f32 {
    let error = |scale: f32| {
        let (q, _) = integers(x, scale, FOUR_BITS);
        x.iter().zip(q).fold(0f32, |sum, (x, q)| {
            let off = (-scale).mul_add(q as f32, *x);
            off.mul_add(off, sum)
        })
    };
    let mut best = (f32::INFINITY, 0.0);
    let mut see = |scale: f32| {
        let found = error(scale);
        if found < best.0 {
            best = (found, scale);
        }
        best.1
    };
    let mut scale = 0.0;
    for divisor in DIVISORS {
        scale = see(f16(largest(x) / divisor));
    }
    for _ in 0..2 {
        let (q, _) = integers(x, scale, FOUR_BITS);
        let products = x.iter().zip(&q).fold(0f32, |sum, (x, q)| x.mul_add(*q as f32, sum));
        let squares = q.iter().fold(0f32, |sum, q| (*q as f32).mul_add(*q as f32, sum));
        scale = see(f16(if squares > 0.0 { products / squares } else { 0.0 }));
    }
    scale
}
