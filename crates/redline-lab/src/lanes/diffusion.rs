//! Lane `diffusion`: the cost of filling masks, the gain from skipping work that cannot change the result, and gain and loss of
//! quality with blocks, caches and thresholds.
//!
//! Arms: `naive` computes all rows and all logits in every step, as published. `exact` skips what cannot change the result, and its
//! canvas must be the same. The others approximate. Their rows report how many tokens agree with `exact` and, for the embedded model,
//! the perplexity of the text under an autoregressive model. Greedy unless a temperature is given, with seed 0; end-of-sequence
//! ignored. Arms with a threshold choose their steps and the order of masks by probability, whatever the flags.

use redline_engine::{
    Algorithm, BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, Engine, GenerateRequest, ModelInfo,
    Prompt, PromptLogprobs, Sampling,
};

use super::prelude::*;
use crate::bench::requests::{Prompts, generate};
use crate::bench::{Judge, PROMPT};

pub(super) const LANE: Lane = Lane {
    asks: "How fast are masks filled, what do exact savings gain, and what do blocks, caches and thresholds gain and lose?",
    checks: "every run of an arm fills alike, and the exact arm as the naive one, token by token",
    against: "the published loop, and the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: "+tokens_per_s tokens/s|-seconds s|ms_per_token ms|#passes passes|#rows rows|\
              tokens_per_pass tokens|sampling_share share|agreement share|perplexity|speedup x|share share|\
              limit",
    flags: &Flags::ALL,
    smoke: "prompt-tokens=5 new-tokens=8 prompts=1 block-length=4 confidence=0.3 num-runs=2",
    columns: &["arm|block_length|threshold|prompt_tokens|new_tokens|steps|algorithm|temperature|\
                num_runs=#seconds|~tokens_per_s|~ms_per_token|mean_s=mean:seconds|std_s=std:seconds|\
                min_s=min:seconds|max_s=max:seconds|~passes|~rows|~tokens_per_pass|~sampling_share|\
                ~agreement|~perplexity|~speedup|threads|format|@limit|share_of_limit=@share|\
                kernel_path=@kernels"],
    ..Lane::new("diffusion", 0.05, LaneFunction::Masked(run))
};

flags! {
    struct Flags;
    prompt: Option<String> = "prompt", "TEXT", "none", PROMPT;
    prompt_tokens: usize = "prompt-tokens", "N", "32", "Tokens of each prompt, if no text is given";
    new_tokens: usize = "new-tokens", "N", "64", "Masks after each prompt";
    prompts: usize = "prompts", "N", "2", "Prompts, one after the other";
    blocks: Vec<usize> = "block-length", "N,..", "32", "Masks of a block, where there are blocks";
    confidence: f64 = "confidence", "P", "0.9",
        "Probability from which on masks are filled together, where there is a threshold";
    arms: Vec<Arm> = "arms", "LIST", "naive,exact,prefix,dual,threshold,dual+threshold", "What is run", |flag, text| {
        let names: Vec<&str> = ARMS.iter().map(|arm| arm.name).collect();
        let needed = format!("some of {} are needed", names.join(", "));
        flag.list(text, &needed, |name| ARMS.iter().copied().find(|arm| arm.name == name))
    };
    steps: Option<usize> = "steps", "N", "auto", "Steps, where there is no threshold; auto: one per mask";
    algorithm: Option<Algorithm> = "algorithm", "NAME", "auto",
        "Which masks are filled first, where there is no threshold: origin, maskgit-plus, topk-margin, entropy, low-confidence, \
         random; auto: that of the model's family",
        |flag, text| {
            let named = Algorithm::ALL.iter().map(|&algorithm| (algorithm.name(), Some(algorithm)));
            flag.choice(text, &[("auto", None)].into_iter().chain(named).collect::<Vec<_>>())
        };
    alg_temp: f64 = "alg-temp", "T", "0",
        "Temperature of the choice among masks, where there is no threshold; 0 takes the most confident";
    temperature: f64 = "temperature", "T", "0", "Temperature of the choice of tokens; 0 takes the most probable";
    top_p: f64 = "top-p", "P", "1", "Choose among the most probable tokens that sum to this probability";
    top_k: u64 = "top-k", "N", "0", "Choose among this number of most probable tokens; 0: among all";
    timed: usize = "num-runs", "N", "3", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
}

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

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let flags = Flags::of(values)?;
    let (new_tokens, text) = (flags.new_tokens, flags.prompt.as_deref());
    let runs = Runs { timed: flags.timed, warmups: flags.warmups };
    for &threads in &bench.threads {
        let trials = Trials::load(bench, model, Setup::new(threads), runs, new_tokens)?;
        let prompts = match text {
            Some(_) => of_text(&trials.engine, text, flags.prompts)?,
            None => held_out(&trials.engine, model.judge.as_ref(), flags.prompts, flags.prompt_tokens)?,
        };
        let prompt_tokens = prompts.first().map_or(flags.prompt_tokens, Vec::len);
        within_context(prompt_tokens.saturating_add(new_tokens), trials.info())?;
        let mut case = Case {
            prompts,
            prompt_tokens,
            new_tokens,
            threshold: flags.confidence as f32,
            order: Order::of(&flags),
            judge: model.judge.as_ref().map(|judge| (judge.load)(threads)).transpose()?,
            reference: None,
        };
        for arm in flags.arms.iter().copied() {
            // The requested block lengths; an arm without blocks uses one block.
            let lengths = if arm.blocks() { flags.blocks.clone() } else { vec![new_tokens] };
            for length in lengths {
                let row = case.checked_row(&trials, arm, length)?.prompted(text);
                bench.done(&format!("{threads} threads, {}, blocks of {length}", arm.name), vec![row])?;
            }
        }
    }
    Ok(())
}

