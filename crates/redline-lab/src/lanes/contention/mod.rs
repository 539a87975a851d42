//! Lane `contention`: how much of its speed the engine keeps next to busy processes, and how close the default number of threads comes
//! to the best fixed number, which is not known beforehand.
//!
//! Busy threads compete with the engine for the machine's cores. The default, which chooses the number of threads for each pass, and
//! several fixed numbers of threads do the same work in turns, in an order that rotates. A share is a sample of the default over the
//! median of the best fixed number. The worst sample of that number over its own median is reported as well, because all timings vary on
//! such a machine. All arms must give the same tokens and scores.

mod neighbours;

use redline_engine::{Cancel, Engine, GenerateRequest, Label, ModelInfo, Prompt, ScoreRequest, Ticket};

use self::neighbours::Neighbours;
use super::{Lane, MetricSpec, Run, all_threads, higher, info};
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, asked, within_context};
use crate::digest;
use crate::result::{Cell, Column};
use crate::{Direction, Row, Samples};

/// The `contention` lane.
pub const LANE: Lane = Lane {
    name: "contention",
    asks: "How near does the default come to the best number of threads beside busy processes?",
    checks: "tokens and scores agree between all numbers of threads, in every run",
    against: "engines with a fixed number of threads, in the same run",
    metrics: METRICS,
    threshold: 0.1,
    flags: &[
        Flag {
            name: "neighbours",
            value: "N,..",
            default: "0,1,2,4,8",
            help: "Busy threads beside the engine",
        },
        Flag {
            name: "work",
            value: "WHAT,..",
            default: "decode,prefill,score",
            help: "What the engine does: decode, prefill, score",
        },
        Flag {
            name: "fixed",
            value: "N,..",
            default: "auto",
            help: "Fixed numbers of threads; auto: 1, 2, 4, ... and all",
        },
        Flag {
            name: "tokens",
            value: "N",
            default: "256",
            help: "Tokens of a prompt, and new ones of a decode",
        },
        Flag { name: "seconds", value: "S", default: "0.5", help: "Seconds of each sample at least" },
        Flag::runs("10"),
        Flag {
            name: "min-share",
            value: "X",
            default: "0",
            help: "Fail where the median share of the best fixed number is less; 0: no gate",
        },
        Flag {
            name: "min-worst",
            value: "X",
            default: "0",
            help: "Fail where the smallest share is less; 0: no gate",
        },
    ],
    smoke: &[("neighbours", "0,1"), ("tokens", "8"), ("seconds", "0.01"), ("num-runs", "2")],
    standard: &[("neighbours", "0,2"), ("seconds", "0.3"), ("num-runs", "5")],
    threads: all_threads,
    columns: None,
    shown: Some(SHOWN),
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    info("share_of_best", "share"),
    info("worst_share", "share"),
    info("worst_share_of_fixed", "share"),
    info("best_threads", "threads"),
    info("fixed_*", "tokens/s"),
];

const SHOWN: &[Column] = &[
    Column { name: "case", cell: Cell::Case },
    Column::param("neighbours"),
    Column { name: "tokens/s", cell: Cell::Metric("tokens_per_s", Samples::median, 1.0) },
    Column { name: "best fixed", cell: Cell::Metric("best_threads", Samples::median, 1.0) },
    Column { name: "share of best", cell: Cell::Metric("share_of_best", Samples::median, 1.0) },
    Column { name: "worst share", cell: Cell::Metric("worst_share", Samples::median, 1.0) },
    Column { name: "of fixed", cell: Cell::Metric("worst_share_of_fixed", Samples::median, 1.0) },
];

/// Items of a score request.
const ITEMS: usize = 16;

/// The work of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Decode,
    Prefill,
    Score,
}

