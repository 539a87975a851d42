//! The layer with adapters (LoRA) in one call, beside the layer alone and beside separate calls.
//!
//! The three arms take turns within every sample, so that ratios between them are of the same moment. Calls cycle through several
//! copies of the weights and adapters, so that both come from memory as in a model.

mod arms;
mod case;
mod rows;

use redline_kernels::{Format, Matrix};

use super::layer::{INPUTS, WEIGHTS};
use super::{Flags, Plan, linear};
use crate::bench::{Bench, Result, listed, require};
use crate::limits::Probe;
use crate::result::Row;
use crate::roofline::Arithmetics;
use arms::Arms;
use case::Case;
use rows::{Gates, Outcome};

/// The adapters that the flags ask for.
pub(super) struct Adapters {
    ranks: Vec<usize>,
    counts: Vec<usize>,
    gates: Gates,
}

impl Adapters {
    /// `None`: the layer alone is measured.
    pub(super) fn of(flags: &Flags, rows: &[usize]) -> Result<Option<Self>> {
        let Some(ranks) = flags.ranks.clone() else { return Ok(None) };
        let counts = flags.adapters.clone();
        require(counts.iter().any(|count| rows.iter().any(|rows| count <= rows)), || {
            let (counts, rows) = (listed(&counts), listed(rows));
            format!("`--adapters` is `{counts}`, but every adapter needs a row, and `--m` is `{rows}`")
        })?;
        let &Flags { min_speedup, max_tax, max_over_floor, .. } = flags;
        Ok(Some(Self { ranks, counts, gates: Gates { min_speedup, max_tax, max_over_floor } }))
    }

    /// The cases of a layer; the number of adapters changes first.
    fn cases(&self, rows: &[usize], format: Format, (outputs, inputs): (usize, usize)) -> Vec<Case> {
        let mut cases = Vec::new();
        for &rows in rows {
            for &rank in &self.ranks {
                let adapters = self.counts.iter().filter(|&&adapters| adapters <= rows);
                let case = |&adapters: &usize| Case { format, outputs, inputs, rows, rank, adapters };
                cases.extend(adapters.map(case));
            }
        }
        cases
    }

    /// Returns an error if memory is too small for the probe's buffer, the weights (at least one whole matrix, at most one more than
    /// requested) with their adapters, the inputs (unpacked and packed) and the outputs (with those that are checked).
    pub(super) fn fit(&self, bench: &Bench<'_>, plan: &Plan) -> Result<()> {
        let of_layer = |&shape| plan.formats.iter().flat_map(move |&f| self.cases(&plan.rows, f, shape));
        plan.layers.iter().flat_map(of_layer).try_for_each(|case| {
            let (base, rows) = (case.base_bytes(), (plan.most_rows() + 1) as f64);
            let copies = (plan.weight_bytes as f64 / base).ceil().max(1.0);
            let weights = copies * (base + case.adapter_bytes());
            let values = 9.0 * rows * case.stride() as f64 + 2.0 * rows * case.inputs as f64;
            bench.fits(&case.place(), plan.weight_bytes as f64 + weights + 4.0 * values)
        })
    }

    /// Measures the cases of a layer.
    pub(super) fn measure(
        &self,
        bench: &Bench<'_>,
        probe: &Probe,
        plan: &Plan,
        shape: (usize, usize),
    ) -> Result<()> {
        let mut x = vec![0f32; (plan.most_rows() + 1) * shape.1];
        INPUTS.fill(0, &mut x);
        for &format in &plan.formats {
            let matrix = WEIGHTS.matrix(probe.exec(), format, shape)?;
            let layers = linear::copies(matrix, plan.weight_bytes)?;
            for case in self.cases(&plan.rows, format, shape) {
                let rows = self.rows(bench, probe, plan, (case, &layers, &x))?;
                bench.done(&format!("{}, {} threads", case.place(), probe.exec().team.size()), rows)?;
            }
        }
        Ok(())
    }

