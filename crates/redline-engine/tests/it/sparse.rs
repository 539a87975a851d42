//! Sparse vectors: those of the reference; the same bits however passes are cut; what is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redline_engine::{
    Buckets, EmbedRequest, EncodeOutcome, Encoded, Engine, Options, PlanOptions, Pooling, Prompt, Tier,
    VectorForm,
};
use serde_json::Value;

use crate::encoding::reference_of;
use crate::models::{demo, options, refusal, text};

fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors").join(name)
}

fn load(dir: &Path) -> Engine {
    Engine::load(options(dir)).unwrap()
}

/// The reference's texts, and the weights of all tokens.
fn reference(name: &str) -> Vec<(Vec<i64>, Vec<f32>)> {
    reference_of(&golden_dir(name), "weights")
}

fn of_ids(ids: &[Vec<i64>]) -> EmbedRequest {
    of(ids.iter().cloned().map(Prompt::Ids).collect())
}

fn of(texts: Vec<Prompt>) -> EmbedRequest {
    EmbedRequest { form: VectorForm::Sparse, ..EmbedRequest::new(texts) }
}

/// The weights of all tokens.
fn whole(encoded: &Encoded, vocab: usize) -> Vec<f32> {
    let mut weights = vec![0.0; vocab];
    for (index, value) in encoded.indices.iter().zip(&encoded.values) {
        weights[*index as usize] = *value;
    }
    weights
}

fn bits(outcome: &EncodeOutcome) -> Vec<(Vec<u32>, Vec<u32>)> {
    let of = |text: &Encoded| (text.indices.clone(), text.values.iter().map(|x| x.to_bits()).collect());
    outcome.texts.iter().map(of).collect()
}

const MODELS: [&str; 5] =
    ["distilbert-splade-a", "bert-splade-a", "roberta-splade-a", "modernbert-splade-a", "bge-a"];

#[test]
fn weights_match_the_reference() {
    for name in MODELS {
        let engine = load(&golden_dir(name));
        assert!(engine.info().sparse && engine.summary().embeds_sparsely, "{name}");
        let texts = reference(name);
        assert_eq!(texts.len(), 4, "{name}");
        let ids: Vec<Vec<i64>> = texts.iter().map(|(ids, _)| ids.clone()).collect();
        let outcome = engine.embed(of_ids(&ids)).unwrap();
        assert_eq!(outcome.form, VectorForm::Sparse);
        for (found, (ids, want)) in outcome.texts.iter().zip(&texts) {
            assert_eq!(found.prompt_tokens, ids.len());
            assert!(
                found.indices.is_sorted_by(|a, b| a < b) && found.values.iter().all(|value| *value > 0.0)
            );
            let weights = whole(found, want.len());
            let error: f64 = weights.iter().zip(want).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let power: f64 = want.iter().map(|b| f64::from(*b).powi(2)).sum();
            assert!(error <= 1e-9 * power, "{name}: NMSE {:e} of {} tokens", error / power, ids.len());
            // A weight that is zero in one of both is next to zero in the other.
            let differs = |(a, b): (&f32, &f32)| (*a == 0.0) != (*b == 0.0) && (a - b).abs() > 1e-5;
            assert!(!weights.iter().zip(want).any(differs), "{name}");
        }
    }
}

