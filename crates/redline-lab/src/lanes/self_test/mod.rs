//! Lane `self-test`: checks whether the laboratory's verdicts can be trusted on this machine, now.
//!
//! The work is a fixed number of multiply-adds on registers on one thread. An experiment does the same as `--versus`: fresh processes
//! of two arms in the order A B B A, each sample between two readings of the machine's speed, judged by the same functions. In half of
//! the experiments the arms are equal (A/A); in the others arm B does 5 % more work. Both are repeated with disturbances in both arms:
//! outliers (one sample in eight takes three times as long), load (as many busy threads as the machine has processors) and two speeds
//! (a random half of the samples takes a third longer).

mod work;

use redline_kernels::Arithmetic;

use super::{Lane, MetricSpec, Run, all_threads, info, lower};
use crate::bench::{Bench, Flag, LaneError, Values};
use crate::compare::{self, Rules};
use crate::number;
use crate::random;
use crate::result::LaneResult;
use crate::run::{self, Build, Start};
use crate::versus::{self, Arm};
use crate::{Direction, Row, Samples, Verdict};
use work::{Disturbance, Work};

/// The `self-test` lane.
pub const LANE: Lane = Lane {
    name: "self-test",
    asks: "Are the laboratory's verdicts right on this machine: equal arms the same, a slowdown found, never the contrary?",
    checks: "each process does the operations that its arm is to do",
    against: "what is known of the arms, since it was injected",
    metrics: METRICS,
    threshold: 0.05,
    flags: &[
        Flag {
            name: "experiments",
            value: "N",
            default: "40",
            help: "A/A experiments, and as many with a slowdown",
        },
        Flag {
            name: "disturbed",
            value: "N",
            default: "10",
            help: "The same with each disturbance: outliers, load, two speeds; 0: none",
        },
        Flag { name: "slowdown", value: "X", default: "0.05", help: "How much more work arm B does" },
        Flag {
            name: "arm-processes",
            value: "N",
            default: "8",
            help: "Processes of each arm, an even number",
        },
        Flag { help: "Samples of a process", ..Flag::runs("12") },
        Flag { help: "Samples of a process before those that count, at least", ..Flag::warmups("2") },
        Flag {
            name: "gates",
            value: "WHICH",
            default: "on",
            help: "Fail below the shares that are promised: on or off",
        },
        Flag { name: "seed", value: "N", default: "1", help: "What chance begins with" },
        Flag {
            name: "worker",
            value: "KIND",
            default: "no",
            help: "Be one process of an experiment, so disturbed: none, outliers, load or two-speeds",
        },
    ],
    smoke: &[
        ("experiments", "1"),
        ("disturbed", "1"),
        ("arm-processes", "2"),
        ("num-runs", "3"),
        ("gates", "off"),
    ],
    standard: &[("experiments", "10"), ("disturbed", "2"), ("gates", "off")],
    threads: all_threads,
    columns: None,
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Machine(run),
};

const METRICS: &[MetricSpec] = &[
    info("same", "share"),
    info("found", "share"),
    info("quiet", "share"),
    info("right", "share"),
    info("ratio", "x"),
    lower("detectable", "share"),
    info("seconds", "s"),
    info("limit", ""),
];

/// The name of experiments with equal arms.
const EQUAL: &str = "a-a";
/// Minimum share of experiments in which equal arms are judged the same, and in which a slowdown is found.
const SAME: f64 = 0.80;
const FOUND: f64 = 0.90;
/// Minimum share of experiments in which equal arms raise no alarm.
const QUIET: f64 = 0.95;

/// The parameters of an experiment.
#[derive(Clone, Copy)]
struct Plan {
    processes: usize,
    slowdown: f64,
    runs: usize,
    warmups: usize,
    seed: u64,
    gates: bool,
}

/// The result of an experiment.
struct Experiment {
    verdict: Verdict,
    ratio: Option<f64>,
    detectable: Option<f64>,
}

