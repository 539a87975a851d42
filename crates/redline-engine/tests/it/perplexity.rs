//! Perplexity and KL divergence: compared with the reference implementation and with direct computation, with the same bits
//! every way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_engine::{
    Buckets, Cancel, ComparisonOutcome, Divergence, Engine, Estimate, Label, Options, PerplexityOutcome,
    PerplexityRequest, Prompt,
};
use redline_kernels::Format;
use serde_json::Value;

use crate::models::{
    demo, demo_dir, generation, golden, golden_dir, ids, long, options, refusal, request, text, ways,
};

fn ask(text: Prompt, window: Option<usize>) -> PerplexityRequest {
    PerplexityRequest { text, window, adapters: Vec::new() }
}

fn run(engine: &Engine, text: Prompt, window: Option<usize>) -> PerplexityOutcome {
    engine.perplexity(ask(text, window), &Cancel::new()).unwrap()
}

fn compare(engine: &Engine, reference: &Engine, text: Prompt, window: Option<usize>) -> ComparisonOutcome {
    engine.compare(reference, ask(text, window), &Cancel::new()).unwrap()
}

/// The first `n` bytes of text that the demo model was never trained on.
fn held_out(n: usize) -> Prompt {
    text(&std::fs::read_to_string(demo_dir().join("held-out.txt")).unwrap()[..n])
}

/// Prompt and logits of the reference implementation.
pub(crate) fn reference(dir: &Path) -> (Vec<i64>, Vec<Vec<f64>>) {
    let bytes = std::fs::read(dir.join("reference.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let data = |name: &str| {
        let at = |i: usize| json[name]["data_offsets"][i].as_u64().unwrap() as usize + 8 + header;
        &bytes[at(0)..at(1)]
    };
    let prompt: Vec<i64> =
        data("prompt").chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
    let logits: Vec<f64> =
        data("logits").chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect();
    let vocab = json["logits"]["shape"][1].as_u64().unwrap() as usize;
    (prompt, logits.chunks_exact(vocab).map(<[f64]>::to_vec).collect())
}

pub(crate) fn goldens() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let dirs = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path());
    // Logits of models that fill masks do not give the likelihood of a text.
    let tells =
        |dir: &PathBuf| dir.join("reference.safetensors").exists() && !dir.join("diffusion.json").exists();
    let mut dirs: Vec<_> = dirs.filter(tells).collect();
    dirs.sort();
    assert!(dirs.len() >= 10, "{dirs:?}");
    dirs
}

pub(crate) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = max + logits.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    logits.iter().map(|x| x - sum).collect()
}

