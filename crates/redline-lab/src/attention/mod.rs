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
use redline_kernels::{Tier, set_default_float_environment};

use crate::baseline::Rule;
use crate::bench::{
    Bench, BenchModel, CallTime, Flag, FlagValue as _, RUNS, Result, Runs, Values, WARMUPS, cycled_bytes,
    flags, listed, require,
};
use crate::limits::Probe;
use crate::roofline::{Arithmetics, Held};
use arm::Arm;
use cache::{Cache, copies, copy_bytes, queries};
use case::Case;
use quality::{Qualities, qualities};
use rows::{Measured, Outcome};

/// The format of the arm with which the other is compared.
const BASELINE: KvFormat = KvFormat::F16;

/// The format of the compared arm, if the user names none.
const DEFAULT: KvFormat = KvFormat::W8;

/// Minimum speedup of `auto`.
const MIN_SPEEDUP: f64 = 1.15;

/// What is checked before timing.
pub(crate) const CHECKS: &str = "outputs are the same bits on one thread, and alone on the scalar tier, and in every run; they are \
                                 near those over f32 keys and values";

/// What arms are compared with.
pub(crate) const AGAINST: &str = "the same attention over f16 keys and values, in turn, and the machine's read bandwidth and arithmetic peak";

/// The metrics.
pub(crate) const METRICS: &str = "+tokens_per_s tokens/s|-seconds s|cpu_time s|baseline_tokens_per_s tokens/s|speedup x|nmse share|\
     perplexity|perplexity_delta points|perplexity_delta_error points|perplexity_delta_percent %|\
     #scratch bytes|scratch_ratio x|#l2_bytes_per_token bytes|read_rate GB/s|read_bandwidth GB/s|\
     gops GOP/s|calls calls|share share|limit";

flags! {
    pub(crate) struct Flags;
    contexts: Vec<usize> = "ctx", "N,..", "1024,4096", "Tokens of each sequence, those of the tile included";
    rows: usize = "rows", "N", "512", "Query rows of each sequence: the last tokens of its context";
    min_speedup: Option<f64> = "min-speedup", "X", "auto",
        "Fail where the median speedup over f16 is less, from 2048 tokens of context on; 0: no gate; auto: 1.15 on tiers that have a \
         dot product of bytes (avx512, amx), else no gate";
    batches: Vec<usize> = "batch", "N,..", "1", "Sequences, each with keys and values of its own";
    dims: Vec<usize> = "head-dim", "N,..", "64,128", "Dimensions of a head", |flag, text| {
        let dims = Vec::parse(flag, text)?;
        let needed = format!("a head has at most {MAX_HEAD_DIM} dimensions");
        if dims.iter().all(|dim| *dim <= MAX_HEAD_DIM) { Ok(dims) } else { Err(flag.invalid(text, &needed)) }
    };
    groups: Vec<usize> = "heads-per-kv", "N,..", "4,8", "Query heads that share a KV head";
    kv_heads: usize = "kv-heads", "N", "8", "KV heads";
    tile_tokens: () = "tile-tokens", "N", "auto",
        "Keys that are processed together; they are part of the order of roundings, so only 256 or auto",
        |flag, text| {
            let needed = format!("one of auto, {SPAN} is needed: spans of {SPAN} keys are part of the order of roundings");
            if ["auto", &SPAN.to_string()].contains(&text) { Ok(()) } else { Err(flag.invalid(text, &needed)) }
        };
    kv_mib: Option<usize> = "kv-mib", "N", "auto",
        "MiB of keys and values to cycle through; auto: four times the last-level cache, at most 512";
    perplexity_tokens: Option<usize> = "perplexity-tokens", "N", "auto",
        "Tokens of the text whose perplexity is measured; auto: all";
    timed: usize = "num-runs", "N", "7", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
}

/// The flags of the lane with one query row, of which some have other defaults.
pub(crate) const OF_ONE_ROW: [Flag; Flags::ALL.len() - 1] = {
    let [contexts, _, min_speedup, others @ ..] = Flags::ALL;
    let mut all = [contexts; Flags::ALL.len() - 1];
    let help = "Tokens of each sequence, the query's own included";
    all[0] = Flag { default: "1024,4096,16384", help, ..contexts };
    all[1] = Flag { default: "1.15", ..min_speedup };
    let mut i = 0;
    while i < others.len() {
        all[2 + i] = others[i];
        i += 1;
    }
    all
};

/// The columns of the seed, after the name of the case.
pub(crate) const SEED: &str = "name=@case|~tokens_per_s|~baseline_tokens_per_s|~perplexity_delta|~scratch_ratio|tile_tokens|\
     acc_width|has_avx2|has_vnni|csr_outliers|~l2_bytes_per_token";

