//! `convert`, and the models that it writes.

use std::fs;
use std::path::Path;

use crate::checkpoint::{Copy, named};
use crate::harness::{Run, bits, redline};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-b");

/// Scores of a model, with extra flags.
fn scores(model: &str, extra: &[&str]) -> Vec<Vec<u32>> {
    let given = [
        "score",
        "--json",
        "--model",
        model,
        "--query",
        "In the beginning",
        "--item",
        " God",
        "--label-id",
        "7",
    ];
    bits(&redline(&[&given[..], extra].concat()).ok().scoring())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().display().to_string()).collect();
    names.sort();
    names
}

/// Scores token ids, for models without a tokenizer.
fn score_ids(model: &str, extra: &[&str]) -> Run {
    let given = ["score", "--model", model, "--query-ids", "1", "--item-ids", "2", "--label-id", "3"];
    redline(&[&given[..], extra].concat())
}

#[test]
fn a_converted_model_scores_as_one_packed_at_load() {
    let work = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("w8", &["--format", "w8"][..]),
        ("w8-per-output", &["--format", "w8", "--group", "0"]),
        ("w4", &["--format", "w4", "--group", "32", "--outliers", "0.05"]),
        ("bf16", &["--format", "bf16"]),
    ] {
        let dir = work.path().join(name);
        let dir = dir.to_str().unwrap();
        let run = redline(&[&["convert", DEMO, dir], flags].concat()).ok();
        assert_eq!(run.out, format!("{dir}\n"));
        let files = names(Path::new(dir));
        for file in
            ["config.json", "generation_config.json", "infq.json", "model.safetensors", "tokenizer.json"]
        {
            assert!(files.iter().any(|name| name == file), "{file} in {files:?}");
        }
        let want = scores(DEMO, flags);
        assert_eq!(scores(dir, &[]), want, "{name}");
        assert_eq!(scores(dir, &["--mmap"]), want, "{name}, mapped");
    }
    score_ids(DEMO, &["--mmap"]).failed(&["converted", "leave out `--mmap`", "`redline convert`"]);
    assert_eq!(names(work.path()), ["bf16", "w4", "w8", "w8-per-output"], "nothing is left beside them");
}

#[test]
fn wrong_use_of_convert_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let free = work.path().join("free");
    let free = free.to_str().unwrap();
    redline(&["convert", GOLDEN, free]).usage(&["no format given"]);
    redline(&["convert", GOLDEN, free, "--format", "w8", "--group", "64"])
        .usage(&["w8 has no group of 64", "0, 32, 128"]);
    redline(&["convert", GOLDEN, free, "--format", "bf16", "--group", "64"]).usage(&["`--group 64` without"]);
    redline(&["convert", GOLDEN, free, "--format", "f32", "--outliers", "0.1"])
        .usage(&["`--outliers 0.1` without"]);
    redline(&["convert", GOLDEN, free, "--format", "w4", "--outliers", "1.5"]).usage(&["1.5 is no share"]);
    redline(&["convert", "demo", free, "--format", "w8"]).usage(&["`demo` is inside the program"]);
    redline(&["convert", "/no/such/model", free, "--format", "w8"]).failed(&["/no/such/model"]);
    assert_eq!(names(work.path()), [""; 0], "nothing is written");
    redline(&["convert", GOLDEN, free, "--format", "w8"]).ok();
    redline(&["convert", GOLDEN, free, "--format", "w8"]).failed(&["not empty", free]);
    let other = work.path().join("other");
    redline(&["convert", free, other.to_str().unwrap(), "--format", "w4"])
        .failed(&["converted already", free]);
    score_ids(free, &["--format", "w4"]).failed(&["converted to w8; w4 cannot be made of it", free]);
    score_ids(free, &["--format", "w8", "--outliers", "0.1"])
        .failed(&["which columns it keeps apart is decided", free]);
    redline(&["score", "--model", free, "--device", "cuda", "--query-ids", "1"])
        .usage(&["no such device", "found: cpu"]);
}

#[test]
fn a_flipped_bit_or_a_cut_file_is_refused_by_name() {
    let work = tempfile::tempdir().unwrap();
    let dir = work.path().join("w4");
    let path = dir.to_str().unwrap();
    redline(&["convert", GOLDEN, path, "--format", "w4"]).ok();
    let score = || score_ids(path, &[]);
    score().ok();
    let weights = dir.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let data = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for part in [0.0, 0.1, 0.35, 0.6, 0.85, 0.999] {
        let at = data + ((whole.len() - data) as f64 * part) as usize;
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&weights, &bytes).unwrap();
        score().failed(&["model.safetensors", ".weight"]);
        score_ids(path, &["--mmap"]).failed(&["model.safetensors", ".weight"]);
    }
    fs::write(&weights, &whole[..whole.len() - 1]).unwrap();
    score().failed(&["model.safetensors"]);
    fs::write(&weights, &whole).unwrap();
    score().ok();
    let manifest = dir.join("infq.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"format_version\":1", "\"format_version\":9")).unwrap();
    score().failed(&["infq.json", "9"]);
}

#[test]
fn weights_that_no_format_can_hold_are_refused() {
    let model = Copy::new();
    let to = model.file("out");
    let name = "model.layers.0.mlp.up_proj.weight";
    for (value, fact) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (3e37, "holds at most")] {
        let half = (value.to_bits() >> 16) as u16;
        model.tensors(|tensors| named(tensors, name).bytes[..2].copy_from_slice(&half.to_le_bytes()));
        redline(&["convert", model.dir(), to.to_str().unwrap(), "--format", "w8"]).failed(&[name, fact]);
        score_ids(model.dir(), &["--format", "w8"]).failed(&[name, fact]);
        assert!(!to.exists());
    }
}
