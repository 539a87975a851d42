//! Converted models give the same logits as packing at load, and the same bytes for any tier and number of threads.

use std::fs;
use std::path::{Path, PathBuf};

use redline_kernels::{Exec, Format, Matrix, Simd, Team};
use redline_models::{ConvertOptions, LoadOptions, Loader, Model, ModelError, Weights, convert, load};
use redline_weights::{Checkpoint, Checksum, ConfigFile, Infq};
use serde_json::{Value, json};

use crate::reference::{Bench, bits, golden_root, goldens, kv, on_team, open, reference};

fn formats() -> Vec<Format> {
    let groups = |f: Format| f.groups().iter().filter_map(move |&g| f.with_group(g)).collect::<Vec<_>>();
    Format::ALL.iter().flat_map(|&f| if f.is_integer() { groups(f) } else { vec![f] }).collect()
}

fn make(exec: Exec<'_>, from: &Path, to: &Path, format: Format, outliers: f64) -> Result<(), ModelError> {
    convert(exec, from, to, ConvertOptions { format, outliers }, &mut |_| Ok(()))
}

fn load_packed(dir: &Path, options: LoadOptions) -> Result<Model, ModelError> {
    let config = ConfigFile::open(&dir.join("config.json")).unwrap();
    let infq = Infq::open(dir)?;
    on_team(|exec| load(exec, &config, Weights::Infq(&infq), options))
}

fn logits(mut model: Model, format: Format, prompt: &[u32]) -> Vec<u32> {
    model.reserve_positions(64).unwrap();
    let mut bench = Bench::new(model, kv(format), Simd::best(), 2);
    let sequence = bench.sequence();
    bits(&bench.pass(&[(sequence, prompt)]))
}

#[test]
fn a_converted_model_gives_the_logits_of_one_packed_at_load() {
    let work = tempfile::tempdir().unwrap();
    for dir in goldens() {
        let prompt = reference(&dir).prompt;
        for format in formats() {
            let to = work.path().join(format!("{}-{format}", dir.file_name().unwrap().display()));
            on_team(|exec| make(exec, &dir, &to, format, 0.0)).unwrap();
            let packed = load_packed(&to, LoadOptions::default()).unwrap();
            assert_eq!(packed.facts().format, format);
            let want = logits(open(&dir, Some(format)), format, &prompt);
            assert!(logits(packed, format, &prompt) == want, "{}", to.display());
        }
    }
}

/// The larger matrices begin and end at pages of their file, so they are mapped; the others are copied.
#[test]
fn a_mapped_model_gives_the_logits_of_a_copied_one() {
    let work = tempfile::tempdir().unwrap();
    let mapping = LoadOptions { mmap: true, ..LoadOptions::default() };
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    for (format, outliers) in formats().into_iter().flat_map(|format| [(format, 0.0), (format, 0.1)]) {
        if outliers > 0.0 && !format.is_integer() {
            continue;
        }
        let to = work.path().join(format!("{format}-{outliers}"));
        on_team(|exec| make(exec, &demo, &to, format, outliers)).unwrap();
        let file = to.join("model.safetensors");
        let mapped = load_packed(&to, mapping).unwrap();
        if let Ok(maps) = fs::read_to_string("/proc/self/maps") {
            let bytes = |line: &str| {
                let (from, to) = line.split(' ').next()?.split_once('-')?;
                let number = |text| u64::from_str_radix(text, 16).ok();
                Some(number(to)? - number(from)?)
            };
            let of_file = maps.lines().filter(|line| line.ends_with(file.to_str().unwrap()));
            let (in_memory, whole) =
                (of_file.filter_map(bytes).sum::<u64>(), fs::metadata(&file).unwrap().len());
            assert!(in_memory > whole / 10 * 6 && in_memory <= whole, "{format}: {in_memory} of {whole}");
        }
        let prompt: Vec<u32> = (5..25).collect();
        let copied = load_packed(&to, LoadOptions::default()).unwrap();
        assert!(logits(mapped, format, &prompt) == logits(copied, format, &prompt), "{format}");
        // A flipped bit is found in what is mapped.
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 16;
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        let error = load_packed(&to, mapping).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "{error}");
    }
    let config = ConfigFile::open(&demo.join("config.json")).unwrap();
    let checkpoint = Checkpoint::open(&demo).unwrap();
    let error = on_team(|exec| load(exec, &config, Weights::Checkpoint(&checkpoint), mapping)).unwrap_err();
    assert!(error.to_string().contains("converted") && error.hint().is_some(), "{error}");
}

