//! Lane `gemm`: one linear layer, from one row of inputs (decode) to many (prefill), in every weight format.
//!
//! The lane cycles through several matrices, so that weights come from memory as in a model. The samples of all row counts are
//! interleaved. With `--rank`, adapters are added to the layer: see [`adapters`].

mod adapters;
mod layer;
mod linear;

use redline_kernels::{Format, set_default_float_environment};
use redline_models::synth::Shape;

use super::prelude::*;
use crate::baseline::Rule;
use crate::bench::{CallTime, cycled_bytes, optional};
use crate::limits::Probe;
use crate::roofline::Arithmetics;
use adapters::Adapters;
use layer::{Checked, Layer};

pub(super) const LANE: Lane = Lane {
    asks: "How fast is a linear layer, by rows of inputs and format of weights, how near the machine's limits, and what do adapters \
           add?",
    checks: "sampled outputs are those of the scalar tier, bit for bit; with adapters, rows without one have the bits of the layer alone, \
             every row those that it has alone and with one thread, and outputs are near the exact product of the same packed weights",
    against: "f32 weights in the same run (with adapters, the layer alone and separate calls for the adapters, in turn), and the machine's \
              read bandwidth and arithmetic peak, read around every run",
    metrics: METRICS,
    flags: &Flags::ALL,
    smoke: "m=1,3 n=40 k=96 formats=f32,bf16,w8g0,w4 weights-mib=1 num-runs=2 adapters=1,2 \
            min-speedup=0 max-tax=0 max-over-floor=0",
    standard: "m=1,8,128 n=2048 k=2048",
    columns: COLUMNS,
    shown: SHOWN,
    note: Some(
        "ms are medians per call. With adapters: tax % is what they add to the layer alone, floor % their bytes over those of the layer, \
         x two-call compares with separate calls",
    ),
    styles: &[("gemm", SEED), ("gemm-lora", LORA)],
    baseline: Some(Rule { keys: &["name"], value: "tokens_per_s", most_drop: 0.10 }),
    ..Lane::new("gemm", 0.05, LaneFunction::Machine(run))
};

flags! {
    struct Flags;
    rows: Vec<usize> = "m", "N,..", "1,2,4,8,16,32,128,512", "Rows of inputs (tokens)";
    rows_curve: bool = "rows-curve", "", "false", "Every m from 1 to 32 instead of --m";
    outputs: usize = "n", "N", "8192", "Outputs";
    inputs: usize = "k", "N", "2048", "Inputs";
    shape: Option<&'static Shape> = "shape", "SHAPE", "none",
        "The linear layers of a model's shape, as `redline synth` knows them, instead of --n and --k",
        |flag, text| optional(flag, text, linear::shape);
    formats: Vec<Format> = "formats", "F,..", "f32,bf16,w8,w4", "Formats of weights, with a group as in w8g0 or w4g32",
        |_, text| text.split(',').map(linear::format).collect();
    weights_mib: Option<usize> = "weights-mib", "N", "auto",
        "MiB of weights to cycle through; auto: four times the last-level cache, at most 512";
    timed: usize = "num-runs", "N", "5", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
    min_speedup: Option<f64> = "min-speedup", "X", "auto",
        "Fail where a format is less than so many times as fast as f32 in this run, or one call with adapters of rank 32 than separate \
         calls; 0: no gate; auto: 1.4 for the latter, where separate calls take so long that a tax of its floor plus 3 points would \
         reach it";
    ranks: Option<Vec<usize>> = "rank", "N,..", "none",
        "Ranks of adapters (LoRA): measure the layer with them, in one call and in separate calls";
    adapters: Vec<usize> = "adapters", "N,..", "1,4,8",
        "Different adapters in the batch, each with consecutive rows; cases with more adapters than rows are left out";
    max_tax: f64 = "max-tax", "PERCENT", "4",
        "Fail where one adapter of rank 16 or less adds more to a layer of 2^24 weights or more; 0: no gate";
    max_over_floor: f64 = "max-over-floor", "POINTS", "3",
        "Fail where 8 adapters or more add more than the share of their bytes, in percent, plus so many points; 0: no gate";
}

const METRICS: &str = "+tokens_per_s tokens/s|-seconds s|cpu_time s|gops GOP/s|read_rate GB/s|l2_diff share|calls calls|\
     speedup_over_f32 x|fused_ms ms|baseline_ms ms|base_ms ms|baseline_tokens_per_s tokens/s|speedup x|\
     lora_tax_pct %|#lora_tax_floor_pct %|nmse share|#adapter_bytes bytes|share share|limit";