/// The columns of the seed, then ours.
pub(crate) const COLUMNS: &[&str] = &[
    SEED,
    "kv_format|context|rows|batch|heads|kv_heads|head_dim|threads|num_runs=#seconds|mean_s=mean:seconds|\
     std_s=std:seconds|min_s=min:seconds|max_s=max:seconds|~speedup|~nmse|~perplexity|\
     ~perplexity_delta_error|~perplexity_delta_percent|~scratch|~read_rate|~read_bandwidth|@limit|\
     share_of_limit=@share|kernel_path=@kernels",
];

/// The columns of the printed table.
pub(crate) const SHOWN: &str = "@case|tokens/s=~tokens_per_s|f16 tokens/s=~baseline_tokens_per_s|x f16=~speedup|NMSE=~nmse|\
     perplexity +=~perplexity_delta|+-=~perplexity_delta_error|%=~perplexity_delta_percent|\
     x scratch=~scratch_ratio|GB/s=~read_rate|of GB/s=~read_bandwidth|of limit=@share|@limit";

/// A note about the values in the table.
pub(crate) const NOTE: &str = "tokens are query rows; NMSE and perplexity are compared with f32 keys and values; GB/s are the bytes of keys and \
                               values, read once, over the time\nthe perplexity is that of the model's text in windows of its context; no \
                               outliers of keys are kept apart (csr_outliers)";

/// The rule for comparing with comma-separated values of an earlier run.
pub(crate) const RULE: Rule = Rule { keys: &["name"], value: "tokens_per_s", most_drop: 0.10 };

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

/// Measures all cases of a lane. `rows` is the number of query rows of each sequence, unless it is that of a flag.
pub(crate) fn run(
    lane: &'static str,
    rows: Option<usize>,
    bench: &Bench<'_>,
    model: &BenchModel<'_>,
    values: &Values,
) -> Result<()> {
    let flags = Flags::of(values)?;
    let flags = Flags { rows: rows.unwrap_or(flags.rows), ..flags };
    let plan = Plan::of(lane, bench, model.kv_format, &flags)?;
    set_default_float_environment();
    let most_threads = bench.threads.iter().copied().max().unwrap_or(1);
    (bench.progress)("perplexity of the model");
    let quality = qualities(model, [plan.format, BASELINE], most_threads, plan.perplexity_tokens)?;
    for &threads in &bench.threads {
        let probe = bench.probe(threads, bench.simd(), plan.kv_bytes)?;
        for case in &plan.cases {
            let rows = measure(bench, &probe, &plan, case, &quality)?;
            let shape = format!("{} tokens, {} rows", case.context, case.tokens());
            bench.done(&format!("{shape}, {threads} threads"), rows)?;
        }
    }
    Ok(())
}

