//! A checkpoint whose logits overflow: every answer that needs them is an error that names its place, and nothing else is.

use std::path::{Path, PathBuf};

use redline_engine::{
    Cancel, Engine, EngineError, GenerateRequest, Label, LongLabels, PerplexityRequest, ScoreRequest,
};

use crate::models::{generation, ids, options, refusal, request, tiny};

/// The token whose row of the output projection overflows.
const BROKEN: usize = 7;

/// Writes the tiny model; the logit of one token is infinite or not a number at every position.
fn write_broken(folder: &Path) -> PathBuf {
    tiny(folder, |name, values| {
        if name == "lm_head.weight" {
            values[BROKEN * 32..(BROKEN + 1) * 32].fill(3e38);
        }
    })
}

fn broken() -> Engine {
    let folder = tempfile::tempdir().unwrap();
    Engine::load(options(&write_broken(folder.path()))).unwrap()
}

fn labels(ids: &[i64]) -> Vec<Label> {
    ids.iter().map(|&id| Label::Ids(vec![id])).collect()
}

/// A logit of minus infinity excludes its token; the first one of plus infinity, or that is not a number, is an error.
#[test]
fn generation_names_the_position() {
    let engine = broken();
    for logprobs in [None, Some(2)] {
        let asked = GenerateRequest { logprobs, ..generation(ids(&[1, 2, 3]), 4) };
        let message = refusal(engine.generate(asked, &Cancel::new(), &mut |_| ()));
        assert!(message.contains("for position 4\n") && message.contains("`format` = f32"), "{message}");
    }
}

#[test]
fn scores_need_the_logits_of_their_labels_only() {
    let engine = broken();
    let ask = |softmax: bool, labels: Vec<Label>| ScoreRequest {
        softmax,
        ..request(ids(&[1]), vec![ids(&[2]), ids(&[3])], labels)
    };
    let message = refusal(engine.score(ask(false, labels(&[3, 4]))));
    assert!(message.contains("item 0"), "over the vocabulary: {message}");
    engine.score(ask(true, labels(&[3, 4]))).expect("the broken logit is not among the labels");
    let message = refusal(engine.score(ask(true, labels(&[3, BROKEN as i64]))));
    assert!(message.contains("item 0"), "{message}");
    let outcome = engine.score(ScoreRequest { item_errors: true, ..ask(false, labels(&[3])) }).unwrap();
    for (index, item) in outcome.items.into_iter().enumerate() {
        let error = item.unwrap_err();
        assert!(error.index == index && error.message.contains(&format!("item {index}")), "{error:?}");
    }
    let long = ScoreRequest { long_labels: LongLabels::Sum, ..ask(false, vec![Label::Ids(vec![3, 4])]) };
    assert!(refusal(engine.score(long)).contains("item 0"));
}

#[test]
fn perplexity_and_divergence_name_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, sound) = (broken(), crate::models::long(folder.path()));
    let ask = || PerplexityRequest { text: ids(&[1, 2, 3, 4, 5]), window: Some(3), adapters: Vec::new() };
    let message = refusal(engine.perplexity(ask(), &Cancel::new()));
    assert!(message.contains("counted token 1, in window 1"), "{message}");
    let error = engine.compare(&sound, ask(), &Cancel::new()).unwrap_err();
    assert!(matches!(error, EngineError::NonFinite(_)), "{error}");
    let error = sound.compare(&engine, ask(), &Cancel::new()).unwrap_err();
    assert!(matches!(error, EngineError::NonFinite(_)), "{error}");
}

#[test]
fn a_comparison_names_the_model_whose_output_is_not_finite() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let cracked = folders[0].path().join("cracked");
    std::fs::rename(write_broken(folders[0].path()), &cracked).unwrap();
    let (engine, sound) = (Engine::load(options(&cracked)).unwrap(), crate::models::long(folders[1].path()));
    let ask = || PerplexityRequest { text: ids(&[1, 2, 3, 4, 5]), window: Some(3), adapters: Vec::new() };
    for (model, reference) in [(&engine, &sound), (&sound, &engine)] {
        let message = refusal(model.compare(reference, ask(), &Cancel::new()));
        assert!(message.contains("counted token 1, in window 1\n  in `cracked`\n"), "{message}");
    }
}
