//! The rows of a case: one of the fused call, with its gates, and one of separate calls.

use super::super::METRICS;
use super::arms::{Arm, Checked, Sample};
use super::case::Case;
use crate::Row;
use crate::bench::Result;
use crate::roofline::Held;
use crate::stats::sorted;

/// The rank of which the seed asks for a speedup over separate calls, and that speedup.
const SPEEDUP_RANK: usize = 32;
const MIN_SPEEDUP: f64 = 1.4;
/// The tax above its floor, in percentage points, with which a speedup counts as within reach.
const REACH: f64 = 3.0;
/// The number of adapters from which on the tax is compared with its floor.
const MANY_ADAPTERS: usize = 8;
/// The largest rank of one adapter whose tax has a maximum.
const TAX_RANK: usize = 16;
/// The number of weights from which on a layer is large.
const LARGE: usize = 1 << 24;

/// Bounds of the gates; 0: no gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gates {
    /// Minimum speedup over separate calls; `None`: that of the seed, where it is within reach.
    pub(super) min_speedup: Option<f64>,
    /// Maximum tax of one adapter in percent.
    pub(super) max_tax: f64,
    /// Maximum tax of many adapters above its floor in percentage points.
    pub(super) max_over_floor: f64,
}

/// A case with what was measured.
pub(super) struct Outcome<'a> {
    pub(super) case: Case,
    pub(super) threads: usize,
    /// The name of the tier.
    pub(super) tier: &'a str,
    pub(super) samples: Vec<Held<Sample>>,
    /// The outputs of the fused call, and of separate calls.
    pub(super) checked: [Checked; 2],
    /// Consecutive calls of an arm.
    pub(super) calls: usize,
    /// Bytes of weights that calls cycle through.
    pub(super) weights_bytes: usize,
    pub(super) gates: Gates,
}

