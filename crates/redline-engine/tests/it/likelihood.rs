//! Labels scored by a model that fills masks: compared with the reference, alone and together, and refused requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redline_engine::{Engine, Label, LongLabels, MaskSamples, Options, Prompt, ScoreOutcome, ScoreRequest};
use redline_kernels::Format;
use serde::Deserialize;

use crate::models::{bits, golden, ids, options, refusal, request, scores, text};

const TOLERANCE: f64 = 2e-5;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

fn engine(checkpoint: &str, threads: usize) -> Engine {
    Engine::load(Options { threads, ..options(&folder().join(checkpoint)) }).unwrap()
}

fn label(tokens: &[i64]) -> Label {
    Label::Ids(tokens.to_vec())
}

fn asked(prompt: &[i64], labels: Vec<Label>) -> ScoreRequest {
    let plain = request(ids(&[]), vec![ids(prompt)], labels);
    ScoreRequest { long_labels: LongLabels::Sum, full_logprobs: true, ..plain }
}

fn logprobs(outcome: &ScoreOutcome) -> Vec<Vec<f32>> {
    outcome.items.iter().map(|item| item.as_ref().unwrap().logprobs.clone()).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    prompt: Vec<i64>,
    label: Vec<i64>,
    samples: usize,
    seed: u64,
    exact: bool,
    canvases: usize,
    logprob: f64,
}

fn cases() -> BTreeMap<String, Vec<Case>> {
    serde_json::from_str(&std::fs::read_to_string(folder().join("likelihood.json")).unwrap()).unwrap()
}

#[test]
fn labels_are_as_probable_as_the_reference_finds_them() {
    let cases = cases();
    assert_eq!(cases.keys().collect::<Vec<_>>(), ["dream-a", "dream-b", "llada-a", "llada-b"]);
    for (checkpoint, cases) in cases {
        let engine = engine(&checkpoint, 2);
        for case in cases {
            let request = ScoreRequest {
                mc_samples: Some(case.samples),
                seed: Some(case.seed),
                ..asked(&case.prompt, vec![label(&case.label)])
            };
            let outcome = engine.score(request).unwrap();
            let found = f64::from(logprobs(&outcome)[0][0]);
            let (tokens, off) = (case.label.len(), found / case.logprob - 1.0);
            assert!(off.abs() < TOLERANCE, "{checkpoint}, {tokens} tokens: {found}, not {}", case.logprob);
            let sampled_labels = usize::from(!case.exact);
            let told = MaskSamples { samples: case.samples, seed: case.seed, sampled_labels };
            assert_eq!(outcome.monte_carlo, Some(told));
            let canvas = case.prompt.len() + tokens;
            assert_eq!(outcome.cost.computed_tokens, case.canvases * canvas, "{checkpoint}, {tokens} tokens");
        }
    }
}

/// Labels of one, two and nine tokens; two of them look the same with some maskings.
fn some_labels() -> Vec<Label> {
    let long: Vec<i64> = (20..29).collect();
    vec![label(&[9]), label(&[9, 10]), label(&[9, 11]), label(&[12]), label(&long), label(&[9])]
}

#[test]
fn neighbours_and_threads_do_not_show() {
    let prompts: [&[i64]; 4] = [&[1, 2, 3], &[4], &[1, 2, 3, 5, 8, 13, 21], &[7; 40]];
    for checkpoint in ["dream-a", "llada-b"] {
        let alone = engine(checkpoint, 1);
        let mut expected: Vec<Vec<f32>> = Vec::new();
        for prompt in prompts {
            let one = |label: Label| {
                let request = ScoreRequest { mc_samples: Some(12), ..asked(prompt, vec![label]) };
                logprobs(&alone.score(request).unwrap())[0][0]
            };
            expected.push(some_labels().into_iter().map(one).collect());
        }
        let items: Vec<Prompt> = prompts.iter().map(|prompt| ids(prompt)).collect();
        for threads in [1, 2] {
            let plain = ScoreRequest { items: items.clone(), ..asked(&[], some_labels()) };
            let request = ScoreRequest { mc_samples: Some(12), ..plain };
            let outcome = engine(checkpoint, threads).score(request).unwrap();
            assert_eq!(bits(&logprobs(&outcome)), bits(&expected), "{checkpoint}");
            assert_eq!(outcome.monte_carlo.unwrap().sampled_labels, 1);
        }
    }
}

#[test]
fn labels_of_one_token_take_one_canvas_and_the_vocabulary_sums_to_one() {
    let engine = engine("llada-a", 2);
    let vocab = engine.info().vocab as i64;
    let mask = i64::from(engine.info().mask_id.unwrap());
    let all: Vec<Label> = (0..vocab).filter(|&id| id != mask).map(|id| label(&[id])).collect();
    let whole = engine.score(request(ids(&[5, 6]), vec![ids(&[7])], all.clone())).unwrap();
    assert_eq!(whole.cost.computed_tokens, 4);
    let item = whole.items[0].as_ref().unwrap();
    let sum: f64 = item.scores.iter().map(|&p| f64::from(p)).sum();
    // All ids except the mask token.
    assert!(sum > 0.9 && sum <= 1.0 + 1e-5, "{sum}");
    assert!((f64::from(item.label_mass.unwrap()) - sum).abs() < 1e-5);
    // With softmax over the labels, no other logits are computed; the ratios are the same.
    let few = ScoreRequest { softmax: true, ..request(ids(&[5, 6]), vec![ids(&[7])], all[..3].to_vec()) };
    let few = scores(&engine.score(few).unwrap());
    let part: f32 = item.scores[..3].iter().sum();
    for (one, of_whole) in few[0].iter().zip(&item.scores) {
        assert!((one - of_whole / part).abs() < 1e-5);
    }
}