    /// The rows of one case.
    fn rows(
        &self,
        bench: &Bench<'_>,
        probe: &Probe,
        plan: &Plan,
        (case, layers, x): (Case, &[Matrix], &[f32]),
    ) -> Result<Vec<Row>> {
        let exec = probe.exec();
        let mut arms = Arms::new(exec, case, layers, x)?;
        let checked = arms.check()?;
        let calls = arms.calls(bench.clock);
        let mut sample = |_| arms.sample(calls, bench.clock);
        let warmup = bench.warm_up(plan.runs.warmups, |i| sample(i).map(drop))?;
        let arithmetics = Arithmetics::of_weights(case.format.arithmetic());
        let samples = probe.hold(plan.runs.timed, arithmetics, bench.clock, sample)?;
        let outcome = Outcome {
            case,
            threads: exec.team.size(),
            tier: exec.simd.name(),
            samples,
            checked,
            calls,
            weights_bytes: layers.len() * layers[0].bytes(),
            gates: self.gates,
        };
        Ok(outcome.rows()?.into_iter().map(|row| row.warmed(warmup)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::LORA;
    use super::*;
    use crate::bench::LaneError;
    use crate::lanes::tests::bench;
    use crate::result::Column;
    use redline_system::Clock;

    fn plan(bench: &Bench<'_>, given: &[(&'static str, &'static str)]) -> Result<Plan> {
        let small = [("n", "40"), ("k", "96"), ("rank", "6"), ("formats", "f32"), ("weights-mib", "1")];
        Plan::of(bench, Flags::with(&[&small[..], given].concat())?)
    }

    #[track_caller]
    fn refused(result: Result<Plan>, parts: &[&str]) {
        let Err(LaneError::Usage(fact)) = result else { panic!("accepted") };
        assert!(parts.iter().all(|part| fact.contains(part)), "{fact}");
    }

    #[test]
    fn every_adapter_has_a_row() {
        let clock = Clock::scripted(|| 0);
        let bench = bench(&clock);
        let plan_of = plan(&bench, &[("m", "1,8"), ("rank", "16,32"), ("adapters", "1,4,8")]).unwrap();
        let cases = plan_of.adapters.as_ref().unwrap().cases(&plan_of.rows, Format::F32, (40, 96));
        let cases: Vec<_> = cases.iter().map(|case| (case.rows, case.rank, case.adapters)).collect();
        let of_rows = [(8, 16, 1), (8, 16, 4), (8, 16, 8), (8, 32, 1), (8, 32, 4), (8, 32, 8)];
        assert_eq!(cases, [&[(1, 16, 1), (1, 32, 1)][..], &of_rows].concat());
        refused(plan(&bench, &[("m", "1,3"), ("adapters", "4,8")]), &["`--adapters` is `4,8`", "`1,3`"]);
    }

    #[test]
    fn memory_for_weights_adapters_inputs_and_outputs_must_be_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let given = [("m", "3"), ("adapters", "2")];
        // A layer has 48 rows of 96 f32, 18 KiB; an adapter 16 rows of 96, and 48 rows of 6. 57 layers exceed a MiB.
        let layer = 4 * (48 * 96 + 2 * (16 * 96 + 48 * 6));
        let values = 4 * (9 * 4 * 48 + 2 * 4 * 96);
        let needed: u64 = (1 << 20) + 57 * layer + values;
        bench.machine.memory.available_bytes = Some(needed);
        assert!(plan(&bench, &given).is_ok());
        bench.machine.memory.available_bytes = Some(needed - 1);
        refused(plan(&bench, &given), &["f32 40 x 96, 3 rows, rank 6, 2 adapters would take"]);
    }

    #[test]
    fn the_columns_of_the_seed_are_a_style() {
        let names: Vec<&str> = Column::all(&[LORA]).iter().map(|column| column.name).collect();
        let seed = "bench,rows,cols,batch,rank,fused_ms,baseline_ms,base_ms,speedup,lora_tax_pct,tokens_per_s,\
                    baseline_tokens_per_s,l2_diff";
        assert_eq!(names.join(","), seed);
    }
}
