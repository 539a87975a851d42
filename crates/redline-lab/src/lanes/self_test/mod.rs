//! Lane `self-test`: checks whether the laboratory's verdicts can be trusted on this machine, now.
//!
//! The work is a fixed number of multiply-adds on registers on one thread. An experiment does the same as `--versus`: fresh processes
//! of two arms in the order A B B A, each sample between two readings of the machine's speed, judged by the same functions. In half of
//! the experiments the arms are equal (A/A); in the others arm B does 5 % more work. Both are repeated with disturbances in both arms:
//! outliers (one sample in eight takes three times as long), load (as many busy threads as the machine has processors) and two speeds
//! (a random half of the samples takes a third longer).

mod work;

use redline_kernels::Arithmetic;
use redline_models::random;

use super::prelude::*;
use crate::Verdict;
use crate::compare::{self, Rules};
use crate::number;
use crate::result::LaneResult;
use crate::run::{self, Build, Start};
use crate::versus::{self, Arm};
use work::{Disturbance, Work};

pub(super) const LANE: Lane = Lane {
    asks: "Are the laboratory's verdicts right on this machine: equal arms the same, a slowdown found, never the contrary?",
    checks: "each process does the operations that its arm is to do",
    against: "what is known of the arms, since it was injected",
    metrics: &[
        info("same", "share"),
        info("found", "share"),
        info("quiet", "share"),
        info("right", "share"),
        info("ratio", "x"),
        lower("detectable", "share"),
        info("seconds", "s"),
        info("limit", ""),
    ],
    flags: &[
        flag("experiments", "N", "40").help("A/A experiments, and as many with a slowdown"),
        flag("disturbed", "N", "10")
            .help("The same with each disturbance: outliers, load, two speeds; 0: none"),
        flag("slowdown", "X", "0.05").help("How much more work arm B does"),
        flag("arm-processes", "N", "8").help("Processes of each arm, an even number"),
        Flag::runs("12").help("Samples of a process"),
        Flag::warmups("2").help("Samples of a process before those that count, at least"),
        flag("gates", "WHICH", "on").help("Fail below the shares that are promised: on or off"),
        flag("seed", "N", "1").help("What chance begins with"),
        flag("worker", "KIND", "no")
            .help("Be one process of an experiment, so disturbed: none, outliers, load or two-speeds"),
    ],
    smoke: &[
        ("experiments", "1"),
        ("disturbed", "1"),
        ("arm-processes", "2"),
        ("num-runs", "3"),
        ("gates", "off"),
    ],
    standard: &[("experiments", "10"), ("disturbed", "2"), ("gates", "off")],
    ..Lane::new("self-test", 0.05, LaneFunction::Machine(run))
};

/// Minimum share of experiments in which equal arms are judged the same, and in which a slowdown is found.
const SAME: f64 = 0.80;
const FOUND: f64 = 0.90;
/// Minimum share of experiments in which equal arms raise no alarm.
const QUIET: f64 = 0.95;

#[derive(Clone, Copy)]
struct Plan {
    disturbance: Disturbance,
    processes: usize,
    /// The relative additional work of arm B.
    slowdown: f64,
    runs: Runs,
    seed: u64,
    gates: bool,
}

struct Experiment {
    verdict: Verdict,
    ratio: Option<f64>,
    detectable: Option<f64>,
}

fn run(bench: &Bench<'_>, values: &Values) -> Result<()> {
    let plan = Plan {
        disturbance: Disturbance::None,
        processes: values.count("arm-processes")?,
        slowdown: values.number("slowdown")?,
        runs: values.runs()?,
        seed: values.number("seed")? as u64,
        gates: values.choice("gates", &[("on", true), ("off", false)])?,
    };
    let Plan { slowdown, processes, .. } = plan;
    require(slowdown <= 1.0, || {
        format!("`--slowdown` is {slowdown}, but at most 1 (twice the work) is needed")
    })?;
    require(processes % 2 == 0, || {
        format!("`--arm-processes` is {processes}, but two arms take turns A B B A")
    })?;
    let mut workers = vec![("no", None)];
    workers.extend(Disturbance::ALL.iter().map(|&disturbance| (disturbance.name(), Some(disturbance))));
    if let Some(disturbance) = values.choice("worker", &workers)? {
        return worker(bench, Plan { disturbance, ..plan });
    }
    let (undisturbed, disturbed) = (values.count("experiments")?, values.number("disturbed")? as usize);
    require(slowdown > 0.0, || "`--slowdown` is 0, but a slowdown is to be found".into())?;
    for &disturbance in Disturbance::ALL {
        let experiments = if disturbance == Disturbance::None { undisturbed } else { disturbed };
        for slowdown in [0.0, slowdown] {
            if experiments > 0 {
                measure(bench, Plan { disturbance, slowdown, ..plan }, experiments)?;
            }
        }
    }
    Ok(())
}

