//! What the lanes `attn-decode` and `attn-prefill` share: attention over keys and values of a small format beside f16, in one run.
//!
//! The arms take turns, A B B A, and every sample stands between two readings of the limits of both. Calls cycle through several
//! copies of the keys and values, which together exceed the caches, as the layers of a model do. A token is a query row.

mod arm;
mod cache;
mod case;
mod quality;
mod rows;

use redline_kernels::op::attention::SPAN;
use redline_kernels::op::kv::{KvFormat, MAX_HEAD_DIM};
use redline_kernels::{Simd, Tier, set_default_float_environment};

use crate::Samples;
use crate::baseline::Rule;
use crate::bench::{
    Bench, BenchModel, Flag, MetricSpec, Result, Runs, Values, count, flag, higher, info, lower, require,
};
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held};
use arm::{Arm, Sample};
use cache::{Cache, copies, copy_bytes, queries};
use case::Case;
use quality::{Qualities, qualities};
use redline_system::Machine;
use rows::{Measured, Outcome};

/// The format of the arm with which the other is compared.
const BASELINE: KvFormat = KvFormat::F16;

/// The format of the compared arm, if the user names none.
const DEFAULT: KvFormat = KvFormat::W8;

/// Minimum speedup of `auto`.
const MIN_SPEEDUP: f64 = 1.15;

/// Default limit of the bytes of keys and values to cycle through.
const MAX_BYTES: u64 = 512 << 20;

/// What is checked before timing.
pub(crate) const CHECKS: &str = "outputs are the same bits on one thread, and alone on the scalar tier, and in every run; they are \
                                 near those over f32 keys and values";

/// What arms are compared with.
pub(crate) const AGAINST: &str = "the same attention over f16 keys and values, in turn, and the machine's read bandwidth and arithmetic peak";

/// The metrics.
pub(crate) const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    lower("seconds", "s"),
    info("cpu_time", "s"),
    info("baseline_tokens_per_s", "tokens/s"),
    info("speedup", "x"),
    info("nmse", "share"),
    info("perplexity", ""),
    info("perplexity_delta", "points"),
    info("perplexity_delta_error", "points"),
    info("perplexity_delta_percent", "%"),
    count("scratch", "bytes"),
    info("scratch_ratio", "x"),
    count("l2_bytes_per_token", "bytes"),
    info("read_rate", "GB/s"),
    info("read_bandwidth", "GB/s"),
    info("gops", "GOP/s"),
    info("calls", "calls"),
    info("share", "share"),
    info("limit", ""),
];