impl Work {
    const ALL: &[(&str, Self)] =
        &[("decode", Self::Decode), ("prefill", Self::Prefill), ("score", Self::Score)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, work)| *work == self).map_or("", |(name, _)| name)
    }

    fn list(text: &str) -> Result<Vec<Self>, LaneError> {
        let named = |part: &str| {
            let found = Self::ALL.iter().find(|(name, _)| *name == part.trim());
            found.map(|(_, work)| *work).ok_or_else(|| {
                LaneError::Usage(format!("`--work` names `{part}`, but decode, prefill and score are known"))
            })
        };
        text.split(',').map(named).collect()
    }

    /// Does the work once. Returns its number of tokens and a digest of the answer.
    fn once(self, engine: &Engine, tokens: usize) -> Result<(usize, String), LaneError> {
        let vocab = engine.info().vocab;
        if self == Self::Score {
            let ids = |from: usize, count| asked::ids(count, from, vocab);
            let labels = [1, 2].map(|id| Label::Ids(vec![id % vocab as i64])).to_vec();
            let items = (1..=ITEMS).map(|item| Prompt::Ids(ids(item, 4))).collect();
            let request = ScoreRequest::new(Prompt::Ids(ids(0, tokens)), items, labels);
            let outcome = engine.score(request)?;
            let bits = outcome.items.iter().flatten().flat_map(|item| &item.logprobs).map(|x| x.to_bits());
            return Ok((outcome.taken.usage.prompt_tokens, digest::of_ids(&bits.collect::<Vec<_>>())));
        }
        let (prompt, new) = if self == Self::Decode { (4, tokens) } else { (tokens, 1) };
        let request = GenerateRequest {
            ignore_eos: true,
            ..GenerateRequest::new(Prompt::Ids(asked::ids(prompt, 0, vocab)), new)
        };
        let outcome = engine.submit_generate(request, &Cancel::new()).and_then(Ticket::wait)?;
        Ok((tokens, digest::of_ids(&outcome.token_ids)))
    }
}

/// The parameters of a measurement.
struct Plan {
    tokens: usize,
    seconds: f64,
    runs: usize,
    min_share: f64,
    min_worst: f64,
}

/// An engine with a fixed number of threads; `None` if it chooses the number itself.
struct Arm {
    fixed: Option<usize>,
    engine: Engine,
}

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let works = Work::list(values.text("work"))?;
    let neighbours = neighbour_counts(values.text("neighbours"))?;
    let plan = Plan {
        tokens: values.count("tokens")?,
        seconds: values.number("seconds")?,
        runs: values.count("num-runs")?,
        min_share: values.number("min-share")?,
        min_worst: values.number("min-worst")?,
    };
    for &threads in &bench.threads {
        let fixed = match values.text("fixed") {
            "auto" => fixed_counts(threads),
            _ => values.counts("fixed")?,
        };
        let arms = arms(model, threads, &fixed)?;
        within_context(plan.tokens.saturating_add(4), arms[0].engine.info())?;
        for &work in &works {
            for &count in &neighbours {
                let row = row(bench, &arms, work, count, &plan)?;
                bench.done(&format!("{} beside {count} busy threads", work.name()), vec![row])?;
            }
        }
    }
    Ok(())
}

/// The default arm, then those with fixed numbers of threads.
fn arms(model: &Model<'_>, threads: usize, fixed: &[usize]) -> Result<Vec<Arm>, LaneError> {
    let default = Setup { adaptive_threads: true, ..Setup::new(threads) };
    let mut arms = vec![Arm { fixed: None, engine: (model.load)(default)? }];
    for &count in fixed {
        arms.push(Arm { fixed: Some(count), engine: (model.load)(Setup::new(count))? });
    }
    Ok(arms)
}

/// 1, 2, 4, ... below `most`, and `most`.
fn fixed_counts(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    powers.take_while(|&n| n < most).chain([most.max(1)]).collect()
}

/// Parses numbers of neighbours; 0 is allowed.
fn neighbour_counts(text: &str) -> Result<Vec<usize>, LaneError> {
    const MOST: usize = 1024;
    let number = |part: &str| part.trim().parse().ok().filter(|&n: &usize| n <= MOST);
    text.split(',').map(number).collect::<Option<Vec<usize>>>().ok_or_else(|| {
        let fact = format!("`--neighbours` is `{text}`, but numbers up to {MOST} are needed");
        LaneError::Usage(format!("{fact}, such as 0,1,2"))
    })
}

/// Measures tokens per second of every arm, round by round.
fn row(
    bench: &Bench<'_>,
    arms: &[Arm],
    work: Work,
    neighbours: usize,
    plan: &Plan,
) -> Result<Row, LaneError> {
    let _busy = Neighbours::start(neighbours)
        .map_err(|e| LaneError::Usage(format!("{neighbours} busy threads could not be started: {e}")))?;
    let mut expected: Option<String> = None;
    let mut sample = |arm: &Arm| -> Result<f64, LaneError> {
        let start = bench.clock.now_ns();
        let mut tokens = 0;
        loop {
            let (done, digest) = work.once(&arm.engine, plan.tokens)?;
            tokens += done;
            let first = expected.get_or_insert_with(|| digest.clone());
            if *first != digest {
                let threads = arm.engine.info().threads;
                return Err(LaneError::Incorrect(format!("the answer of {threads} threads is another one")));
            }
            let seconds = bench.clock.elapsed_s(start);
            if seconds >= plan.seconds {
                return Ok(tokens as f64 / seconds.max(1e-9));
            }
        }
    };
    // The first round is warm-up; in it the default adapts to the neighbours.
    for arm in arms {
        sample(arm)?;
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); arms.len()];
    for run in 0..plan.runs {
        for turn in 0..arms.len() {
            let arm = (run + turn) % arms.len();
            rates[arm].push(sample(&arms[arm])?);
        }
    }
    let fixed: Vec<usize> = arms.iter().filter_map(|arm| arm.fixed).collect();
    let row = told(arms[0].engine.info(), work, neighbours, &fixed, rates, plan)?;
    Ok(row.digest(expected.unwrap_or_default()))
}

