//! Changes to the logits of a row before a token is chosen from them: bias, penalties, and then the tokens that may be chosen at all.
//!
//! For each token, in f32, one rounding per step: add the bias; divide a positive logit by the repetition penalty or multiply
//! another by it, if the token occurs in the prompt or the continuation; subtract the frequency penalty times the number of times
//! the token was generated; subtract the presence penalty if it was generated. Finite logits stay finite: what overflows becomes
//! the largest number. Then tokens that end the text get negative infinity while fewer than `min_tokens` tokens were generated. The
//! order of the first two is that of transformers, and that of all four is vLLM's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::refuse;
use crate::error::EngineError;
use crate::request::Penalties;
use crate::task::logits::LogitsRow;

/// The tokens that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed<'a> {
    /// All.
    All,
    /// Those whose bits are set: bit `id % 32` of word `id / 32`. Those beyond the last word may not be chosen.
    These(&'a [u32]),
    /// This one, whatever its logit.
    Only(u32),
}

impl Allowed<'_> {
    /// Whether a token may be chosen.
    pub(crate) fn contains(self, id: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(words) => {
                words.get(id as usize / 32).is_some_and(|word| word >> (id % u32::BITS) & 1 == 1)
            }
            Self::Only(only) => id == only,
        }
    }

    /// The probability of all tokens that may not be chosen. Of those that may and those that may not the fewer are summed, in the order
    /// of their ids, so that a small one is exact.
    pub(crate) fn masked_mass(self, row: &LogitsRow<'_>) -> f32 {
        let allowed = match self {
            Self::All => return 0.0,
            Self::Only(_) => 1,
            Self::These(words) => words.iter().map(|word| word.count_ones() as usize).sum(),
        };
        let by_allowed = allowed <= row.logits.len() / 2;
        let summed = (0..).zip(row.logits).filter(|(id, _)| self.contains(*id) == by_allowed);
        let sum: f64 = summed.map(|(_, logit)| libm::exp(f64::from(*logit) - row.log_sum_exp)).sum();
        (if by_allowed { 1.0 - sum } else { sum }).clamp(0.0, 1.0) as f32
    }

    /// Sets the logits of tokens that may not be chosen to negative infinity; not those of all tokens but one.
    fn apply(self, row: &mut [f32]) {
        let Self::These(words) = self else { return };
        let words = words.iter().copied().chain(std::iter::repeat(0));
        for (logits, word) in row.chunks_mut(u32::BITS as usize).zip(words) {
            for (bit, x) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *x = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// Checks the penalties.
pub(crate) fn check_penalties(penalties: &Penalties) -> Result<(), EngineError> {
    let Penalties { repetition, frequency, presence, min_tokens: _ } = *penalties;
    if !(repetition.is_finite() && repetition > 0.0) {
        return refuse("repetition_penalty", repetition, "a finite number above 0");
    }
    for (name, value) in [("frequency_penalty", frequency), ("presence_penalty", presence)] {
        if !(-2.0..=2.0).contains(&value) {
            return refuse(name, value, "from -2 to 2");
        }
    }
    Ok(())
}

/// The processor of one continuation: what it adds, and the tokens that occurred.
#[derive(Clone, Debug)]
pub(crate) struct LogitsProcessor {
    penalties: Penalties,
    /// Token ids with their bias; no id occurs twice.
    bias: Arc<[(u32, f32)]>,
    /// The distinct tokens of the prompt; empty without a repetition penalty.
    prompt: Arc<BTreeSet<u32>>,
    /// The tokens that end the text.
    ends: Arc<[u32]>,
    /// How often each token was generated; empty without penalties.
    generated: BTreeMap<u32, u32>,
    /// Number of tokens still to be generated before one that ends the text may be chosen.
    left: usize,
}

impl LogitsProcessor {
    /// A processor for continuations of `prompt`.
    pub(crate) fn new(penalties: Penalties, bias: &[(u32, f32)], prompt: &[u32]) -> Self {
        let repeats = if penalties.repetition == 1.0 { &[][..] } else { prompt };
        Self {
            penalties,
            bias: bias.into(),
            prompt: Arc::new(repeats.iter().copied().collect()),
            ends: Arc::new([]),
            generated: BTreeMap::new(),
            left: penalties.min_tokens,
        }
    }

    /// The same, with the tokens that end the text.
    pub(crate) fn ending_with(self, ends: &[u32]) -> Self {
        Self { ends: ends.into(), ..self }
    }

    /// Counts a generated token.
    pub(crate) fn push(&mut self, token: u32) {
        // `min_tokens` needs no counts.
        if (Penalties { min_tokens: 0, ..self.penalties }) != Penalties::default() {
            *self.generated.entry(token).or_default() += 1;
        }
        self.left = self.left.saturating_sub(1);
    }

    /// The logits from which the next token is chosen, `[vocab]`, written to `row`; the given ones if nothing changes them.
    pub(super) fn process<'a>(
        &self,
        logits: &'a [f32],
        allowed: Allowed<'_>,
        row: &'a mut Vec<f32>,
    ) -> &'a [f32] {
        let plain = self.bias.is_empty() && self.prompt.is_empty() && self.generated.is_empty();
        let changes = !plain || self.left > 0;
        if !changes && allowed == Allowed::All {
            return logits;
        }
        let Penalties { repetition, frequency, presence, min_tokens: _ } = self.penalties;
        row.clear();
        row.extend_from_slice(logits);
        let mut change = |token: u32, to: &dyn Fn(f32) -> f32| {
            if let Some(x) = row.get_mut(token as usize).filter(|x| x.is_finite()) {
                *x = to(*x).clamp(f32::MIN, f32::MAX);
            }
        };
        for &(token, bias) in self.bias.iter() {
            change(token, &|x| x + bias);
        }
        if repetition != 1.0 {
            let fresh = self.generated.keys().filter(|token| !self.prompt.contains(token));
            for &token in self.prompt.iter().chain(fresh) {
                change(token, &|x| if x < 0.0 { x * repetition } else { x / repetition });
            }
        }
        for (&token, &count) in &self.generated {
            change(token, &|x| x - frequency * count as f32 - presence);
        }
        for &end in self.ends.iter().filter(|_| self.left > 0) {
            if let Some(x) = row.get_mut(end as usize) {
                *x = f32::NEG_INFINITY;
            }
        }
        allowed.apply(row);
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Penalties = Penalties { repetition: 1.0, frequency: 0.0, presence: 0.0, min_tokens: 0 };

    fn processor(penalties: Penalties, bias: &[(u32, f32)], generated: &[u32]) -> LogitsProcessor {
        let mut processor = LogitsProcessor::new(penalties, bias, &[0, 1, 1]).ending_with(&[2, 9]);
        for &token in generated {
            processor.push(token);
        }
        processor
    }

    fn processed(processor: &LogitsProcessor, logits: &[f32]) -> Vec<f32> {
        processor.process(logits, Allowed::All, &mut Vec::new()).to_vec()
    }

    #[test]
    fn the_masked_mass_is_what_may_not_be_chosen() {
        let logits: Vec<f32> =
            (0..40).map(|i| (i % 7) as f32 / 2.0 - if i == 38 { 30.0 } else { 0.0 }).collect();
        let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
        let row = LogitsRow { logits: &logits, log_sum_exp: sum.ln() };
        let mass = |of: &dyn Fn(usize) -> bool| {
            let parts = logits.iter().enumerate().filter(|(id, _)| of(*id));
            parts.map(|(_, x)| f64::from(*x).exp() / sum).sum::<f64>()
        };
        let told = |words: &[u32]| f64::from(Allowed::These(words).masked_mass(&row));
        assert!((told(&[0b1011]) - mass(&|id| ![0, 1, 3].contains(&id))).abs() < 1e-6);
        // Those of the second word are 32 to 39; a small mass is exact.
        let all_but_one = told(&[u32::MAX, !(1 << 6)]);
        assert!((all_but_one / mass(&|id| id == 38) - 1.0).abs() < 1e-6 && all_but_one > 0.0);
        // Tokens beyond the last word may not be chosen.
        assert!((told(&[u32::MAX]) - mass(&|id| id >= 32)).abs() < 1e-6);
        assert_eq!((Allowed::All.masked_mass(&row), told(&[u32::MAX; 2]), told(&[])), (0.0, 0.0, 1.0));
        let only = f64::from(Allowed::Only(6).masked_mass(&row));
        assert!((only - mass(&|id| id != 6)).abs() < 1e-6);
    }

    #[test]
    fn no_token_that_ends_the_text_is_chosen_before_its_time() {
        let two = Penalties { min_tokens: 2, ..NONE };
        let after = |generated: &[u32]| processed(&processor(two, &[], generated), &[1.0, 2.0, 3.0]);
        let barred = [1.0, 2.0, f32::NEG_INFINITY];
        assert_eq!(
            (after(&[]), after(&[1]), after(&[1, 1])),
            (barred.to_vec(), barred.to_vec(), vec![1.0, 2.0, 3.0])
        );
    }

    #[test]
    fn every_step_by_hand() {
        let logits = [2.0, -2.0, 2.0, -2.0, 5.0];
        let changed =
            |penalties, bias: &[(u32, f32)]| processed(&processor(penalties, bias, &[1, 2, 2, 3]), &logits);
        let repetition = Penalties { repetition: 2.0, ..NONE };
        assert_eq!(changed(repetition, &[]), [1.0, -4.0, 1.0, -4.0, 5.0]);
        // The bias comes first, and decides the sign. Tokens of the prompt count once, and those of both too.
        assert_eq!(changed(repetition, &[(1, 8.0), (4, 0.5)]), [1.0, 3.0, 1.0, -4.0, 5.5]);
        assert_eq!(changed(Penalties { frequency: 0.5, ..NONE }, &[]), [2.0, -2.5, 1.0, -2.5, 5.0]);
        assert_eq!(changed(Penalties { presence: -0.5, ..NONE }, &[]), [2.0, -1.5, 2.5, -1.5, 5.0]);
        let all = Penalties { repetition: 2.0, frequency: 0.5, presence: 1.0, min_tokens: 0 };
        assert_eq!(changed(all, &[]), [1.0, -5.5, -1.0, -5.5, 5.0]);
    }

    #[test]
    fn a_processor_without_effect_copies_nothing() {
        let logits = [1.0, 2.0];
        let processor = processor(NONE, &[], &[0, 1]);
        assert!(std::ptr::eq(processor.process(&logits, Allowed::All, &mut Vec::new()), logits.as_slice()));
        let ended = self::processor(Penalties { min_tokens: 1, ..NONE }, &[], &[0]);
        assert!(std::ptr::eq(ended.process(&logits, Allowed::All, &mut Vec::new()), logits.as_slice()));
    }

    #[test]
    fn finite_logits_stay_finite_and_others_stay_as_they_are() {
        let tiny = Penalties { repetition: f32::MIN_POSITIVE, ..NONE };
        assert_eq!(
            processed(&processor(tiny, &[], &[]), &[5.0, 1.0, 9.0]),
            [f32::MAX, 1.0 / f32::MIN_POSITIVE, 9.0]
        );
        let huge = Penalties { repetition: f32::MAX, ..NONE };
        assert_eq!(
            processed(&processor(huge, &[], &[]), &[-3.0, f32::NEG_INFINITY]),
            [f32::MIN, f32::NEG_INFINITY]
        );
        assert!(processed(&processor(huge, &[(0, 5.0)], &[]), &[f32::NAN])[0].is_nan());
        // An id without a logit is left out.
        assert_eq!(processed(&processor(NONE, &[(7, 1.0)], &[]), &[1.0]), [1.0]);
    }

    #[test]
    fn penalties_out_of_range_are_refused_by_name() {
        for (bad, name) in [
            (Penalties { repetition: 0.0, ..NONE }, "`repetition_penalty` is 0"),
            (Penalties { repetition: f32::NAN, ..NONE }, "`repetition_penalty` is NaN"),
            (Penalties { repetition: f32::INFINITY, ..NONE }, "`repetition_penalty` is inf"),
            (Penalties { frequency: 2.0f32.next_up(), ..NONE }, "`frequency_penalty` is 2.0000002"),
            (Penalties { presence: -2.5, ..NONE }, "`presence_penalty` is -2.5"),
            (Penalties { presence: f32::NAN, ..NONE }, "`presence_penalty` is NaN"),
        ] {
            assert_eq!(check_penalties(&bad).unwrap_err().to_string(), name);
        }
        for good in [-2.0, 2.0] {
            check_penalties(&Penalties { frequency: good, presence: good, ..NONE }).unwrap();
        }
    }
}
