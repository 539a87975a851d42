//! The labels of a request: the logits they need, and the scores computed from them.

use super::ScoreJob;
use crate::answer::outcome::LabelReading;
use crate::task::logits::LogitsRow;

/// Scores and log-probabilities of one prompt.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) scores: Vec<f32>,
    pub(super) logprobs: Vec<f32>,
    pub(super) label_mass: Option<f32>,
    pub(super) reading: Option<LabelReading>,
}

/// A list of labels by which prompts are scored.
pub(super) struct LabelSet {
    /// The distinct labels, ascending.
    distinct: Vec<Vec<u32>>,
    /// Index of each label in `distinct`.
    columns: Vec<usize>,
    /// The number by which the log-probability of each label is divided.
    divisors: Vec<f64>,
    /// The distinct first tokens, ascending.
    first: Vec<u32>,
    /// Whether a label has several tokens, or a log-probability that is divided.
    is_long: bool,
}

impl LabelSet {
    /// Creates a set of labels, each with the number by which its log-probability is divided.
    pub(super) fn new(labels: &[Vec<u32>], divisors: &[f64]) -> Self {
        let mut distinct = labels.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let column = |label: &Vec<u32>| distinct.partition_point(|other| other < label);
        let columns = labels.iter().map(column).collect();
        let mut first: Vec<u32> = distinct.iter().map(|label| label[0]).collect();
        first.dedup();
        let is_long = distinct.iter().any(|label| label.len() > 1) || divisors.iter().any(|&by| by != 1.0);
        Self { distinct, columns, divisors: divisors.to_vec(), first, is_long }
    }

    /// Whether a label has several tokens, or a log-probability that is divided.
    pub(super) fn is_long(&self) -> bool {
        self.is_long
    }

    /// The distinct first tokens, ascending.
    pub(super) fn first_tokens(&self) -> &[u32] {
        &self.first
    }

    /// The distinct labels, ascending.
    pub(super) fn distinct(&self) -> &[Vec<u32>] {
        &self.distinct
    }

    /// Indices of the distinct labels that have several tokens.
    pub(super) fn long(&self) -> impl Iterator<Item = usize> {
        (0..self.distinct.len()).filter(|&label| self.distinct[label].len() > 1)
    }

    /// The tokens of a distinct label.
    pub(super) fn tokens(&self, label: usize) -> &[u32] {
        &self.distinct[label]
    }

    /// The scores of a prompt whose labels have one token each, from its logits over these ids, ascending, or over the vocabulary; `None`
    /// if the model's output was not a number.
    pub(super) fn row(&self, row: &LogitsRow<'_>, over: Option<&[u32]>, job: &ScoreJob) -> Option<Row> {
        let place = |id: u32| over.map_or(id as usize, |ids| ids.partition_point(|&other| other < id));
        let logit = |&column: &usize| f64::from(row.logits[place(self.distinct[column][0])]);
        let logits: Vec<f64> = self.columns.iter().map(logit).collect();
        if !logits.iter().all(|x| x.is_finite()) || !row.log_sum_exp.is_finite() {
            return None;
        }
        let among = log_softmax(&logits);
        if over.is_some() {
            return Some(Row {
                scores: exp(&among),
                logprobs: single(&among),
                label_mass: None,
                reading: None,
            });
        }
        let full: Vec<f64> = logits.iter().map(|x| x - row.log_sum_exp).collect();
        // As if the head had been evaluated over the labels, whatever the labels of other items need.
        let over_labels = job.softmax && !job.full_logprobs;
        let probability = |&id: &u32| libm::exp(f64::from(row.logits[id as usize]) - row.log_sum_exp);
        let mass: f64 = self.first.iter().map(probability).sum();
        let scores = exp(if job.softmax { &among } else { &full });
        let label_mass = mass as f32;
        let reading =
            job.return_reading.then(|| LabelReading { label_mass, most_probable: most_probable(row.logits) });
        let logprobs = single(if over_labels { &among } else { &full });
        Some(Row { scores, logprobs, label_mass: (!over_labels).then_some(label_mass), reading })
    }

    /// Log-probability of the first token of each distinct label.
    pub(super) fn first_logprobs(&self, row: &LogitsRow<'_>) -> Vec<f64> {
        let logprob = |label: &Vec<u32>| f64::from(row.logits[label[0] as usize]) - row.log_sum_exp;
        self.distinct.iter().map(logprob).collect()
    }

    /// The probability of writing one of the labels, from the summed log-probabilities of the distinct ones. What begins with another
    /// label is written with it and counts once.
    fn mass(&self, sums: &[f64]) -> f64 {
        let mut begins: Option<&[u32]> = None;
        let mut mass = 0.0;
        for (label, sum) in self.distinct.iter().zip(sums) {
            // In ascending order, the labels that begin with a label follow it directly.
            if begins.is_none_or(|begin| !label.starts_with(begin)) {
                begins = Some(label);
                mass += libm::exp(*sum);
            }
        }
        mass
    }

    /// The scores of a prompt from the summed log-probabilities of its distinct labels. With the most probable token after the prompt,
    /// there is a reading too.
    pub(super) fn long_row(&self, sums: &[f64], most_probable: Option<u32>, job: &ScoreJob) -> Option<Row> {
        let label = |(&column, divisor): (&usize, &f64)| sums[column] / divisor;
        let logprobs: Vec<f64> = self.columns.iter().zip(&self.divisors).map(label).collect();
        if !logprobs.iter().all(|x| x.is_finite()) {
            return None;
        }
        let over = if job.softmax { log_softmax(&logprobs) } else { logprobs.clone() };
        let reported = if job.full_logprobs { &logprobs } else { &over };
        // One label may be a prefix of another, so their probabilities do not add up.
        let reading = most_probable
            .map(|most_probable| LabelReading { label_mass: self.mass(sums) as f32, most_probable });
        Some(Row { scores: exp(&over), logprobs: single(reported), label_mass: None, reading })
    }
}

/// The id of the largest logit, the first among equals.
pub(super) fn most_probable(logits: &[f32]) -> u32 {
    let ids = (0u32..).zip(logits);
    ids.reduce(|best, other| if other.1 > best.1 { other } else { best }).map_or(0, |(id, _)| id)
}

fn exp(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| libm::exp(x) as f32).collect()
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| libm::exp(x - max)).sum();
    let log_sum = max + libm::log(sum);
    logits.iter().map(|x| x - log_sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mass_counts_what_begins_with_a_label_once() {
        let labels = [vec![5], vec![5, 6], vec![5, 6, 7], vec![8, 1], vec![8, 2]];
        let set = LabelSet::new(&labels, &[1.0; 5]);
        assert!(set.is_long());
        let sums = [0.25_f64.ln(), 0.125_f64.ln(), 0.1_f64.ln(), 0.5_f64.ln(), 0.0625_f64.ln()];
        assert!((set.mass(&sums) - 0.8125).abs() < 1e-12);
    }

    #[test]
    fn the_first_of_the_largest_logits_is_the_most_probable() {
        assert_eq!(most_probable(&[-1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(most_probable(&[f32::MIN, f32::MIN]), 0);
    }
}
