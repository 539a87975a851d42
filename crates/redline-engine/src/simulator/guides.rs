//! What takes part in choosing tokens beside the model: a drafter that is right, wrong and unreasonable, and random constraints.

use super::Random;
use super::machine::VOCABULARY;
use super::oracle::Verdict;
use super::oracle::sampling::Continued;
use super::rule::{Rule, Ruled};
use crate::mode::autoregressive::guide::{Allowed, Constraint, Drafter};

/// Drafts that begin with right tokens, some or none, and go on with others.
pub(super) struct Adversary {
    random: Random,
    expected: Continued,
    /// The seed of the continuation.
    seed: u64,
    /// All tokens so far.
    tokens: Vec<u32>,
}

impl Adversary {
    pub(super) fn new(random: Random, expected: Continued, seed: u64) -> Self {
        Self { random, expected, seed, tokens: Vec::new() }
    }

    /// Up to `most` of the tokens that will follow.
    fn right(&self, most: usize) -> Vec<u32> {
        let mut new = self.tokens[self.expected.prompt.len()..].to_vec();
        let known = new.len();
        while new.len() < known + most
            && let Verdict::Exactly(id) = self.expected.choice(&new, self.seed)
        {
            new.push(id);
        }
        new.split_off(known)
    }
}

impl Drafter for Adversary {
    fn push(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }

    fn draft(&mut self, most: usize) -> Vec<u32> {
        let (some, more) = (self.random.below(6), 1 + self.random.below(9));
        let (mut drafts, ids) = match self.random.below(6) {
            0 => (Vec::new(), 0),
            1 => (self.right(12), 0),
            2 => (self.right(some), VOCABULARY),
            3 => (Vec::new(), VOCABULARY),
            // Beyond the vocabulary.
            4 => (self.right(some), 3 * VOCABULARY),
            // Beyond the end of the request.
            _ => return self.right(most + 5).into_iter().cycle().take(most + 300).collect(),
        };
        if ids > 0 {
            drafts.extend((0..more).map(|_| self.random.below(ids) as u32));
        }
        drafts
    }
}

/// A rule as the engine asks for it.
pub(super) struct Ruler {
    rule: Rule,
    count: usize,
    last: Option<u32>,
    end_ids: Vec<u32>,
    words: [u32; 1],
}

impl Ruler {
    pub(super) fn new(rule: Rule, end_ids: Vec<u32>) -> Self {
        Self { rule, count: 0, last: None, end_ids, words: [0] }
    }
}

impl Constraint for Ruler {
    fn allowed(&mut self) -> Allowed<'_> {
        assert!(self.last.is_none_or(|last| !self.end_ids.contains(&last)), "nothing comes after an end");
        match self.rule.after(self.count, self.last) {
            Ruled::All => Allowed::All,
            Ruled::Only(id) => Allowed::Only(id),
            Ruled::These(ids) => {
                self.words = [ids];
                Allowed::These(&self.words)
            }
        }
    }

    fn push(&mut self, token: u32) {
        (self.count, self.last) = (self.count + 1, Some(token));
    }
}