/// The columns of the seed's `gemm_lora.csv`. Rows and columns are those of the weights, and the batch is the number of tokens.
const LORA: &str = "bench|rows=n|cols=k|batch=m|rank=adapter_rank|~fused_ms|~baseline_ms|~base_ms|~speedup|~lora_tax_pct|\
     ~tokens_per_s|~baseline_tokens_per_s|~l2_diff";

/// The columns of the printed table.
const SHOWN: &str = "@case|~tokens_per_s|ms=~seconds*1e3|GOP/s=~gops|GB/s=~read_rate|of limit=@share|@limit|\
     x f32=~speedup_over_f32|base ms=~base_ms|two-call ms=~baseline_ms|x two-call=~speedup|\
     tax %=~lora_tax_pct|floor %=~lora_tax_floor_pct|l2 diff=~l2_diff|kernel_path=@kernels";

const OVER_F32: &str = "speedup_over_f32";

/// Only the columns of Google Benchmark.
const SEED: &str = "name=@case|iterations=~calls|real_time=~seconds*1e9|cpu_time=~cpu_time*1e9|time_unit='ns'|\
     bytes_per_second=~read_rate*1e9|items_per_second=~tokens_per_s|label=@limit|error_occurred=''|\
     error_message=''";

/// The columns of Google Benchmark as in the seed's `gemm_base.csv`, then ours.
const COLUMNS: &[&str] = &[
    SEED,
    "m|n|k|format|~tokens_per_s|~gops|share_of_limit=@share|kernel_path=@kernels|~l2_diff|\
     ~speedup_over_f32|bench|rows=n|cols=k|batch=m|rank=adapter_rank|adapters=adapters_n|~fused_ms|\
     ~baseline_ms|~base_ms|~speedup|~lora_tax_pct|~lora_tax_floor_pct|~baseline_tokens_per_s|~nmse|\
     ~adapter_bytes|threads|num_runs=#seconds|mean_s=mean:seconds|std_s=std:seconds|min_s=min:seconds|\
     max_s=max:seconds",
];

struct Plan {
    rows: Vec<usize>,
    layers: Vec<(usize, usize)>,
    formats: Vec<Format>,
    weight_bytes: usize,
    runs: Runs,
    /// Over f32; 0: no gate.
    min_speedup: f64,
    adapters: Option<Adapters>,
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<()> {
    let plan = Plan::of(bench, Flags::of(values)?)?;
    set_default_float_environment();
    for &threads in &bench.threads {
        let probe = bench.probe(threads, bench.simd(), plan.weight_bytes)?;
        for &(n, k) in &plan.layers {
            if let Some(adapters) = &plan.adapters {
                adapters.measure(bench, &probe, &plan, (n, k))?;
                continue;
            }
            let mut f32_rows = Vec::new();
            for &format in &plan.formats {
                let mut rows = layer_rows(bench, &probe, &plan, format, (n, k))?;
                if format == Format::F32 {
                    f32_rows.clone_from(&rows);
                } else {
                    rows = over_f32(rows, &f32_rows, plan.min_speedup)?;
                }
                bench.done(&format!("{format}, n = {n}, k = {k}, {threads} threads"), rows)?;
            }
        }
    }
    Ok(())
}

impl Plan {
    fn of(bench: &Bench<'_>, flags: Flags) -> Result<Self> {
        let layers = linear::shapes(&flags)?;
        let weight_bytes = cycled_bytes(&bench.machine, flags.weights_mib);
        let rows = if flags.rows_curve { (1..=32).collect() } else { flags.rows.clone() };
        let adapters = Adapters::of(&flags, &rows)?;
        let (min_speedup, mut formats) = (flags.min_speedup.unwrap_or(0.0), flags.formats);
        // f32 comes first, because the others are compared with it.
        formats.sort_by_key(|&format| format != Format::F32);
        let runs = Runs { timed: flags.timed, warmups: flags.warmups };
        let plan = Self { rows, layers, formats, weight_bytes, runs, min_speedup, adapters };
        if let Some(adapters) = &plan.adapters {
            adapters.fit(bench, &plan)?;
            return Ok(plan);
        }
        require(min_speedup == 0.0 || plan.formats.contains(&Format::F32), || {
            "`--min-speedup` is over f32, but `--formats` leaves it out".into()
        })?;
        plan.fits(bench)?;
        Ok(plan)
    }