/// How many steps there are, which masks they fill, and how tokens are chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// `None`: one per mask.
    steps: Option<usize>,
    /// `None`: that of the model's family.
    algorithm: Option<Algorithm>,
    alg_temp: f32,
    sampling: Sampling,
}

impl Order {
    fn of(flags: &Flags) -> Self {
        let &Flags { steps, algorithm, alg_temp, temperature, top_p, top_k, .. } = flags;
        let (temperature, top_p, top_k) = (temperature as f32, top_p as f32, top_k as usize);
        let sampling = Sampling { temperature, top_p, top_k, ..Sampling::default() };
        Self { steps, algorithm, alg_temp: alg_temp as f32, sampling }
    }
}

/// Prompts of a text that the user gave.
fn of_text(engine: &Engine, text: Option<&str>, count: usize) -> Result<Vec<Vec<i64>>> {
    let prompts = Prompts::new(engine, text)?;
    let tokens = prompts.length(1);
    Ok((0..count).map(|index| prompts.ids(tokens, index, engine.info().vocab)).collect())
}

/// Prefixes of held-out texts, if there are any; otherwise ids that begin differently.
fn held_out(
    engine: &Engine,
    judge: Option<&Judge<'_>>,
    count: usize,
    tokens: usize,
) -> Result<Vec<Vec<i64>>> {
    let (Some(judge), Some(tokenizer)) = (judge, engine.tokenizer()) else {
        let ids = |index| Prompts::default().ids(tokens, index, engine.info().vocab);
        return Ok((0..count).map(ids).collect());
    };
    let mut prompts = Vec::new();
    for paragraph in judge.text.split('\n') {
        let ids = tokenizer.encode(paragraph, true)?;
        if ids.len() >= tokens && prompts.len() < count {
            prompts.push(ids.into_iter().take(tokens).map(i64::from).collect());
        }
    }
    require(prompts.len() == count, || {
        format!("`--prompts` is {count}, but {} held-out texts have {tokens} tokens", prompts.len())
    })?;
    Ok(prompts)
}

impl Arm {
    fn blocks(self) -> bool {
        self.thresholded || self.cache != BlockCache::None
    }

    fn request(self, case: &Case, prompt: &[i64], block_length: usize) -> DiffuseRequest {
        let Order { steps, algorithm, alg_temp, sampling } = case.order;
        let by_steps = !self.thresholded;
        DiffuseRequest {
            steps: steps.filter(|_| by_steps),
            algorithm: algorithm.filter(|_| by_steps),
            alg_temp: if by_steps { alg_temp } else { 0.0 },
            sampling,
            savings: self.savings,
            cache: self.cache,
            threshold: self.thresholded.then_some(case.threshold),
            block_length: self.blocks().then_some(block_length),
            ignore_eos: true,
            ..DiffuseRequest::new(Prompt::Ids(prompt.to_vec()), case.new_tokens)
        }
    }
}

/// The canvases to fill, and what the rows of all arms are compared with.
struct Case {
    prompts: Vec<Vec<i64>>,
    prompt_tokens: usize,
    new_tokens: usize,
    threshold: f32,
    order: Order,
    judge: Option<Engine>,
    /// The tokens of the exact algorithm, and the seconds of the slowest arm that gives these tokens.
    reference: Option<(Vec<u32>, f64)>,
}