/// Runs one process of an experiment and records its samples.
fn worker(bench: &Bench<'_>, plan: Plan) -> Result<()> {
    let mut work = Work::new(bench, plan)?;
    let warmup = bench.warm_up(plan.runs.warmups, |_| {
        work.sample(bench.clock);
        Ok(())
    })?;
    let samples = work.samples(plan.runs.timed, bench.clock);
    let seconds = samples.iter().map(|s| s.value).collect();
    let speeds = samples.iter().map(|s| 1e6 / s.condition.canary_ns.unwrap_or(f64::NAN)).collect();
    let row = Row::new("work")
        .param("threads", 1)
        .param("disturbance", plan.disturbance.name())
        .digest(format!("{} rounds", work.rounds()))
        .metric("seconds", Samples::new("s", Direction::Lower, seconds)?)
        .metric("limit", Samples::new("GOP/s", Direction::Info, speeds)?)
        .limit(format!("{}_peak", Arithmetic::F32.name()), None)
        .conditions(samples.iter().map(|s| s.condition).collect())
        .warmed(warmup)
        .checked_on(bench.simd().name());
    bench.done(plan.disturbance.name(), vec![row])
}

impl Plan {
    fn kind(self) -> String {
        if self.slowdown == 0.0 {
            return "a-a".to_owned();
        }
        format!("slowdown-{}", number::percent(self.slowdown).replace(' ', ""))
    }
}

fn measure(bench: &Bench<'_>, plan: Plan, experiments: usize) -> Result<()> {
    let what = format!("{}, {}", plan.disturbance.name(), plan.kind());
    let mut results = Vec::with_capacity(experiments);
    for at in 0..experiments {
        let seed = random::mix(plan.seed ^ random::mix((at as u64) << 8 | plan.disturbance as u64));
        results.push(experiment(bench, Plan { seed, ..plan })?);
        (bench.progress)(&format!("{what}: {} of {experiments}", at + 1));
    }
    bench.done(&what, vec![row(plan, bench.simd().name(), &results)?])
}

