//! The identity of a model: equal where answers are, different where they may be.

use std::fs;
use std::path::{Path, PathBuf};

use redline_engine::{Engine, Format, KvFormat, ModelIdentity, Options, Source};

use crate::models::{demo_dir, golden_dir, options, ways};

fn identity(options: Options) -> ModelIdentity {
    Engine::load(options).unwrap().identity().unwrap().clone()
}

/// A copy of a model directory.
fn copy(from: &Path, to: PathBuf) -> PathBuf {
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to
}

#[test]
fn instructions_and_threads_do_not_change_it_and_formats_do() {
    let of = |format| {
        let all: Vec<_> = ways(format).into_iter().map(identity).collect();
        assert!(all.len() > 1 && all.iter().all(|one| *one == all[0]));
        all[0].clone()
    };
    let (bf16, w8) = (of(Format::Bf16), of(Format::W8 { group: 128 }));
    assert_eq!((bf16.weights == w8.weights, &bf16.texts), (false, &w8.texts));
    let kept = identity(Options { kv_format: Some(KvFormat::W8), ..options(&demo_dir()) });
    let own = identity(options(&demo_dir()));
    assert_eq!((kept.weights == own.weights, kept.texts == own.texts), (false, true));
    assert_eq!(own, bf16);
    for digest in [&own.weights, &own.texts] {
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
    }
}

#[test]
fn it_is_that_of_the_contents_wherever_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let first = copy(&demo_dir(), folder.path().join("first"));
    let own = identity(options(&demo_dir()));
    assert_eq!(identity(options(&first)), own);
    // One bit of a weight.
    let weights = first.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let changed = identity(options(&first));
    assert_eq!((changed.weights == own.weights, changed.texts == own.texts), (false, true));
    // One character of the tokenizer.
    let second = copy(&demo_dir(), folder.path().join("second"));
    let tokenizer = second.join("tokenizer.json");
    fs::write(&tokenizer, format!("{} ", fs::read_to_string(&tokenizer).unwrap())).unwrap();
    let changed = identity(options(&second));
    assert_eq!((changed.weights == own.weights, changed.texts == own.texts), (true, false));
    // A GGUF file.
    let gguf = golden_dir().join("../gguf/llama-b.gguf");
    let of_gguf = identity(options(&gguf));
    let moved = folder.path().join("moved.gguf");
    fs::copy(&gguf, &moved).unwrap();
    assert_eq!(identity(options(&moved)), of_gguf);
}

#[test]
fn files_that_changed_after_the_model_was_loaded_are_no_longer_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let dir = copy(&golden_dir(), folder.path().join("model"));
    let (before, after) = (Engine::load(options(&dir)).unwrap(), Engine::load(options(&dir)).unwrap());
    let known = before.identity().unwrap().clone();
    let config = dir.join("config.json");
    fs::write(&config, format!("{} ", fs::read_to_string(&config).unwrap())).unwrap();
    assert_eq!(*before.identity().unwrap(), known, "it was computed before");
    let error = after.identity().unwrap_err().to_string();
    assert!(error.starts_with("the model's files changed after it was loaded\n  in "), "{error}");
}

#[test]
fn embedded_models_have_one() {
    let demo = redline_engine::Embedded {
        name: "golden",
        config: include_bytes!("../../../../models/demo/config.json"),
        generation_config: include_bytes!("../../../../models/demo/generation_config.json"),
        chat_template: None,
        tokenizer: include_bytes!("../../../../models/demo/tokenizer.json"),
        weights: || include_bytes!("../../../../models/demo/model.safetensors"),
    };
    let embedded = identity(Options::new(Source::Embedded(demo)));
    assert_eq!(embedded.weights, identity(options(&demo_dir())).weights);
}