/// The relative additional work of arm B.
fn slowdown(values: &Values) -> Result<f64, LaneError> {
    let slowdown = values.number("slowdown")?;
    if slowdown <= 1.0 {
        return Ok(slowdown);
    }
    let fact = format!("`--slowdown` is {slowdown}, but at most 1 (twice the work) is needed");
    Err(LaneError::Usage(fact))
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<(), LaneError> {
    let kinds = ["no", "none", "outliers", "load", "two-speeds"];
    let plan = Plan {
        processes: values.count("arm-processes")?,
        slowdown: slowdown(values)?,
        runs: values.count("num-runs")?,
        warmups: values.count("warmup-runs")?,
        seed: values.number("seed")? as u64,
        gates: values.choice("gates", &["on", "off"])? == "on",
    };
    if plan.processes % 2 == 1 {
        let fact = format!("`--arm-processes` is {}, but two arms take turns A B B A", plan.processes);
        return Err(LaneError::Usage(fact));
    }
    match Disturbance::named(values.choice("worker", &kinds)?) {
        Some(disturbance) => worker(bench, plan, disturbance),
        None => {
            let experiments = values.count("experiments")?;
            let disturbed = values.number("disturbed")? as usize;
            if plan.slowdown == 0.0 {
                return Err(LaneError::Usage("`--slowdown` is 0, but a slowdown is to be found".into()));
            }
            for &disturbance in Disturbance::ALL {
                let n = if disturbance == Disturbance::None { experiments } else { disturbed };
                for slowdown in [0.0, plan.slowdown] {
                    if n > 0 {
                        experiment_row(bench, plan, disturbance, slowdown, n)?;
                    }
                }
            }
            Ok(())
        }
    }
}

/// Runs one process of an experiment and records its samples.
fn worker(bench: &Bench<'_>, plan: Plan, disturbance: Disturbance) -> Result<(), LaneError> {
    let mut work = Work::new(bench, plan.slowdown, disturbance, plan.seed)?;
    let warmup = bench.warm_up(
        plan.warmups,
        || 0,
        |_| {
            work.sample(bench.clock);
            Ok(())
        },
    )?;
    let samples = work.samples(plan.runs, bench.clock);
    let seconds = samples.iter().map(|s| s.value).collect();
    let speeds = samples.iter().map(|s| 1e6 / s.condition.canary_ns.unwrap_or(f64::NAN)).collect();
    let mut row = Row::new("work")
        .param("threads", 1)
        .param("disturbance", disturbance.name())
        .digest(format!("{} rounds", work.rounds()))
        .metric("seconds", Samples::new("s", Direction::Lower, seconds)?)
        .metric("limit", Samples::new("GOP/s", Direction::Info, speeds)?)
        .limit(format!("{}_peak", Arithmetic::F32.name()), None)
        .conditions(samples.iter().map(|s| s.condition).collect())
        .warmed(warmup);
    row.kernel_path = Some(bench.simd().name().into());
    row.checked = true;
    bench.done(disturbance.name(), vec![row])
}

/// The row of `n` experiments.
fn experiment_row(
    bench: &Bench<'_>,
    plan: Plan,
    disturbance: Disturbance,
    slowdown: f64,
    n: usize,
) -> Result<(), LaneError> {
    let kind = if slowdown == 0.0 {
        EQUAL.to_owned()
    } else {
        format!("slowdown-{}", number::percent(slowdown).replace(' ', ""))
    };
    let mut found = Vec::with_capacity(n);
    for at in 0..n {
        let seed = random::mix(plan.seed ^ random::mix((at as u64) << 8 | disturbance as u64));
        found.push(experiment(bench, Plan { slowdown, seed, ..plan }, disturbance)?);
        (bench.progress)(&format!("{}, {kind}: {} of {n}", disturbance.name(), at + 1));
    }
    let row = told(plan, disturbance, &kind, bench.simd().name(), &found)?;
    bench.done(&format!("{}, {kind}", disturbance.name()), vec![row])
}

fn experiment(bench: &Bench<'_>, plan: Plan, disturbance: Disturbance) -> Result<Experiment, LaneError> {
    let mut arms: [Vec<Vec<Row>>; 2] = [Vec::new(), Vec::new()];
    for (at, arm) in versus::schedule(plan.processes).enumerate() {
        let slowdown = if arm == Arm::A { 0.0 } else { plan.slowdown };
        let words = [
            "bench".to_owned(),
            LANE.name.to_owned(),
            "--json".to_owned(),
            format!("--worker={}", disturbance.name()),
            format!("--slowdown={slowdown}"),
            format!("--num-runs={}", plan.runs),
            format!("--warmup-runs={}", plan.warmups),
            // Few enough bits that JSON and flags represent the number exactly.
            format!("--seed={}", random::mix(plan.seed ^ at as u64) >> 32),
        ];
        let text = (bench.process)(&words).map_err(LaneError::Incorrect)?;
        let rows = versus::printed_rows(&text).map_err(|error| LaneError::Incorrect(error.to_string()))?;
        arms[arm as usize].push(rows);
    }
    judged(bench, &arms)
}

/// Judges the two arms with the laboratory's functions.
fn judged(bench: &Bench<'_>, arms: &[Vec<Vec<Row>>; 2]) -> Result<Experiment, LaneError> {
    let incorrect = |error: &dyn std::fmt::Display| LaneError::Incorrect(error.to_string());
    let arm = |processes: &[Vec<Row>]| {
        let rows = versus::merge(processes).map_err(|error| incorrect(&error))?;
        let result = LaneResult { lane: LANE.name.into(), machine: bench.machine.clone(), rows };
        run::Run::new(Build::default(), Start::default(), result).map_err(|error| incorrect(&error))
    };
    let rules = Rules { arms: true, ..Rules::default() };
    let threshold = Rules { threshold: Some(crate::verdict::THRESHOLD), ..rules };
    let comparison = compare::compare(&arm(&arms[0])?, &arm(&arms[1])?, &threshold);
    let line = comparison.lines.iter().find(|line| line.metric.as_deref() == Some("seconds"));
    let line = line.ok_or_else(|| LaneError::Incorrect("no verdict on the seconds".into()))?;
    Ok(Experiment {
        verdict: line.verdict.unwrap_or(Verdict::Invalid),
        ratio: line.effect.map(|effect| effect.ratio),
        detectable: line.effect.and_then(|effect| effect.detectable),
    })
}

fn told(
    plan: Plan,
    disturbance: Disturbance,
    kind: &str,
    kernels: &str,
    experiments: &[Experiment],
) -> Result<Row, LaneError> {
    let (n, equal) = (experiments.len().max(1) as f64, kind == EQUAL);
    let share = |is: &dyn Fn(Verdict) -> bool| {
        let share = experiments.iter().filter(|f| is(f.verdict)).count() as f64 / n;
        Samples::new("share", Direction::Info, vec![share])
    };
    let told = |unit: &str, direction, value: fn(&Experiment) -> Option<f64>| {
        Samples::new(unit, direction, experiments.iter().filter_map(value).collect())
    };
    let mut row = Row::new(format!("{}/{kind}", disturbance.name()))
        .param("threads", 1)
        .param("disturbance", disturbance.name())
        .param("slowdown", if equal { 0.0 } else { plan.slowdown })
        .param("experiments", experiments.len())
        .param("processes", plan.processes)
        .param("samples", plan.runs);
    let counts = Verdict::BY_SEVERITY
        .iter()
        .map(|(verdict, _)| (verdict.name(), experiments.iter().filter(|f| f.verdict == *verdict).count()));
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        row = row.param(name, count);
    }
    let gate = |row: Row, name: &str, least: f64| if plan.gates { row.gate(name, least) } else { row };
    let undisturbed = disturbance == Disturbance::None;
    // A verdict is wrong if it is known to be false: a difference between equal arms, or a slower arm judged faster
    // or the same.
    let wrong = |verdict: Verdict| match verdict {
        Verdict::Faster => true,
        Verdict::Slower => equal,
        Verdict::Same => !equal,
        _ => false,
    };
    row = gate(row.metric("right", share(&|v| !wrong(v))?), "right", if undisturbed { QUIET } else { 1.0 });
    if equal {
        row = row.metric("same", share(&|v| v == Verdict::Same)?);
        let alarm = |v| matches!(v, Verdict::Slower | Verdict::Faster);
        row = row.metric("quiet", share(&|v| !alarm(v))?);
    } else {
        row = row.metric("found", share(&|v| v == Verdict::Slower)?);
    }
    if undisturbed {
        row = if equal { gate(gate(row, "same", SAME), "quiet", QUIET) } else { gate(row, "found", FOUND) };
    }
    row.kernel_path = Some(kernels.into());
    row.checked = true;
    Ok(row
        .metric("ratio", told("x", Direction::Info, |f| f.ratio)?)
        .metric("detectable", told("share", Direction::Lower, |f| f.detectable)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { processes: 2, slowdown: 0.05, runs: 3, warmups: 1, seed: 1, gates: true };

    fn found(verdicts: &[Verdict]) -> Vec<Experiment> {
        verdicts.iter().map(|&verdict| Experiment { verdict, ratio: Some(1.0), detectable: None }).collect()
    }

    #[test]
    fn shares_of_verdicts_are_gated() {
        let ten = |same: usize, other: Verdict| [vec![Verdict::Same; same], vec![other; 10 - same]].concat();
        let row = |disturbance, equal: bool, verdicts: &[Verdict]| {
            let kind = if equal { EQUAL } else { "slowdown-5" };
            told(PLAN, disturbance, kind, "k", &found(verdicts)).unwrap()
        };
        let calm = Disturbance::None;
        assert!(row(calm, true, &ten(8, Verdict::Inconclusive)).missed().is_empty());
        assert_eq!(
            row(calm, true, &ten(7, Verdict::TooNoisy)).missed().len(),
            1,
            "not the same often enough"
        );
        assert_eq!(row(calm, true, &ten(9, Verdict::Slower)).missed().len(), 2, "an alarm, so not right");
        assert!(row(calm, false, &[Verdict::Slower; 10]).missed().is_empty());
        assert_eq!(row(calm, false, &ten(2, Verdict::Slower)).missed().len(), 2);
        // Under disturbance a verdict may be inconclusive, but never wrong.
        let load = Disturbance::Load;
        assert!(row(load, true, &[Verdict::TooNoisy; 4]).missed().is_empty());
        assert!(row(load, false, &[Verdict::Inconclusive, Verdict::Slower]).missed().is_empty());
        assert_eq!(row(load, false, &[Verdict::Faster, Verdict::Slower]).missed().len(), 1);
        assert_eq!(row(load, true, &[Verdict::Slower]).missed().len(), 1);
    }
}