/// The `N` flags of a lane: its own, then those that both lanes have.
pub(crate) const fn flags<const N: usize>(own: &[Flag]) -> [Flag; N] {
    let mut all = [SHARED[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < own.len() { own[i] } else { SHARED[i - own.len()] };
        i += 1;
    }
    all
}

/// The flag for the minimum speedup.
pub(crate) const fn min_speedup(default: &'static str) -> Flag {
    flag("min-speedup", "X", default).help(
        "Fail where the median speedup over f16 is less, from 2048 tokens of context on; 0: no gate; auto: 1.15 on tiers that have a \
         dot product of bytes (avx512, amx), else no gate",
    )
}

/// The number of flags that both lanes have.
pub(crate) const SHARED_FLAGS: usize = SHARED.len();

const SHARED: &[Flag] = &[
    flag("batch", "N,..", "1").help("Sequences, each with keys and values of its own"),
    flag("head-dim", "N,..", "64,128").help("Dimensions of a head"),
    flag("heads-per-kv", "N,..", "4,8").help("Query heads that share a KV head"),
    flag("kv-heads", "N", "8").help("KV heads"),
    flag("tile-tokens", "N", "auto").help(
        "Keys that are processed together; they are part of the order of roundings, so only 256 or auto",
    ),
    flag("kv-mib", "N", "auto")
        .help("MiB of keys and values to cycle through; auto: four times the last-level cache, at most 512"),
    flag("perplexity-tokens", "N", "auto").help("Tokens of the text whose perplexity is measured; auto: all"),
    Flag::runs("7"),
    Flag::warmups("1"),
];

/// The columns of the seed, after the name of the case.
pub(crate) const SEED: &[Column] = COLUMNS.split_at(11).0;

/// The columns of the seed, then ours.
pub(crate) const COLUMNS: &[Column] = &[
    Column { name: "name", cell: Cell::Case },
    Column::median("tokens_per_s"),
    Column::median("baseline_tokens_per_s"),
    Column::median("perplexity_delta"),
    Column::median("scratch_ratio"),
    Column::param("tile_tokens"),
    Column::param("acc_width"),
    Column::param("has_avx2"),
    Column::param("has_vnni"),
    Column::param("csr_outliers"),
    Column::median("l2_bytes_per_token"),
    Column::param("kv_format"),
    Column::param("context"),
    Column::param("rows"),
    Column::param("batch"),
    Column::param("heads"),
    Column::param("kv_heads"),
    Column::param("head_dim"),
    Column::param("threads"),
    Column { name: "num_runs", cell: Cell::Samples("seconds") },
    Column::MEAN_S,
    Column::STD_S,
    Column::MIN_S,
    Column::MAX_S,
    Column::median("speedup"),
    Column::median("nmse"),
    Column::median("perplexity"),
    Column::median("perplexity_delta_error"),
    Column::median("perplexity_delta_percent"),
    Column::median("scratch"),
    Column::median("read_rate"),
    Column::median("read_bandwidth"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

/// The columns of the printed table.
pub(crate) const SHOWN: &[Column] = &[
    Column { name: "case", cell: Cell::Case },
    shown("tokens/s", "tokens_per_s"),
    shown("f16 tokens/s", "baseline_tokens_per_s"),
    shown("x f16", "speedup"),
    shown("NMSE", "nmse"),
    shown("perplexity +", "perplexity_delta"),
    shown("+-", "perplexity_delta_error"),
    shown("%", "perplexity_delta_percent"),
    shown("x scratch", "scratch_ratio"),
    shown("GB/s", "read_rate"),
    shown("of GB/s", "read_bandwidth"),
    Column { name: "of limit", cell: Cell::Share },
    Column::LIMIT,
];

/// A note about the values in the table.
pub(crate) const NOTE: &str = "tokens are query rows; NMSE and perplexity are compared with f32 keys and values; GB/s are the bytes of keys and \
                               values, read once, over the time\nthe perplexity is that of the model's text in windows of its context; no \
                               outliers of keys are kept apart (csr_outliers)";

/// The rule for comparing with comma-separated values of an earlier run.
pub(crate) const RULE: Rule = Rule { keys: &["name"], value: "tokens_per_s", most_drop: 0.10 };

const fn shown(name: &'static str, metric: &'static str) -> Column {
    Column { name, cell: Cell::Metric(metric, Samples::median, 1.0) }
}

/// One thread, and the default number.
pub(crate) fn one_and_all(default: usize) -> Vec<usize> {
    if default == 1 { vec![1] } else { vec![1, default] }
}

/// What the flags ask for.
struct Plan {
    lane: &'static str,
    format: KvFormat,
    cases: Vec<Case>,
    /// Bytes of keys and values to cycle through.
    kv_bytes: usize,
    /// Tokens of the text; `None`: all.
    perplexity_tokens: Option<usize>,
    runs: Runs,
    min_speedup: f64,
}

/// Measures all cases of a lane. `rows` is the number of query rows of each sequence.
pub(crate) fn run(
    lane: &'static str,
    rows: usize,
    bench: &Bench<'_>,
    model: &BenchModel<'_>,
    values: &Values,
) -> Result<()> {
    let plan = Plan::of(lane, rows, bench, model.kv_format, values)?;
    set_default_float_environment();
    let most_threads = bench.threads.iter().copied().max().unwrap_or(1);
    (bench.progress)("perplexity of the model");
    let quality = qualities(model, [plan.format, BASELINE], most_threads, plan.perplexity_tokens)?;
    for &threads in &bench.threads {
        let probe = Probe::new(threads, vectors(bench.simd()), plan.kv_bytes)?;
        for case in &plan.cases {
            let rows = measure(bench, &probe, &plan, case, &quality)?;
            let shape = format!("{} tokens, {} rows", case.context, case.tokens());
            bench.done(&format!("{shape}, {threads} threads"), rows)?;
        }
    }
    Ok(())
}

impl Plan {
    fn of(
        lane: &'static str,
        rows: usize,
        bench: &Bench<'_>,
        format: Option<KvFormat>,
        values: &Values,
    ) -> Result<Self> {
        let format = format.unwrap_or(DEFAULT);
        require(format != BASELINE, || {
            let others: Vec<&str> =
                KvFormat::ALL.iter().filter(|other| **other != BASELINE).map(|other| other.name()).collect();
            let fact = format!("`--kv-format` is `{0}`, but the other arm has {0} already", BASELINE.name());
            format!("{fact}; one of {} is needed", others.join(", "))
        })?;
        let spans = ["auto".to_owned(), SPAN.to_string()];
        if !spans.iter().any(|span| span == values.text("tile-tokens")) {
            let why = format!(
                "one of {} is needed: spans of {SPAN} keys are part of the order of roundings",
                spans.join(", ")
            );
            return Err(values.invalid("tile-tokens", &why));
        }
        let kv_bytes = match values.count_or_auto("kv-mib")? {
            None => cycled_bytes(&bench.machine),
            Some(mib) => mib.saturating_mul(1 << 20),
        };
        let plan = Self {
            lane,
            format,
            cases: cases(rows, values)?,
            kv_bytes,
            perplexity_tokens: values.count_or_auto("perplexity-tokens")?,
            runs: values.runs()?,
            min_speedup: least_speedup(bench, values)?,
        };
        plan.cases.iter().try_for_each(|case| plan.fits(bench, case))?;
        Ok(plan)
    }

    /// Returns an error if memory is too small for the probe's buffer, the keys and values of both arms and in f32, and the queries
    /// and outputs.
    fn fits(&self, bench: &Bench<'_>, case: &Case) -> Result<()> {
        let copies = copies(case, self.format, self.kv_bytes) as f64;
        let bytes = |format| copy_bytes(case, format) as f64;
        let kv = copies * (bytes(self.format) + bytes(BASELINE)) + bytes(KvFormat::F32);
        let outputs = 6.0 * 4.0 * case.tokens() as f64 * case.width() as f64;
        let what = format!("attention of {} sequences over {} tokens", case.batch, case.context);
        bench.fits(&what, self.kv_bytes as f64 + kv + outputs)
    }
}

/// The tier whose instructions attention runs, and by whose peak it is bounded: only linear layers use tile registers.
fn vectors(simd: Simd) -> Simd {
    match simd.tier() {
        Tier::Amx => Simd::new(Tier::Avx512).unwrap_or(simd),
        Tier::Scalar | Tier::Avx2 | Tier::Avx512 => simd,
    }
}

/// The minimum speedup; 0: no gate. Without a dot product of bytes, int8 keys and values save memory but little arithmetic.
fn least_speedup(bench: &Bench<'_>, values: &Values) -> Result<f64> {
    if values.text("min-speedup") != "auto" {
        return values.number("min-speedup");
    }
    let tier = bench.simd().tier();
    if matches!(tier, Tier::Avx512 | Tier::Amx) {
        return Ok(MIN_SPEEDUP);
    }
    (bench.note)(&format!("no minimum speedup on {}, which has no dot product of bytes", tier.name()));
    Ok(0.0)
}

/// Bytes of keys and values to cycle through: four times the last-level cache, at most 512 MiB.
fn cycled_bytes(machine: &Machine) -> usize {
    let caches = machine.last_level_cache().map_or(MAX_BYTES, |cache| cache.saturating_mul(4));
    caches.min(MAX_BYTES) as usize
}

/// The cases, in the order of the flags; contexts change last.
fn cases(rows: usize, values: &Values) -> Result<Vec<Case>> {
    let [contexts, batches, dims, groups] =
        ["ctx", "batch", "head-dim", "heads-per-kv"].map(|name| values.counts(name));
    let (contexts, batches, dims, groups) = (contexts?, batches?, dims?, groups?);
    let kv_heads = values.count("kv-heads")?;
    require(dims.iter().all(|dim| *dim <= MAX_HEAD_DIM), || {
        format!(
            "`--head-dim` is `{}`, but a head has at most {MAX_HEAD_DIM} dimensions",
            values.text("head-dim")
        )
    })?;
    require(contexts.iter().all(|context| *context >= rows), || {
        format!("`--ctx` is `{}`, but {rows} query rows belong to the context", values.text("ctx"))
    })?;
    let mut cases = Vec::new();
    for &context in &contexts {
        for &batch in &batches {
            for &head_dim in &dims {
                let case = |&group: &usize| Case { context, rows, batch, kv_heads, group, head_dim };
                cases.extend(groups.iter().map(case));
            }
        }
    }
    Ok(cases)
}

/// The rows of one case.
fn measure(
    bench: &Bench<'_>,
    probe: &Probe,
    plan: &Plan,
    case: &Case,
    quality: &Qualities,
) -> Result<Vec<crate::Row>> {
    let (exec, formats) = (probe.exec(), [plan.format, BASELINE]);
    let (q, copies) = (queries(case), copies(case, plan.format, plan.kv_bytes));
    let [own, baseline] = formats.map(|format| (format, copies));
    let caches = Cache::filled(exec, case, [(KvFormat::F32, 1), own, baseline])?;
    let arms = caches.into_iter().map(|cache| Arm::new(exec, *case, cache, &q));
    let mut arms = arms.collect::<Result<Vec<Arm<'_>>>>()?;
    let reference = arms.remove(0).outputs();
    let checked = arms.iter_mut().map(|arm| arm.check(&reference)).collect::<Result<Vec<_>>>()?;
    let calls: Vec<usize> = arms.iter_mut().map(|arm| arm.calls(bench.clock)).collect();
    let mut sample = |i: usize| arms[turn(i)].sample(calls[turn(i)], bench.clock);
    let warmup = bench.warm_up(plan.runs.warmups, |_| (0..2).try_for_each(|i| sample(i).map(drop)))?;
    let limits = formats.map(|format| {
        let attention = format.arithmetics();
        Arithmetics { weights: attention[0], attention }
    });
    let samples = probe.hold_arms(2 * plan.runs.timed, &limits, turn, bench.clock, &mut sample)?;
    let measured = |arm: usize| Measured {
        format: formats[arm],
        samples: of_arm(&samples, arm),
        checked: checked[arm].clone(),
        quality: quality.formats[arm],
        calls: calls[arm],
        kv_bytes: copies * copy_bytes(case, formats[arm]),
    };
    let outcome = Outcome {
        lane: plan.lane,
        model: &quality.model,
        case: *case,
        threads: exec.team.size(),
        tier: exec.simd.name(),
        min_speedup: plan.min_speedup,
        own: measured(0),
        baseline: measured(1),
    };
    Ok(outcome.rows()?.into_iter().map(|row| row.warmed(warmup)).collect())
}

/// The arm of sample `i`: A B B A.
fn turn(i: usize) -> usize {
    (i / 2 + i % 2) % 2
}

/// The samples of an arm.
fn of_arm(samples: &[Held<Sample>], arm: usize) -> Vec<Held<Sample>> {
    samples.iter().enumerate().filter(|(i, _)| turn(*i) == arm).map(|(_, sample)| *sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::LaneError;
    use crate::lanes::tests::{bench, timed};
    use redline_system::Clock;

    const ALL: [Flag; 2 + SHARED_FLAGS] = flags(&[flag("ctx", "N,..", "300"), min_speedup("auto")]);

    fn values(given: &[(&'static str, &'static str)]) -> Values {
        static FLAGS: &[Flag] = &ALL;
        Values::new(FLAGS, given.iter().copied())
    }

    fn plan(rows: usize, format: Option<KvFormat>, given: &[(&'static str, &'static str)]) -> Result<Plan> {
        let clock = Clock::scripted(|| 0);
        Plan::of("attn", rows, &bench(&clock), format, &values(given))
    }

    #[track_caller]
    fn refused(result: Result<Plan>, parts: &[&str]) {
        let Err(LaneError::Usage(fact)) = result else { panic!("accepted") };
        assert!(parts.iter().all(|part| fact.contains(part)), "{fact}");
    }

    #[test]
    fn own_flags_come_first() {
        let names: Vec<&str> = ALL.iter().map(|flag| flag.name).collect();
        assert_eq!(names[..3], ["ctx", "min-speedup", "batch"]);
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn cases_change_heads_before_contexts() {
        let given = [("ctx", "9,8"), ("batch", "1,2"), ("head-dim", "64"), ("heads-per-kv", "4,8")];
        let plan = plan(5, None, &given).unwrap();
        let of = |case: &Case| (case.context, case.batch, case.group);
        let cases: Vec<_> = plan.cases.iter().map(of).collect();
        let of_context = |c| [(c, 1, 4), (c, 1, 8), (c, 2, 4), (c, 2, 8)];
        assert_eq!(cases, [of_context(9), of_context(8)].concat());
        assert!(plan.cases.iter().all(|case| (case.rows, case.kv_heads, case.head_dim) == (5, 8, 64)));
        assert_eq!(plan.format, KvFormat::W8);
    }

    #[test]
    fn what_attention_does_not_do_is_refused() {
        refused(plan(301, None, &[]), &["`--ctx` is `300`", "301 query rows"]);
        refused(plan(1, None, &[("head-dim", "64,257")]), &["`--head-dim` is `64,257`", "at most 256"]);
        refused(plan(1, Some(KvFormat::F16), &[]), &["`--kv-format` is `f16`", "one of f32, bf16, w8"]);
        refused(plan(1, None, &[("tile-tokens", "64")]), &["`--tile-tokens` is `64`", "auto, 256"]);
        assert!(plan(1, None, &[("tile-tokens", "256")]).is_ok() && plan(300, None, &[]).is_ok());
    }

    #[test]
    fn memory_for_both_arms_and_the_reference_must_be_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let given = [("ctx", "64"), ("head-dim", "64"), ("heads-per-kv", "4"), ("kv-mib", "1")];
        // A page of eight heads has 68 KiB of int8 with scales, 128 KiB of f16 and 256 KiB of f32; 1 MiB has 16 of the first.
        let kv = 16 * (68 + 128) + 256;
        let needed = (1 << 20) + (kv << 10) + 6 * 4 * 32 * 64;
        let with = |bench: &Bench<'_>| Plan::of("attn", 1, bench, None, &values(&given));
        bench.machine.memory.available_bytes = Some(needed);
        assert!(with(&bench).is_ok());
        bench.machine.memory.available_bytes = Some(needed - 1);
        refused(with(&bench), &["attention of 1 sequences over 64 tokens would take"]);
    }

    #[test]
    fn only_tiers_with_a_dot_product_of_bytes_have_a_minimum() {
        let clock = Clock::scripted(|| 0);
        let least = |tier, given: &[(&'static str, &'static str)]| {
            least_speedup(&Bench { tier: Some(tier), ..bench(&clock) }, &values(given)).unwrap()
        };
        for tier in Simd::variants().into_iter().map(Simd::tier) {
            let minimum = if matches!(tier, Tier::Avx512 | Tier::Amx) { 1.15 } else { 0.0 };
            assert_eq!(least(tier, &[]), minimum, "{}", tier.name());
            assert_eq!(least(tier, &[("min-speedup", "2")]), 2.0);
        }
    }

    #[test]
    fn attention_is_bounded_by_vectors() {
        for simd in Simd::variants() {
            let expected = if simd.tier() == Tier::Amx { Tier::Avx512 } else { simd.tier() };
            assert_eq!(vectors(simd).tier(), expected);
        }
    }

    #[test]
    fn arms_take_turns() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(turn), [0, 1, 1, 0, 0, 1]);
        let samples: Vec<_> =
            (0..4).map(|i| timed(Sample { seconds: f64::from(i), cpu_seconds: None })).collect();
        let seconds = |arm| of_arm(&samples, arm).iter().map(|held| held.value.seconds).collect::<Vec<_>>();
        assert_eq!((seconds(0), seconds(1)), (vec![0.0, 3.0], vec![1.0, 2.0]));
        assert_eq!((one_and_all(1), one_and_all(6)), (vec![1], vec![1, 6]));
    }
}