    fn most_rows(&self) -> usize {
        self.rows.iter().copied().max().unwrap_or(1)
    }

    /// Returns an error if memory is too small for the probe's buffer, the weights (at least one whole matrix, at most one more
    /// than requested), the inputs (unpacked and packed) and the outputs.
    fn fits(&self, bench: &Bench<'_>) -> Result<()> {
        let m = self.most_rows() as f64;
        for &(n, k) in &self.layers {
            let (n, k) = (n as f64, k as f64);
            let bytes = 2.0 * self.weight_bytes as f64 + 4.0 * (n * k + m * n + 2.0 * m * k);
            bench.fits(&format!("m = {m}, n = {n}, k = {k}"), bytes)?;
        }
        Ok(())
    }
}

/// The rows of one layer in one format: one per number of input rows.
fn layer_rows(
    bench: &Bench<'_>,
    probe: &Probe,
    plan: &Plan,
    format: Format,
    shape: (usize, usize),
) -> Result<Vec<Row>> {
    let mut layer = Layer::new(probe.exec(), format, shape, plan.most_rows(), plan.weight_bytes)?;
    let checked = plan.rows.iter().map(|&m| layer.check(m)).collect::<Result<Vec<_>, _>>()?;
    let calls: Vec<usize> = plan.rows.iter().map(|&m| layer.calls(m, bench.clock)).collect();
    let cases = plan.rows.len();
    let mut sample = |case: usize| layer.sample(plan.rows[case], calls[case], bench.clock);
    let warmup = bench.warm_up(plan.runs.warmups, |_| {
        (0..cases).for_each(|case| {
            sample(case);
        });
        Ok(())
    })?;
    let arithmetics = Arithmetics::of_weights(format.arithmetic());
    let samples = probe
        .hold(plan.runs.timed * cases, arithmetics, bench.clock, |i| Ok::<_, LaneError>(sample(i % cases)))?;
    let row = |case: usize| {
        let samples: Vec<Held<CallTime>> = samples.iter().skip(case).step_by(cases).copied().collect();
        let row = row(probe, &layer, plan.rows[case], &samples, &checked[case])?;
        Ok(row.measured(LANE.metrics, &samples).one("calls", calls[case] as f64)?.row.warmed(warmup))
    };
    (0..cases).map(row).collect()
}

/// Adds the speedup over f32 with the same number of input rows, if f32 was measured before.
fn over_f32(rows: Vec<Row>, f32_rows: &[Row], least: f64) -> Result<Vec<Row>> {
    let seconds = |row: &Row| row.samples_of("seconds").cloned();
    let over = |row: Row| {
        let reference = f32_rows.iter().find(|other| other.params.get("m") == row.params.get("m"));
        let reference = reference.and_then(seconds).and_then(|samples| samples.median());
        let (Some(reference), Some(own)) = (reference, seconds(&row)) else { return Ok(row) };
        let times = own.values().iter().map(|s| reference / s).collect();
        let row = row.metric(OVER_F32, Samples::new("x", Direction::Info, times)?);
        Ok(row.at_least(OVER_F32, least))
    };
    rows.into_iter().map(over).collect()
}

fn row(
    probe: &Probe,
    layer: &Layer<'_>,
    m: usize,
    samples: &[Held<CallTime>],
    checked: &Checked,
) -> Result<Row> {
    let (format, exec) = (layer.format(), probe.exec());
    let (n, k) = layer.shape();
    let (threads, work) = (exec.team.size(), layer.work(m));
    let row = Row::new(format!("gemm/{format}/m{m}/n{n}/k{k}/t{threads}"))
        .param("threads", threads)
        .param("format", format.to_string())
        .param("m", m)
        .param("n", n)
        .param("k", k)
        .param("weights_bytes", layer.cycled_bytes())
        .digest(checked.digest.clone())
        .checked_on(format!("{}/{format}", exec.simd.name()));
    row.measured(LANE.metrics, samples)
        .each("tokens_per_s", |sample| m as f64 / sample.value.seconds)?
        .each("seconds", |sample| sample.value.seconds)?
        .each("cpu_time", |sample| sample.value.cpu_seconds)?
        .each("gops", |sample| work.operations / sample.value.seconds * 1e-9)?
        .each("read_rate", |sample| work.bytes / sample.value.seconds * 1e-9)?
        .one("l2_diff", checked.l2_diff)?
        .held(format.arithmetic(), work, |sample| sample.value.seconds)
}

#[cfg(test)]
mod tests {
    use redline_kernels::Simd;

