//! How the rows of a text become its answer: a vector, a number for each class, or weights of tokens.
//!
//! No answer depends on the pieces in which rows are read: means are summed in f64, positions ascending, and a maximum has no order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use redline_kernels::Exec;
use redline_models::block::dense::{Classifier, DenseLayers};
use redline_models::sentence::{LogitPooling, MultiVectorRules, SentenceRules};
use redline_settings::{Pooling, VectorForm};

use super::EncodeText;
use crate::task::RowOutput;
use crate::task::logits::Logits;

/// Number of tokens of the vocabulary whose logits a thread pools before it takes others.
const SHARE: usize = 4096;

/// How the rows of a text become its answer.
pub(crate) enum Reading {
    /// The states of its tokens become one.
    Pooled {
        pooling: Pooling,
        /// The id that the last token of [`Pooling::Last`] does not have.
        padding: Option<u32>,
        finish: Finish,
    },
    /// The states of all its tokens, as they are.
    States,
    /// The states of some of its tokens become vectors.
    TokenVectors(Arc<MultiVectorRules>),
    /// The logits of all its tokens become weights of tokens of the vocabulary.
    Logits(LogitPooling),
    /// The states of its tokens become weights of these tokens.
    Tokens {
        /// One output.
        layers: Arc<DenseLayers>,
        /// Tokens that weigh nothing.
        weightless: Vec<u32>,
    },
}

/// What becomes of a pooled state.
pub(crate) enum Finish {
    /// An embedding.
    Embedding {
        /// The model's own rules, of which the layers apply.
        rules: Option<Arc<SentenceRules>>,
        /// Number of values that are kept.
        dimensions: usize,
        /// Whether it is divided by its length.
        normalise: bool,
    },
    /// A number for each class.
    Classes(Arc<Classifier>),
}

impl Finish {
    fn apply(&self, exec: Exec<'_>, pooled: &[f32]) -> Vec<f32> {
        match self {
            Self::Classes(classifier) => classifier.layers.apply(exec, pooled),
            Self::Embedding { rules, dimensions, normalise } => {
                let mut values = match rules.as_ref().and_then(|rules| rules.dense.as_ref()) {
                    Some(dense) => dense.layers.apply(exec, pooled),
                    None => pooled.to_vec(),
                };
                values.truncate(*dimensions);
                if *normalise { normalised(&values) } else { values }
            }
        }
    }
}

/// A vector divided by its length, which is taken to be at least 1e-12, as in PyTorch.
fn normalised(values: &[f32]) -> Vec<f32> {
    let squares: f64 = values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = squares.sqrt().max(1e-12);
    values.iter().map(|x| (f64::from(*x) / length) as f32).collect()
}

/// What is known of a text so far.
#[derive(Default)]
pub(super) struct TextState {
    /// Number of rows that were read.
    rows: usize,
    /// Sums of states, or of what logits weigh.
    sums: Vec<f64>,
    /// The largest logit of each token of the vocabulary.
    largest: Vec<f32>,
    /// Weights of tokens.
    weights: BTreeMap<u32, f32>,
    /// The answer, once all rows were read; the states of tokens, as far as they were.
    values: Option<Vec<f32>>,
    /// If the answer has weights of tokens: the tokens, ascending.
    indices: Vec<u32>,
}

impl TextState {
    /// The answer, and the tokens that its values are the weights of.
    pub(super) fn finished(self) -> (Option<Vec<f32>>, Vec<u32>) {
        (self.values, self.indices)
    }

    /// Ends with the weights that are not zero.
    fn set_weights(&mut self, weights: impl Iterator<Item = (u32, f32)>) {
        // A weight that is no number is kept, so that it is found.
        let (indices, values) = weights.filter(|(_, weight)| *weight != 0.0).unzip();
        (self.indices, self.values) = (indices, Some(values));
        (self.sums, self.largest, self.weights) = Default::default();
    }
}

impl Reading {
    /// What represents a text.
    pub(super) fn form(&self) -> VectorForm {
        match self {
            Self::Pooled { .. } => VectorForm::Dense,
            Self::States => VectorForm::States,
            Self::TokenVectors(_) => VectorForm::MultiVector,
            Self::Logits(_) | Self::Tokens { .. } => VectorForm::Sparse,
        }
    }

    /// Number of vectors of a text of so many tokens, of which so many get one.
    pub(super) fn vectors(&self, tokens: usize, with_vectors: usize) -> usize {
        match self {
            Self::States => tokens,
            Self::TokenVectors(_) => with_vectors,
            Self::Pooled { .. } | Self::Logits(_) | Self::Tokens { .. } => 1,
        }
    }

    /// Positions whose rows are read.
    pub(super) fn wanted(&self, ids: &[u32]) -> Range<usize> {
        match self {
            Self::Pooled { pooling: Pooling::First, .. } => 0..1,
            Self::Pooled { pooling: Pooling::Last, padding, .. } => {
                // As in the reference, the first token of a text that is nothing but padding.
                let last = ids.iter().rposition(|id| Some(*id) != *padding).unwrap_or(0);
                last..last + 1
            }
            _ => 0..ids.len(),
        }
    }

    /// What is made of the rows.
    pub(super) fn output(&self) -> RowOutput<()> {
        match self {
            Self::Logits(_) => RowOutput::Vocabulary,
            Self::Pooled { .. } | Self::States | Self::TokenVectors(_) | Self::Tokens { .. } => {
                RowOutput::State
            }
        }
    }

