//! The rows of prefill and decode, and the minimum work of decoding.

use redline_engine::ModelInfo;
use redline_kernels::Arithmetic;

use super::{Case, LANE};
use crate::bench::requests::Together;
use crate::bench::timed;
use crate::lanes::prelude::*;
use crate::result::placed;

fn base(name: &str, info: &ModelInfo, case: Case, runs: &[Held<Together>]) -> Row {
    Row::of_model(format!("{name}/t{}", info.threads), info)
        .param("prompt_tokens", case.prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .digest(digest::of_ids(&runs[0].value.token_ids.concat()))
        .conditions(runs.iter().map(|run| run.condition).collect())
}

pub(super) fn prefill(info: &ModelInfo, case: Case, runs: &[Held<Together>]) -> Result<Row> {
    let (n, arithmetic) = (case.prompt_tokens, info.format.arithmetic());
    let work = Work::of_sequence(info, n);
    let row = base("prefill", info, case, runs)
        .measured(LANE.metrics, runs)
        .each("prefill_tokens_per_s", |run| n as f64 / run.value.prefill_s)?
        .row;
    let row = bounded(row, Some(arithmetic), runs, |run| run.limits.computing(work) / run.value.prefill_s)?;
    Ok(placed(row, arithmetic, work, &timed(runs, |run| run.value.prefill_s))?)
}

/// The row of the new tokens with KV cache.
pub(super) fn decode(info: &ModelInfo, case: Case, runs: &[Held<Together>]) -> Result<Row> {
    // Keys and values of a position: two vectors per layer of the KV width, read once per later token.
    let mean_context = case.prompt_tokens as f64 + (case.new_tokens as f64 - 1.0) / 2.0;
    let bytes = info.bytes_per_token as f64 + info.kv_bytes_per_token as f64 * mean_context;
    let row = base("decode", info, case, runs).param("kv_cache", true).param("batch", 1);
    let row = decoding(row, case, 1, runs)?;
    let row = bounded(row, None, runs, |run| decode_rate(run) * bytes / run.limits.bandwidth)?;
    let row = row.measured(LANE.metrics, runs).each("peak_memory", peak_memory)?.row;
    Ok(placed(
        row,
        info.format.arithmetic(),
        work(info, case, 1, runs),
        &timed(runs, |run| run.value.decode_s),
    )?)
}

/// The row of the new tokens of several sequences.
pub(super) fn decode_batch(
    info: &ModelInfo,
    case: Case,
    batch: usize,
    runs: &[Held<Together>],
) -> Result<Row> {
    let row =
        base(&format!("decode/b{batch}"), info, case, runs).param("kv_cache", true).param("batch", batch);
    decoding(row, case, batch, runs)?.measured(LANE.metrics, runs).each("peak_memory", peak_memory)?.held(
        info.format.arithmetic(),
        work(info, case, batch, runs),
        |run| run.value.decode_s,
    )
}

/// The row of the new tokens without KV cache. `forward` is the rate of a single pass of their mean length.
pub(super) fn recompute(info: &ModelInfo, case: Case, runs: &[Held<Together>], forward: f64) -> Result<Row> {
    let arithmetic = info.format.arithmetic();
    let lengths = case.prompt_tokens..case.prompt_tokens + case.new_tokens;
    let tokens: usize = lengths.clone().sum();
    let recomputed = |run: &Held<Together>| tokens as f64 / seconds(run);
    let passes = || lengths.clone().map(|n| Work::of_sequence(info, n));
    let row = base("decode-recompute", info, case, runs)
        .param("kv_cache", false)
        .param("batch", 1)
        .measured(LANE.metrics, runs)
        .each("tokens_per_s", |run| case.new_tokens as f64 / seconds(run))?
        .each("recomputed_tokens_per_s", recomputed)?
        .each("share_of_forward", |run| recomputed(run) / forward)?
        .row;
    let row = bounded(row, Some(arithmetic), runs, |run| {
        passes().map(|pass| run.limits.computing(pass)).sum::<f64>() / seconds(run)
    })?;
    let row = row.measured(LANE.metrics, runs).each("peak_memory", peak_memory)?.row;
    Ok(placed(row, arithmetic, passes().sum(), &timed(runs, seconds))?)
}

fn seconds(run: &Held<Together>) -> f64 {
    run.value.prefill_s + run.value.decode_s
}

fn decode_rate(run: &Held<Together>) -> f64 {
    if run.value.decoded > 0 { run.value.decoded as f64 / run.value.decode_s } else { 0.0 }
}

fn peak_memory(run: &Held<Together>) -> Option<f64> {
    run.value.peak_memory_bytes.map(|bytes| bytes as f64)
}

/// Adds the rates and durations of decoding.
fn decoding(row: Row, case: Case, batch: usize, runs: &[Held<Together>]) -> Result<Row> {
    let new = (batch * case.new_tokens) as f64;
    let row = row
        .measured(LANE.metrics, runs)
        .each("decode_tokens_per_s", decode_rate)?
        .each("tokens_per_s", |run| new / seconds(run))?
        .each("prefill_s", |run| run.value.prefill_s)?
        .each("decode_s", |run| run.value.decode_s)?;
    Ok(row.row)
}

/// Adds the share of the limit that each run reached, and the readings of the limit: the peak of an arithmetic, or else the
/// read bandwidth.
fn bounded(
    row: Row,
    peak: Option<Arithmetic>,
    runs: &[Held<Together>],
    share: impl Fn(&Held<Together>) -> f64,
) -> Result<Row> {
    let (name, unit) = match peak {
        Some(arithmetic) => (format!("{}_peak", arithmetic.name()), "GOP/s"),
        None => ("read_bandwidth".to_owned(), "GB/s"),
    };
    let limit =
        |run: &Held<Together>| if peak.is_some() { run.limits.peak } else { run.limits.bandwidth } * 1e-9;
    let limit = Samples::new(unit, Direction::Info, runs.iter().map(limit).collect())?;
    let share = Samples::new("share", Direction::Info, runs.iter().map(share).collect())?;
    Ok(row.limit(name, share.median()).metric("share", share).metric("limit", limit))
}

/// The minimum work of decoding: each pass reads the weights once, and for every sequence its stored keys and values. Prompts that
/// do not fit one pass leave fewer tokens to decode together.
fn work(info: &ModelInfo, case: Case, batch: usize, runs: &[Held<Together>]) -> Work {
    let batch = batch as f64;
    let passes = runs[0].value.decoded as f64 / batch;
    // Contexts of prompt, prompt + 1, ... tokens; the new token attends to itself too.
    let context = case.prompt_tokens as f64 + (case.new_tokens as f64 - 2.0) / 2.0;
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
    use crate::lanes::tests::{info, samples, timed};

    #[test]
    fn weights_are_read_once_for_all_sequences() {
        // Two decoding passes, with 4 and 5 stored tokens and one new token.
        let case = Case { prompt_tokens: 4, new_tokens: 3 };
        let decoded = |decoded| {
            let [mut run] = runs();
            run.value.decoded = decoded;
            [run]
        };
        let one = work(&info(), case, 1, &decoded(2));
        assert_eq!(one.bytes, 2.0 * 1000.0 + 8.0 * (4.0 + 5.0));
        assert_eq!((one.operations, one.attention), (2.0 * 150.0, 3.0 * (5.0 + 6.0)));
        let four = work(&info(), case, 4, &decoded(8));
        assert_eq!(four.bytes, 2.0 * 1000.0 + 4.0 * 8.0 * (4.0 + 5.0));
        assert_eq!((four.operations, four.attention), (4.0 * one.operations, 4.0 * one.attention));
    }

    const CASE: Case = Case { prompt_tokens: 4, new_tokens: 3 };

    /// A second of prefill, then two more tokens in half a second.
    fn runs() -> [Held<Together>; 1] {
        [timed(Together {
            token_ids: vec![vec![1, 2, 3]],
            prefill_s: 1.0,
            decode_s: 0.5,
            decoded: 2,
            peak_memory_bytes: Some(5),
        })]
    }

    #[track_caller]
    fn bounded_by(row: &Row, limit: &str, share: f64) {
        assert_eq!(row.limit.as_deref(), Some(limit));
        let found = row.share_of_limit.unwrap();
        assert!((found / share - 1.0).abs() < 1e-12 && samples(row, "share") == [found], "{found}");
    }

    #[test]
    fn prefill_computes_the_prompt() {
        let row = prefill(&info(), CASE, &runs()).unwrap();
        assert_eq!((row.case.as_str(), samples(&row, "prefill_tokens_per_s")), ("prefill/t1", vec![4.0]));
        // 4 tokens and a row of logits at 1000 operations per second, 10 keys at 500.
        bounded_by(&row, "f32_peak", 0.45 + 0.06);
        assert_eq!(row.samples_of("limit").unwrap().unit(), "GOP/s");
        assert_eq!(samples(&row, "limit"), [1e3 * 1e-9]);
    }

    #[test]
    fn decoding_reads_weights_and_the_mean_context() {
        let row = decode(&info(), CASE, &runs()).unwrap();
        let values = ["decode_tokens_per_s", "tokens_per_s", "prefill_s", "decode_s", "peak_memory"];
        assert_eq!(
            values.map(|name| samples(&row, name)),
            [4.0, 2.0, 1.0, 0.5, 5.0].map(|value| vec![value])
        );
        // Four tokens per second read 1000 bytes and 8 for each of 5 positions, of 10000 bytes per second.
        bounded_by(&row, "read_bandwidth", 4.0 * 1040.0 / 1e4);
        assert_eq!(row.samples_of("limit").unwrap().unit(), "GB/s");
        assert_eq!(samples(&row, "limit"), [1e4 * 1e-9]);
        let batch = decode_batch(&info(), CASE, 2, &runs()).unwrap();
        assert_eq!((batch.case.as_str(), samples(&batch, "tokens_per_s")), ("decode/b2/t1", vec![4.0]));
    }

    #[test]
    fn without_a_cache_every_pass_computes_all_tokens() {
        let row = recompute(&info(), CASE, &runs(), 20.0).unwrap();
        // Passes over 4, 5 and 6 tokens in a second and a half.
        let values = ["tokens_per_s", "recomputed_tokens_per_s", "share_of_forward"];
        assert_eq!(values.map(|name| samples(&row, name)), [2.0, 10.0, 0.5].map(|value| vec![value]));
        // 10, 15 and 21 keys.
        bounded_by(&row, "f32_peak", (0.45 + 0.06 + 0.55 + 0.09 + 0.65 + 0.126) / 1.5);
    }
}
