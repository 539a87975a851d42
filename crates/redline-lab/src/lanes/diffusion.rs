//! Lane `diffusion`: the cost of filling masks, the gain from skipping work that cannot change the result, and gain and loss of
//! quality with blocks, caches and thresholds.
//!
//! Arms: `naive` computes all rows and all logits in every step, as published. `exact` skips what cannot change the result, and its
//! canvas must be the same. The others approximate. Their rows report how many tokens agree with `exact` and, for the embedded model,
//! the perplexity of the text under an autoregressive model. Greedy, end-of-sequence ignored.

use redline_engine::{
    BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, Engine, GenerateRequest, ModelInfo, Prompt,
    PromptLogprobs, Ticket,
};
use redline_kernels::Simd;

use super::{Lane, MetricSpec, Run, all_threads, count, higher, info, lower};
use crate::bench::{Bench, Flag, Judge, LaneError, Model, Setup, Values, asked, within_context};
use crate::digest;
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held, Work, held};
use crate::{Direction, Row, Samples};

/// The `diffusion` lane.
pub const LANE: Lane = Lane {
    name: "diffusion",
    asks: "How fast are masks filled, what do exact savings gain, and what do blocks, caches and thresholds gain and lose?",
    checks: "every run of an arm fills alike, and the exact arm as the naive one, token by token",
    against: "the published loop, and the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: METRICS,
    threshold: 0.05,
    flags: &[
        Flag { name: "prompt-tokens", value: "N", default: "32", help: "Tokens of each prompt" },
        Flag { name: "new-tokens", value: "N", default: "64", help: "Masks after each prompt" },
        Flag { name: "prompts", value: "N", default: "2", help: "Prompts, one after the other" },
        Flag {
            name: "block-length",
            value: "N,..",
            default: "32",
            help: "Masks of a block, where there are blocks",
        },
        Flag {
            name: "confidence",
            value: "P",
            default: "0.9",
            help: "Probability from which on masks are filled together, where there is a threshold",
        },
        Flag {
            name: "arms",
            value: "LIST",
            default: "naive,exact,prefix,dual,threshold,dual+threshold",
            help: "What is run",
        },
        Flag::runs("3"),
        Flag::warmups("1"),
    ],
    smoke: &[
        ("prompt-tokens", "5"),
        ("new-tokens", "8"),
        ("prompts", "1"),
        ("block-length", "4"),
        ("confidence", "0.3"),
        ("num-runs", "2"),
    ],
    standard: &[],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Masked(run),
};

const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    lower("seconds", "s"),
    info("ms_per_token", "ms"),
    count("passes", "passes"),
    count("rows", "rows"),
    info("tokens_per_pass", "tokens"),
    info("agreement", "share"),
    info("perplexity", ""),
    info("speedup", "x"),
    info("share", "share"),
    info("limit", ""),
];