/// Text is tokenised and weighed as the library does.
#[test]
fn a_directory_of_the_library_is_read_as_it_is() {
    let dir = golden_dir("distilbert-splade-a");
    let engine = load(&dir);
    let json = std::fs::read(dir.join("texts.json")).unwrap();
    let wanted: Vec<Value> = serde_json::from_slice(&json).unwrap();
    let texts = wanted.iter().map(|one| text(one["text"].as_str().unwrap())).collect();
    let outcome = engine.embed(of(texts)).unwrap();
    for (found, want) in outcome.texts.iter().zip(&wanted) {
        assert_eq!(found.prompt_tokens, want["ids"].as_array().unwrap().len());
        let numbers = |key: &str| want[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        let indices: Vec<u32> = numbers("indices").map(|index| index as u32).collect();
        assert_eq!(found.indices, indices, "{}", want["text"]);
        for (value, want) in found.values.iter().zip(numbers("values")) {
            assert!((f64::from(*value) - want).abs() < 1e-4, "{value} {want}");
        }
    }
}

/// Alone and together, in passes of any size, on any number of threads and any tier.
#[test]
fn weights_have_the_same_bits_however_they_are_computed() {
    for name in MODELS {
        let ids: Vec<Vec<i64>> = reference(name).into_iter().map(|(ids, _)| ids).collect();
        let engine = load(&golden_dir(name));
        let alone: Vec<_> = ids
            .iter()
            .flat_map(|one| bits(&engine.embed(of_ids(std::slice::from_ref(one))).unwrap()))
            .collect();
        for tier in Tier::ALL.iter().filter(|tier| tier.available().is_ok()) {
            for (threads, chunk) in [(1, 4096), (2, 16), (3, 64)] {
                let buckets = Buckets::new(Buckets::TOKENS, Buckets::ROWS, chunk);
                let plans = PlanOptions { buckets, ..PlanOptions::default() };
                let plain = options(&golden_dir(name));
                let options = Options { threads, tier: Some(*tier), plans, poison: true, ..plain };
                let engine = Engine::load(options).unwrap();
                let together = engine.embed(of_ids(&ids)).unwrap();
                assert_eq!(bits(&together), alone, "{name} {tier:?} {threads} {chunk}");
            }
        }
    }
}

/// A model of both kinds makes both, and the token for the unknown weighs nothing either.
#[test]
fn a_model_of_both_kinds_makes_both() {
    let engine = load(&golden_dir("bge-a"));
    let ids = vec![reference("bge-a")[0].0.clone()];
    let dense = engine.embed(EmbedRequest { form: VectorForm::Dense, ..of_ids(&ids) }).unwrap();
    assert_eq!((dense.texts[0].values.len(), dense.texts[0].indices.len()), (48, 0));
    let weights = |engine: &Engine| {
        let encoded = engine.embed(of_ids(&ids)).unwrap().texts.remove(0);
        encoded.indices.into_iter().zip(encoded.values).collect::<BTreeMap<u32, f32>>()
    };
    let before = weights(&engine);
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("model");
    std::fs::create_dir_all(to.join("1_Pooling")).unwrap();
    for file in
        ["config.json", "model.safetensors", "modules.json", "sparse_linear.pt", "1_Pooling/config.json"]
    {
        std::fs::copy(golden_dir("bge-a").join(file), to.join(file)).unwrap();
    }
    let tokenizer =
        std::fs::read_to_string(golden_dir("distilbert-splade-a").join("tokenizer.json")).unwrap();
    // The token for the unknown is one that has a weight.
    let (unknown, mut after) = (*before.keys().next().unwrap(), before.clone());
    after.remove(&unknown);
    assert!(!after.is_empty());
    let token = load(&golden_dir("distilbert-splade-a")).tokenizer().unwrap().token(unknown).unwrap();
    let renamed = tokenizer.replace(&format!("{token:?}:"), r#""<unk>":"#);
    assert_ne!(renamed, tokenizer, "{token}");
    std::fs::write(to.join("tokenizer.json"), renamed).unwrap();
    assert_eq!(weights(&load(&to)), after);
}

#[test]
fn what_is_not_sparse_is_refused() {
    let engine = load(&golden_dir("distilbert-splade-a"));
    let ids = vec![vec![2, 9, 3]];
    let refused = |request: EmbedRequest| refusal(engine.embed(request));
    let message = refused(EmbedRequest { form: VectorForm::Dense, ..of_ids(&ids) });
    assert!(message.contains("makes sparse vectors") && message.contains("`pooling`"), "{message}");
    for request in [
        EmbedRequest { pooling: Some(Pooling::Mean), ..of_ids(&ids) },
        EmbedRequest { normalise: Some(true), ..of_ids(&ids) },
        EmbedRequest { dimensions: Some(4), ..of_ids(&ids) },
    ] {
        assert!(refused(request).contains("only dense vectors"));
    }
    let message = refusal(demo().embed(of(vec![text("a")])));
    assert!(message.contains("`demo` makes no sparse vectors"), "{message}");
    // The pooling of the model can still be said.
    let dense = EmbedRequest { form: VectorForm::Dense, pooling: Some(Pooling::Mean), ..of_ids(&ids) };
    assert_eq!(engine.embed(dense).unwrap().texts[0].values.len(), 48);
}
