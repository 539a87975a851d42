//! Lane `gemm-lora`: a linear layer with adapters (LoRA) in one call, beside the layer alone and beside separate calls.
//!
//! The three arms take turns within every sample, so that ratios between them are of the same moment. Calls cycle through several
//! copies of the weights and adapters, so that both come from memory as in a model.

mod arms;
mod case;
mod rows;

use redline_kernels::{Format, Matrix, set_default_float_environment};

use super::prelude::*;
use crate::baseline::Rule;
use crate::bench::MetricSpec;
use crate::limits::Probe;
use crate::linear::{self, Noise};
use crate::roofline::Arithmetics;
use arms::Arms;
use case::Case;
use rows::{Gates, Outcome};

pub(super) const LANE: Lane = Lane {
    asks: "What do adapters add to the time of a linear layer, in one call and in separate calls?",
    checks: "rows without an adapter have the bits of the layer alone, every row those that it has alone on the scalar tier and with \
             one thread; outputs are near the exact product of the same packed weights, and the same in every run",
    against: "the layer alone and separate calls for the adapters, in turn, and the machine's read bandwidth and arithmetic peak",
    metrics: METRICS,
    flags: &[
        flag("rows", "N,..", "1,8,128").help("Rows of inputs (tokens), each with an adapter"),
        linear::outputs("4096"),
        linear::inputs("4096"),
        linear::SHAPE,
        flag("rank", "N,..", "8,16,32,64").help("Ranks of the adapters"),
        flag("adapters", "N,..", "1,4,8")
            .help("Different adapters in the batch, each with consecutive rows; cases with more adapters than rows are left out"),
        linear::formats_flag("w8"),
        linear::WEIGHTS,
        Flag::runs("7"),
        Flag::warmups("1"),
        flag("min-speedup", "X", "auto").help(
            "Fail where one call with rank 32 is less than so many times as fast as separate calls; 0: no gate; auto: 1.4 where \
             separate calls take so long that a tax of its floor plus 3 points would reach it",
        ),
        flag("max-tax", "PERCENT", "4").help(
            "Fail where one adapter of rank 16 or less adds more to a layer of 2^24 weights or more; 0: no gate",
        ),
        flag("max-over-floor", "POINTS", "3").help(
            "Fail where 8 adapters or more add more than the share of their bytes, in percent, plus so many points; 0: no gate",
        ),
    ],
    smoke: &[
        ("rows", "1,5"),
        ("n", "40"),
        ("k", "96"),
        ("rank", "6"),
        ("adapters", "1,2"),
        ("formats", "f32,w8"),
        ("weights-mib", "1"),
        ("num-runs", "2"),
        ("min-speedup", "0"),
        ("max-tax", "0"),
        ("max-over-floor", "0"),
    ],
    standard: &[("rows", "1,8"), ("rank", "16"), ("adapters", "1,8"), ("num-runs", "5")],
    columns: Some(COLUMNS),
    shown: Some(SHOWN),
    note: Some(
        "ms are medians per call; tax % is what the adapters add to the layer alone, floor % their bytes over those of the layer; x \
         two-call compares with separate calls for the adapters",
    ),
    styles: &[("gemm-lora", SEED)],
    baseline: Some(Rule { keys: &["name"], value: "tokens_per_s", most_drop: 0.10 }),
    ..Lane::new("gemm-lora", 0.05, LaneFunction::Machine(run))
};

const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    lower("seconds", "s"),
    info("cpu_time", "s"),
    info("fused_ms", "ms"),
    info("baseline_ms", "ms"),
    info("base_ms", "ms"),
    info("baseline_tokens_per_s", "tokens/s"),
    info("speedup", "x"),
    info("lora_tax_pct", "%"),
    count("lora_tax_floor_pct", "%"),
    info("l2_diff", "share"),
    info("nmse", "share"),
    count("adapter_bytes", "bytes"),
    info("gops", "GOP/s"),
    info("read_rate", "GB/s"),
    info("calls", "calls"),
    info("share", "share"),
    info("limit", ""),
];