const COLUMNS: &[Column] = &[
    Column::param("arm"),
    Column::param("block_length"),
    Column::param("threshold"),
    Column::param("prompt_tokens"),
    Column::param("new_tokens"),
    Column { name: "num_runs", cell: Cell::Samples("seconds") },
    Column::median("tokens_per_s"),
    Column::median("ms_per_token"),
    Column::MEAN_S,
    Column::STD_S,
    Column::MIN_S,
    Column::MAX_S,
    Column::median("passes"),
    Column::median("rows"),
    Column::median("tokens_per_pass"),
    Column::median("agreement"),
    Column::median("perplexity"),
    Column::median("speedup"),
    Column::param("threads"),
    Column::param("format"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

/// A method of filling masks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Arm {
    name: &'static str,
    savings: bool,
    cache: BlockCache,
    thresholded: bool,
}

const ARMS: &[Arm] = &[
    Arm { name: "naive", savings: false, cache: BlockCache::None, thresholded: false },
    Arm { name: "exact", savings: true, cache: BlockCache::None, thresholded: false },
    Arm { name: "prefix", savings: true, cache: BlockCache::Prefix, thresholded: false },
    Arm { name: "dual", savings: true, cache: BlockCache::Dual, thresholded: false },
    Arm { name: "threshold", savings: true, cache: BlockCache::None, thresholded: true },
    Arm { name: "dual+threshold", savings: true, cache: BlockCache::Dual, thresholded: true },
];

/// The canvases to fill.
struct Case {
    prompts: Vec<Vec<i64>>,
    prompt_tokens: usize,
    new_tokens: usize,
    threshold: f32,
    runs: usize,
    warmups: usize,
}

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let (prompt_tokens, new_tokens) = (values.count("prompt-tokens")?, values.count("new-tokens")?);
    let (arms, blocks) = (arms(values.text("arms"))?, values.counts("block-length")?);
    for &threads in &bench.threads {
        let engine = (model.load)(Setup::new(threads))?;
        let info = engine.info();
        within_context(prompt_tokens.saturating_add(new_tokens), info)?;
        let case = Case {
            prompts: prompts(&engine, model.judge.as_ref(), values.count("prompts")?, prompt_tokens)?,
            prompt_tokens,
            new_tokens,
            threshold: values.number("confidence")? as f32,
            runs: values.count("num-runs")?,
            warmups: values.count("warmup-runs")?,
        };
        let judge = model.judge.as_ref().map(|judge| (judge.load)(threads)).transpose()?;
        let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
        let probe = Probe::new(info.threads, simd, info.bytes_per_token as usize)?;
        let mut lane = Measured {
            bench,
            engine: &engine,
            probe: &probe,
            judge: judge.as_ref(),
            case: &case,
            reference: None,
        };
        for arm in arms.iter().copied() {
            // The requested block lengths; an arm without blocks uses one block.
            let lengths = if arm.blocks() { blocks.clone() } else { vec![new_tokens] };
            for length in lengths {
                let row = lane.row(arm, length)?;
                bench.done(&format!("{threads} threads, {}, blocks of {length}", arm.name), vec![row])?;
            }
        }
    }
    Ok(())
}

fn arms(text: &str) -> Result<Vec<Arm>, LaneError> {
    let known = |name: &str| ARMS.iter().copied().find(|arm| arm.name == name.trim());
    let arms: Option<Vec<Arm>> = text.split(',').map(known).collect();
    arms.ok_or_else(|| {
        let names: Vec<_> = ARMS.iter().map(|arm| arm.name).collect();
        LaneError::Usage(format!("`--arms` is `{text}`, but some of {} are needed", names.join(", ")))
    })
}

/// Prefixes of held-out texts, if there are any; otherwise ids that begin differently.
fn prompts(
    engine: &Engine,
    judge: Option<&Judge<'_>>,
    count: usize,
    tokens: usize,
) -> Result<Vec<Vec<i64>>, LaneError> {
    let vocab = engine.info().vocab;
    let (Some(judge), Some(tokenizer)) = (judge, engine.tokenizer()) else {
        return Ok((0..count).map(|index| asked::ids(tokens, index, vocab)).collect());
    };
    let ids = |text: &str| {
        tokenizer.encode(text, true).map(|ids| ids.into_iter().map(i64::from).collect::<Vec<_>>())
    };
    let mut found = Vec::new();
    for paragraph in judge.text.split('\n') {
        let mut ids = ids(paragraph)?;
        if ids.len() >= tokens && found.len() < count {
            ids.truncate(tokens);
            found.push(ids);
        }
    }
    Ok(found)
}

impl Arm {
    fn blocks(self) -> bool {
        self.thresholded || self.cache != BlockCache::None
    }

    fn request(self, case: &Case, prompt: &[i64], block_length: usize) -> DiffuseRequest {
        DiffuseRequest {
            savings: self.savings,
            cache: self.cache,
            threshold: self.thresholded.then_some(case.threshold),
            block_length: self.blocks().then_some(block_length),
            ignore_eos: true,
            ..DiffuseRequest::new(Prompt::Ids(prompt.to_vec()), case.new_tokens)
        }
    }
}

