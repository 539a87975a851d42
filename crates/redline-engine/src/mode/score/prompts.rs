//! The token ids of the prompts and labels of a score request.

use std::sync::Arc;

/// Token ids of a prompt. The prefix that it shares with the first prompt of its request is stored once for all prompts.
#[derive(Clone, Debug)]
pub(crate) struct PromptIds {
    stem: Arc<[u32]>,
    common: usize,
    rest: Vec<u32>,
}

impl PromptIds {
    /// Creates the ids of a prompt. `stem` holds the ids of the first prompt, and is set by it.
    pub(crate) fn new(stem: &mut Option<Arc<[u32]>>, mut ids: Vec<u32>) -> Self {
        let stem = stem.get_or_insert_with(|| ids.as_slice().into());
        let common = stem.iter().zip(&ids).take_while(|(a, b)| a == b).count();
        Self { stem: stem.clone(), common, rest: ids.split_off(common) }
    }

    /// Number of leading tokens shared with the first prompt.
    pub(crate) fn common(&self) -> usize {
        self.common
    }

    /// Number of tokens; at least one.
    pub(crate) fn len(&self) -> usize {
        self.common + self.rest.len()
    }

    /// The ids.
    pub(crate) fn to_vec(&self) -> Vec<u32> {
        [&self.stem[..self.common], &self.rest].concat()
    }
}

/// One prompt, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(crate) ids: PromptIds,
    pub(crate) truncated: bool,
    pub(crate) boundary_mismatch: Option<bool>,
}

/// The labels of a score request.
#[derive(Clone, Debug)]
pub(crate) struct LabelLists {
    /// Distinct lists of labels; each label is a list of at least one token, the tokens of its end included.
    pub(crate) lists: Vec<Vec<Vec<u32>>>,
    /// For each label of each list, the number by which the sum of its log-probabilities is divided.
    pub(crate) divisors: Vec<Vec<f64>>,
    /// Number of tokens of the end of every label; 0 if the end is not scored.
    pub(crate) end_tokens: usize,
    /// Index of the list that each item uses; `None`: all use the first.
    pub(crate) of_item: Option<Vec<usize>>,
}

impl LabelLists {
    /// Index of the list that an item uses.
    pub(crate) fn of(&self, item: usize) -> usize {
        self.of_item.as_ref().and_then(|of| of.get(item).copied()).unwrap_or(0)
    }

    /// The labels of all lists.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Vec<u32>> {
        self.lists.iter().flatten()
    }

    /// The tokens of the end of the labels.
    pub(crate) fn end(&self) -> &[u32] {
        let label = self.all().next().map_or(&[][..], Vec::as_slice);
        // Without items that have labels of their own, there is none.
        &label[label.len().saturating_sub(self.end_tokens)..]
    }

    /// The labels of a list without their end.
    pub(crate) fn without_end(&self, list: usize) -> Vec<Vec<u32>> {
        self.lists[list].iter().map(|label| label[..label.len() - self.end_tokens].to_vec()).collect()
    }

    /// Tokens of the longest label.
    pub(crate) fn longest(&self) -> usize {
        self.all().map(Vec::len).max().unwrap_or(0)
    }
}
