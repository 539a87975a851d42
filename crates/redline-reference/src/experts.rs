//! Mixture of experts: which experts a row goes to, with which weights.

use std::cmp::Ordering;

use crate::number::exp;

/// The `top` experts of a row by ascending id, with their weights: those of a softmax over all experts, or if `normalise` over the chosen
/// ones.
pub fn chosen(logits: &[f32], top: usize, normalise: bool) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap_or(Ordering::Equal).then(a.cmp(&b)));
    let largest = logits[order[0]];
    let powers: Vec<f32> = logits.iter().map(|logit| exp(logit - largest)).collect();
    order.truncate(top);
    order.sort_unstable();
    let counted: Vec<usize> = if normalise { order.clone() } else { (0..logits.len()).collect() };
    let sum = counted.iter().fold(0.0, |sum, &expert| sum + powers[expert]);
    order.into_iter().map(|expert| (expert, powers[expert] / sum)).collect()
}

/// Adds what an expert returns to the sum of a row.
pub fn add_weighted(sum: &mut [f32], output: &[f32], weight: f32) {
    sum.iter_mut().zip(output).for_each(|(sum, y)| *sum = y.mul_add(weight, *sum));
}