#[test]
fn outlier_columns_survive_conversion() {
    let work = tempfile::tempdir().unwrap();
    for dir in goldens().into_iter().take(4) {
        let prompt = reference(&dir).prompt;
        let format = Format::W4 { group: 32 };
        let options = LoadOptions { format: Some(format), outliers: 0.1, mmap: false };
        let to = work.path().join(dir.file_name().unwrap());
        on_team(|exec| make(exec, &dir, &to, format, 0.1)).unwrap();
        let config = ConfigFile::open(&dir.join("config.json")).unwrap();
        let checkpoint = redline_weights::Checkpoint::open(&dir).unwrap();
        let unpacked =
            on_team(|exec| load(exec, &config, Weights::Checkpoint(&checkpoint), options)).unwrap();
        let columns = |m: &Matrix| m.outlier_columns().to_vec();
        let hidden = unpacked.facts().hidden as f64;
        assert_eq!(columns(unpacked.head()).len(), (hidden * 0.1).round() as usize);
        let infq = Infq::open(&to).unwrap();
        let loader = Loader::new(&config, Weights::Infq(&infq), LoadOptions::default()).unwrap();
        let announced = loader.footprint().weight_bytes();
        let packed = on_team(|exec| loader.load(exec)).unwrap();
        assert_eq!(announced, packed.weight_bytes());
        assert_eq!(columns(packed.head()), columns(unpacked.head()));
        let want = logits(unpacked, format, &prompt);
        assert!(logits(packed, format, &prompt) == want, "{}", dir.display());
        assert!(want != logits(open(&dir, Some(format)), format, &prompt), "outliers change nothing");
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_tier() {
    let work = tempfile::tempdir().unwrap();
    let dir = &goldens()[0];
    for format in formats() {
        let mut first: Option<Vec<(String, Vec<u8>)>> = None;
        for (i, simd) in Simd::variants().into_iter().enumerate() {
            for threads in [1, 3] {
                let to = work.path().join(format!("{format}-{i}-{threads}"));
                let team = Team::new(threads).unwrap();
                make(Exec { simd, team: &team }, dir, &to, format, 0.05).unwrap();
                let mut files: Vec<_> = std::fs::read_dir(&to)
                    .unwrap()
                    .map(|e| e.unwrap())
                    .map(|e| (e.file_name().display().to_string(), std::fs::read(e.path()).unwrap()))
                    .collect();
                files.sort();
                assert!(*first.get_or_insert_with(|| files.clone()) == files, "{format} {}", simd.name());
            }
        }
    }
}

#[test]
fn what_cannot_be_converted_or_loaded_is_refused_by_name() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("w8");
    let format = Format::W8 { group: 128 };
    on_team(|exec| make(exec, &goldens()[0], &to, format, 0.0)).unwrap();
    let again = on_team(|exec| make(exec, &to, &work.path().join("w4"), format, 0.0)).unwrap_err();
    assert!(again.to_string().contains("converted"), "{again}");
    let other = LoadOptions { format: Some(Format::Bf16), outliers: 0.0, mmap: false };
    let error = load_packed(&to, other).unwrap_err();
    assert!(error.to_string().contains("converted to w8; bf16 cannot be made"), "{error}");
    let other = LoadOptions { format: format.with_group(0), outliers: 0.0, mmap: false };
    let error = load_packed(&to, other).unwrap_err();
    assert!(error.to_string().contains("converted to w8; w8g0 cannot be made"), "{error}");
    let same = LoadOptions { format: Some(format), outliers: 0.0, mmap: false };
    assert!(load_packed(&to, same).is_ok());
}

/// A copy of a golden checkpoint that files can be added to.
fn copied(work: &Path) -> PathBuf {
    let (golden, copy) = (golden_root().join("llama-b"), work.join("source"));
    fs::create_dir(&copy).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(name), copy.join(name)).unwrap();
    }
    copy
}

#[test]
fn every_file_that_a_model_needs_is_copied_and_no_other() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (copied(work.path()), work.path().join("to"));
    let needed = [
        "LICENSE",
        "LICENSE.txt",
        "NOTICE",
        "USE_POLICY.md",
        "added_tokens.json",
        "chat_template.jinja",
        "config_sentence_transformers.json",
        "generation_config.json",
        "merges.txt",
        "sentence_bert_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    ];
    for name in needed.into_iter().chain(["README.md", "optimizer.pt"]) {
        fs::write(from.join(name), name).unwrap();
    }
    on_team(|exec| make(exec, &from, &to, Format::W8 { group: 128 }, 0.0)).unwrap();
    let mut expect = [&needed[..], &["config.json", "infq.json", "model.safetensors"]].concat();
    expect.sort_unstable();
    let entries = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, expect);
    for name in needed {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), name);
    }
    assert_eq!(fs::read(to.join("config.json")).unwrap(), fs::read(from.join("config.json")).unwrap());
    let digest = Checkpoint::open(&from).unwrap().digest().unwrap();
    assert_eq!(Infq::open(&to).unwrap().source(), digest, "it says what it was made of");
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_copied_is_not_left_out() {
    let work = tempfile::tempdir().unwrap();
    let (from, to) = (copied(work.path()), work.path().join("to"));
    std::os::unix::fs::symlink("blobs/gone", from.join("tokenizer.json")).unwrap();
    let error = on_team(|exec| make(exec, &from, &to, Format::Bf16, 0.0)).unwrap_err().to_string();
    assert!(error.starts_with("cannot open the file: ") && error.contains("tokenizer.json"), "{error}");
    assert!(!to.exists());
}

