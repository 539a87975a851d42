//! Decoding several sequences together.

use redline_engine::{BatchOutcome, BatchRequest, Cancel, Engine, ModelInfo, Prompt};

use super::{Case, generate, samples};
use crate::bench::{Bench, LaneError, asked};
use crate::digest;
use crate::limits::Probe;
use crate::roofline::{Arithmetics, Held, Work, held};
use crate::{Direction, Row, Samples};

/// The row of one batch. Its prompts have the length of `case`'s prompt and begin differently.
pub(super) fn row(
    bench: &Bench<'_>,
    engine: &Engine,
    probe: &Probe,
    case: &Case,
    batch: usize,
) -> Result<Row, LaneError> {
    let info = engine.info();
    let tokens = case.prompt.len().saturating_add(case.new_tokens);
    let bytes = info.kv_bytes_per_token as f64 * tokens as f64 * batch as f64;
    bench.fits(&format!("the keys and values of {batch} sequences of {tokens} tokens"), bytes)?;
    let prompts: Vec<Vec<i64>> =
        (0..batch).map(|index| asked::ids(case.prompt.len(), index, info.vocab)).collect();
    let request = BatchRequest {
        prompts: prompts.iter().cloned().map(Prompt::Ids).collect(),
        max_new_tokens: case.new_tokens,
        ignore_eos: true,
    };
    let run = || engine.generate_batch(&request, &Cancel::new());
    let warm = run()?;
    for index in [0, batch - 1] {
        let alone = generate(engine, &prompts[index], case.new_tokens, true)?.token_ids;
        same(index, &alone, &warm.token_ids[index])?;
    }
    let misses = || engine.plan_counters().misses;
    let warmup = bench.warm_up(case.warmups, misses, |_| Ok(run().map(|_| ())?))?;
    let trials = probe.hold(case.runs, Arithmetics::of(info), bench.clock, |_| run())?;
    for trial in &trials {
        for (index, ids) in trial.value.token_ids.iter().enumerate() {
            same(index, &warm.token_ids[index], ids)?;
        }
    }
    Ok(told(info, case, batch, &trials)?.warmed(warmup))
}

fn same(index: usize, expected: &[u32], found: &[u32]) -> Result<(), LaneError> {
    if expected == found {
        return Ok(());
    }
    let fact =
        format!("greedy ids of sequence {index} differ: {expected:?} alone or before, {found:?} in a batch");
    Err(LaneError::Incorrect(fact))
}

fn told(
    info: &ModelInfo,
    case: &Case,
    batch: usize,
    trials: &[Held<BatchOutcome>],
) -> Result<Row, LaneError> {
    let timed: Vec<Held<f64>> = trials.iter().map(|t| t.with(t.value.decode_s)).collect();
    let new = (batch * case.new_tokens) as f64;
    let rate = |t: &Held<BatchOutcome>| t.value.decode_tokens_per_s.unwrap_or(0.0);
    let total = |t: &Held<BatchOutcome>| new / (t.value.prefill_s + t.value.decode_s);
    let memory = trials.iter().filter_map(|t| t.value.peak_memory_bytes).map(|b| b as f64).collect();
    let ids = trials.first().map(|t| t.value.token_ids.concat()).unwrap_or_default();
    let row = super::base(&format!("decode/b{batch}"), info, case)
        .param("kv_cache", true)
        .param("batch", batch)
        .digest(digest::of_ids(&ids))
        .metric("decode_tokens_per_s", samples("tokens/s", Direction::Higher, trials, rate)?)
        .metric("tokens_per_s", samples("tokens/s", Direction::Higher, trials, total)?)
        .metric("prefill_s", samples("s", Direction::Lower, trials, |t| t.value.prefill_s)?)
        .metric("decode_s", samples("s", Direction::Lower, trials, |t| t.value.decode_s)?)
        .metric("peak_memory", Samples::new("bytes", Direction::Lower, memory)?);
    Ok(held(row, info.format.arithmetic(), work(info, case, batch), &timed)?)
}

/// The minimum work of decoding the tokens after the first: each pass reads the weights once, and for every sequence its
/// stored keys and values.
pub(super) fn work(info: &ModelInfo, case: &Case, batch: usize) -> Work {
    let (batch, passes) = (batch as f64, (case.new_tokens - 1) as f64);
    // Contexts of prompt, prompt + 1, ... tokens; the new token attends to itself too.
    let context = case.prompt.len() as f64 + (case.new_tokens as f64 - 2.0) / 2.0;
    let pass = Work::of_pass(info, batch, batch * (context + 1.0), batch);
    Work {
        bytes: passes * (pass.bytes + batch * info.kv_bytes_per_token as f64 * context),
        operations: passes * pass.operations,
        attention: passes * pass.attention,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::info;

    #[test]
    fn weights_are_read_once_for_all_sequences() {
        // Two decoding passes, with 4 and 5 stored tokens and one new token.
        let case = Case { prompt: vec![1; 4], new_tokens: 3, runs: 1, warmups: 1 };
        let one = work(&info(), &case, 1);
        assert_eq!(one.bytes, 2.0 * 1000.0 + 8.0 * (4.0 + 5.0));
        assert_eq!((one.operations, one.attention), (2.0 * 150.0, 3.0 * (5.0 + 6.0)));
        let four = work(&info(), &case, 4);
        assert_eq!(four.bytes, 2.0 * 1000.0 + 4.0 * 8.0 * (4.0 + 5.0));
        assert_eq!((four.operations, four.attention), (4.0 * one.operations, 4.0 * one.attention));
    }
}