fn experiment(bench: &Bench<'_>, plan: Plan) -> Result<Experiment> {
    let mut arms: [Vec<Vec<Row>>; 2] = [Vec::new(), Vec::new()];
    for (at, arm) in versus::schedule(plan.processes).enumerate() {
        let slowdown = if arm == Arm::A { 0.0 } else { plan.slowdown };
        let words = [
            "bench".to_owned(),
            LANE.name.to_owned(),
            "--json".to_owned(),
            format!("--worker={}", plan.disturbance.name()),
            format!("--slowdown={slowdown}"),
            format!("--num-runs={}", plan.runs.timed),
            format!("--warmup-runs={}", plan.runs.warmups),
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
fn judged(bench: &Bench<'_>, arms: &[Vec<Vec<Row>>; 2]) -> Result<Experiment> {
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

/// The row of experiments of one kind.
fn row(plan: Plan, kernels: &str, experiments: &[Experiment]) -> Result<Row> {
    let equal = plan.slowdown == 0.0;
    let count = |is: &dyn Fn(Verdict) -> bool| experiments.iter().filter(|e| is(e.verdict)).count();
    let share = |is: &dyn Fn(Verdict) -> bool| count(is) as f64 / experiments.len().max(1) as f64;
    let mut row = Row::new(format!("{}/{}", plan.disturbance.name(), plan.kind()))
        .param("threads", 1)
        .param("disturbance", plan.disturbance.name())
        .param("slowdown", plan.slowdown)
        .param("experiments", experiments.len())
        .param("processes", plan.processes)
        .param("samples", plan.runs.timed)
        .checked_on(kernels);
    for (verdict, _) in Verdict::BY_SEVERITY {
        let experiments = count(&|v| v == *verdict);
        if experiments > 0 {
            row = row.param(verdict.name(), experiments);
        }
    }
    // A verdict is wrong if it is known to be false: a difference between equal arms, or a slower arm judged faster
    // or the same.
    let wrong = |verdict: Verdict| match verdict {
        Verdict::Faster => true,
        Verdict::Slower => equal,
        Verdict::Same => !equal,
        _ => false,
    };
    let alarm = |v| matches!(v, Verdict::Slower | Verdict::Faster);
    let undisturbed = plan.disturbance == Disturbance::None;
    let row = row.measured(LANE.metrics, experiments).one("right", share(&|v| !wrong(v)))?;
    let row = if equal {
        row.one("same", share(&|v| v == Verdict::Same))?.one("quiet", share(&|v| !alarm(v)))?
    } else {
        row.one("found", share(&|v| v == Verdict::Slower))?
    };
    let mut row = row.each("ratio", |e| e.ratio)?.each("detectable", |e| e.detectable)?.row;
    let gates: &[(&str, f64)] = match (undisturbed, equal) {
        (true, true) => &[("right", QUIET), ("same", SAME), ("quiet", QUIET)],
        (true, false) => &[("right", QUIET), ("found", FOUND)],
        (false, _) => &[("right", 1.0)],
    };
    for (metric, least) in gates.iter().filter(|_| plan.gates) {
        row = row.gate(*metric, *least);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use crate::lanes::tests::bench;

    const PLAN: Plan = Plan {
        disturbance: Disturbance::None,
        processes: 2,
        slowdown: 0.05,
        runs: Runs { timed: 3, warmups: 1 },
        seed: 1,
        gates: true,
    };

    fn experiments(verdicts: &[Verdict]) -> Vec<Experiment> {
        verdicts.iter().map(|&verdict| Experiment { verdict, ratio: Some(1.0), detectable: None }).collect()
    }

    #[test]
    fn shares_of_verdicts_are_gated() {
        let ten = |same: usize, other: Verdict| [vec![Verdict::Same; same], vec![other; 10 - same]].concat();
        let row = |disturbance, equal: bool, verdicts: &[Verdict]| {
            let slowdown = if equal { 0.0 } else { PLAN.slowdown };
            row(Plan { disturbance, slowdown, ..PLAN }, "k", &experiments(verdicts)).unwrap()
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

    #[test]
    fn what_makes_no_experiment_is_refused() {
        let clock = Clock::scripted(|| 0);
        let bench = bench(&clock);
        for (name, value, expect) in [
            ("arm-processes", "3", "`--arm-processes` is 3, but two arms take turns"),
            ("slowdown", "1.5", "`--slowdown` is 1.5, but at most 1"),
            ("slowdown", "0", "`--slowdown` is 0, but a slowdown is to be found"),
            ("worker", "sleep", "one of no, none, outliers, load, two-speeds is needed"),
        ] {
            let Err(LaneError::Usage(fact)) = run(&bench, &Values::new(LANE.flags, [(name, value)])) else {
                panic!("{name} {value}")
            };
            assert!(fact.contains(expect), "{fact}");
        }
    }

    #[test]
    fn nine_slowdowns_of_ten_must_be_found() {
        for (found, missed) in [(9, 0), (8, 1)] {
            let verdicts = [vec![Verdict::Slower; found], vec![Verdict::Inconclusive; 10 - found]].concat();
            let row = row(PLAN, "k", &experiments(&verdicts)).unwrap();
            assert_eq!(row.missed().len(), missed, "{found} of 10");
        }
    }

    #[test]
    fn a_slowdown_is_more_work() {
        let clock = Clock::scripted(|| 0);
        let bench = bench(&clock);
        let rounds = |slowdown| Work::new(&bench, Plan { slowdown, ..PLAN }).unwrap().rounds();
        assert_eq!((rounds(0.0), rounds(0.5), rounds(1.0)), (131_072, 196_608, 262_144));
    }
}