#[test]
fn the_likelihood_is_that_of_the_reference_implementation() {
    for dir in goldens() {
        let (prompt, logits) = reference(&dir);
        let nll: Vec<f64> =
            (1..prompt.len()).map(|i| -log_softmax(&logits[i - 1])[prompt[i] as usize]).collect();
        let n = nll.len() as f64;
        let mean = nll.iter().sum::<f64>() / n;
        let error = (nll.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
        let engine = Engine::load(Options { format: Some(Format::F32), ..options(&dir) }).unwrap();
        let got = run(&engine, ids(&prompt), None);
        let name = dir.display();
        assert_eq!((got.tokens, got.windows, got.cancelled), (prompt.len() - 1, 1, false), "{name}");
        assert!((got.nll.value - mean).abs() < 2e-5, "{name}: {} is not {mean}", got.nll.value);
        assert!((got.nll.standard_error.unwrap() - error).abs() < 2e-5, "{name}: {got:?}");
        assert!((got.perplexity.value / mean.exp() - 1.0).abs() < 2e-5, "{name}: {got:?}");
        let relative = got.perplexity.standard_error.unwrap() / got.perplexity.value;
        assert!((relative - error).abs() < 2e-5, "{name}: {got:?}");
    }
}

#[test]
fn a_prediction_has_the_probability_that_score_gives() {
    let engine = golden();
    let two = run(&engine, ids(&[7, 9]), None);
    let label = vec![Label::Ids(vec![9])];
    let row = engine.score(request(ids(&[]), vec![ids(&[7])], label)).unwrap().items.remove(0).unwrap();
    assert_eq!((-two.nll.value) as f32, row.logprobs[0]);
    assert_eq!((two.tokens, two.nll.standard_error, two.perplexity.standard_error), (1, None, None));
}

#[test]
fn the_same_bits_on_every_tier_thread_count_and_size_of_a_pass() {
    let words = held_out(3000);
    for format in [Format::F32, Format::Bf16] {
        let mut first = None;
        for way in ways(format) {
            let name = format!("{} {:?} {} threads", format.name(), way.tier, way.threads);
            let engine = Engine::load(way).unwrap();
            let alone = run(&engine, words.clone(), Some(300));
            // The comparison runs passes of 64 tokens.
            let compared = compare(&engine, &engine, words.clone(), Some(300));
            for got in [&alone, &compared.model, &compared.reference] {
                let bits = [got.nll, got.perplexity]
                    .map(|e| (e.value.to_bits(), e.standard_error.unwrap().to_bits()));
                assert_eq!(*first.get_or_insert(bits), bits, "{name}");
            }
        }
    }
}

#[test]
fn windows_are_texts_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let engine = long(folder.path());
    let all: Vec<i64> = (0..1500).map(|i| (i * i + 7 * i) % 300).collect();
    // A window longer than a pass, and a remainder of 100.
    let whole = run(&engine, ids(&all), Some(700));
    assert_eq!((whole.windows, whole.tokens, whole.window), (3, 1497, 700));
    let mut sum = 0.0;
    for part in all.chunks(700) {
        let alone = run(&engine, ids(part), Some(2048));
        assert_eq!((alone.windows, alone.tokens), (1, part.len() - 1));
        sum += alone.nll.value * alone.tokens as f64;
    }
    assert!((whole.nll.value - sum / 1497.0).abs() < 1e-12);
    // A remainder of one token predicts nothing.
    let odd = run(&engine, ids(&all[..1401]), Some(700));
    assert_eq!((odd.windows, odd.tokens), (2, 1398));
    assert_eq!(run(&engine, ids(&all), None).windows, 3, "512 tokens by default");
}

#[test]
fn every_window_of_a_text_begins_with_what_the_tokenizer_puts_in_front() {
    let engine = demo();
    let words = "In the beginning God created the heaven and the earth.";
    let tokenizer = engine.tokenizer().unwrap();
    let (bos, own) = (tokenizer.prefix_ids()[0], tokenizer.encode(words, false).unwrap());
    let got = run(&engine, text(words), Some(6));
    assert_eq!(
        (got.tokens, got.windows),
        (own.len(), own.len().div_ceil(5)),
        "every token is predicted once"
    );
    let by_hand: Vec<i64> =
        own.chunks(5).flat_map(|c| std::iter::once(&bos).chain(c)).map(|&id| i64::from(id)).collect();
    assert_eq!(run(&engine, ids(&by_hand), Some(6)).nll, got.nll);
    // If the text contains the token, it does not appear twice.
    let written = format!("{}{words}", tokenizer.token(bos).unwrap());
    assert_eq!(run(&engine, text(&written), Some(6)).nll, got.nll);
}

#[test]
fn a_model_does_not_differ_from_itself() {
    let (one, other) = (demo(), demo());
    for (model, reference) in [(&one, &other), (&one, &one)] {
        let got = compare(model, reference, held_out(2000), Some(128));
        let none = Estimate { value: 0.0, standard_error: Some(0.0) };
        let expect = Divergence {
            kl: none,
            kl_median: Some(0.0),
            kl_p99: Some(0.0),
            kl_max: 0.0,
            top1_agreement: 1.0,
            ln_ratio: none,
        };
        assert_eq!(got.divergence, expect);
        assert_eq!(got.model.nll, got.reference.nll);
    }
}

#[test]
fn two_models_are_compared_in_windows_that_fit_both() {
    let whole = golden();
    let small = Engine::load(Options { max_context: Some(40), ..options(&golden_dir()) }).unwrap();
    let prompt: Vec<i64> = (0..100).map(|i| (i * 7) % 131).collect();
    for (model, reference) in [(&whole, &small), (&small, &whole)] {
        let got = compare(model, reference, ids(&prompt), None);
        assert_eq!((got.model.window, got.model.windows, got.reference.window), (40, 3, 40));
    }
}