#[test]
fn progress_reaches_every_parameter_and_may_end_the_conversion() {
    let work = tempfile::tempdir().unwrap();
    let from = golden_root().join("gpt2-a");
    let parameters = open(&from, None).facts().parameters;
    let options = ConvertOptions { format: Format::W8 { group: 128 }, outliers: 0.0 };
    let (to, mut seen) = (work.path().join("whole"), Vec::new());
    let converted = on_team(|exec| {
        convert(exec, &from, &to, options, &mut |progress| {
            assert_eq!(progress.total, parameters);
            seen.push(progress.done);
            Ok(())
        })
    });
    converted.unwrap();
    // Two embeddings and two layers of four matrices; then everything, and once more when all is checked.
    assert!(seen.len() == 11 && seen.is_sorted() && seen[0] > 0, "{seen:?}");
    assert!(seen[8] < parameters && seen[9..] == [parameters; 2], "{seen:?} of {parameters}");
    for last in [1, 5, seen.len()] {
        let to = work.path().join(format!("until {last}"));
        let mut calls = 0;
        let ended = on_team(|exec| {
            convert(exec, &from, &to, options, &mut |_| {
                calls += 1;
                if calls == last { Err(ModelError::Cancelled) } else { Ok(()) }
            })
        });
        assert!(matches!(ended, Err(ModelError::Cancelled)), "{ended:?}");
        assert!(calls == last && !to.exists(), "{calls} calls of {last}");
    }
}

#[test]
fn packed_weights_of_another_shape_are_refused_by_name() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    let golden = golden_root().join("llama-b");
    on_team(|exec| make(exec, &golden, &to, Format::W8 { group: 128 }, 0.0)).unwrap();
    let text = fs::read_to_string(to.join("config.json")).unwrap();
    let infq = Infq::open(&to).unwrap();
    let other = |key: &str, value: usize| {
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config[key] = json!(value);
        let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
        let options = LoadOptions::default();
        let error =
            on_team(|exec| load(exec, &config, Weights::Infq(&infq), options)).unwrap_err().to_string();
        error.strip_suffix(&format!("\n  in `{}`", to.display())).expect(&error).to_owned()
    };
    assert_eq!(
        other("num_hidden_layers", 1),
        "9 tensors are not part of this architecture: `model.layers.1.input_layernorm.weight`, \
         `model.layers.1.mlp.down_proj.weight`, `model.layers.1.mlp.gate_proj.weight`, \
         `model.layers.1.mlp.up_proj.weight`, ..."
    );
    assert_eq!(other("num_hidden_layers", 3), "`model.layers.2.input_layernorm.weight` is missing");
    assert_eq!(
        other("intermediate_size", 64),
        "`model.layers.0.mlp.gate_proj.weight` is w8 [60, 100] in 2 parts, but w8 [64, 100] in 2 is needed"
    );
    assert_eq!(
        other("vocab_size", 130),
        "`model.embed_tokens.weight` is w8 [131, 100] in 2 parts, but w8 [130, 100] in 2 is needed"
    );
}

/// Changes the manifest of a converted directory and its checksum, as an attacker could.
fn forge(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join("infq.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest.as_object_mut().unwrap().remove("checksum");
    change(&mut manifest);
    let whole = manifest.to_string();
    let (body, checksum) = (whole.strip_suffix('}').unwrap(), Checksum::of(whole.as_bytes()));
    fs::write(path, format!("{body},\"checksum\":\"{checksum}\"}}\n")).unwrap();
}

#[test]
fn projections_grouped_keep_the_same_columns_apart() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    let golden = golden_root().join("llama-b");
    on_team(|exec| make(exec, &golden, &to, Format::W4 { group: 32 }, 0.1)).unwrap();
    let (query, key) = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight");
    forge(&to, |manifest| {
        let columns = &mut manifest["tensors"][key]["outlier_columns"];
        let others = json!((0..10).collect::<Vec<u32>>());
        assert!(columns.as_array().unwrap().len() == 10 && *columns != others);
        *columns = others;
    });
    let error = load_packed(&to, LoadOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("`{key}` keeps other columns apart than `{query}`\n")), "{error}");
}

#[test]
fn an_encoding_that_is_not_one_of_the_formats_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("to");
    on_team(|exec| make(exec, &golden_root().join("llama-b"), &to, Format::W8 { group: 128 }, 0.0)).unwrap();
    for (encoding, options, fact) in [
        ("w8", json!({}), "the encoding `w8` {} is not known"),
        ("w8", json!({"group": 7}), r#"the encoding `w8` {"group": 7} is not known"#),
        ("bf16", json!({"group": 128}), r#"the encoding `bf16` {"group": 128} is not known"#),
        ("w16", json!({"group": 128}), r#"the encoding `w16` {"group": 128} is not known"#),
    ] {
        forge(&to, |manifest| manifest["scheme"] = json!({"encoding": encoding, "options": options}));
        let error = load_packed(&to, LoadOptions::default()).unwrap_err().to_string();
        assert_eq!(error, format!("{fact}\n  in `{}`", to.display()));
    }
}
