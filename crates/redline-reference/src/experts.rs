//! Mixture of experts: which experts a row goes to, with which weights.

use std::cmp::Ordering;

use crate::elementwise::sigmoid;
use crate::number::exp;

/// The `top` experts of a row by ascending id, with their weights: sigmoids of `logits`, chosen by their sums with `correction`. With
/// `epsilon`, weights are divided by their sum and it; all are multiplied with `scale`.
pub fn chosen_by_sigmoid(
    logits: &[f32],
    top: usize,
    correction: Option<&[f32]>,
    epsilon: Option<f32>,
    scale: f32,
) -> Vec<(usize, f32)> {
    let weights: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit)).collect();
    let score = |expert: usize| correction.map_or(weights[expert], |bias| weights[expert] + bias[expert]);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| score(b).partial_cmp(&score(a)).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
    order.truncate(top);
    order.sort_unstable();
    let sum = order.iter().fold(0.0, |sum, &expert| sum + weights[expert]);
    let divisor = epsilon.map_or(1.0, |epsilon| sum + epsilon);
    order.into_iter().map(|expert| (expert, scale * (weights[expert] / divisor))).collect()
}

/// The `top` experts of a row by ascending id, with their weights: those of a softmax over all experts, or if `normalise` over the chosen
/// ones, times the expert's factor.
pub fn chosen(logits: &[f32], top: usize, normalise: bool, factors: Option<&[f32]>) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
    let largest = logits[order[0]];
    let powers: Vec<f32> = logits.iter().map(|logit| exp(logit - largest)).collect();
    order.truncate(top);
    order.sort_unstable();
    let counted: Vec<usize> = if normalise { order.clone() } else { (0..logits.len()).collect() };
    let sum = counted.iter().fold(0.0, |sum, &expert| sum + powers[expert]);
    let factor = |expert: usize| factors.map_or(1.0, |factors| factors[expert]);
    order.into_iter().map(|expert| (expert, factor(expert) * (powers[expert] / sum))).collect()
}

/// Adds what an expert returns to the sum of a row.
pub fn add_weighted(sum: &mut [f32], output: &[f32], weight: f32) {
    sum.iter_mut().zip(output).for_each(|(sum, y)| *sum = y.mul_add(weight, *sum));
}