impl Case {
    /// The row of an arm, whose runs must all fill the same tokens.
    fn checked_row(&mut self, trials: &Trials<'_>, arm: Arm, block_length: usize) -> Result<Row> {
        let fill = || {
            let requests = self.prompts.iter().map(|prompt| arm.request(self, prompt, block_length));
            let outcomes =
                requests.map(|request| Ok(trials.engine.submit_diffuse(request, &Cancel::new())?.wait()?));
            outcomes.collect::<Result<Vec<DiffuseOutcome>>>()
        };
        let (warmup, runs) = trials.run(fill)?;
        let tokens = new_tokens(&runs[0].value);
        for other in runs.iter().map(|run| new_tokens(&run.value)) {
            verify(other == tokens, || format!("{}: {tokens:?} in one run, {other:?} in another", arm.name))?;
        }
        Ok(self.row(trials.info(), (arm, block_length), &runs, &tokens)?.warmed(warmup))
    }

    /// Perplexity of the filled tokens under the judge, if there is one; each token given those before it.
    fn perplexity(&self, outcomes: &[DiffuseOutcome]) -> Result<Option<f64>> {
        let Some(judge) = &self.judge else { return Ok(None) };
        let (mut sum, mut count) = (0.0, 0usize);
        for outcome in outcomes {
            // Ids that are not in the judge's vocabulary, such as remaining masks, are skipped.
            let known = outcome.canvas.iter().filter(|&&id| (id as usize) < judge.info().vocab);
            let request = GenerateRequest {
                prompt_logprobs: Some(PromptLogprobs { from: self.prompt_tokens, top: 0 }),
                ..GenerateRequest::new(Prompt::Ids(known.map(|&id| i64::from(id)).collect()), 1)
            };
            for position in generate(judge, request)?.prompt_logprobs.into_iter().flatten().flatten() {
                sum -= f64::from(position.chosen.logprob);
                count += 1;
            }
        }
        Ok(Some((sum / count.max(1) as f64).exp()))
    }

    /// The row of an arm. The first one becomes the reference of the others.
    fn row(
        &mut self,
        info: &ModelInfo,
        (arm, block_length): (Arm, usize),
        runs: &[Held<Vec<DiffuseOutcome>>],
        ids: &[u32],
    ) -> Result<Row> {
        let median = Samples::new("s", Direction::Lower, runs.iter().map(seconds).collect())?.median();
        let (expected, slowest) =
            self.reference.get_or_insert_with(|| (ids.to_vec(), median.unwrap_or(f64::NAN)));
        verify(arm.blocks() || expected == ids, || format!("{} fills {ids:?}, not {expected:?}", arm.name))?;
        let equal = ids.iter().zip(&*expected).filter(|(a, b)| a == b).count();
        let speedup = median.map(|median| *slowest / median);
        let outcomes = &runs[0].value;
        let tokens = (self.prompts.len() * self.new_tokens) as f64;
        let passes: usize = outcomes.iter().map(|outcome| outcome.passes.len()).sum();
        let rows: usize = outcomes.iter().map(|outcome| outcome.computed_tokens).sum();
        let name = match (arm.blocks(), arm.thresholded) {
            (false, _) => arm.name.to_owned(),
            (true, false) => format!("{}/b{block_length}", arm.name),
            (true, true) => format!("{}/b{block_length}/p{}", arm.name, self.threshold),
        };
        let row = Row::of_model(format!("diffusion/{name}/t{}", info.threads), info);
        self.described(row, arm, outcomes)
            .param("arm", arm.name)
            .param("prompts", self.prompts.len())
            .param("prompt_tokens", self.prompt_tokens)
            .param("new_tokens", self.new_tokens)
            .param("block_length", block_length)
            .param("threshold", if arm.thresholded { f64::from(self.threshold) } else { 0.0 })
            .digest(digest::of_ids(ids))
            .measured(LANE.metrics, runs)
            .each("tokens_per_s", |run| tokens / seconds(run))?
            .each("seconds", seconds)?
            .each("ms_per_token", |run| seconds(run) * 1e3 / tokens)?
            .one("passes", passes as f64)?
            .one("rows", rows as f64)?
            .one("tokens_per_pass", tokens / passes.max(1) as f64)?
            .each("sampling_share", sampling_share)?
            .one("agreement", equal as f64 / ids.len().max(1) as f64)?
            .one("speedup", speedup)?
            .one("perplexity", self.perplexity(outcomes)?)?
            .held(info.format.arithmetic(), work(info, outcomes), seconds)
    }
}