/// ln p of the whole vocabulary after `prompt`.
fn distribution(engine: &Engine, prompt: &[i64]) -> Vec<f64> {
    let mut request = generation(ids(prompt), 1);
    request.logprobs = Some(engine.info().vocab);
    let answer = engine.generate(request, &Cancel::new(), &mut |_| ()).unwrap();
    let mut all = vec![0.0; engine.info().vocab];
    for token in &answer.logprobs.unwrap()[0].top {
        all[token.id as usize] = f64::from(token.logprob);
    }
    all
}

#[test]
fn the_divergence_is_the_one_computed_by_hand() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama-b");
    let model = Engine::load(Options { format: Some(Format::Bf16), ..options(&dir) }).unwrap();
    let reference = golden();
    let prompt: Vec<i64> = (0..120).map(|i| (i * i + 3 * i + 1) % 131).collect();
    let got = compare(&model, &reference, ids(&prompt), Some(60));
    let (mut kl, mut same, mut ratio) = (Vec::new(), 0, 0.0);
    for window in prompt.chunks(60) {
        for end in 1..window.len() {
            let (p, q) = (distribution(&reference, &window[..end]), distribution(&model, &window[..end]));
            kl.push(p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>());
            let top = |x: &[f64]| (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b]).then(b.cmp(&a)));
            same += usize::from(top(&p) == top(&q));
            let next = window[end] as usize;
            ratio += p[next] - q[next];
        }
    }
    let n = kl.len() as f64;
    let divergence = &got.divergence;
    assert_eq!((got.model.tokens, got.model.windows), (118, 2));
    let mean = kl.iter().sum::<f64>() / n;
    assert!(mean > 1e-6, "the formats differ: {mean:e}");
    assert!((divergence.kl.value - mean).abs() < 1e-6, "{mean:e} {divergence:?}");
    kl.sort_unstable_by(f64::total_cmp);
    for (got, want) in [
        (divergence.kl_median.unwrap(), kl[58]),
        (divergence.kl_p99.unwrap(), kl[116]),
        (divergence.kl_max, kl[117]),
    ] {
        assert!((got - want).abs() < 2e-6, "{got:e} is not {want:e}");
    }
    assert_eq!(divergence.top1_agreement, same as f64 / n);
    assert!((divergence.ln_ratio.value - ratio / n).abs() < 1e-6, "{divergence:?}");
    let difference = got.model.nll.value - got.reference.nll.value;
    assert!((divergence.ln_ratio.value - difference).abs() < 1e-12);
    assert!(divergence.ln_ratio.standard_error.unwrap() < got.model.nll.standard_error.unwrap());
    let few = compare(&model, &reference, ids(&prompt[..50]), None).divergence;
    assert_eq!((few.kl_median, few.kl_p99), (None, None), "too few for quantiles");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (engine, demo) = (golden(), demo());
    let refused = |engine: &Engine, text: Prompt, window: Option<usize>, names: &[&str]| {
        let message = refusal(engine.perplexity(ask(text, window), &Cancel::new()));
        assert!(names.iter().all(|name| message.contains(name)), "{message}");
    };
    refused(&engine, ids(&[]), None, &["0 tokens", "nothing to predict"]);
    refused(&engine, ids(&[1]), None, &["1 token:", "at least 2"]);
    refused(&demo, text(""), None, &["0 tokens", "nothing to predict"]);
    assert_eq!(run(&demo, text("a"), None).tokens, 1, "a token in front makes one enough");
    refused(&engine, ids(&[1, 2]), Some(1), &["1 tokens", "at least `window` = 2"]);
    refused(&engine, ids(&[1, 2]), Some(0), &["0 tokens", "at least `window` = 2"]);
    let context = engine.info().context;
    refused(&engine, ids(&[1, 2]), Some(context + 1), &[&(context + 1).to_string(), &context.to_string()]);
    refused(&engine, ids(&[1, 2]), Some(usize::MAX), &["exceeds"]);
    refused(&engine, ids(&[1, -2, 131]), None, &["-2", "131"]);
    refused(&engine, text("some text"), None, &["tokenizer"]);
    let message = refusal(engine.compare(&demo, ask(ids(&[1, 2]), None), &Cancel::new()));
    assert!(message.contains("131") && message.contains("4096") && message.contains("llama-b"), "{message}");
}