/// The columns of the seed.
const SEED: &[Column] = COLUMNS.split_at(13).0;

/// The columns of the seed, then ours. In the seed's, rows and columns are those of the weights, and the batch is the number of tokens.
const COLUMNS: &[Column] = &[
    Column::param("bench"),
    Column { name: "rows", cell: Cell::Param("n") },
    Column { name: "cols", cell: Cell::Param("k") },
    Column { name: "batch", cell: Cell::Param("m") },
    Column { name: "rank", cell: Cell::Param("adapter_rank") },
    Column::median("fused_ms"),
    Column::median("baseline_ms"),
    Column::median("base_ms"),
    Column::median("speedup"),
    Column::median("lora_tax_pct"),
    Column::median("tokens_per_s"),
    Column::median("baseline_tokens_per_s"),
    Column::median("l2_diff"),
    Column { name: "name", cell: Cell::Case },
    Column { name: "adapters", cell: Cell::Param("adapters_n") },
    Column::param("format"),
    Column::param("threads"),
    Column { name: "num_runs", cell: Cell::Samples("seconds") },
    Column::MEAN_S,
    Column::STD_S,
    Column::MIN_S,
    Column::MAX_S,
    Column::median("lora_tax_floor_pct"),
    Column::median("nmse"),
    Column::median("adapter_bytes"),
    Column::median("gops"),
    Column::median("read_rate"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

/// The columns of the printed table.
const SHOWN: &[Column] = &[
    Column { name: "case", cell: Cell::Case },
    median("tokens/s", "tokens_per_s"),
    median("base ms", "base_ms"),
    median("fused ms", "fused_ms"),
    median("two-call ms", "baseline_ms"),
    median("tax %", "lora_tax_pct"),
    median("floor %", "lora_tax_floor_pct"),
    median("x two-call", "speedup"),
    median("l2 diff", "l2_diff"),
    median("GB/s", "read_rate"),
    Column { name: "of limit", cell: Cell::Share },
    Column::LIMIT,
];

/// Weights with the spread of freshly initialised ones.
const WEIGHTS: Noise = Noise { seed: 1, spread: 0.035 };
const INPUTS: Noise = Noise { seed: 2, spread: 1.0 };

/// What the flags ask for.
struct Plan {
    layers: Vec<(usize, usize)>,
    formats: Vec<Format>,
    rows: Vec<usize>,
    ranks: Vec<usize>,
    adapters: Vec<usize>,
    weight_bytes: usize,
    runs: Runs,
    gates: Gates,
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<()> {
    let plan = Plan::of(bench, values)?;
    set_default_float_environment();
    for &threads in &bench.threads {
        let probe = Probe::new(threads, bench.simd(), plan.weight_bytes)?;
        for &(n, k) in &plan.layers {
            let mut x = vec![0f32; (plan.most_rows() + 1) * k];
            INPUTS.fill(0, &mut x);
            for &format in &plan.formats {
                let matrix = WEIGHTS.matrix(probe.exec(), format, (n, k))?;
                let layers = linear::copies(matrix, plan.weight_bytes)?;
                for case in plan.cases(format, (n, k)) {
                    let rows = measure(bench, &probe, &plan, case, &layers, &x)?;
                    bench.done(&format!("{}, {threads} threads", case.place()), rows)?;
                }
            }
        }
    }
    Ok(())
}

impl Plan {
    fn of(bench: &Bench<'_>, values: &Values) -> Result<Self> {
        let plan = Self {
            layers: linear::shapes(values)?,
            formats: linear::formats(values)?,
            rows: values.counts("rows")?,
            ranks: values.counts("rank")?,
            adapters: values.counts("adapters")?,
            weight_bytes: linear::weight_bytes(bench, values)?,
            runs: values.runs()?,
            gates: Gates {
                min_speedup: match values.text("min-speedup") {
                    "auto" => None,
                    _ => Some(values.number("min-speedup")?),
                },
                max_tax: values.number("max-tax")?,
                max_over_floor: values.number("max-over-floor")?,
            },
        };
        let fewest = plan.adapters.iter().copied().min().unwrap_or(1);
        require(fewest <= plan.most_rows(), || {
            let (adapters, rows) = (values.text("adapters"), values.text("rows"));
            format!("`--adapters` is `{adapters}`, but every adapter needs a row, and `--rows` is `{rows}`")
        })?;
        for &shape in &plan.layers {
            let cases = plan.formats.iter().flat_map(|&format| plan.cases(format, shape));
            cases.into_iter().try_for_each(|case| plan.fits(bench, &case))?;
        }
        Ok(plan)
    }

    fn most_rows(&self) -> usize {
        self.rows.iter().copied().max().unwrap_or(1)
    }

    /// The cases of a layer; adapters change first.
    fn cases(&self, format: Format, (outputs, inputs): (usize, usize)) -> Vec<Case> {
        let mut cases = Vec::new();
        for &rows in &self.rows {
            for &rank in &self.ranks {
                let adapters = self.adapters.iter().filter(|&&adapters| adapters <= rows);
                let case = |&adapters: &usize| Case { format, outputs, inputs, rows, rank, adapters };
                cases.extend(adapters.map(case));
            }
        }
        cases
    }

    /// Returns an error if memory is too small for the probe's buffer, the weights (at least one whole matrix, at most one more than
    /// requested) with their adapters, the inputs (unpacked and packed) and the outputs (with those that are checked).
    fn fits(&self, bench: &Bench<'_>, case: &Case) -> Result<()> {
        let (base, rows) = (case.base_bytes(), (self.most_rows() + 1) as f64);
        let copies = (self.weight_bytes as f64 / base).ceil().max(1.0);
        let weights = copies * (base + case.adapter_bytes());
        let values = 9.0 * rows * case.stride() as f64 + 2.0 * rows * case.inputs as f64;
        bench.fits(&case.place(), self.weight_bytes as f64 + weights + 4.0 * values)
    }
}

/// The rows of one case.
fn measure(
    bench: &Bench<'_>,
    probe: &Probe,
    plan: &Plan,
    case: Case,
    layers: &[Matrix],
    x: &[f32],
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
        gates: plan.gates,
    };
    Ok(outcome.rows()?.into_iter().map(|row| row.warmed(warmup)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::bench;
    use redline_system::Clock;

    fn plan(bench: &Bench<'_>, given: &[(&'static str, &'static str)]) -> Result<Plan> {
        let small = [("n", "40"), ("k", "96"), ("rank", "6"), ("formats", "f32"), ("weights-mib", "1")];
        Plan::of(bench, &Values::new(LANE.flags, small.iter().chain(given).copied()))
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
        let plan_of = plan(&bench, &[("rows", "1,8"), ("rank", "16,32"), ("adapters", "1,4,8")]).unwrap();
        let cases: Vec<_> = plan_of
            .cases(Format::F32, (40, 96))
            .iter()
            .map(|case| (case.rows, case.rank, case.adapters))
            .collect();
        let of_rows = [(8, 16, 1), (8, 16, 4), (8, 16, 8), (8, 32, 1), (8, 32, 4), (8, 32, 8)];
        assert_eq!(cases, [&[(1, 16, 1), (1, 32, 1)][..], &of_rows].concat());
        refused(plan(&bench, &[("rows", "1,3"), ("adapters", "4,8")]), &["`--adapters` is `4,8`", "`1,3`"]);
    }

    #[test]
    fn memory_for_weights_adapters_inputs_and_outputs_must_be_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let given = [("rows", "3"), ("adapters", "2")];
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
    fn the_columns_of_the_seed_come_first() {
        let names: Vec<&str> = SEED.iter().map(|column| column.name).collect();
        let seed = "bench,rows,cols,batch,rank,fused_ms,baseline_ms,base_ms,speedup,lora_tax_pct,tokens_per_s,\
                    baseline_tokens_per_s,l2_diff";
        assert_eq!(names.join(","), seed);
    }
}
