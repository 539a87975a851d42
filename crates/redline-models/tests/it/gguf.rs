//! Golden checkpoints that llama.cpp's converter wrote as GGUF (`tests/golden/gguf.py`), compared with the checkpoints themselves.

use std::path::{Path, PathBuf};

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::arch;
use serde_json::{Value, json};

use crate::reference::{Bench, golden_root, nmse, open, reference, reference_in};

/// Checkpoints that have something which GGUF files cannot say, with the values that all files of their family stand for.
fn told(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "gemma2-a" => vec![("query_pre_attn_scalar", json!(24))],
        "gemma3-a" => vec![("layer_types", Value::Null)],
        "gemma3-b" => vec![("sliding_window_pattern", json!(6))],
        "mistral-a" => vec![("sliding_window", Value::Null)],
        "smollm3-a" => vec![
            ("layer_types", Value::Null),
            ("no_rope_layers", Value::Null),
            ("use_sliding_window", json!(false)),
        ],
        _ => Vec::new(),
    }
}

/// Every GGUF file, with the directory of its checkpoint.
fn files() -> Vec<(PathBuf, PathBuf)> {
    let mut files: Vec<_> = std::fs::read_dir(golden_root().join("gguf"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), golden_root().join(path.file_stem().unwrap())))
        .collect();
    files.sort();
    files
}

fn logits(path: &Path, prompt: &[u32]) -> Vec<f32> {
    let mut bench = Bench::new(open(path, Some(Format::Bf16)), KvFormat::F32, Simd::best(), 2);
    let sequence = bench.sequence();
    bench.pass(&[(sequence, prompt)]).concat()
}

/// A copy of a checkpoint with other values of its configuration.
fn changed(dir: &Path, values: &[(&str, Value)], to: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let mut config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
    for (key, value) in values {
        config[*key] = value.clone();
    }
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn a_gguf_file_gives_the_logits_of_its_checkpoint() {
    for (file, dir) in files() {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let (told, prompt) = (told(name), reference(&dir).prompt);
        let folder = tempfile::tempdir().unwrap();
        changed(&dir, &told, folder.path());
        let (got, want) = (logits(&file, &prompt), logits(folder.path(), &prompt));
        let differ = got.iter().zip(&want).filter(|(got, want)| got.to_bits() != want.to_bits()).count();
        assert_eq!((got.len(), differ), (want.len(), 0), "{name}: NMSE {:e}", nmse(&got, &want));
        // What the file cannot say matters.
        assert!(told.is_empty() || got != logits(&dir, &prompt), "{name}");
    }
}

#[test]
fn every_architecture_of_llama_cpp_has_a_file() {
    let named = |name: &str| files().iter().any(|(file, _)| open(file, None).facts().architecture == name);
    for architecture in arch::ALL.iter().filter(|architecture| architecture.gguf.is_some()) {
        assert!(named(architecture.name), "{}", architecture.name);
    }
    assert!(named("Olmo3ForCausalLM"));
}

/// Files that llama.cpp quantised, with their prompts and logits.
fn quantized() -> [PathBuf; 2] {
    ["q4_k_m", "mixed"].map(|name| golden_root().join(format!("quantized/{name}.gguf")))
}

#[test]
fn weights_of_every_type_as_f32_give_the_logits_of_the_reference() {
    for file in quantized() {
        let want = reference_in(&file.with_extension("safetensors"));
        let mut bench = Bench::new(open(&file, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let error = nmse(&bench.pass(&[(sequence, &want.prompt)]).concat(), &want.logits);
        assert!(error <= 1e-8, "{}: NMSE {error:e}", file.display());
    }
}
