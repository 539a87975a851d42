//! Scores of labels, token by token and canvas by canvas.

use super::super::machine::{StandIn, VOCABULARY, normaliser};
use super::random;
use crate::mode::score::Masks;

/// The expected answer for an item, compared bit by bit, because bits do not depend on what else runs.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::simulator) struct Scored {
    pub(in crate::simulator) scores: Vec<f32>,
    pub(in crate::simulator) logprobs: Vec<f32>,
    pub(in crate::simulator) label_mass: Option<f32>,
}

/// Log-probability of a label after a prompt: the sum over its tokens, each given those before it.
pub(in crate::simulator) fn logprob(prompt: &[u32], label: &[u32], model: StandIn) -> f64 {
    let mut all = prompt.to_vec();
    let mut sum = 0.0;
    for &token in label {
        let row = model.after(&all);
        sum += f64::from(row[token as usize]) - normaliser(&row);
        all.push(token);
    }
    sum
}

/// The row that predicts token `at` after a prompt, if the tokens there are `shown`; `None` is a mask.
fn masked_row(
    prompt: &[u32],
    shown: &[Option<u32>],
    at: usize,
    (masks, model): (Masks, StandIn),
) -> [f32; VOCABULARY] {
    let canvas = prompt.iter().copied().chain(shown.iter().map(|token| token.unwrap_or(masks.id)));
    model.on_canvas(canvas, prompt.len() + at - usize::from(masks.shifted))
}

/// Sets of masked tokens of a label (bit `at` for token `at`), each with the weight of one masked token, ascending.
///
/// LLaDA, `get_log_likelihood.py`: draw k from 1 to L, mask k of L tokens, weigh each with `L / k`; the mean over the draws.
/// With at least as many draws as there are sets, all sets are taken with their probability: `1 / L` for k, divided evenly
/// among the sets of k tokens.
fn covered(length: usize, masks: Masks) -> Vec<(u64, f64)> {
    let sets = (1u128 << length) - 1;
    if sets <= masks.samples as u128 {
        let of_size = |k: u32| (1..=sets as u64).filter(|set| set.count_ones() == k).count() as f64;
        let weight = |set: u64| 1.0 / (f64::from(set.count_ones()) * of_size(set.count_ones()));
        return (1..=sets as u64).map(|set| (set, weight(set))).collect();
    }
    let number = |sample: usize, token: usize| random(masks.seed, (sample as u64) << 32 | token as u64);
    // The k are spread evenly over 1..=L, starting at a random one.
    let start = (number(masks.samples, 0) * length as f64) as usize;
    let mut drawn: Vec<(u64, f64)> = Vec::new();
    for sample in 0..masks.samples {
        let k = (start + sample * length / masks.samples) % length + 1;
        // The k tokens with the lowest random numbers.
        let rank =
            |at: usize| (0..length).filter(|&b| (number(sample, b), b) < (number(sample, at), at)).count();
        let set = (0..length).filter(|&at| rank(at) < k).fold(0, |set, at| set | 1 << at);
        let weight = length as f64 / (k * masks.samples) as f64;
        match drawn.iter_mut().find(|(other, _)| *other == set) {
            Some((_, sum)) => *sum += weight,
            None => drawn.push((set, weight)),
        }
    }
    drawn.sort_by_key(|(set, _)| *set);
    drawn
}

/// The bound that a model that fills masks gives for the log-probability of a label after a prompt.
fn masked_logprob(prompt: &[u32], label: &[u32], masks: Masks, model: StandIn) -> f64 {
    let mut sum = 0.0;
    for (set, weight) in covered(label.len(), masks) {
        let hidden = |at: usize| set >> at & 1 == 1;
        let shown: Vec<Option<u32>> =
            label.iter().enumerate().map(|(at, &token)| (!hidden(at)).then_some(token)).collect();
        let mut of_set = 0.0;
        for at in (0..label.len()).filter(|&at| hidden(at)) {
            let row = masked_row(prompt, &shown, at, (masks, model));
            of_set += weight * (f64::from(row[label[at] as usize]) - normaliser(&row));
        }
        sum += of_set;
    }
    sum
}

fn log_softmax(values: &[f64]) -> Vec<f64> {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|x| libm::exp(x - max)).sum();
    values.iter().map(|x| x - (max + libm::log(sum))).collect()
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

fn exp(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| libm::exp(x) as f32).collect()
}

/// A score request, with everything that its answer depends on.
pub(in crate::simulator) struct LabelsRequest {
    /// The prompts: query and item.
    pub(in crate::simulator) items: Vec<Vec<u32>>,
    /// The lists of labels.
    pub(in crate::simulator) labels: Vec<Vec<Vec<u32>>>,
    /// The list of each item; `None` if there is one for all.
    pub(in crate::simulator) of: Option<Vec<usize>>,
    pub(in crate::simulator) masks: Option<Masks>,
    pub(in crate::simulator) softmax: bool,
    pub(in crate::simulator) full_logprobs: bool,
    pub(in crate::simulator) mean: bool,
    pub(in crate::simulator) model: StandIn,
}

impl LabelsRequest {
    /// The labels of an item.
    pub(in crate::simulator) fn labels_of(&self, item: usize) -> &[Vec<u32>] {
        &self.labels[self.of.as_ref().map_or(0, |of| of[item])]
    }

    /// The expected answer for an item.
    pub(in crate::simulator) fn expected(&self, item: usize) -> Scored {
        let labels = self.labels_of(item);
        if labels.iter().any(|label| label.len() > 1) {
            return self.of_long(item, labels);
        }
        let row = match self.masks {
            None => self.model.after(&self.items[item]),
            Some(masks) => masked_row(&self.items[item], &[None], 0, (masks, self.model)),
        };
        let own: Vec<f64> = labels.iter().map(|label| f64::from(row[label[0] as usize])).collect();
        let among = log_softmax(&own);
        if self.softmax && !self.full_logprobs {
            // Over labels of one token each, the normaliser over the vocabulary is never computed.
            return Scored { scores: exp(&among), logprobs: single(&among), label_mass: None };
        }
        let full: Vec<f64> = own.iter().map(|x| x - normaliser(&row)).collect();
        // The total probability of the distinct labels.
        let is_label = |id: &usize| labels.iter().any(|label| label[0] as usize == *id);
        let share = |id: usize| libm::exp(f64::from(row[id]) - normaliser(&row));
        let mass: f64 = (0..VOCABULARY).filter(is_label).map(share).sum();
        let scores = exp(if self.softmax { &among } else { &full });
        Scored { scores, logprobs: single(&full), label_mass: Some(mass as f32) }
    }

    /// For labels of several tokens. There is no total probability, because one label may be a prefix of another.
    fn of_long(&self, item: usize, labels: &[Vec<u32>]) -> Scored {
        let whole = labels.iter().map(|label| {
            let sum = match self.masks {
                None => logprob(&self.items[item], label, self.model),
                Some(masks) => masked_logprob(&self.items[item], label, masks, self.model),
            };
            if self.mean { sum / label.len() as f64 } else { sum }
        });
        let whole: Vec<f64> = whole.collect();
        let over = if self.softmax { log_softmax(&whole) } else { whole.clone() };
        let logprobs = single(if self.full_logprobs { &whole } else { &over });
        Scored { scores: exp(&over), logprobs, label_mass: None }
    }
}
