//! The rows of a case: one per arm.

use redline_kernels::op::attention::SPAN;
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Arithmetic, vector_extensions};

use super::METRICS;
use super::arm::Checked;
use super::case::Case;
use super::quality::Quality;
use crate::Row;
use crate::bench::{CallTime, Result};
use crate::roofline::Held;

/// Context from which on the speedup has a minimum.
const GATED_CONTEXT: usize = 2048;
/// Maximum scratch memory, relative to the baseline's.
const MAX_SCRATCH: f64 = 1.25;
/// Maximum squared error of the outputs, relative to their squared norm.
const MAX_NMSE: f64 = 1e-3;
/// Maximum change of perplexity in points, and maximum change in percent.
const MAX_DELTA: (f64, f64) = (0.3, 0.3);

/// What was measured of an arm.
pub(super) struct Measured {
    pub(super) format: KvFormat,
    pub(super) samples: Vec<Held<CallTime>>,
    pub(super) checked: Checked,
    pub(super) quality: Quality,
    /// Calls in a sample.
    pub(super) calls: usize,
    /// Bytes of keys and values that calls cycle through.
    pub(super) kv_bytes: usize,
}

/// A case with what was measured of its arms.
pub(super) struct Outcome<'a> {
    pub(super) lane: &'a str,
    pub(super) model: &'a str,
    pub(super) case: Case,
    pub(super) threads: usize,
    /// The name of the tier.
    pub(super) tier: &'a str,
    /// Minimum speedup; 0: no gate.
    pub(super) min_speedup: f64,
    /// The compared arm.
    pub(super) own: Measured,
    /// The arm over f16 keys and values.
    pub(super) baseline: Measured,
}

impl Outcome<'_> {
    /// The row of the compared arm, with its gates, and that of the baseline.
    pub(super) fn rows(&self) -> Result<Vec<Row>> {
        let pairs = self.own.samples.iter().zip(&self.baseline.samples);
        let speedup = pairs.map(|(own, base)| base.value.seconds / own.value.seconds).collect();
        let row = self.row(&self.own)?.measured(METRICS, &self.own.samples).all("speedup", speedup)?.row;
        Ok(vec![self.gated(row), self.row(&self.baseline)?])
    }

    fn row(&self, arm: &Measured) -> Result<Row> {
        let (case, quality) = (&self.case, &arm.quality);
        let (work, tokens) = (case.work(arm.format), case.tokens() as f64);
        let scratch = |format| case.scratch_bytes(format, self.threads) as f64;
        let rates = self.baseline.samples.iter().map(|sample| tokens / sample.value.seconds).collect();
        self.described(arm)
            .measured(METRICS, &arm.samples)
            .each("tokens_per_s", |sample| tokens / sample.value.seconds)?
            .each("seconds", |sample| sample.value.seconds)?
            .each("cpu_time", |sample| sample.value.cpu_seconds)?
            .all("baseline_tokens_per_s", rates)?
            .one("nmse", arm.checked.nmse)?
            .one("perplexity", quality.perplexity)?
            .one("perplexity_delta", quality.delta)?
            .one("perplexity_delta_error", quality.error)?
            .one("perplexity_delta_percent", quality.percent)?
            .one("scratch", scratch(arm.format))?
            .one("scratch_ratio", scratch(arm.format) / scratch(self.baseline.format))?
            .one("l2_bytes_per_token", work.bytes / tokens)?
            .each("read_rate", |sample| work.bytes / sample.value.seconds * 1e-9)?
            .each("read_bandwidth", |sample| sample.limits.bandwidth * 1e-9)?
            .each("gops", |sample| work.attention / sample.value.seconds * 1e-9)?
            .one("calls", arm.calls as f64)?
            .held(arm.format.arithmetics()[0], work, |sample| sample.value.seconds)
    }

    /// A row with its name and parameters.
    fn described(&self, arm: &Measured) -> Row {
        let (Case { context, rows, batch, kv_heads, group, head_dim }, format) =
            (self.case, arm.format.name());
        let shape = format!("d{head_dim}/g{group}/c{context}/r{rows}/b{batch}");
        Row::new(format!("{}/{format}/{shape}/t{}", self.lane, self.threads))
            .param("model", self.model)
            .param("threads", self.threads)
            .param("kv_format", format)
            .param("context", context)
            .param("rows", rows)
            .param("batch", batch)
            .param("heads", self.case.heads())
            .param("kv_heads", kv_heads)
            .param("head_dim", head_dim)
            .param("kv_bytes", arm.kv_bytes)
            .param("perplexity_tokens", arm.quality.tokens)
            .param("perplexity_window", arm.quality.window)
            .param("tile_tokens", SPAN)
            .param("acc_width", acc_width(arm.format))
            .param("has_avx2", has("avx2"))
            .param("has_vnni", has("vnni"))
            .param("csr_outliers", false)
            .digest(arm.checked.digest.clone())
            .checked_on(format!("{}/kv-{format}", self.tier))
    }

    fn gated(&self, row: Row) -> Row {
        let (points, percent) = MAX_DELTA;
        let row = row
            .at_most("nmse", MAX_NMSE)
            .at_most("scratch_ratio", MAX_SCRATCH)
            .within("perplexity_delta", points)
            .within("perplexity_delta_percent", percent);
        if self.case.context < GATED_CONTEXT {
            return row;
        }
        row.at_least("speedup", self.min_speedup)
    }
}

/// The numbers in which products of queries and keys, and of probabilities and values, are summed.
fn acc_width(format: KvFormat) -> &'static str {
    let integers = format.arithmetics().iter().all(|arithmetic| *arithmetic == Arithmetic::Int8);
    if integers { "int32" } else { "fp32" }
}

