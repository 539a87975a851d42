//! Random requests of every kind, and the parts of their answers that must not depend on concurrent requests.

use redline_engine::{
    BlockCache, Cancel, DiffuseRequest, DiffuseTicket, Engine, EngineError, GenerateRequest, GenerateTicket,
    Label, LongLabels, Sampling, ScoreRequest, ScoreTicket,
};

use crate::models::{generation, ids, request};

/// A stream of random numbers (splitmix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Random tokens: a prefix of one of three sequences, then a tail of its own.
    fn tokens(&mut self, vocab: u64, most: u64) -> Vec<i64> {
        let (length, family) = (1 + self.below(most), self.below(3));
        let own = self.below(4).min(length);
        let shared = (0..length - own).map(|i| ((5 + i * 7 + family * (1 + i / 40)) % vocab) as i64);
        let mut tokens: Vec<i64> = shared.collect();
        tokens.extend((0..own).map(|_| self.below(vocab) as i64));
        tokens
    }
}

/// A request of any kind.
#[derive(Clone, Debug)]
pub(crate) enum AnyRequest {
    Score(ScoreRequest),
    Generate(GenerateRequest),
    Diffuse(DiffuseRequest),
}

/// A submitted request.
pub(crate) enum Ticket {
    Score(ScoreTicket),
    Generate(GenerateTicket),
    Diffuse(DiffuseTicket),
}

/// Tokens, and the bits of numbers.
#[derive(Debug, PartialEq)]
pub(crate) struct Answered(Vec<u32>, Vec<u32>);

impl AnyRequest {
    /// A random request that the model accepts; its prompts share prefixes with other requests.
    pub(crate) fn draw(engine: &Engine, dice: &mut Dice) -> Self {
        let info = engine.info();
        let vocab = info.vocab as u64 - 20;
        let masked = info.objective.fills_masks();
        let salt = ["", "", "other"][dice.below(3) as usize].to_owned();
        if dice.below(2) == 0 {
            let query = dice.tokens(vocab, 80);
            let items = (0..=dice.below(3)).map(|_| ids(&dice.tokens(vocab, 30))).collect();
            let mut label = |most| (0..=dice.below(most)).map(|_| dice.below(vocab) as i64).collect();
            let labels = vec![Label::Ids(label(1)), Label::Ids(label(3))];
            let plain = request(ids(&query), items, labels);
            return Self::Score(ScoreRequest {
                long_labels: LongLabels::Sum,
                softmax: dice.below(2) == 0,
                mc_samples: masked.then_some(2),
                cache_salt: salt,
                ..plain
            });
        }
        let sampling =
            Sampling { temperature: dice.below(2) as f32, seed: dice.below(1000), ..Sampling::default() };
        if masked {
            let prompt = ids(&dice.tokens(vocab, 40));
            let cache = BlockCache::ALL[dice.below(3) as usize];
            let plain = DiffuseRequest::new(prompt, 8);
            return Self::Diffuse(DiffuseRequest { sampling, cache, block_length: Some(4), ..plain });
        }
        let prompt = ids(&dice.tokens(vocab, 100));
        let plain = generation(prompt, 1 + dice.below(8) as usize);
        Self::Generate(GenerateRequest { sampling, logprobs: Some(2), cache_salt: salt, ..plain })
    }

    /// Submits it.
    pub(crate) fn submit(&self, engine: &Engine) -> Result<Ticket, EngineError> {
        let cancel = Cancel::new();
        Ok(match self.clone() {
            Self::Score(request) => Ticket::Score(engine.submit_score(request, &cancel)?),
            Self::Generate(request) => Ticket::Generate(engine.submit_generate(request, &cancel)?),
            Self::Diffuse(request) => Ticket::Diffuse(engine.submit_diffuse(request, &cancel)?),
        })
    }
}

impl Ticket {
    /// Waits for the answer.
    pub(crate) fn wait(self) -> Result<Answered, EngineError> {
        Ok(match self {
            Self::Score(ticket) => {
                let rows = ticket.wait()?.items.into_iter().map(Result::unwrap);
                let bits = rows.flat_map(|row| row.scores.into_iter().chain(row.logprobs)).map(f32::to_bits);
                Answered(Vec::new(), bits.collect())
            }
            Self::Generate(ticket) => {
                let outcome = ticket.wait()?;
                let logprobs = outcome.logprobs.unwrap_or_default();
                let all = logprobs.iter().flat_map(|p| p.top.iter().chain([&p.chosen]));
                Answered(outcome.token_ids, all.map(|token| token.logprob.to_bits()).collect())
            }
            Self::Diffuse(ticket) => {
                let outcome = ticket.wait()?;
                let filled = outcome.passes.iter().flat_map(|pass| &pass.filled);
                let sure: Vec<u64> = filled.map(|mask| mask.confidence.to_bits()).collect();
                Answered(
                    outcome.canvas,
                    sure.into_iter().flat_map(|b| [b as u32, (b >> 32) as u32]).collect(),
                )
            }
        })
    }
}