impl Case {
    /// Adds how masks and tokens were chosen.
    fn described(&self, row: Row, arm: Arm, outcomes: &[DiffuseOutcome]) -> Row {
        let Order { steps, alg_temp, sampling, .. } = self.order;
        let row = row
            .param("algorithm", outcomes.first().map_or("", |outcome| outcome.algorithm.name()))
            .param("temperature", f64::from(sampling.temperature))
            .param("top_p", f64::from(sampling.top_p))
            .param("top_k", sampling.top_k);
        if arm.thresholded {
            return row;
        }
        row.param("steps", steps.unwrap_or(self.new_tokens)).param("alg_temp", f64::from(alg_temp))
    }
}

/// The tokens after every prompt.
fn new_tokens(outcomes: &[DiffuseOutcome]) -> Vec<u32> {
    outcomes.iter().flat_map(|outcome| outcome.token_ids.clone()).collect()
}

/// Seconds of all canvases of a run.
fn seconds(run: &Held<Vec<DiffuseOutcome>>) -> f64 {
    run.value.iter().map(|outcome| outcome.compute_s).sum()
}

/// The share of the time in which tokens were predicted from logits and masks chosen; `None` if the clock did not advance.
fn sampling_share(run: &Held<Vec<DiffuseOutcome>>) -> Option<f64> {
    let sampling: f64 = run.value.iter().map(|outcome| outcome.sampling_s).sum();
    let seconds = seconds(run);
    (seconds > 0.0).then(|| sampling / seconds)
}

/// The minimum work of the passes: each reads the weights once, multiplies its rows with the weights and with all keys, and
/// multiplies the rows of the considered masks with the vocabulary.
fn work(info: &ModelInfo, outcomes: &[DiffuseOutcome]) -> Work {
    let passes = outcomes.iter().flat_map(|outcome| {
        outcome.passes.iter().map(|pass| {
            let (rows, keys) = (pass.rows.len() as f64, outcome.canvas.len() as f64);
            Work::of_pass(info, rows, rows * keys, pass.outputs as f64)
        })
    });
    passes.sum()
}

#[cfg(test)]
mod tests {
    use redline_engine::{Algorithm, DiffusionPass, FinishReason};

    use super::*;
    use crate::lanes::tests::{info, samples, timed};

    #[test]
    fn arms_have_names() {
        let names = |text| {
            Flags::with(&[("arms", text)]).map(|it| it.arms.iter().map(|arm| arm.name).collect::<Vec<_>>())
        };
        assert_eq!(names("exact, dual+threshold").unwrap(), ["exact", "dual+threshold"]);
        let LaneError::Usage(fact) = names("exact,fast").unwrap_err() else { panic!("accepted") };
        assert!(fact.contains("`exact,fast`") && fact.contains("prefix"), "{fact}");
    }

    #[test]
    fn a_threshold_leaves_out_what_contradicts_it() {
        let given =
            [("steps", "5"), ("algorithm", "topk-margin"), ("alg-temp", "0.5"), ("temperature", "0.25")];
        let flags = Flags::with(&[&given[..], &[("top-p", "0.75"), ("top-k", "3")]].concat()).unwrap();
        let case = Case { order: Order::of(&flags), ..case() };
        let order = |arm: Arm| {
            let request = arm.request(&case, &[1, 2], 4);
            let Sampling { temperature, top_p, top_k, .. } = request.sampling;
            assert_eq!((temperature, top_p, top_k), (0.25, 0.75, 3), "{}", arm.name);
            (request.steps, request.algorithm, request.alg_temp)
        };
        assert_eq!(order(ARMS[0]), (Some(5), Some(Algorithm::TopkMargin), 0.5));
        assert_eq!(order(ARMS[4]), (None, None, 0.0), "a threshold");
        let Err(LaneError::Usage(fact)) = Flags::with(&[("algorithm", "best")]) else { panic!("accepted") };
        assert!(fact.contains("`best`") && fact.contains("auto, origin, "), "{fact}");
        assert!(Flags::with(&[("top-k", "-1")]).is_err());
    }

