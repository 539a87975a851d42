//! Random tokens, and the kinds of requests in a schedule.

use super::Random;
use super::machine::VOCABULARY;

/// Random tokens: a random part of one of a few stems, then a tail of its own.
pub(super) fn tokens(random: &mut Random, most: usize) -> Vec<u32> {
    let typical = random.of(&[4, 30, 100, 400]);
    let length = 1 + random.below(most.min(typical));
    let (stem, own) = (random.below(3), random.below(1 + length / 2));
    let stemmed = |i: usize| ((i * 7 + stem * (1 + i / 50)) % VOCABULARY) as u32;
    let mut tokens: Vec<u32> = (0..length - own).map(stemmed).collect();
    tokens.extend((0..own).map(|_| random.below(VOCABULARY) as u32));
    tokens
}

/// Kinds of requests in a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// Whether all requests are for scores.
    pub(super) scores: bool,
    /// Whether requests use two different salts.
    salts: bool,
}

impl Mix {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { scores: random.once_in(4), salts: random.once_in(2) }
    }

    pub(super) fn salt(self, random: &mut Random) -> String {
        if self.salts { random.of(&["", "other"]) } else { "" }.to_owned()
    }
}