    use super::*;
    use crate::lanes::tests::{bench, samples, timed};
    use crate::limits::READING_NS;
    use redline_system::Clock;

    #[test]
    fn formats_are_held_against_f32_with_as_many_inputs() {
        let row = |m: usize, seconds: &[f64]| {
            let seconds = Samples::new("s", Direction::Lower, seconds.to_vec()).unwrap();
            Row::new("a").param("m", m).metric("seconds", seconds)
        };
        let reference = [row(1, &[8.0, 9.0, 1.0]), row(2, &[6.0])];
        let rows =
            over_f32(vec![row(2, &[2.0, 3.0]), row(1, &[8.0]), row(3, &[1.0])], &reference, 1.5).unwrap();
        assert_eq!(samples(&rows[0], OVER_F32), [3.0, 2.0]);
        assert_eq!(samples(&rows[1], OVER_F32), [1.0]);
        assert!(rows[2].metrics.get(OVER_F32).is_none());
        assert_eq!(rows.iter().map(|row| row.missed().len()).collect::<Vec<_>>(), [0, 1, 0]);
        assert!(over_f32(vec![row(1, &[8.0])], &reference, 0.0).unwrap()[0].gates.is_empty());
    }

    #[test]
    fn a_gate_over_f32_needs_f32_which_comes_first() {
        let clock = Clock::scripted(|| 0);
        let plan = |formats: &str| {
            let flags = Flags::with(&[("formats", formats), ("min-speedup", "2")]).unwrap();
            Plan::of(&bench(&clock), flags)
        };
        let Err(LaneError::Usage(fact)) = plan("w8,bf16") else { panic!("a gate over nothing") };
        assert!(fact.contains("`--formats` leaves it out"), "{fact}");
        let formats = plan("w8,bf16,f32").map(|plan| plan.formats).unwrap();
        assert_eq!(formats, ["f32", "w8", "bf16"].map(|name| Format::parse(name).unwrap()));
    }

    #[test]
    fn a_row_tells_operations_bytes_and_tokens_per_second() {
        let probe = Probe::new(1, Simd::best(), 4096, READING_NS).unwrap();
        let layer = Layer::new(probe.exec(), Format::F32, (40, 96), 2, 1).unwrap();
        let checked = Checked { l2_diff: 0.25, digest: "d".to_owned() };
        let row =
            row(&probe, &layer, 2, &[timed(CallTime { seconds: 0.5, cpu_seconds: Some(1.0) })], &checked)
                .unwrap();
        assert_eq!((row.case.as_str(), row.digest.as_deref()), ("gemm/f32/m2/n40/k96/t1", Some("d")));
        // Two rows of inputs; the weights are padded to 48 rows of 96 f32.
        let (operations, bytes) = (2.0 * 2.0 * 40.0 * 96.0, 48.0 * 96.0 * 4.0);
        assert_eq!(samples(&row, "gops"), [operations / 0.5 * 1e-9]);
        assert_eq!(samples(&row, "read_rate"), [bytes / 0.5 * 1e-9]);
        assert_eq!(row.param_text("weights_bytes").as_deref(), Some("18432"));
        let values = ["tokens_per_s", "seconds", "cpu_time", "l2_diff"].map(|name| samples(&row, name));
        assert_eq!(values, [vec![4.0], vec![0.5], vec![1.0], vec![0.25]]);
    }

    #[test]
    fn memory_for_weights_inputs_and_outputs_must_be_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let flags = Flags::with(&[("m", "3,2"), ("n", "40"), ("k", "96"), ("weights-mib", "1")]).unwrap();
        // Twice the weights; a matrix, the outputs, and the inputs as they are and packed, in f32.
        let needed: u64 = 2 * (1 << 20) + 4 * (40 * 96 + 3 * 40 + 2 * 3 * 96);
        bench.machine.memory.available_bytes = Some(needed);
        assert!(Plan::of(&bench, flags.clone()).is_ok());
        bench.machine.memory.available_bytes = Some(needed - 1);
        let Err(LaneError::Usage(fact)) = Plan::of(&bench, flags) else { panic!("accepted") };
        assert!(fact.starts_with("m = 3, n = 40, k = 96 would take"), "{fact}");
    }
}