impl Outcome<'_> {
    /// The row of the fused call, with its gates, and that of separate calls.
    pub(super) fn rows(&self) -> Result<Vec<Row>> {
        let fused = self.gated(self.row(Arm::Fused, "fused_base_lora", &self.checked[0])?);
        Ok(vec![fused, self.row(Arm::TwoCall, "baseline_two_call", &self.checked[1])?])
    }

    fn row(&self, arm: Arm, bench: &str, checked: &Checked) -> Result<Row> {
        let (case, work, tokens) = (&self.case, self.case.work(), self.case.rows as f64);
        let ms = |arm: Arm| move |sample: &Held<Sample>| 1e3 * sample.value.of(arm);
        self.described(arm, bench, checked)
            .measured(METRICS, &self.samples)
            .each("tokens_per_s", |sample| tokens / sample.value.of(arm))?
            .each("seconds", |sample| sample.value.of(arm))?
            .each("cpu_time", |sample| sample.value.cpu_seconds[arm as usize])?
            .each("fused_ms", ms(Arm::Fused))?
            .each("baseline_ms", ms(Arm::TwoCall))?
            .each("base_ms", ms(Arm::Base))?
            .each("baseline_tokens_per_s", |sample| tokens / sample.value.of(Arm::TwoCall))?
            .each("speedup", |sample| sample.value.of(Arm::TwoCall) / sample.value.of(arm))?
            .each("lora_tax_pct", |sample| 100.0 * (sample.value.of(arm) / sample.value.of(Arm::Base) - 1.0))?
            .one("lora_tax_floor_pct", case.floor_pct())?
            .one("l2_diff", checked.nmse.sqrt())?
            .one("nmse", checked.nmse)?
            .one("adapter_bytes", case.adapter_bytes())?
            .each("gops", |sample| work.operations / sample.value.of(arm) * 1e-9)?
            .each("read_rate", |sample| work.bytes / sample.value.of(arm) * 1e-9)?
            .one("calls", self.calls as f64)?
            .held(case.format.arithmetic(), work, |sample| sample.value.of(arm))
    }

    /// A row with its name and parameters.
    fn described(&self, arm: Arm, bench: &str, checked: &Checked) -> Row {
        let Case { format, outputs, inputs, rows, rank, adapters } = self.case;
        let shape = format!("m{rows}/n{outputs}/k{inputs}/r{rank}/a{adapters}");
        Row::new(format!("gemm/{}/{format}/{shape}/t{}", arm.name(), self.threads))
            .param("bench", bench)
            .param("threads", self.threads)
            .param("format", format.to_string())
            .param("m", rows)
            .param("n", outputs)
            .param("k", inputs)
            .param("adapter_rank", rank)
            .param("adapters_n", adapters)
            .param("weights_bytes", self.weights_bytes)
            .digest(checked.digest.clone())
            .checked_on(format!("{}/{format}", self.tier))
    }

    /// The minimum speedup; 0: no gate. One call takes at least as long as the layer alone, so the speedup of the seed is within reach
    /// only where separate calls take so much longer than that.
    fn min_speedup(&self) -> f64 {
        self.gates.min_speedup.unwrap_or_else(|| {
            let least = 1.0 + (self.case.floor_pct() + REACH) / 100.0;
            let reach =
                |sample: &Held<Sample>| sample.value.of(Arm::TwoCall) / sample.value.of(Arm::Base) / least;
            let reach = sorted(&self.samples.iter().map(reach).collect::<Vec<_>>());
            if reach.get(reach.len() / 2).is_some_and(|reach| *reach >= MIN_SPEEDUP) {
                MIN_SPEEDUP
            } else {
                0.0
            }
        })
    }

    fn gated(&self, row: Row) -> Row {
        let (case, gates) = (&self.case, &self.gates);
        let large = case.outputs * case.inputs >= LARGE;
        let row = if case.rank == SPEEDUP_RANK { row.at_least("speedup", self.min_speedup()) } else { row };
        if case.adapters >= MANY_ADAPTERS && gates.max_over_floor > 0.0 {
            return row.at_most("lora_tax_pct", case.floor_pct() + gates.max_over_floor);
        }
        if case.adapters == 1 && case.rank <= TAX_RANK && large && gates.max_tax > 0.0 {
            return row.at_most("lora_tax_pct", gates.max_tax);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use redline_kernels::Format;

    use super::super::case::tests::CASE;
    use super::*;
    use crate::lanes::tests::{samples, timed};

    const GATES: Gates = Gates { min_speedup: Some(1.4), max_tax: 4.0, max_over_floor: 3.0 };

    /// An outcome with these seconds of base, fused and separate calls.
    fn outcome(case: Case, seconds: &[[f64; 3]]) -> Outcome<'static> {
        let checked = |name: &str| Checked { nmse: 1e-4, digest: name.to_owned() };
        let sample = |&seconds: &[f64; 3]| {
            timed(Sample { seconds, cpu_seconds: seconds.map(|seconds| Some(2.0 * seconds)) })
        };
        Outcome {
            case,
            threads: 2,
            tier: "t",
            samples: seconds.iter().map(sample).collect(),
            checked: [checked("fused"), checked("two")],
            calls: 4,
            weights_bytes: 1 << 20,
            gates: GATES,
        }
    }

    #[test]
    fn both_arms_have_a_row() {
        let outcome = outcome(CASE, &[[1.0, 1.25, 2.5], [2.0, 2.0, 5.0]]);
        let rows = outcome.rows().unwrap();
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        let name = |arm: &str| format!("gemm/{arm}/f32/m5/n40/k96/r6/a2/t2");
        assert_eq!(cases, [name("fused"), name("two-call")]);
        // Five rows of inputs.
        assert_eq!(samples(&rows[0], "tokens_per_s"), [4.0, 2.5]);
        assert_eq!(samples(&rows[1], "tokens_per_s"), [2.0, 1.0]);
        assert_eq!(
            (samples(&rows[0], "speedup"), samples(&rows[1], "speedup")),
            (vec![2.0, 2.5], vec![1.0; 2])
        );
        assert_eq!(samples(&rows[0], "lora_tax_pct"), [25.0, 0.0]);
        assert_eq!(samples(&rows[1], "lora_tax_pct"), [150.0, 150.0]);
        assert_eq!(samples(&rows[0], "cpu_time"), [2.5, 4.0]);
        for row in &rows {
            assert_eq!(samples(row, "base_ms"), [1e3, 2e3]);
            assert_eq!(samples(row, "fused_ms"), [1250.0, 2e3]);
            assert_eq!(samples(row, "baseline_ms"), [2500.0, 5e3]);
            assert_eq!(samples(row, "baseline_tokens_per_s"), [2.0, 1.0]);
            assert_eq!(samples(row, "lora_tax_floor_pct"), [CASE.floor_pct()]);
            assert_eq!(samples(row, "adapter_bytes"), [CASE.adapter_bytes()]);
            assert_eq!((samples(row, "l2_diff"), samples(row, "nmse")), (vec![1e-2], vec![1e-4]));
            assert_eq!(samples(row, "read_rate")[0], CASE.work().bytes / samples(row, "seconds")[0] * 1e-9);
        }
        assert_eq!((rows[0].digest.as_deref(), rows[1].digest.as_deref()), (Some("fused"), Some("two")));
        assert!(rows[1].gates.is_empty());
    }

    #[test]
    fn gates_depend_on_the_case() {
        let large = Case { format: Format::W8 { group: 128 }, outputs: 4096, inputs: 4096, rows: 8, ..CASE };
        let with = |rank, adapters| Case { rank, adapters, ..large };
        let missed = |case: Case, fused: f64| {
            let missed = outcome(case, &[[1.0, fused, 1.4]]).rows().unwrap()[0].missed();
            missed.into_iter().map(|fact| fact.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let none = [""; 0];
        // One adapter of rank 16 on a large layer.
        assert_eq!(missed(with(16, 1), 1.039), none);
        assert_eq!(missed(with(16, 1), 1.041), ["lora_tax_pct"]);
        assert_eq!(missed(Case { outputs: 4095, ..with(16, 1) }, 2.0), none);
        assert_eq!(missed(with(17, 1), 2.0), none);
        // Eight adapters: three points above their bytes.
        let most = 1.0 + (with(16, 8).floor_pct() + 3.0) / 100.0;
        assert_eq!(missed(with(16, 8), most - 1e-3), none);
        assert_eq!(missed(with(16, 8), most + 1e-3), ["lora_tax_pct"]);
        assert_eq!(missed(with(16, 7), 2.0), none);
        // Rank 32: 1.4 times as fast as separate calls.
        assert_eq!(missed(with(32, 4), 0.999), none);
        assert_eq!(missed(with(32, 4), 1.001), ["speedup"]);
        assert_eq!(missed(with(32, 8), 2.0), ["speedup", "lora_tax_pct"]);
        assert_eq!(missed(with(31, 4), 2.0), none);
    }

    #[test]
    fn the_speedup_of_the_seed_is_asked_for_where_it_is_within_reach() {
        let gates = Gates { min_speedup: None, ..GATES };
        let case = Case { outputs: 4096, inputs: 4096, rank: 32, adapters: 1, rows: 8, ..CASE };
        let least = 1.0 + (case.floor_pct() + 3.0) / 100.0;
        let missed = |two_call: f64| {
            let samples = [[1.0, 1.0, 1.0], [1.0, 9.0, two_call], [1.0, 9.0, two_call]];
            Outcome { gates, ..outcome(case, &samples) }.rows().unwrap()[0].missed()
        };
        assert_eq!(missed(1.4 * least - 1e-3), [""; 0]);
        let facts = missed(1.4 * least + 1e-3);
        assert!(facts.len() == 1 && facts[0].contains("at least 1.400"), "{facts:?}");
    }

    #[test]
    fn a_bound_of_zero_is_no_gate() {
        let zero = Gates { min_speedup: Some(0.0), max_tax: 0.0, max_over_floor: 0.0 };
        let large = Case { outputs: 4096, inputs: 4096, rows: 8, ..CASE };
        for case in [Case { rank: 32, adapters: 8, ..large }, Case { rank: 16, adapters: 1, ..large }] {
            let outcome = Outcome { gates: zero, ..outcome(case, &[[1.0, 9.0, 1.0]]) };
            assert!(outcome.rows().unwrap().iter().all(|row| row.gates.is_empty()));
        }
    }
}
