//! Random tokens, and the kinds of requests in a schedule.

use redline_kernels::op::kv::{ConvInputs, PAGE_TOKENS};
use redline_models::kv::StateShape;

use super::Random;
use super::machine::{Mark, StandIn, VOCABULARY};
use crate::front::budget::resident_tokens;

/// Lengths that prompts do not exceed, each of as many prompts.
pub(super) type Lengths = [usize; 4];

/// Lengths of all sizes.
pub(super) const LENGTHS: Lengths = [4, 30, 100, 400];
/// Lengths of which most are of a page or more.
const LONG: Lengths = [100, 200, 400, 400];

/// Random tokens: a random part of one of a few stems, then a tail of its own.
pub(super) fn tokens(random: &mut Random, most: usize, lengths: Lengths) -> Vec<u32> {
    let typical = random.of(&lengths);
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
    /// Whether some requests use adapters.
    pub(super) adapters: bool,
    /// A model with a window, a convolution or a recurrence has no canvases.
    pub(super) model: StandIn,
    /// Whether drafts and constraints take part in some generations.
    pub(super) guided: bool,
    /// Maximum number of tokens in a pass.
    rows: usize,
    pub(super) lengths: Lengths,
}

impl Mix {
    pub(super) fn new(random: &mut Random, rows: usize) -> Self {
        let (scores, salts) = (random.once_in(4), random.once_in(2));
        let window = random.once_in(3).then(|| random.of(&[1, 20, 64, 100, 250]));
        let model = StandIn { window, ..StandIn::default() };
        Self { scores, salts, adapters: random.once_in(2), model, guided: false, rows, lengths: LENGTHS }
    }

    /// The same, in some schedules for a model with a convolution or a recurrence, in some with drafts and constraints.
    pub(super) fn extended(self, random: &mut Random) -> Self {
        let rows = 1 + random.below(3);
        let slots = rows + random.of(&[0, 0, 3]);
        let inputs = random.once_in(3).then_some(ConvInputs { channels: 1, rows, slots });
        let guided = random.once_in(2);
        let (pages, every) = (1 + random.below(2), PAGE_TOKENS * random.of(&[1, 2]));
        let states = StateShape { pages, every, log: random.of(&[0, 2, 5, 40]) };
        let states = random.once_in(3).then_some(states);
        Self { model: StandIn { inputs, states, ..self.model }, guided, ..self }
    }

    /// Whether the model has canvases.
    pub(super) fn has_canvases(self) -> bool {
        self.model.window.is_none() && self.model.inputs.is_none() && self.model.states.is_none()
    }

    /// The same with prompts that have full pages.
    pub(super) fn long(self) -> Self {
        Self { lengths: LONG, ..self }
    }

    /// The same for a request with adapters.
    pub(super) fn with(self, adapters: Mark) -> Self {
        Self { model: StandIn { adapters, ..self.model }, ..self }
    }

    /// Number of tokens for which a generation needs room at a time.
    pub(super) fn resident(self, prompt: usize, new: usize, forks: bool) -> usize {
        resident_tokens((prompt, prompt + new), self.model.window, self.rows, forks)
    }

    pub(super) fn salt(self, random: &mut Random) -> String {
        if self.salts { random.of(&["", "other"]) } else { "" }.to_owned()
    }
}
