//! Random rules about the tokens that may come next, as constraints on answers.

use super::Random;
use super::machine::VOCABULARY;

/// A rule that says which tokens may follow: it depends on the tokens so far, and always admits one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule(pub(super) u64);

/// What a rule says.
pub(super) enum Ruled {
    All,
    Only(u32),
    These(u32),
}

impl Rule {
    /// What may come after `count` new tokens, of which this is the last.
    pub(super) fn after(self, count: usize, last: Option<u32>) -> Ruled {
        let mut random = Random(self.0 ^ (count as u64) << 32 ^ u64::from(last.map_or(0, |id| id + 1)));
        match random.below(4) {
            0 => Ruled::All,
            1 => Ruled::Only(random.below(VOCABULARY) as u32),
            _ => Ruled::These(random.next() as u32 | 1 << random.below(VOCABULARY)),
        }
    }
}