    /// Three masks after two tokens, filled in a pass over the canvas and a pass over the masks.
    fn outcome() -> DiffuseOutcome {
        let pass = |rows, outputs| DiffusionPass { step: 0, rows, outputs, filled: Vec::new() };
        DiffuseOutcome {
            receipt: None,
            text: String::new(),
            token_ids: vec![7, 8, 9],
            canvas: vec![1, 2, 7, 8, 9],
            prompt_tokens: 2,
            prompt_masks: 0,
            finish_reason: FinishReason::Length,
            algorithm: Algorithm::Entropy,
            passes: vec![pass(0..5, 3), pass(2..5, 1)],
            computed_tokens: 8,
            tokens_per_pass: Some(1.5),
            plan_misses: 0,
            queue_s: 0.0,
            compute_s: 1.0,
            sampling_s: 0.25,
            tokens_per_s: Some(3.0),
            peak_memory_bytes: None,
            kernel_path: String::new(),
        }
    }

    #[test]
    fn a_row_is_about_all_canvases_together() {
        let outcomes = vec![outcome(), outcome()];
        let (prompts, reference) = (vec![vec![1, 2], vec![3, 4]], Some((vec![7, 8, 9, 7, 1, 1, 7, 8], 4.0)));
        let mut case = Case { prompts, reference, ..case() };
        // Of each canvas 5 and 3 rows that see 5 keys each, and 3 and 1 rows of logits.
        let expected = Work {
            bytes: 4.0 * 1000.0,
            operations: 2.0 * (8.0 * 100.0 + 4.0 * 50.0),
            attention: 2.0 * 3.0 * (25.0 + 15.0),
        };
        assert_eq!(work(&info(), &outcomes), expected);
        let dual = ARMS[3];
        let row = case.row(&info(), (dual, 3), &[timed(outcomes)], &[7, 8, 9, 7, 8, 9, 7, 8]).unwrap();
        assert_eq!(row.case, "diffusion/dual/b3/t1");
        let values = |names: [&str; 3]| names.map(|name| samples(&row, name));
        // Six masks in two seconds.
        assert_eq!(
            values(["tokens_per_s", "seconds", "ms_per_token"]),
            [vec![3.0], vec![2.0], vec![2e3 / 6.0]]
        );
        assert_eq!(values(["passes", "rows", "tokens_per_pass"]), [vec![4.0], vec![16.0], vec![1.5]]);
        assert_eq!(samples(&row, "sampling_share"), [0.25]);
        // Six of eight tokens are those of the reference, which took twice as long.
        assert_eq!(values(["agreement", "speedup", "perplexity"]), [vec![0.75], vec![2.0], vec![]]);
    }

    /// One canvas of two tokens and three masks.
    fn case() -> Case {
        Case {
            prompts: vec![vec![1, 2]],
            prompt_tokens: 2,
            new_tokens: 3,
            threshold: 0.5,
            order: Order::default(),
            judge: None,
            reference: None,
        }
    }

    #[test]
    fn each_arm_asks_for_what_its_name_says() {
        let asked = |arm: &Arm| {
            let request = arm.request(&case(), &[1, 2], 2);
            assert!(request.ignore_eos && request.max_new_tokens == 3, "{}", arm.name);
            assert_eq!(request.prompt, Prompt::Ids(vec![1, 2]));
            (request.savings, request.cache, request.threshold, request.block_length)
        };
        let expected: [(bool, BlockCache, Option<f32>, Option<usize>); 6] = [
            (false, BlockCache::None, None, None),
            (true, BlockCache::None, None, None),
            (true, BlockCache::Prefix, None, Some(2)),
            (true, BlockCache::Dual, None, Some(2)),
            (true, BlockCache::None, Some(0.5), Some(2)),
            (true, BlockCache::Dual, Some(0.5), Some(2)),
        ];
        assert_eq!(ARMS.iter().map(asked).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_arms_with_blocks_may_fill_other_tokens() {
        let mut case = case();
        let mut row =
            |arm: usize, ids: &[u32]| case.row(&info(), (ARMS[arm], 2), &[timed(vec![outcome()])], ids);
        let naive = row(0, &[7, 8, 9]).unwrap();
        assert_eq!(
            (naive.case.as_str(), naive.param_text("threshold").unwrap().as_str()),
            ("diffusion/naive/t1", "0.0")
        );
        let Err(LaneError::Incorrect(fact)) = row(1, &[7, 8, 1]) else { panic!("accepted") };
        assert_eq!(fact, "exact fills [7, 8, 1], not [7, 8, 9]");
        let both = row(5, &[7, 8, 1]).unwrap();
        assert_eq!(
            (both.case.as_str(), samples(&both, "agreement")),
            ("diffusion/dual+threshold/b2/p0.5/t1", vec![2.0 / 3.0])
        );
        assert_eq!(both.param_text("threshold").as_deref(), Some("0.5"));
    }
}
