//! The encoders that are compared, the check of their ids, and their order.

use redline_tokenizer::{PrefixCacheCounters, Tokenizer};

use super::texts::Input;
use crate::bench::{Bench, LaneError};
use crate::digest::of_ids;

/// Characters of a text shown in a message.
const SHOWN: usize = 60;

/// An encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    Native,
    Cached,
    Library,
}

impl Arm {
    /// The arms in row order.
    pub(super) const ALL: &[Self] = &[Self::Native, Self::Cached, Self::Library];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Cached => "native-cached",
            Self::Library => "library",
        }
    }

    /// The name of the code that runs.
    pub(super) fn encodes(self) -> &'static str {
        match self {
            Self::Native => "native encoder",
            Self::Cached => "native encoder with prefix cache",
            Self::Library => "crate tokenizers",
        }
    }
}

/// The encoders.
pub(super) struct Arms {
    pub(super) native: Tokenizer,
    pub(super) cached: Tokenizer,
    pub(super) library: Tokenizer,
}

/// One batch encoded by one arm.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) tokens: usize,
    /// The counters of its prefix cache for this batch, if it has one.
    pub(super) lookups: Option<PrefixCacheCounters>,
}

/// The ids of every text.
pub(super) type Ids = Vec<Vec<u32>>;

/// The digest of all ids, text after text.
pub(super) fn digest(ids: &[Vec<u32>]) -> String {
    of_ids(&ids.concat())
}

impl Arms {
    fn tokenizer(&self, arm: Arm) -> &Tokenizer {
        match arm {
            Arm::Native => &self.native,
            Arm::Cached => &self.cached,
            Arm::Library => &self.library,
        }
    }

    /// The ids of the texts from the library, after checking that every other arm gives the same; the cached arm is also
    /// checked with a warm cache.
    pub(super) fn checked(&self, input: &Input) -> Result<Ids, LaneError> {
        let texts = input.texts();
        let ids = self.library.encode_batch(&texts, true, 1)?;
        for arm in [Arm::Native, Arm::Cached, Arm::Cached] {
            same(arm, input, &ids, &self.tokenizer(arm).encode_batch(&texts, true, 1)?)?;
        }
        Ok(ids)
    }

    /// Runs a round over all arms; every second round goes backwards.
    pub(super) fn round(
        &self,
        bench: &Bench<'_>,
        input: &Input,
        ids: &Ids,
        threads: usize,
        round: usize,
    ) -> Result<[Sample; Arm::ALL.len()], LaneError> {
        let texts = input.texts();
        let mut samples: [Sample; Arm::ALL.len()] = Default::default();
        for turn in 0..Arm::ALL.len() {
            let at = if round % 2 == 0 { turn } else { Arm::ALL.len() - 1 - turn };
            samples[at] = self.sample(bench, Arm::ALL[at], input, &texts, ids, threads)?;
        }
        Ok(samples)
    }

    fn sample(
        &self,
        bench: &Bench<'_>,
        arm: Arm,
        input: &Input,
        texts: &[&str],
        ids: &Ids,
        threads: usize,
    ) -> Result<Sample, LaneError> {
        let tokenizer = self.tokenizer(arm);
        let before = tokenizer.prefix_cache();
        let (found, ns) = bench.clock.time(|| tokenizer.encode_batch(texts, true, threads));
        same(arm, input, ids, &found?)?;
        let since = |(before, after): (PrefixCacheCounters, PrefixCacheCounters)| PrefixCacheCounters {
            hits: after.hits.saturating_sub(before.hits),
            misses: after.misses.saturating_sub(before.misses),
            reused_bytes: after.reused_bytes.saturating_sub(before.reused_bytes),
        };
        Ok(Sample {
            // If the clock did not advance, count a nanosecond.
            seconds: ns.max(1) as f64 * 1e-9,
            tokens: ids.iter().map(Vec::len).sum(),
            lookups: before.zip(tokenizer.prefix_cache()).map(since),
        })
    }
}

/// Returns an error for ids other than the library's, with the first text that has them.
fn same(arm: Arm, input: &Input, expected: &Ids, found: &Ids) -> Result<(), LaneError> {
    if expected == found {
        return Ok(());
    }
    let differ = |(e, f): (&Vec<u32>, &Vec<u32>)| e != f;
    let Some(text) = expected.iter().zip(found).position(differ) else {
        let fact = format!("{} of {} texts were encoded", found.len(), expected.len());
        return Err(LaneError::Incorrect(format!("{fact}\n  by the {}", arm.encodes())));
    };
    let (expected, found) = (&expected[text], &found[text]);
    let at = expected.iter().zip(found).take_while(|(e, f)| e == f).count();
    let window = |ids: &[u32]| ids.iter().skip(at.saturating_sub(2)).take(6).copied().collect::<Vec<_>>();
    let shown: String = input.texts[text].chars().take(SHOWN).collect();
    Err(LaneError::Incorrect(format!(
        "text {} of `{}` has other ids from id {at} on: {:?} by the {}, {:?} by the {}\n  in {shown:?}",
        text + 1,
        input.name,
        window(found),
        arm.encodes(),
        window(expected),
        Arm::Library.encodes(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_text_with_other_ids_is_told() {
        let texts = ["one", "two", "three"].map(str::to_owned).to_vec();
        let input = Input { name: "prose", texts };
        let ids: Ids = vec![vec![1], vec![2, 3, 4, 5], vec![6]];
        assert!(same(Arm::Native, &input, &ids, &ids.clone()).is_ok());
        let mut other = ids.clone();
        other[1][3] = 9;
        other[2].clear();
        let Err(LaneError::Incorrect(fact)) = same(Arm::Cached, &input, &ids, &other) else { panic!() };
        for part in
            ["text 2 of `prose`", "from id 3 on", "[3, 4, 9] by the native", "[3, 4, 5]", "in \"two\""]
        {
            assert!(fact.contains(part), "{part}: {fact}");
        }
        let Err(LaneError::Incorrect(fact)) = same(Arm::Native, &input, &ids, &ids[..1].to_vec()) else {
            panic!()
        };
        assert!(fact.starts_with("1 of 3 texts"), "{fact}");
    }
}