/// Builds the row of a case from the rates of the default and of each fixed number of threads.
fn told(
    info: &ModelInfo,
    work: Work,
    neighbours: usize,
    fixed: &[usize],
    mut rates: Vec<Vec<f64>>,
    plan: &Plan,
) -> Result<Row, LaneError> {
    let rate = |values: Vec<f64>, direction| Samples::new("tokens/s", direction, values);
    let default = rates.remove(0);
    let mut best = (0, 0.0);
    let mut worst_of_fixed = 0.0;
    let mut row = Row::new(format!("{}/n{neighbours}/t{}", work.name(), info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("work", work.name())
        .param("neighbours", neighbours)
        .param("tokens", plan.tokens);
    for (&threads, rates) in fixed.iter().zip(rates) {
        let samples = rate(rates, Direction::Info)?;
        let median = samples.median().unwrap_or(0.0);
        if median > best.1 {
            best = (threads, median);
            worst_of_fixed = samples.min().unwrap_or(0.0) / median;
        }
        row = row.metric(format!("fixed_{threads}"), samples);
    }
    let shares: Vec<f64> = default.iter().map(|rate| rate / best.1).collect();
    let worst = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let one = |unit, value| Samples::new(unit, Direction::Info, vec![value]);
    let mut row = row
        .metric("tokens_per_s", rate(default, Direction::Higher)?)
        .metric("share_of_best", Samples::new("share", Direction::Info, shares)?)
        .metric("worst_share", one("share", worst)?)
        .metric("worst_share_of_fixed", one("share", worst_of_fixed)?)
        .metric("best_threads", one("threads", best.0 as f64)?);
    for (metric, least) in [("share_of_best", plan.min_share), ("worst_share", plan.min_worst)] {
        if least > 0.0 {
            row = row.gate(metric, least);
        }
    }
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::info;

    fn plan(min_share: f64, min_worst: f64) -> Plan {
        Plan { tokens: 8, seconds: 0.1, runs: 3, min_share, min_worst }
    }

    fn case(rates: &[&[f64]], plan: &Plan) -> Row {
        let rates = rates.iter().map(|rates| rates.to_vec()).collect();
        told(&info(), Work::Decode, 2, &[1, 2], rates, plan).unwrap()
    }

    #[test]
    fn shares_are_of_the_best_fixed_number() {
        let row = case(&[&[8.0, 9.0, 4.0], &[10.0, 10.0, 30.0], &[1.0, 2.0, 3.0]], &plan(0.0, 0.0));
        let values = |name: &str| row.metrics.get(name).unwrap().samples().values().to_vec();
        assert_eq!(row.case, "decode/n2/t1");
        assert_eq!(values("share_of_best"), [0.8, 0.9, 0.4]);
        assert_eq!((values("worst_share"), values("best_threads")), (vec![0.4], vec![1.0]));
        assert_eq!(values("worst_share_of_fixed"), [1.0]);
        assert_eq!((values("fixed_1"), values("fixed_2")), (vec![10.0, 10.0, 30.0], vec![1.0, 2.0, 3.0]));
        assert!(row.gates.is_empty());
    }

    #[test]
    fn gates_hold_the_median_and_the_worst() {
        let rates: &[&[f64]] = &[&[8.0, 9.0, 4.0], &[10.0, 10.0, 10.0], &[1.0, 1.0, 1.0]];
        assert!(case(rates, &plan(0.8, 0.4)).missed().is_empty());
        assert_eq!(case(rates, &plan(0.81, 0.4)).missed().len(), 1);
        assert_eq!(case(rates, &plan(0.8, 0.41)).missed().len(), 1);
    }

    #[test]
    fn counts_are_lists_with_bounds() {
        assert_eq!(fixed_counts(1), [1]);
        assert_eq!(fixed_counts(2), [1, 2]);
        assert_eq!(fixed_counts(12), [1, 2, 4, 8, 12]);
        assert_eq!(neighbour_counts("0, 3").unwrap(), [0, 3]);
        for bad in ["", "x", "1,", "-1", "2000"] {
            assert!(neighbour_counts(bad).is_err(), "{bad}");
        }
        assert_eq!(Work::list("score,decode").unwrap(), [Work::Score, Work::Decode]);
        assert!(Work::list("decode,sleep").is_err());
    }
}