impl Plan {
    fn of(lane: &'static str, bench: &Bench<'_>, format: Option<KvFormat>, flags: &Flags) -> Result<Self> {
        let format = format.unwrap_or(DEFAULT);
        require(format != BASELINE, || {
            let others: Vec<&str> =
                KvFormat::ALL.iter().filter(|other| **other != BASELINE).map(|other| other.name()).collect();
            let fact = format!("`--kv-format` is `{0}`, but the other arm has {0} already", BASELINE.name());
            format!("{fact}; one of {} is needed", others.join(", "))
        })?;
        let plan = Self {
            lane,
            format,
            cases: cases(flags)?,
            kv_bytes: cycled_bytes(&bench.machine, flags.kv_mib),
            perplexity_tokens: flags.perplexity_tokens,
            runs: Runs { timed: flags.timed, warmups: flags.warmups },
            min_speedup: least_speedup(bench, flags.min_speedup),
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

/// The minimum speedup; 0: no gate. Without a dot product of bytes, int8 keys and values save memory but little arithmetic.
fn least_speedup(bench: &Bench<'_>, given: Option<f64>) -> f64 {
    let tier = bench.simd().tier();
    given.unwrap_or_else(|| {
        if matches!(tier, Tier::Avx512 | Tier::Amx) {
            return MIN_SPEEDUP;
        }
        (bench.note)(&format!("no minimum speedup on {}, which has no dot product of bytes", tier.name()));
        0.0
    })
}

/// The cases, in the order of the flags; contexts change last.
fn cases(flags: &Flags) -> Result<Vec<Case>> {
    let &Flags { rows, kv_heads, tile_tokens: (), ref contexts, ref batches, ref dims, ref groups, .. } =
        flags;
    require(contexts.iter().all(|context| *context >= rows), || {
        format!("`--ctx` is `{}`, but {rows} query rows belong to the context", listed(contexts))
    })?;
    let mut cases = Vec::new();
    for &context in contexts {
        for &batch in batches {
            for &head_dim in dims {
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
fn of_arm(samples: &[Held<CallTime>], arm: usize) -> Vec<Held<CallTime>> {
    samples.iter().enumerate().filter(|(i, _)| turn(*i) == arm).map(|(_, sample)| *sample).collect()
}

#[cfg(test)]
mod tests {
    use redline_kernels::Simd;

    use super::*;
    use crate::bench::LaneError;
    use crate::lanes::tests::{bench, timed};
    use redline_system::Clock;

    fn plan(rows: &str, format: Option<KvFormat>, given: &[(&'static str, &str)]) -> Result<Plan> {
        let clock = Clock::scripted(|| 0);
        let flags = Flags::with(&[&[("ctx", "300"), ("rows", rows)], given].concat())?;
        Plan::of("attn", &bench(&clock), format, &flags)
    }

    #[track_caller]
    fn refused(result: Result<Plan>, parts: &[&str]) {
        let Err(LaneError::Usage(fact)) = result else { panic!("accepted") };
        assert!(parts.iter().all(|part| fact.contains(part)), "{fact}");
    }

    #[test]
    fn one_query_row_is_no_flag() {
        let names = OF_ONE_ROW.map(|flag| flag.name);
        let all = Flags::ALL.map(|flag| flag.name);
        assert_eq!([&[names[0], "rows"], &names[1..]].concat(), all);
        assert_eq!((OF_ONE_ROW[1].default, OF_ONE_ROW[2].default), ("1.15", "1"));
    }

    #[test]
    fn cases_change_heads_before_contexts() {
        let given = [("ctx", "9,8"), ("batch", "1,2"), ("head-dim", "64"), ("heads-per-kv", "4,8")];
        let plan = plan("5", None, &given).unwrap();
        let of = |case: &Case| (case.context, case.batch, case.group);
        let cases: Vec<_> = plan.cases.iter().map(of).collect();
        let of_context = |c| [(c, 1, 4), (c, 1, 8), (c, 2, 4), (c, 2, 8)];
        assert_eq!(cases, [of_context(9), of_context(8)].concat());
        assert!(plan.cases.iter().all(|case| (case.rows, case.kv_heads, case.head_dim) == (5, 8, 64)));
        assert_eq!(plan.format, KvFormat::W8);
    }

    #[test]
    fn what_attention_does_not_do_is_refused() {
        refused(plan("301", None, &[]), &["`--ctx` is `300`", "301 query rows"]);
        refused(plan("1", None, &[("head-dim", "64,513")]), &["`--head-dim` is `64,513`", "at most 512"]);
        refused(plan("1", Some(KvFormat::F16), &[]), &["`--kv-format` is `f16`", "one of f32, bf16, w8"]);
        refused(plan("1", None, &[("tile-tokens", "64")]), &["`--tile-tokens` is `64`", "auto, 256"]);
        assert!(plan("1", None, &[("tile-tokens", "256")]).is_ok() && plan("300", None, &[]).is_ok());
    }

    #[test]
    fn memory_for_both_arms_and_the_reference_must_be_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let given = [("ctx", "64"), ("head-dim", "64"), ("heads-per-kv", "4"), ("kv-mib", "1")];
        // A page of eight heads has 68 KiB of int8 with scales, 128 KiB of f16 and 256 KiB of f32; 1 MiB has 16 of the first.
        let kv = 16 * (68 + 128) + 256;
        let needed = (1 << 20) + (kv << 10) + 6 * 4 * 32 * 64;
        let flags = Flags::with(&[&[("rows", "1")], &given[..]].concat()).unwrap();
        let with = |bench: &Bench<'_>| Plan::of("attn", bench, None, &flags);
        bench.machine.memory.available_bytes = Some(needed);
        assert!(with(&bench).is_ok());
        bench.machine.memory.available_bytes = Some(needed - 1);
        refused(with(&bench), &["attention of 1 sequences over 64 tokens would take"]);
    }

    #[test]
    fn only_tiers_with_a_dot_product_of_bytes_have_a_minimum() {
        let clock = Clock::scripted(|| 0);
        let least = |tier, given| least_speedup(&Bench { tier: Some(tier), ..bench(&clock) }, given);
        for tier in Simd::variants().into_iter().map(Simd::tier) {
            let minimum = if matches!(tier, Tier::Avx512 | Tier::Amx) { 1.15 } else { 0.0 };
            assert_eq!(least(tier, None), minimum, "{}", tier.name());
            assert_eq!(least(tier, Some(2.0)), 2.0);
        }
    }

    #[test]
    fn arms_take_turns() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(turn), [0, 1, 1, 0, 0, 1]);
        let samples: Vec<_> =
            (0..4).map(|i| timed(CallTime { seconds: f64::from(i), cpu_seconds: None })).collect();
        let seconds = |arm| of_arm(&samples, arm).iter().map(|held| held.value.seconds).collect::<Vec<_>>();
        assert_eq!((seconds(0), seconds(1)), (vec![0.0, 3.0], vec![1.0, 2.0]));
        assert_eq!((one_and_all(1), one_and_all(6)), (vec![1], vec![1, 6]));
    }
}
