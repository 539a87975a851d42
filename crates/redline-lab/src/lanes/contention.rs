//! Lane `contention`: how close the default number of threads comes to the best fixed number next to busy processes.
//!
//! Busy threads compete with the engine for the machine's cores. The default, which chooses the number of threads for each pass, and
//! several fixed numbers of threads do the same work in turns, in an order that rotates. A share is a sample of the default over the
//! median of the best fixed number. The worst sample of that number over its own median is reported as well, because all timings vary on
//! such a machine.

use std::hint::black_box;

use redline_engine::{Engine, Label, ModelInfo, Prompt, ScoreRequest};

use super::prelude::*;
use crate::bench::busy::BusyThreads;
use crate::bench::requests::{continuation, generate, ids};

pub(super) const LANE: Lane = Lane {
    asks: "How near does the default come to the best number of threads beside busy processes?",
    checks: "tokens and scores agree between all numbers of threads, in every run",
    against: "engines with a fixed number of threads, in the same run",
    metrics: &[
        higher("tokens_per_s", "tokens/s"),
        info("share_of_best", "share"),
        info("worst_share", "share"),
        info("worst_share_of_fixed", "share"),
        info("best_threads", "threads"),
        info("fixed_*", "tokens/s"),
    ],
    flags: &[
        flag("neighbours", "N,..", "0,1,2,4,8").help("Busy threads beside the engine"),
        flag("work", "WHAT,..", "decode,prefill,score").help("What the engine does: decode, prefill, score"),
        flag("fixed", "N,..", "auto").help("Fixed numbers of threads; auto: 1, 2, 4, ... and all"),
        flag("tokens", "N", "256").help("Tokens of a prompt, and new ones of a decode"),
        flag("seconds", "S", "0.5").help("Seconds of each sample at least"),
        Flag::runs("10"),
        flag("min-share", "X", "0")
            .help("Fail where the median share of the best fixed number is less; 0: no gate"),
        flag("min-worst", "X", "0").help("Fail where the smallest share is less; 0: no gate"),
    ],
    smoke: &[("neighbours", "0,1"), ("tokens", "8"), ("seconds", "0.01"), ("num-runs", "2")],
    standard: &[("neighbours", "0,2"), ("seconds", "0.3"), ("num-runs", "5")],
    shown: Some(&[
        Column { name: "case", cell: Cell::Case },
        Column::param("neighbours"),
        median("tokens/s", "tokens_per_s"),
        median("best fixed", "best_threads"),
        median("share of best", "share_of_best"),
        median("worst share", "worst_share"),
        median("of fixed", "worst_share_of_fixed"),
    ]),
    ..Lane::new("contention", 0.1, LaneFunction::Model(run))
};

/// Items of a score request.
const ITEMS: usize = 16;
/// Most busy threads.
const MAX_NEIGHBOURS: usize = 1024;
/// Rounds of arithmetic of a busy thread at a time: some microseconds.
const ROUNDS: u64 = 10_000;

/// Does the work once with prompts of so many tokens. Returns the number of tokens worked on, and a digest of the answer.
type Work = fn(&Engine, usize) -> Result<(usize, String)>;

const WORKS: &[(&str, Work)] = &[
    ("decode", |engine, tokens| Ok((tokens, continued(engine, 4, tokens)?))),
    ("prefill", |engine, tokens| Ok((tokens, continued(engine, tokens, 1)?))),
    ("score", score),
];

fn works(text: &str) -> Result<Vec<(&'static str, Work)>> {
    let named = |part: &str| {
        WORKS.iter().copied().find(|(name, _)| *name == part.trim()).ok_or_else(|| {
            LaneError::Usage(format!("`--work` names `{part}`, but decode, prefill and score are known"))
        })
    };
    text.split(',').map(named).collect()
}

fn continued(engine: &Engine, prompt: usize, new: usize) -> Result<String> {
    let outcome = generate(engine, continuation(ids(prompt, 0, engine.info().vocab), new))?;
    Ok(digest::of_ids(&outcome.token_ids))
}

fn score(engine: &Engine, tokens: usize) -> Result<(usize, String)> {
    let vocab = engine.info().vocab;
    let labels = [1, 2].map(|id| Label::Ids(vec![id % vocab as i64])).to_vec();
    let items = (1..=ITEMS).map(|item| Prompt::Ids(ids(4, item, vocab))).collect();
    let outcome = engine.score(ScoreRequest::new(Prompt::Ids(ids(tokens, 0, vocab)), items, labels))?;
    let bits = outcome.items.iter().flatten().flat_map(|item| &item.logprobs).map(|x| x.to_bits());
    Ok((outcome.cost.usage.prompt_tokens, digest::of_ids(&bits.collect::<Vec<_>>())))
}

struct Plan {
    tokens: usize,
    seconds: f64,
    runs: usize,
    min_share: f64,
    min_worst: f64,
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let works = works(values.text("work"))?;
    let neighbours = neighbour_counts(values)?;
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
        // The default, then the fixed numbers of threads.
        let mut engines = vec![(model.load)(Setup { adaptive_threads: true, ..Setup::new(threads) })?];
        for &count in &fixed {
            engines.push((model.load)(Setup::new(count))?);
        }
        within_context(plan.tokens.saturating_add(4), engines[0].info())?;
        for &(name, work) in &works {
            for &count in &neighbours {
                let (rates, digest) = rates(bench, &engines, work, count, &plan)?;
                let row = row(engines[0].info(), (name, count), &fixed, rates, &plan)?.digest(digest);
                bench.done(&format!("{name} beside {count} busy threads"), vec![row])?;
            }
        }
    }
    Ok(())
}