    /// Takes the next rows of a text, which have these positions.
    pub(super) fn add(
        &self,
        state: &mut TextState,
        text: &EncodeText,
        positions: &[usize],
        rows: Logits<'_>,
    ) {
        let wanted = self.wanted(&text.ids).len();
        state.rows += positions.len();
        let is_whole = state.rows == wanted;
        let each = || (0..positions.len()).map(|r| rows.rows.row(r));
        match self {
            Self::Pooled { finish, .. } => {
                let Some(first) = each().next() else { return };
                if wanted == 1 {
                    state.values = Some(finish.apply(rows.exec, first));
                    return;
                }
                state.sums.resize(first.len(), 0.0);
                for row in each() {
                    state.sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                if is_whole {
                    let sums = std::mem::take(&mut state.sums);
                    let mean: Vec<f32> = sums.into_iter().map(|sum| (sum / wanted as f64) as f32).collect();
                    state.values = Some(finish.apply(rows.exec, &mean));
                }
            }
            Self::States => {
                let values = state.values.get_or_insert_default();
                each().for_each(|row| values.extend_from_slice(row));
            }
            Self::TokenVectors(rules) => {
                let values = state.values.get_or_insert_default();
                for (position, vector) in positions.iter().zip(rules.layers.apply_rows(rows.exec, rows.rows))
                {
                    if text.with_vectors.binary_search(position).is_ok() {
                        values.extend(if rules.normalise { normalised(&vector) } else { vector });
                    }
                }
            }
            Self::Logits(pooling) => {
                pool(*pooling, state, rows);
                if is_whole {
                    weigh(*pooling, state);
                }
            }
            Self::Tokens { layers, weightless } => {
                let outputs = layers.apply_rows(rows.exec, rows.rows);
                for (position, output) in positions.iter().zip(outputs) {
                    let weight = state.weights.entry(text.ids[*position]).or_default();
                    *weight = larger(*weight, output[0]);
                }
                if is_whole {
                    let weights = std::mem::take(&mut state.weights).into_iter();
                    state.set_weights(weights.filter(|(id, _)| !weightless.contains(id)));
                }
            }
        }
    }
}

/// What a logit weighs: `ln(1 + max(0, x))`, in f64.
fn weight(pooling: LogitPooling, logit: f32) -> f64 {
    // Not `max`, which drops what is no number.
    let relu = if logit < 0.0 { 0.0 } else { f64::from(logit) };
    let weight = libm::log1p(relu);
    if pooling.twice { libm::log1p(weight) } else { weight }
}

/// Takes the logits of some tokens of a text.
fn pool(pooling: LogitPooling, state: &mut TextState, rows: Logits<'_>) {
    let width = rows.rows.width();
    if pooling.sum {
        state.sums.resize(width, 0.0);
        rows.divide(state.sums.chunks_mut(SHARE).enumerate(), |_, logits, (share, sums)| {
            each_row(logits, share, |row| {
                sums.iter_mut().zip(row).for_each(|(sum, logit)| *sum += weight(pooling, *logit));
            });
        });
    } else {
        state.largest.resize(width, f32::NEG_INFINITY);
        rows.divide(state.largest.chunks_mut(SHARE).enumerate(), |_, logits, (share, largest)| {
            each_row(logits, share, |row| {
                largest.iter_mut().zip(row).for_each(|(most, logit)| *most = larger(*most, *logit));
            });
        });
    }
}

/// Ends with the weights of all tokens of the vocabulary, once the logits of all tokens of the text are pooled.
fn weigh(pooling: LogitPooling, state: &mut TextState) {
    let weights: Vec<f32> = if pooling.sum {
        state.sums.iter().map(|sum| *sum as f32).collect()
    } else {
        // The function rises, so the largest logit has the largest weight.
        state.largest.iter().map(|logit| weight(pooling, *logit) as f32).collect()
    };
    state.set_weights((0..).zip(weights));
}

/// Calls `take` with the part of each row that belongs to a share of the vocabulary.
fn each_row(logits: Logits<'_>, share: usize, mut take: impl FnMut(&[f32])) {
    (0..logits.rows.rows()).for_each(|r| take(&logits.rows.row(r)[share * SHARE..]));
}

/// The larger of two numbers, or what is no number.
fn larger(a: f32, b: f32) -> f32 {
    if b > a || b.is_nan() { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_divided_by_its_length() {
        assert_eq!(normalised(&[3.0, 0.0, -4.0]), [0.6, 0.0, -0.8]);
        // The squares exceed an f32.
        assert_eq!(normalised(&[1e30, 0.0]), [1.0, 0.0]);
        assert_eq!(normalised(&[0.0; 2]), [0.0; 2]);
    }

    #[test]
    fn what_is_no_number_is_not_lost() {
        assert_eq!(larger(1.0, 2.0), 2.0);
        assert_eq!(larger(2.0, 1.0), 2.0);
        assert!(larger(1.0, f32::NAN).is_nan() && larger(f32::NAN, 1.0).is_nan());
        let pooling = LogitPooling::default();
        assert_eq!((weight(pooling, -3.0), weight(pooling, f32::NEG_INFINITY)), (0.0, 0.0));
        assert!(weight(pooling, f32::NAN).is_nan());
        let twice = LogitPooling { twice: true, ..pooling };
        assert_eq!(weight(twice, 2.0), libm::log1p(weight(pooling, 2.0)));
    }
}