#[test]
fn the_mean_is_per_token_and_seeds_draw_other_masks() {
    let engine = engine("dream-b", 2);
    let long: Vec<i64> = (20..30).collect();
    let base = || ScoreRequest { mc_samples: Some(8), ..asked(&[1, 2, 3], vec![label(&long)]) };
    let value = |request: ScoreRequest| logprobs(&engine.score(request).unwrap())[0][0];
    let sum = value(base());
    let mean = value(ScoreRequest { long_labels: LongLabels::Mean, ..base() });
    assert!((mean * 10.0 / sum - 1.0).abs() < 1e-6);
    assert_eq!(value(ScoreRequest { seed: Some(0), ..base() }).to_bits(), sum.to_bits());
    assert_ne!(value(ScoreRequest { seed: Some(1), ..base() }).to_bits(), sum.to_bits());
    // All maskings: the sampled value must come close to the exact one.
    let exact = value(ScoreRequest { mc_samples: Some(1023), ..base() });
    let many = value(ScoreRequest { mc_samples: Some(1022), ..base() });
    assert!((many / exact - 1.0).abs() < 0.05, "{many} for {exact}");
    assert_ne!(many.to_bits(), exact.to_bits());
}

#[test]
fn texts_are_scored_by_the_demo() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-diffusion");
    let engine = Engine::load(Options { format: Some(Format::F32), ..options(&dir) }).unwrap();
    let labels = [" his wife", " the purple"].map(|label| Label::Text(label.into())).to_vec();
    let query = text("And Abraham took Sarah");
    let request = ScoreRequest { long_labels: LongLabels::Mean, ..request(query, vec![text("")], labels) };
    let found = scores(&engine.score(request).unwrap());
    assert!(found[0][0] > 2.0 * found[0][1], "{found:?}");
}

#[test]
fn what_makes_no_sense_is_refused_with_its_numbers() {
    let (dream, llama) = (engine("dream-a", 1), golden());
    let base = || asked(&[1, 2, 3], vec![label(&[4, 5])]);
    let refused = |engine: &Engine, request: ScoreRequest, expect: &str| {
        let message = refusal(engine.score(request));
        assert!(message.contains(expect), "{message}");
    };
    refused(&dream, ScoreRequest { mc_samples: Some(0), ..base() }, "`mc_samples` is 0");
    refused(&dream, ScoreRequest { mc_samples: Some(1 << 17), ..base() }, "`mc_samples` is 131072");
    refused(&dream, ScoreRequest { mc_samples: Some(65_537), ..base() }, "give from 1 to 65536");
    // Two tokens can be masked in three ways, so no more are run.
    let most = ScoreRequest { mc_samples: Some(65_536), ..base() };
    assert_eq!(dream.score(most).unwrap().cost.computed_tokens, 3 * 5);
    let many = (0..80).map(|i| label(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, i])).collect();
    let many = ScoreRequest { mc_samples: Some(1 << 14), ..asked(&[1], many) };
    refused(&dream, many, "are 19660800 tokens, more than 2097152");
    let mask = i64::from(dream.info().mask_id.unwrap());
    refused(&dream, asked(&[1], vec![label(&[4, mask])]), "contains the mask token");
    refused(&dream, ScoreRequest { long_labels: LongLabels::Refuse, ..base() }, "2 tokens");
    let context = dream.info().context;
    let most = vec![1; context - 2];
    assert!(dream.score(asked(&most, vec![label(&[4, 5])])).is_ok());
    let more = vec![1; context - 1];
    refused(&dream, asked(&more, vec![label(&[4, 5])]), "exceed the context");
    let by_item = ScoreRequest { item_errors: true, ..asked(&more, vec![label(&[4, 5])]) };
    assert!(dream.score(by_item).unwrap().items[0].is_err());
    refused(
        &llama,
        ScoreRequest { mc_samples: Some(4), ..base() },
        "`mc_samples` is for models that fill masks",
    );
    refused(&llama, ScoreRequest { seed: Some(4), ..base() }, "`seed` is for models that fill masks");
    assert_eq!(llama.score(base()).unwrap().monte_carlo, None);
}

#[test]
fn sampled_labels_are_counted_over_all_lists() {
    let engine = engine("dream-a", 1);
    let long = |first: i64| label(&(first..first + 9).collect::<Vec<i64>>());
    let request = ScoreRequest {
        items: vec![ids(&[1, 2, 3]), ids(&[4])],
        item_labels: Some(vec![vec![long(20)], vec![long(30), label(&[5]), long(40)]]),
        mc_samples: Some(4),
        ..asked(&[], Vec::new())
    };
    let told = MaskSamples { samples: 4, seed: 0, sampled_labels: 3 };
    assert_eq!(engine.score(request).unwrap().monte_carlo, Some(told));
}