#[test]
fn models_that_read_a_text_differently_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(demo_dir().join(name), folder.path().join(name)).unwrap();
    }
    let mut json: Value =
        serde_json::from_slice(&std::fs::read(demo_dir().join("tokenizer.json")).unwrap()).unwrap();
    json["model"]["merges"].as_array_mut().unwrap().clear();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let (one, other) = (demo(), Engine::load(options(folder.path())).unwrap());
    let message = refusal(one.compare(&other, ask(text("In the beginning"), None), &Cancel::new()));
    for part in ["demo", &one.info().name, &other.info().name, "differently", "token 0 of the text"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(compare(&one, &other, ids(&[5, 6, 7]), None).model.tokens, 2, "ids need no tokenizer");
}

#[test]
fn cancelling_leaves_the_figures_so_far_and_the_engine_goes_on() {
    let before = Cancel::new();
    before.cancel();
    let plain = demo();
    let message = refusal(plain.perplexity(ask(held_out(500), None), &before));
    assert!(message.contains("cancelled before"), "{message}");
    let message = refusal(plain.compare(&plain, ask(held_out(500), None), &before));
    assert!(message.contains("cancelled before"), "{message}");
    // The engine reads its clock twice per pass: the last reading of the third pass cancels.
    let (cancel, readings) = (Cancel::new(), AtomicU64::new(0));
    let late = cancel.clone();
    let clock = move || {
        if readings.fetch_add(1, Ordering::SeqCst) == 5 {
            late.cancel();
        }
        0
    };
    // With one thread, nothing else reads the clock.
    let engine =
        Engine::load(Options { clock: Arc::new(clock), threads: 1, ..options(&demo_dir()) }).unwrap();
    let got = engine.perplexity(ask(held_out(2000), Some(64)), &cancel).unwrap();
    assert!(got.cancelled);
    assert_eq!((got.windows, got.tokens), (3, 3 * 63));
    let whole = run(&engine, held_out(2000), Some(64));
    assert!(!whole.cancelled && whole.tokens > got.tokens);
    assert_eq!(whole.nll, run(&plain, held_out(2000), Some(64)).nll);
}

#[test]
fn a_divergence_has_the_same_bits_for_every_size_of_passes() {
    let prompt: Vec<i64> = (0..120).map(|i| (i * i + 3 * i + 1) % 131).collect();
    let divergence = |most: usize| {
        let [model, reference] = [Format::Bf16, Format::F32].map(|format| {
            let mut way = Options { format: Some(format), ..options(&golden_dir()) };
            way.plans.buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, most);
            Engine::load(way).unwrap()
        });
        compare(&model, &reference, ids(&prompt), Some(60)).divergence
    };
    let whole = divergence(512);
    assert!(whole.kl.value > 0.0, "{whole:?}");
    // Fewer tokens than rows of logits that are evaluated at a time.
    assert_eq!(divergence(16), whole);
}

/// An engine whose clock advances by a second with every reading, and calls `at` with the number of the reading. With one
/// thread, only passes read it: twice each.
fn ticking(at: impl Fn(u64) + Send + Sync + 'static) -> Engine {
    let readings = AtomicU64::new(0);
    let clock = move || {
        let reading = readings.fetch_add(1, Ordering::SeqCst);
        at(reading);
        reading * 1_000_000_000
    };
    let options = Options { clock: Arc::new(clock), threads: 1, ..options(&golden_dir()) };
    Engine::load(options).unwrap()
}

#[test]
fn a_comparison_that_is_cancelled_says_so_of_both_models() {
    let cancel = Cancel::new();
    let late = cancel.clone();
    // In the second window, after the pass of the reference.
    let engine = ticking(move |reading| {
        if reading == 5 {
            late.cancel();
        }
    });
    let prompt: Vec<i64> = (0..200).map(|i| (i * 7) % 131).collect();
    let got = engine.compare(&engine, ask(ids(&prompt), Some(50)), &cancel).unwrap();
    for model in [&got.model, &got.reference] {
        assert_eq!((model.cancelled, model.windows, model.tokens), (true, 2, 98));
    }
}

#[test]
fn the_seconds_of_all_passes_are_counted() {
    let engine = ticking(|_| ());
    let prompt: Vec<i64> = (0..120).map(|i| (i * 7) % 131).collect();
    let outcome = run(&engine, ids(&prompt), Some(40));
    assert!(outcome.windows == 3 && (outcome.compute_s - 3.0).abs() < 1e-9, "{outcome:?}");
}
