//! Diffusion compared with runs of the published samplers, pass by pass; alone and together; with and without exact savings.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{
    Algorithm, BlockCache, Cancel, DiffuseOutcome, DiffuseRequest, DiffusionProgress, Engine, EngineError,
    FinishReason, Label, Options, Prompt, Sampling, ScoreRequest,
};
use redline_kernels::Format;
use serde::Deserialize;

use crate::models::options;

const CHECKPOINTS: &[&str] = &["dream-a", "dream-b", "llada-a", "llada-b"];

fn golden_dir(checkpoint: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(checkpoint)
}

#[derive(Deserialize)]
struct Run {
    name: String,
    options: RunOptions,
    prompts: Vec<Vec<i64>>,
    passes: Vec<RunPass>,
    #[serde(rename = "final")]
    last: Vec<Vec<u32>>,
    nfe: usize,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunOptions {
    algorithm: String,
    max_new_tokens: usize,
    steps: Option<usize>,
    #[serde(default = "eps")]
    eps: f32,
    #[serde(default)]
    temperature: f32,
    #[serde(default = "one")]
    top_p: f32,
    #[serde(default)]
    top_k: usize,
    #[serde(default)]
    alg_temp: f32,
    block_length: Option<usize>,
    #[serde(default)]
    cfg_scale: f32,
    threshold: Option<f32>,
    #[serde(default = "none")]
    cache: String,
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
struct RunPass {
    rows: String,
    canvas: Vec<Vec<u32>>,
    committed: Vec<Vec<usize>>,
}

fn eps() -> f32 {
    DiffuseRequest::EPS
}

fn one() -> f32 {
    1.0
}

fn none() -> String {
    "none".into()
}

fn runs(checkpoint: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(golden_dir(checkpoint).join("diffusion.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn engine(checkpoint: &str, threads: usize) -> Engine {
    Engine::load(Options { threads, ..options(&golden_dir(checkpoint)) }).unwrap()
}

fn request(options: &RunOptions, prompt: &[i64]) -> DiffuseRequest {
    let algorithm = Algorithm::ALL.iter().find(|algorithm| algorithm.name() == options.algorithm);
    DiffuseRequest {
        steps: options.steps,
        algorithm: algorithm.copied(),
        eps: options.eps,
        sampling: Sampling {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            seed: options.seed,
            ..Sampling::default()
        },
        alg_temp: options.alg_temp,
        block_length: options.block_length,
        cfg_scale: options.cfg_scale,
        threshold: options.threshold,
        cache: *BlockCache::ALL.iter().find(|cache| cache.name() == options.cache).unwrap(),
        ignore_eos: true,
        ..DiffuseRequest::new(Prompt::Ids(prompt.to_vec()), options.max_new_tokens)
    }
}

/// For each pass that fills anything: whether it ran all rows, the filled positions, and the tokens afterwards.
fn passes(outcome: &DiffuseOutcome, canvas: &[u32]) -> Vec<(bool, Vec<usize>, Vec<u32>)> {
    let mut canvas = canvas.to_vec();
    let mut all = Vec::new();
    for pass in outcome.passes.iter().filter(|pass| !pass.filled.is_empty()) {
        for filled in &pass.filled {
            canvas[filled.position] = filled.token;
        }
        let positions = pass.filled.iter().map(|filled| filled.position).collect();
        all.push((pass.rows.len() == canvas.len(), positions, canvas.clone()));
    }
    all
}

/// The same for a request of a reference run.
fn expected(run: &Run, index: usize) -> Vec<(bool, Vec<usize>, Vec<u32>)> {
    let of = |pass: &RunPass| (pass.rows == "all", pass.committed[index].clone(), pass.canvas[index].clone());
    run.passes.iter().map(of).filter(|(_, filled, _)| !filled.is_empty()).collect()
}

/// Runs for which the engine does more than the reference: with one step per block after the first pass, the reference discards
/// the step's result and leaves masks.
fn is_special(run: &Run) -> bool {
    run.options.cache != "none" && run.options.threshold.is_none() && run.nfe > run.options.steps.unwrap()
}

fn more_steps_than_masks(run: &Run) -> bool {
    let masks = run.passes.iter().map(|pass| pass.committed[0].len()).sum::<usize>();
    run.options.steps.is_some_and(|steps| steps > masks)
}

#[test]
fn every_pass_is_that_of_the_published_sampler() {
    let (mut compared, mut with_surplus) = (0, 0);
    for checkpoint in CHECKPOINTS {
        let engine = engine(checkpoint, 2);
        for run in runs(checkpoint).iter().filter(|run| !is_special(run)) {
            with_surplus += usize::from(more_steps_than_masks(run));
            for (index, prompt) in run.prompts.iter().enumerate() {
                let name = format!("{checkpoint} {} {index}", run.name);
                let ticket = engine.submit_diffuse(request(&run.options, prompt), &Cancel::new()).unwrap();
                let mut canvas = Vec::new();
                let outcome = ticket.wait_with(|progress| {
                    if let DiffusionProgress::Canvas(tokens) = progress {
                        canvas = tokens;
                    }
                });
                let outcome = outcome.unwrap();
                let (got, want) = (passes(&outcome, &canvas), expected(run, index));
                for (number, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert_eq!(got, want, "{name}, pass {number} that fills");
                }
                assert_eq!((got.len(), &outcome.canvas), (want.len(), &run.last[index]), "{name}");
                assert!(outcome.passes.len() <= run.nfe, "{name}: {} of {}", outcome.passes.len(), run.nfe);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared} requests");
    assert!(with_surplus > 4, "{with_surplus} runs with more steps than masks");
}

/// The reference arm runs every pass of the reference, with the same result; so do all requests of a checkpoint together.
#[test]
fn exact_savings_and_neighbours_do_not_show() {
    for checkpoint in CHECKPOINTS {
        let engine = engine(checkpoint, 2);
        let all = runs(checkpoint);
        let ordinary: Vec<&Run> = all.iter().filter(|run| !is_special(run)).collect();
        for run in
            ordinary.iter().filter(|run| run.options.cache == "none" && run.options.threshold.is_none())
        {
            let plain = DiffuseRequest { savings: false, ..request(&run.options, &run.prompts[0]) };
            let outcome = engine.diffuse(plain, &Cancel::new(), &mut |_| ()).unwrap();
            assert_eq!(
                (outcome.passes.len(), &outcome.canvas),
                (run.nfe, &run.last[0]),
                "{checkpoint} {}",
                run.name
            );
        }
        let cancel = Cancel::new();
        let requests =
            ordinary.iter().flat_map(|run| run.prompts.iter().map(|prompt| request(&run.options, prompt)));
        let tickets: Vec<_> =
            requests.map(|request| engine.submit_diffuse(request, &cancel).unwrap()).collect();
        let expected = ordinary.iter().flat_map(|run| &run.last);
        for (ticket, expected) in tickets.into_iter().zip(expected) {
            assert_eq!(ticket.wait().unwrap().canvas, *expected, "{checkpoint}");
        }
    }
}

/// The report of every pass: its step, and for each filled mask the position, the token and the bits of the confidence.
fn told(outcome: &DiffuseOutcome) -> Vec<(usize, usize, u32, u64)> {
    let filled = |pass: &redline_engine::DiffusionPass| {
        let step = pass.step;
        pass.filled.clone().into_iter().map(move |f| (step, f.position, f.token, f.confidence.to_bits()))
    };
    outcome.passes.iter().flat_map(filled).collect()
}

#[test]
fn threads_do_not_show_and_a_threshold_of_one_fills_one_in_a_pass() {
    for checkpoint in CHECKPOINTS {
        let prompt: Vec<i64> = (0..9).map(|i| 3 + i * 5).collect();
        for cache in BlockCache::ALL {
            let request = DiffuseRequest {
                threshold: Some(1.0),
                cache: *cache,
                block_length: Some(4),
                ignore_eos: true,
                ..DiffuseRequest::new(Prompt::Ids(prompt.clone()), 12)
            };
            let run = |threads| {
                engine(checkpoint, threads).diffuse(request.clone(), &Cancel::new(), &mut |_| ()).unwrap()
            };
            let (one, two) = (run(1), run(2));
            assert_eq!(told(&one), told(&two), "{checkpoint} {}", cache.name());
            // A pass fills none if the model predicts the mask token, as one of these checkpoints does.
            assert!(one.passes.iter().all(|pass| pass.filled.len() <= 1), "{checkpoint} {}", cache.name());
            assert!(one.passes.len() >= 12, "{checkpoint}");
        }
    }
}

/// A cache that is refreshed in every pass has no effect.
#[test]
fn a_cache_refreshed_in_every_pass_is_none() {
    for checkpoint in CHECKPOINTS {
        let engine = engine(checkpoint, 1);
        let with = |cache, refresh| {
            let request = DiffuseRequest {
                threshold: Some(0.25),
                cache,
                refresh,
                block_length: Some(6),
                ignore_eos: true,
                ..DiffuseRequest::new(Prompt::Ids(vec![5, 6, 7]), 12)
            };
            told(&engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap())
        };
        let uncached = with(BlockCache::None, None);
        for cache in [BlockCache::Prefix, BlockCache::Dual] {
            assert_eq!(with(cache, Some(1)), uncached, "{checkpoint} {}", cache.name());
        }
    }
}

/// With one step per block, the reference leaves masks; here the second pass fills them.
#[test]
fn one_step_a_block_leaves_no_mask() {
    let engine = engine("dream-a", 1);
    let run = runs("dream-a").into_iter().find(|run| run.name == "counts-prefix-one-step").unwrap();
    let outcome =
        engine.diffuse(request(&run.options, &run.prompts[0]), &Cancel::new(), &mut |_| ()).unwrap();
    let filled: Vec<usize> = outcome.passes.iter().map(|pass| pass.filled.len()).collect();
    assert_eq!((outcome.passes.len(), &filled[..2]), (run.nfe, &[1, 3][..]));
}

#[test]
fn the_algorithm_that_is_not_given_is_that_of_the_family() {
    for (checkpoint, threshold, expected) in [
        ("dream-a", None, Algorithm::Entropy),
        ("dream-a", Some(0.5), Algorithm::MaskgitPlus),
        ("llada-a", None, Algorithm::LowConfidence),
        ("llada-a", Some(0.5), Algorithm::LowConfidence),
    ] {
        let request = DiffuseRequest { threshold, ..DiffuseRequest::new(Prompt::Ids(vec![1, 2, 3]), 4) };
        let outcome = engine(checkpoint, 1).diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!(outcome.algorithm, expected, "{checkpoint}, {threshold:?}");
    }
}

#[test]
fn a_canvas_that_is_far_too_long_is_refused_before_it_takes_memory() {
    for new in [1 << 40, usize::MAX] {
        for prompt in [vec![], vec![1, 2]] {
            let request = DiffuseRequest::new(Prompt::Ids(prompt), new);
            let refused = engine("dream-a", 1).diffuse(request, &Cancel::new(), &mut |_| ()).unwrap_err();
            assert!(refused.to_string().contains("exceed"), "{refused}");
        }
    }
}

#[test]
fn an_answer_ends_at_a_token_that_is_given() {
    let engine = engine("dream-a", 1);
    let fill = |request| engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
    for ignore_eos in [false, true] {
        let plain = DiffuseRequest { ignore_eos, ..DiffuseRequest::new(Prompt::Ids(vec![1, 2, 3]), 8) };
        let whole = fill(plain.clone()).token_ids;
        let end = whole[3];
        let cut = fill(DiffuseRequest { stop_ids: vec![i64::from(end)], ..plain.clone() });
        let first = whole.iter().position(|&id| id == end).unwrap();
        assert_eq!((&cut.token_ids[..], cut.finish_reason.name()), (&whole[..=first], "stop"));
        let unknown = DiffuseRequest { stop_ids: vec![1 << 40], ..plain };
        let refused = engine.diffuse(unknown, &Cancel::new(), &mut |_| ()).unwrap_err();
        assert!(refused.to_string().contains("stop_token_ids"), "{refused}");
    }
}

#[test]
fn the_steps_that_are_not_given_are_shared_out_to_the_blocks() {
    let engine = engine("dream-a", 1);
    let mask = i64::from(engine.info().mask_id.unwrap());
    // Thirteen masks and three blocks: five steps for each block.
    let prompt = Prompt::Ids(vec![5, mask, 7]);
    let plain = DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(prompt, 12) };
    let request = DiffuseRequest { block_length: Some(4), ..plain };
    let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
    // The last step of a block fills whatever is left of it.
    assert_eq!(outcome.passes.last().unwrap().step, 14);
}

#[test]
fn the_blocks_that_are_not_given_are_of_up_to_thirty_two_masks() {
    let engine = engine("dream-a", 1);
    let prompt = Prompt::Ids(vec![5, 6, 7]);
    let plain = DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(prompt, 48) };
    let request = DiffuseRequest { threshold: Some(1.0), ..plain };
    let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
    // Two blocks of 24 masks. A pass fills one mask, so 24 passes run before the second block begins.
    let filled = outcome.passes[..24].iter().flat_map(|pass| &pass.filled);
    let positions: Vec<usize> = filled.map(|filled| filled.position).collect();
    assert!(positions.iter().all(|position| (3..27).contains(position)), "{positions:?}");
}

#[test]
fn a_canvas_that_is_not_filled_in_time_is_given_up() {
    // Each reading of this clock takes a tenth of a second.
    let time = AtomicU64::new(0);
    let clock = Arc::new(move || time.fetch_add(100_000_000, Ordering::Relaxed));
    let engine = Engine::load(Options { clock, threads: 1, ..options(&golden_dir("dream-a")) }).unwrap();
    let prompt = Prompt::Ids(vec![5, 6, 7]);
    let request =
        DiffuseRequest { ignore_eos: true, timeout_s: Some(5.0), ..DiffuseRequest::new(prompt, 100) };
    let error = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap_err();
    let EngineError::Late { seconds, tokens: Some(tokens) } = error else { panic!("{error}") };
    assert!(seconds > 5.0 && (1..100).contains(&tokens), "{error}");
}

#[test]
fn masks_of_the_prompt_alone_are_one_block() {
    let engine = engine("dream-a", 1);
    let mask = i64::from(engine.info().mask_id.unwrap());
    let plain = DiffuseRequest::new(Prompt::Ids(vec![mask, 17, 24, mask, 38]), 0);
    let fill = |request| engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap().canvas;
    let expected = fill(plain.clone());
    assert!(expected.iter().all(|&id| i64::from(id) != mask));
    // These options need blocks of new tokens, and there are none.
    assert_eq!(fill(DiffuseRequest { block_length: Some(4), ..plain.clone() }), expected);
    for cache in BlockCache::ALL {
        let cached = DiffuseRequest {
            cache: *cache,
            refresh: (*cache != BlockCache::None).then_some(1),
            ..plain.clone()
        };
        assert_eq!(fill(cached), expected, "{}", cache.name());
    }
    let one_by_one = DiffuseRequest { threshold: Some(1.0), ..plain };
    assert!(fill(one_by_one).iter().all(|&id| i64::from(id) != mask));
}

#[test]
fn the_text_ends_at_the_first_end_and_nothing_behind_it_is_computed() {
    // The tokens of a run; the third is declared to be an end token.
    let whole = engine("dream-a", 1);
    let prompt = Prompt::Ids(vec![5, 6, 7, 8]);
    let request = DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(prompt, 12) };
    let outcome = whole.diffuse(request.clone(), &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!((outcome.finish_reason, outcome.token_ids.len()), (FinishReason::Length, 12));
    let end = outcome.token_ids[2];
    let first = outcome.token_ids.iter().position(|id| *id == end).unwrap();
    let engine = ending_with("dream-a", end);
    let request = DiffuseRequest { ignore_eos: false, ..request };
    let ended = engine.diffuse(request.clone(), &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!((ended.finish_reason, &*ended.token_ids), (FinishReason::Stop, &outcome.token_ids[..=first]));
    assert!(ended.passes.len() <= outcome.passes.len());
    let plain = DiffuseRequest { savings: false, ..request };
    let plain = engine.diffuse(plain, &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!(plain.token_ids, ended.token_ids);
}

/// The checkpoint with another end-of-sequence token.
fn ending_with(checkpoint: &str, end: u32) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden_dir(checkpoint).join(file), folder.path().join(file)).unwrap();
    }
    let generation = format!("{{\"eos_token_id\": {end}}}");
    std::fs::write(folder.path().join("generation_config.json"), generation).unwrap();
    Engine::load(options(folder.path())).unwrap()
}

/// An end token that the prompt contains after a mask was not filled in, so the text continues after it.
#[test]
fn an_end_token_of_the_prompt_does_not_end_the_canvas() {
    let checkpoint = "dream-a";
    let free = engine(checkpoint, 1);
    let mask = free.info().mask_id.unwrap();
    let request = |end: u32, ignore_eos| {
        let prompt = [5, mask, end, 7].map(i64::from).to_vec();
        DiffuseRequest { ignore_eos, ..DiffuseRequest::new(Prompt::Ids(prompt), 6) }
    };
    let run = |engine: &Engine, end, ignore_eos| {
        engine.diffuse(request(end, ignore_eos), &Cancel::new(), &mut |_| ()).unwrap()
    };
    // A token that the model predicts for no mask.
    let fills = |outcome: &DiffuseOutcome, id: u32| {
        outcome.passes.iter().flat_map(|pass| &pass.filled).any(|filled| filled.token == id)
    };
    let end = (10..100).find(|&end| end != mask && !fills(&run(&free, end, true), end)).unwrap();
    let expected = run(&free, end, true);
    let ended = run(&ending_with(checkpoint, end), end, false);
    assert_eq!(ended.finish_reason, FinishReason::Length);
    assert_eq!((ended.canvas, ended.token_ids.len()), (expected.canvas, 6));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_numbers() {
    let (dream, llama) = (engine("dream-a", 1), engine("llama-a", 1));
    let base = || DiffuseRequest::new(Prompt::Ids(vec![1, 2, 3]), 12);
    let refused = |engine: &Engine, request: DiffuseRequest, expect: &str| {
        let Err(error) = engine.submit_diffuse(request, &Cancel::new()) else { panic!("accepted: {expect}") };
        let message = format!("{error}\n{}", error.hint().map(|hint| hint.to_string()).unwrap_or_default());
        assert!(message.contains(expect), "{message}");
    };
    let with = |change: fn(&mut DiffuseRequest)| {
        let mut request = base();
        change(&mut request);
        request
    };
    refused(&dream, with(|r| r.steps = Some(0)), "0 steps");
    refused(&dream, with(|r| r.steps = Some(4097)), "4097 steps for 12 masks, but at most 4096");
    assert!(dream.submit_diffuse(with(|r| r.steps = Some(4096)), &Cancel::new()).is_ok());
    refused(&dream, with(|r| r.block_length = Some(5)), "blocks of 5 do not divide 12");
    refused(&dream, with(|r| r.block_length = Some(0)), "blocks of 0");
    refused(
        &dream,
        with(|r| (r.block_length, r.steps) = (Some(4), Some(8))),
        "8 steps cannot be shared out evenly to 3",
    );
    // The hint names a number of steps that can, at least one for each block.
    for (steps, hint) in [(8, "`steps` = 6 can"), (2, "`steps` = 3 can")] {
        let mut uneven = with(|r| r.block_length = Some(4));
        uneven.steps = Some(steps);
        refused(&dream, uneven, hint);
    }
    refused(&dream, with(|r| r.max_new_tokens = 0), "has no mask");
    refused(&dream, with(|r| r.max_new_tokens = 5000), "exceed the context");
    refused(&dream, with(|r| r.threshold = Some(-0.5)), "`threshold` is -0.5");
    refused(&dream, with(|r| r.threshold = Some(2.0)), "`threshold` is 2");
    refused(&dream, with(|r| r.threshold = Some(f32::NAN)), "`threshold` is NaN");
    refused(&dream, with(|r| (r.threshold, r.steps) = (Some(0.9), Some(4))), "`steps` and `threshold`");
    refused(
        &dream,
        with(|r| (r.threshold, r.algorithm) = (Some(0.9), Some(Algorithm::Entropy))),
        "`entropy`",
    );
    refused(&dream, with(|r| (r.threshold, r.alg_temp) = (Some(0.9), 0.5)), "`alg_temp` and `threshold`");
    refused(&dream, with(|r| (r.cfg_scale, r.cache) = (1.0, BlockCache::Dual)), "guidance and a block cache");
    refused(&dream, with(|r| (r.savings, r.cache) = (false, BlockCache::Dual)), "leave one of them out");
    refused(&dream, with(|r| r.refresh = Some(2)), "`refresh` is for a block cache");
    refused(&dream, with(|r| r.eps = 1.0), "`eps` is 1");
    refused(&dream, with(|r| r.eps = 0.0), "`eps` is 0");
    refused(&dream, with(|r| r.eps = f32::NAN), "`eps` is NaN");
    refused(&dream, with(|r| r.cfg_scale = f32::INFINITY), "`cfg_scale` is inf");
    refused(&dream, with(|r| r.alg_temp = -0.5), "`alg_temp` is -0.5");
    refused(&dream, with(|r| r.alg_temp = f32::INFINITY), "`alg_temp` is inf");
    refused(&dream, with(|r| r.sampling.min_p = 0.5), "`min_p`");
    refused(&dream, with(|r| (r.refresh, r.cache) = (Some(0), BlockCache::Dual)), "`refresh` is 0 passes");
    refused(&dream, with(|r| (r.savings, r.threshold) = (false, Some(0.9))), "no exact savings");
    for algorithm in [Algorithm::Origin, Algorithm::Random] {
        let mut random = with(|r| r.alg_temp = 0.5);
        random.algorithm = Some(algorithm);
        refused(&dream, random, "`alg_temp` applies to confidences");
    }
    refused(&dream, with(|r| r.stop = vec!["end".to_owned()]), "tokenizer");
    let mut over = base();
    over.prompt = Prompt::Ids(vec![154; dream.info().context + 1]);
    over.max_new_tokens = 0;
    refused(&dream, over, "257 tokens and 0 new ones exceed the context of 256");
    refused(&dream, with(|r| r.cfg_scale = -1.0), "`cfg_scale` is -1");
    refused(&dream, with(|r| r.sampling.temperature = -1.0), "temperature");
    refused(&dream, with(|r| r.stop = vec![String::new()]), "stop string");
    refused(&dream, with(|r| r.prompt = Prompt::Ids(vec![1, -4])), "-4");
    refused(&llama, base(), "fills no masks");
    let cancel = Cancel::new();
    let generate = redline_engine::GenerateRequest::new(Prompt::Ids(vec![1]), 3);
    let error = dream.generate(generate, &cancel, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("fills masks"), "{error}");
    let without_mask = without_mask_id();
    refused(&Engine::load(options(&without_mask.1)).unwrap(), base(), "names no mask");
    let outside = with_config(|config| config["mask_token_id"] = 157.into());
    let message = "the mask's id 157 is outside 0..157";
    refused(&Engine::load(options(&outside.1)).unwrap(), base(), message);
}

/// Without a tokenizer and without a prompt, the whole canvas is masks.
#[test]
fn nothing_before_the_masks_is_a_canvas_of_masks() {
    let engine = engine("dream-a", 1);
    let fill =
        |prompt: Prompt, new| engine.diffuse(DiffuseRequest::new(prompt, new), &Cancel::new(), &mut |_| ());
    let ids = fill(Prompt::Ids(Vec::new()), 6).unwrap();
    assert_eq!((ids.prompt_tokens, ids.token_ids.len()), (0, 6));
    let text = fill(Prompt::Text(String::new()), 6).unwrap();
    assert_eq!(text.token_ids, ids.token_ids);
    assert!(fill(Prompt::Ids(Vec::new()), 0).is_err());
    // The canvas may take the whole context.
    let context = engine.info().context;
    let of = |new| {
        let request = DiffuseRequest::new(Prompt::Ids(Vec::new()), new);
        engine.diffuse(DiffuseRequest { steps: Some(1), ..request }, &Cancel::new(), &mut |_| ())
    };
    assert_eq!(of(context).unwrap().canvas.len(), context);
    let message = of(context + 1).unwrap_err().to_string();
    assert_eq!(message, format!("the canvas: {} tokens exceed the context of {context}", context + 1));
}

/// A checkpoint whose configuration names no mask.
fn without_mask_id() -> (tempfile::TempDir, PathBuf) {
    with_config(|config| {
        config.as_object_mut().unwrap().remove("mask_token_id").unwrap();
    })
}

/// A checkpoint with a changed configuration.
fn with_config(change: impl Fn(&mut serde_json::Value)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_owned();
    let config = std::fs::read_to_string(golden_dir("dream-a").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    change(&mut config);
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    std::fs::copy(golden_dir("dream-a").join("model.safetensors"), dir.join("model.safetensors")).unwrap();
    (folder, dir)
}

#[test]
fn a_cancelled_canvas_tells_what_it_has() {
    let engine = engine("dream-b", 1);
    let request = DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(Prompt::Ids(vec![1, 2, 3]), 24) };
    let cancel = Cancel::new();
    let ticket = engine.submit_diffuse(request, &cancel).unwrap();
    let outcome = ticket
        .wait_with(|progress| {
            if let DiffusionProgress::Pass(_) = progress {
                cancel.cancel();
            }
        })
        .unwrap();
    assert!(outcome.finish_reason == FinishReason::Cancelled || outcome.passes.len() == 23);
}

/// The embedded model that fills masks matches its card.
#[test]
fn the_demo_fills_as_the_reference_implementation() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    let text = std::fs::read_to_string(dir.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    // The reference ran the stored bf16 weights in f32 arithmetic.
    let engine = Engine::load(Options { format: Some(Format::F32), ..options(&dir) }).unwrap();
    let list = |v: &serde_json::Value| {
        v.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect::<Vec<_>>()
    };
    let prompts = expected["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 3);
    for prompt in prompts {
        let (ids, want) = (list(&prompt["prompt_ids"]), list(&prompt["canvas_ids"]));
        for input in [Prompt::Text(prompt["prompt"].as_str().unwrap().into()), Prompt::Ids(ids.clone())] {
            let request = DiffuseRequest {
                algorithm: Some(Algorithm::Entropy),
                ignore_eos: true,
                ..DiffuseRequest::new(input, want.len() - ids.len())
            };
            let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
            assert_eq!(outcome.canvas.iter().map(|&id| i64::from(id)).collect::<Vec<_>>(), want);
        }
    }
}

/// Logits are computed for a row, and the first two masks of a canvas share one if row j predicts token j + 1.
#[test]
fn outputs_are_the_rows_whose_logits_were_computed() {
    for (checkpoint, expected) in [("dream-a", 5), ("llada-a", 6)] {
        let engine = engine(checkpoint, 1);
        let first = |savings| {
            let request = DiffuseRequest {
                savings,
                ignore_eos: true,
                ..DiffuseRequest::new(Prompt::Ids(Vec::new()), 6)
            };
            let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
            (outcome.passes[0].rows.clone(), outcome.passes[0].outputs)
        };
        assert_eq!(first(true), (0..6, expected), "{checkpoint}");
        assert_eq!(first(false), (0..6, 6), "{checkpoint}");
    }
}

#[test]
fn a_stop_string_ends_a_canvas_before_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    let engine = Engine::load(options(&dir)).unwrap();
    let run = |stop: &[&str], savings: bool| {
        let request = DiffuseRequest {
            stop: stop.iter().map(ToString::to_string).collect(),
            savings,
            block_length: Some(4),
            ignore_eos: true,
            ..DiffuseRequest::new(Prompt::Text("And the king said unto".to_owned()), 16)
        };
        let mut streamed = String::new();
        let outcome = engine.diffuse(request, &Cancel::new(), &mut |text| streamed.push_str(text)).unwrap();
        assert_eq!(streamed, outcome.text);
        outcome
    };
    let free = run(&[], true);
    assert_eq!(free.finish_reason, FinishReason::Length);
    // Three characters of the first block.
    let block = engine.tokenizer().unwrap().decode(&free.token_ids[..4], true).unwrap();
    let stop: String = block.chars().skip(1).take(3).collect();
    let before = &free.text[..free.text.find(&stop).unwrap()];
    for savings in [true, false] {
        let stopped = run(&[stop.as_str()], savings);
        assert_eq!((stopped.text.as_str(), stopped.finish_reason), (before, FinishReason::Stop));
        // Later blocks are not computed, unless everything is.
        assert_eq!(stopped.passes.len() < free.passes.len(), savings);
    }
    // Text that might have begun a stop string is let out at the end.
    let last = free.text.chars().next_back().unwrap();
    let held = run(&[format!("{last}\u{1}").as_str()], true);
    assert_eq!((held.text, held.finish_reason), (free.text, FinishReason::Length));
}

#[test]
fn a_threshold_needs_an_algorithm_whose_confidences_are_probabilities() {
    let engine = engine("dream-a", 1);
    for &algorithm in Algorithm::ALL {
        let plain = DiffuseRequest::new(Prompt::Ids(vec![1, 2, 3]), 4);
        let request = DiffuseRequest { threshold: Some(0.9), algorithm: Some(algorithm), ..plain };
        let refused = engine.submit_diffuse(request, &Cancel::new()).err().map(|error| error.to_string());
        let fact =
            format!("a threshold compares probabilities, and `{}` is about something else", algorithm.name());
        let probable = matches!(algorithm, Algorithm::MaskgitPlus | Algorithm::LowConfidence);
        assert_eq!(refused, (!probable).then_some(fact));
    }
}

/// Without text, a canvas still begins with the tokens that the tokenizer puts in front of a text.
#[test]
fn a_canvas_of_no_text_begins_as_every_text() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    let engine = Engine::load(options(&dir)).unwrap();
    let prefix = engine.tokenizer().unwrap().prefix_ids().to_vec();
    assert!(!prefix.is_empty());
    let plain = DiffuseRequest::new(Prompt::Text(String::new()), 4);
    let request = DiffuseRequest { steps: Some(1), ..plain };
    let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
    assert_eq!((outcome.prompt_tokens, outcome.canvas.len()), (prefix.len(), prefix.len() + 4));
    assert!(outcome.canvas.starts_with(&prefix), "{:?}", outcome.canvas);
    // Ids are used as they are, and so is a text that contains its special tokens.
    for prompt in [Prompt::Ids(Vec::new()), Prompt::Formatted(String::new())] {
        let request = DiffuseRequest { steps: Some(1), ..DiffuseRequest::new(prompt, 4) };
        let outcome = engine.diffuse(request, &Cancel::new(), &mut |_| ()).unwrap();
        assert_eq!((outcome.prompt_tokens, outcome.canvas.len()), (0, 4));
    }
}

/// All rows of a canvas see each other, so it runs in one pass, which has at most 8192 tokens.
#[test]
fn a_canvas_is_no_longer_than_the_largest_pass_whatever_the_context() {
    let wide = with_config(|config| config["max_position_embeddings"] = 20_000.into());
    let engine = Engine::load(options(&wide.1)).unwrap();
    assert_eq!(engine.info().context, 20_000);
    // Accepted requests end before their first pass.
    let cancel = Cancel::new();
    cancel.cancel();
    let fill = |tokens: usize| {
        let request = DiffuseRequest::new(Prompt::Ids(vec![5]), tokens - 1);
        engine.submit_diffuse(request, &cancel).err().map(|error| error.to_string())
    };
    assert_eq!(fill(8192), None);
    let fact = "the canvas: 8193 tokens exceed the largest pass, 8192";
    assert_eq!(fill(8193).as_deref(), Some(fact));
    let score = |tokens: usize| {
        let items = vec![Prompt::Ids(vec![6; tokens - 1])];
        let request = ScoreRequest::new(Prompt::Ids(vec![5]), items, vec![Label::Ids(vec![7])]);
        engine.submit_score(request, &cancel).err().map(|error| error.to_string())
    };
    // The label takes one token.
    assert_eq!(score(8191), None);
    assert_eq!(score(8192).as_deref(), Some("item 0: 8192 tokens exceed the context of 8191"));
}