/// The state shared by the arms, including the result of the first one.
struct Measured<'a> {
    bench: &'a Bench<'a>,
    engine: &'a Engine,
    probe: &'a Probe,
    judge: Option<&'a Engine>,
    case: &'a Case,
    /// The tokens of the exact algorithm, and the seconds of the slowest arm that gives these tokens.
    reference: Option<(Vec<u32>, f64)>,
}

impl Measured<'_> {
    fn row(&mut self, arm: Arm, block_length: usize) -> Result<Row, LaneError> {
        let (engine, case) = (self.engine, self.case);
        let fill = || {
            let requests = case.prompts.iter().map(|prompt| arm.request(case, prompt, block_length));
            let filled =
                requests.map(|request| engine.submit_diffuse(request, &Cancel::new()).and_then(Ticket::wait));
            filled.collect::<Result<Vec<DiffuseOutcome>, _>>()
        };
        let misses = || engine.plan_counters().misses;
        let warmup = self.bench.warm_up(case.warmups, misses, |_| Ok(fill().map(|_| ())?))?;
        let trials = self.probe.hold(case.runs, Arithmetics::of(engine.info()), self.bench.clock, |_| {
            Ok::<_, LaneError>(fill()?)
        })?;
        let outcomes = &trials[0].value;
        let tokens = new_tokens(outcomes);
        if let Some(other) = trials.iter().find(|trial| new_tokens(&trial.value) != tokens) {
            let fact =
                format!("{}: {tokens:?} in one run, {:?} in another", arm.name, new_tokens(&other.value));
            return Err(LaneError::Incorrect(fact));
        }
        let seconds =
            |outcomes: &[DiffuseOutcome]| outcomes.iter().map(|outcome| outcome.compute_s).sum::<f64>();
        let timed: Vec<Held<f64>> = trials.iter().map(|trial| trial.with(seconds(&trial.value))).collect();
        let median = Samples::new("s", Direction::Lower, timed.iter().map(|t| t.value).collect())?.median();
        let (expected, slowest) = self.reference.get_or_insert((tokens.clone(), median.unwrap_or(f64::NAN)));
        if !arm.blocks() && *expected != tokens {
            let fact = format!("{} fills {tokens:?}, not {expected:?}", arm.name);
            return Err(LaneError::Incorrect(fact));
        }
        let equal = tokens.iter().zip(&*expected).filter(|(a, b)| a == b).count();
        let agreement = equal as f64 / tokens.len().max(1) as f64;
        let speedup = median.map(|median| *slowest / median);
        let perplexity = self.judge.map(|judge| perplexity(judge, case, outcomes)).transpose()?;
        let told = Quality { agreement, speedup, perplexity };
        let row = told_row(engine.info(), case, (arm, block_length), &told, outcomes, &timed)?;
        Ok(row.warmed(warmup))
    }
}

/// The values of a row other than time.
struct Quality {
    agreement: f64,
    speedup: Option<f64>,
    perplexity: Option<f64>,
}

/// The tokens after every prompt.
fn new_tokens(outcomes: &[DiffuseOutcome]) -> Vec<u32> {
    outcomes.iter().flat_map(|outcome| outcome.token_ids.clone()).collect()
}

/// Perplexity of the filled tokens under a model that predicts the next token, each token given those before it.
fn perplexity(judge: &Engine, case: &Case, outcomes: &[DiffuseOutcome]) -> Result<f64, LaneError> {
    let (mut sum, mut count) = (0.0, 0usize);
    for outcome in outcomes {
        // Ids that are not in the judge's vocabulary, such as remaining masks, are skipped.
        let known =
            outcome.canvas.iter().map(|&id| i64::from(id)).filter(|&id| (id as usize) < judge.info().vocab);
        let asked = PromptLogprobs { from: case.prompt_tokens, top: 0 };
        let request = GenerateRequest {
            prompt_logprobs: Some(asked),
            ..GenerateRequest::new(Prompt::Ids(known.collect()), 1)
        };
        let judged = judge.submit_generate(request, &Cancel::new()).and_then(Ticket::wait)?;
        for position in judged.prompt_logprobs.into_iter().flatten().flatten() {
            sum -= f64::from(position.chosen.logprob);
            count += 1;
        }
    }
    Ok((sum / count.max(1) as f64).exp())
}