/// 1, 2, 4, ... below `most`, and `most`.
fn fixed_counts(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
    powers.take_while(|&n| n < most).chain([most.max(1)]).collect()
}

/// The numbers of neighbours; 0 is allowed.
fn neighbour_counts(values: &Values) -> Result<Vec<usize>> {
    let needed = format!("numbers up to {MAX_NEIGHBOURS} are needed, such as 0,1,2");
    values.list("neighbours", &needed, |part| part.parse().ok().filter(|&n| n <= MAX_NEIGHBOURS))
}

/// The arithmetic of a busy thread.
fn compute() {
    (0..ROUNDS).fold(1u64, |x, _| black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1)));
}

/// Tokens per second of every engine, round by round, and the digest of their answers.
fn rates(
    bench: &Bench<'_>,
    engines: &[Engine],
    work: Work,
    neighbours: usize,
    plan: &Plan,
) -> Result<(Vec<Vec<f64>>, String)> {
    let _busy = BusyThreads::start(neighbours, compute)
        .map_err(|e| LaneError::Usage(format!("{neighbours} busy threads could not be started: {e}")))?;
    let mut expected: Option<String> = None;
    let mut sample = |engine: &Engine| -> Result<f64> {
        let start = bench.clock.now_ns();
        let mut tokens = 0;
        loop {
            let (done, digest) = work(engine, plan.tokens)?;
            tokens += done;
            verify(*expected.get_or_insert_with(|| digest.clone()) == digest, || {
                format!("the answer of {} threads is another one", engine.info().threads)
            })?;
            let seconds = bench.clock.elapsed_s(start);
            if seconds >= plan.seconds {
                return Ok(tokens as f64 / seconds.max(1e-9));
            }
        }
    };
    // The first round is warm-up; in it the default adapts to the neighbours.
    for engine in engines {
        sample(engine)?;
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
    for run in 0..plan.runs {
        for turn in 0..engines.len() {
            let at = (run + turn) % engines.len();
            rates[at].push(sample(&engines[at])?);
        }
    }
    Ok((rates, expected.unwrap_or_default()))
}

/// The row of a case, given the rates of the default and of each fixed number of threads.
fn row(
    info: &ModelInfo,
    (work, neighbours): (&str, usize),
    fixed: &[usize],
    mut rates: Vec<Vec<f64>>,
    plan: &Plan,
) -> Result<Row> {
    let default = rates.remove(0);
    let (mut best_threads, mut best_rate, mut worst_of_fixed) = (0, 0.0, 0.0);
    let mut row = Row::new(format!("{work}/n{neighbours}/t{}", info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("work", work)
        .param("neighbours", neighbours)
        .param("tokens", plan.tokens)
        .checked_on(info.kernel_path.clone());
    for (&threads, rates) in fixed.iter().zip(rates) {
        let samples = Samples::new("tokens/s", Direction::Info, rates)?;
        let median = samples.median().unwrap_or(0.0);
        if median > best_rate {
            (best_threads, best_rate) = (threads, median);
            worst_of_fixed = samples.min().unwrap_or(0.0) / median;
        }
        row = row.metric(format!("fixed_{threads}"), samples);
    }
    let share = |rate: &f64| rate / best_rate;
    let row = row
        .measured(LANE.metrics, &default)
        .each("tokens_per_s", |rate| *rate)?
        .each("share_of_best", share)?
        .one("worst_share", default.iter().map(share).fold(f64::INFINITY, f64::min))?
        .one("worst_share_of_fixed", worst_of_fixed)?
        .one("best_threads", best_threads as f64)?
        .row;
    Ok(row.at_least("share_of_best", plan.min_share).at_least("worst_share", plan.min_worst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::{info, samples};

    fn plan(min_share: f64, min_worst: f64) -> Plan {
        Plan { tokens: 8, seconds: 0.1, runs: 3, min_share, min_worst }
    }

    fn case(rates: &[&[f64]], plan: &Plan) -> Row {
        let rates = rates.iter().map(|rates| rates.to_vec()).collect();
        row(&info(), ("decode", 2), &[1, 2], rates, plan).unwrap()
    }

    #[test]
    fn shares_are_of_the_best_fixed_number() {
        let row = case(&[&[8.0, 9.0, 4.0], &[10.0, 10.0, 30.0], &[1.0, 2.0, 3.0]], &plan(0.0, 0.0));
        let values = |name: &str| samples(&row, name);
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
        let neighbours = |text| neighbour_counts(&Values::new(LANE.flags, [("neighbours", text)]));
        assert_eq!(neighbours("0, 3").unwrap(), [0, 3]);
        for bad in ["", "x", "1,", "-1", "2000"] {
            assert!(neighbours(bad).is_err(), "{bad}");
        }
        let names = |text| works(text).map(|works| works.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert_eq!(names("score, decode").unwrap(), ["score", "decode"]);
        assert!(names("decode,sleep").is_err());
    }

    #[test]
    fn of_equally_fast_numbers_of_threads_the_first_is_the_best() {
        let row = case(&[&[4.0, 4.0], &[8.0, 8.0], &[7.0, 9.0]], &plan(0.0, 0.0));
        let values = |name: &str| samples(&row, name);
        assert_eq!((values("best_threads"), values("worst_share_of_fixed")), (vec![1.0], vec![1.0]));
    }

    #[test]
    fn busy_threads_are_limited() {
        let neighbours = |text| neighbour_counts(&Values::new(LANE.flags, [("neighbours", text)]));
        assert_eq!(neighbours("1024").unwrap(), [1024]);
        assert!(matches!(neighbours("1025"), Err(LaneError::Usage(fact)) if fact.contains("up to 1024")));
    }
}
