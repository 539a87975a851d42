//! The encoders that are compared, the check of their ids, and their order.

use redline_tokenizer::{PrefixCacheCounters, Tokenizer};

use super::texts::Input;
use crate::bench::{LaneError, Result};
use redline_system::Clock;
use redline_system::digest::of_ids;

/// Characters of a text shown in a message.
const SHOWN: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    Native,
    Cached,
    Library,
}

impl Arm {
    pub(super) const ALL: &[Self] = &[Self::Native, Self::Cached, Self::Library];

    /// The names, and the names of the code that runs.
    const NAMES: [(&str, &str); Self::ALL.len()] = [
        ("native", "native encoder"),
        ("native-cached", "native encoder with prefix cache"),
        ("library", "crate tokenizers"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The name of the code that runs.
    pub(super) fn encodes(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

pub(super) struct Arms(pub(super) [Tokenizer; Arm::ALL.len()]);

/// One batch encoded by one arm.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Elapsed time.
    pub(super) seconds: f64,
    /// Processor time of all threads; `None` if the clock cannot tell.
    pub(super) cpu_seconds: Option<f64>,
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
    /// The ids of the texts from the library, after checking that every other arm gives the same; the cached arm is also
    /// checked with a warm cache.
    pub(super) fn checked(&self, input: &Input) -> Result<Ids> {
        let texts = input.texts();
        let encode = |arm: Arm| self.0[arm as usize].encode_batch(&texts, true, 1);
        let ids = encode(Arm::Library)?;
        for arm in [Arm::Native, Arm::Cached, Arm::Cached] {
            same(arm, input, &ids, &encode(arm)?)?;
        }
        Ok(ids)
    }

    /// Runs a round over all arms; every second round goes backwards.
    pub(super) fn round(
        &self,
        clock: &Clock,
        input: &Input,
        ids: &Ids,
        threads: usize,
        round: usize,
    ) -> Result<[Sample; Arm::ALL.len()]> {
        let texts = input.texts();
        let mut samples: [Sample; Arm::ALL.len()] = Default::default();
        for turn in 0..Arm::ALL.len() {
            let at = if round % 2 == 0 { turn } else { Arm::ALL.len() - 1 - turn };
            let before = self.0[at].prefix_cache();
            let (encoded, elapsed) = clock.time_both(|| self.0[at].encode_batch(&texts, true, threads));
            same(Arm::ALL[at], input, ids, &encoded?)?;
            // If the clock did not advance, count a nanosecond.
            let seconds = elapsed.ns.max(1) as f64 * 1e-9;
            let cpu_seconds = elapsed.processor_ns.map(|ns| ns as f64 * 1e-9);
            let lookups = before.zip(self.0[at].prefix_cache()).map(|(before, after)| PrefixCacheCounters {
                hits: after.hits.saturating_sub(before.hits),
                misses: after.misses.saturating_sub(before.misses),
                reused_bytes: after.reused_bytes.saturating_sub(before.reused_bytes),
            });
            samples[at] = Sample { seconds, cpu_seconds, lookups };
        }
        Ok(samples)
    }
}

/// Returns an error for ids other than the library's, with the first text that has them.
fn same(arm: Arm, input: &Input, expected: &Ids, ids: &Ids) -> Result<()> {
    if expected == ids {
        return Ok(());
    }
    let Some(text) = expected.iter().zip(ids).position(|(expected, ids)| expected != ids) else {
        let fact = format!("{} of {} texts were encoded", ids.len(), expected.len());
        return Err(LaneError::Incorrect(format!("{fact}\n  by the {}", arm.encodes())));
    };
    let (expected, ids) = (&expected[text], &ids[text]);
    let at = expected.iter().zip(ids).take_while(|(expected, id)| expected == id).count();
    let window = |ids: &[u32]| ids.iter().skip(at.saturating_sub(2)).take(6).copied().collect::<Vec<_>>();
    let shown: String = input.texts[text].chars().take(SHOWN).collect();
    Err(LaneError::Incorrect(format!(
        "text {} of `{}` has other ids from id {at} on: {:?} by the {}, {:?} by the {}\n  in {shown:?}",
        text + 1,
        input.name,
        window(ids),
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