/// Whether the processor has a vector extension.
fn has(name: &str) -> bool {
    vector_extensions().iter().any(|(extension, present)| *extension == name && *present)
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::CASE;
    use super::*;
    use crate::lanes::tests::{samples, timed};

    fn measured(format: KvFormat, seconds: &[f64]) -> Measured {
        let sample = |&seconds: &f64| timed(CallTime { seconds, cpu_seconds: Some(2.0 * seconds) });
        let quality =
            Quality { perplexity: 40.1, delta: 0.1, error: Some(0.01), percent: 0.25, tokens: 9, window: 4 };
        let checked = Checked { nmse: 2e-4, digest: format.name().to_owned() };
        let samples = seconds.iter().map(sample).collect();
        Measured { format, samples, checked, quality, calls: 8, kv_bytes: 1 << 20 }
    }

    fn outcome(context: usize) -> Outcome<'static> {
        Outcome {
            lane: "attn",
            model: "m",
            case: Case { context, ..CASE },
            threads: 2,
            tier: "t",
            min_speedup: 1.15,
            own: measured(KvFormat::W8, &[0.5, 0.25]),
            baseline: measured(KvFormat::F16, &[1.0, 1.0]),
        }
    }

    #[test]
    fn both_arms_have_a_row() {
        let outcome = outcome(300);
        let rows = outcome.rows().unwrap();
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        assert_eq!(cases, ["attn/w8/d32/g3/c300/r5/b2/t2", "attn/f16/d32/g3/c300/r5/b2/t2"]);
        // Ten query rows.
        assert_eq!(samples(&rows[0], "tokens_per_s"), [20.0, 40.0]);
        assert_eq!(samples(&rows[0], "baseline_tokens_per_s"), [10.0, 10.0]);
        assert_eq!(samples(&rows[0], "speedup"), [2.0, 4.0]);
        assert_eq!(samples(&rows[0], "cpu_time"), [1.0, 0.5]);
        assert_eq!(samples(&rows[1], "tokens_per_s"), samples(&rows[1], "baseline_tokens_per_s"));
        assert!(samples(&rows[1], "speedup").is_empty() && rows[1].gates.is_empty());
        let bytes = |format| CASE.kv_bytes(format);
        for (row, format) in rows.iter().zip([KvFormat::W8, KvFormat::F16]) {
            assert_eq!(samples(row, "l2_bytes_per_token"), [bytes(format) / 10.0]);
            let seconds = samples(row, "seconds")[0];
            assert_eq!(samples(row, "read_rate")[0], bytes(format) / seconds * 1e-9);
            assert_eq!(samples(row, "read_bandwidth")[0], 1e4 * 1e-9);
            assert_eq!(samples(row, "scratch"), [CASE.scratch_bytes(format, 2) as f64]);
        }
        let ratio = CASE.scratch_bytes(KvFormat::W8, 2) as f64 / CASE.scratch_bytes(KvFormat::F16, 2) as f64;
        assert_eq!(
            (samples(&rows[0], "scratch_ratio"), samples(&rows[1], "scratch_ratio")),
            (vec![ratio], vec![1.0])
        );
        let widths: Vec<_> = rows.iter().map(|row| row.param_text("acc_width").unwrap()).collect();
        assert_eq!(widths, ["int32", "fp32"]);
        assert_eq!(rows[0].param_text("tile_tokens").as_deref(), Some("256"));
    }

    #[test]
    fn every_gate_can_be_missed() {
        let missed = |change: &dyn Fn(&mut Outcome<'_>)| {
            let mut outcome = outcome(2048);
            change(&mut outcome);
            outcome.rows().unwrap()[0].missed()
        };
        assert_eq!(missed(&|_| ()), [""; 0]);
        let quality = |outcome: &mut Outcome<'_>, delta, percent| {
            outcome.own.quality = Quality { delta, percent, ..outcome.own.quality };
        };
        let is = |facts: Vec<String>, begin: &str| {
            assert!(facts.len() == 1 && facts[0].starts_with(begin), "{facts:?}");
        };
        is(missed(&|outcome| outcome.own.checked.nmse = 1.1e-3), "nmse is");
        is(missed(&|outcome| quality(outcome, 0.31, 0.1)), "perplexity_delta is 0.31");
        is(missed(&|outcome| quality(outcome, -0.31, 0.1)), "perplexity_delta is -0.31");
        is(missed(&|outcome| quality(outcome, 0.1, 0.31)), "perplexity_delta_percent is 0.31");
        is(missed(&|outcome| quality(outcome, 0.1, -0.31)), "perplexity_delta_percent is -0.31");
        is(missed(&|outcome| outcome.own = measured(KvFormat::W8, &[0.9; 2])), "speedup is 1.11");
        // A format that needs more memory than the baseline.
        let swapped = |outcome: &mut Outcome<'_>| {
            outcome.own.format = KvFormat::F16;
            outcome.baseline.format = KvFormat::W8;
        };
        is(missed(&swapped), "scratch_ratio is");
    }

    #[test]
    fn short_contexts_may_be_slow() {
        let slow = |context, min_speedup| {
            let own = measured(KvFormat::W8, &[2.0; 2]);
            Outcome { min_speedup, own, ..outcome(context) }.rows().unwrap()[0].missed().len()
        };
        assert_eq!([slow(2047, 1.15), slow(2048, 1.15), slow(2048, 0.0)], [0, 1, 0]);
    }
}