/// The minimum work of the passes: each reads the weights once, multiplies its rows with the weights and with all keys, and
/// multiplies the rows of the considered masks with the vocabulary.
fn work(info: &ModelInfo, outcomes: &[DiffuseOutcome]) -> Work {
    let mut sum = Work::default();
    for outcome in outcomes {
        for pass in &outcome.passes {
            let (rows, keys) = (pass.rows.len() as f64, outcome.canvas.len() as f64);
            let pass = Work::of_pass(info, rows, rows * keys, pass.outputs as f64);
            sum = Work {
                bytes: sum.bytes + pass.bytes,
                operations: sum.operations + pass.operations,
                attention: sum.attention + pass.attention,
            };
        }
    }
    sum
}

fn told_row(
    info: &ModelInfo,
    case: &Case,
    (arm, block_length): (Arm, usize),
    quality: &Quality,
    outcomes: &[DiffuseOutcome],
    timed: &[Held<f64>],
) -> Result<Row, LaneError> {
    let tokens = (case.prompts.len() * case.new_tokens) as f64;
    let samples = |unit: &str, direction, value: &dyn Fn(f64) -> f64| {
        Samples::new(unit, direction, timed.iter().map(|t| value(t.value)).collect())
    };
    let one = |unit: &str, value: f64| Samples::new(unit, Direction::Info, vec![value]);
    let passes: usize = outcomes.iter().map(|outcome| outcome.passes.len()).sum();
    let rows: usize = outcomes.iter().map(|outcome| outcome.computed_tokens).sum();
    let name = match (arm.blocks(), arm.thresholded) {
        (false, _) => arm.name.to_owned(),
        (true, false) => format!("{}/b{block_length}", arm.name),
        (true, true) => format!("{}/b{block_length}/p{}", arm.name, case.threshold),
    };
    let mut row = Row::new(format!("diffusion/{name}/t{}", info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("arm", arm.name)
        .param("prompts", case.prompts.len())
        .param("prompt_tokens", case.prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .param("block_length", block_length)
        .param("threshold", if arm.thresholded { f64::from(case.threshold) } else { 0.0 })
        .digest(digest::of_ids(&new_tokens(outcomes)))
        .metric("tokens_per_s", samples("tokens/s", Direction::Higher, &|s| tokens / s)?)
        .metric("seconds", samples("s", Direction::Lower, &|s| s)?)
        .metric("ms_per_token", samples("ms", Direction::Info, &|s| s * 1e3 / tokens)?)
        .metric("passes", one("passes", passes as f64)?)
        .metric("rows", one("rows", rows as f64)?)
        .metric("tokens_per_pass", one("tokens", tokens / passes.max(1) as f64)?)
        .metric("agreement", one("share", quality.agreement)?);
    if let Some(speedup) = quality.speedup {
        row = row.metric("speedup", one("x", speedup)?);
    }
    if let Some(perplexity) = quality.perplexity {
        row = row.metric("perplexity", one("", perplexity)?);
    }
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    Ok(held(row, info.format.arithmetic(), work(info, outcomes), timed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_have_names() {
        let names = |text: &str| arms(text).map(|arms| arms.iter().map(|arm| arm.name).collect::<Vec<_>>());
        assert_eq!(names("exact, dual+threshold").unwrap(), ["exact", "dual+threshold"]);
        let LaneError::Usage(fact) = names("exact,fast").unwrap_err() else { panic!("accepted") };
        assert!(fact.contains("`exact,fast`") && fact.contains("prefix"), "{fact}");
    }
}
