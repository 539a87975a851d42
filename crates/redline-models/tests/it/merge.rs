//! Adapters merged into checkpoints: PEFT's rows and logits, files, rounding, refusals, and writers that end early.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use redline_kernels::{Format, Simd};
use redline_models::ModelError;
use redline_models::adapter::{merge, merge_on};
use redline_weights::{
    Checkpoint, DirWriter, Disk, Dtype, TensorDeclaration, WeightsError, bf16_to_f32, f16_to_f32,
    f32_to_bf16_rne, f32_to_f16_rne,
};
use serde_json::Value;

use crate::reference::{Bench, golden_root, kv, nmse, open, reference};

/// Rounds to a type.
type Round = fn(f32) -> f32;

/// Golden adapters that change embedding or head of a base in which these are one tensor.
const TIED: &[&str] = &["qwen2-tied"];

/// Every golden adapter: its directory, and that of its base.
fn goldens() -> Vec<(PathBuf, PathBuf)> {
    let root = golden_root().join("adapters");
    let manifest: Value = serde_json::from_slice(&fs::read(root.join("manifest.json")).unwrap()).unwrap();
    let of = |(name, facts): (&String, &Value)| {
        (root.join(name), golden_root().join(facts["base"].as_str().unwrap()))
    };
    let all: Vec<_> = manifest.as_object().unwrap().iter().map(of).collect();
    assert!(all.len() >= 14, "{} golden adapters", all.len());
    all
}

fn is_tied(adapter: &Path) -> bool {
    TIED.iter().any(|name| adapter.ends_with(name))
}

fn merged(base: &Path, adapter: &Path, to: &Path) -> Result<(), ModelError> {
    merge(base, adapter, to, 1.0, &mut |_| Ok(()))
}

fn values(checkpoint: &Checkpoint, name: &str) -> Vec<f32> {
    let mut values = vec![0.0; checkpoint.info(name).unwrap_or_else(|| panic!("{name}")).elements()];
    checkpoint.read_f32(name, &mut values).unwrap();
    values
}

/// The bytes of a tensor.
fn raw(checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    let mut all = Vec::new();
    let read: Result<(), WeightsError> = checkpoint.read_raw(name, |raw| {
        all.extend_from_slice(raw);
        Ok(())
    });
    read.unwrap();
    all
}

/// A copy of a checkpoint in one file, with floats of another type and the values of `change` in place of theirs.
fn copy(from: &Path, to: &Path, dtype: Dtype, change: impl Fn(&str, f32) -> f32) {
    let checkpoint = Checkpoint::open(from).unwrap();
    let names: Vec<_> = checkpoint.names().collect();
    let is_float = |name: &str| checkpoint.info(name).unwrap().dtype.float().is_some();
    let declare = |name: &&str| {
        let info = checkpoint.info(name).unwrap();
        let dtype = if is_float(name) { dtype.into() } else { info.dtype };
        TensorDeclaration::new(*name, dtype, info.shape.clone())
    };
    let declarations: Vec<_> = names.iter().map(declare).collect();
    let mut dir = DirWriter::create(to).unwrap();
    dir.copy_file(&from.join("config.json")).unwrap();
    let written = dir.safetensors("model.safetensors", &declarations, |writer| {
        names.iter().try_for_each(|name| {
            if !is_float(name) {
                return writer.write_raw(&raw(&checkpoint, name));
            }
            let all = values(&checkpoint, name).into_iter().map(|value| change(name, value));
            writer.write_f32(&all.collect::<Vec<_>>())
        })
    });
    written.unwrap();
    dir.finish().unwrap();
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|p| (p.file_name().unwrap().display().to_string(), fs::read(p).unwrap())).collect()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().display().to_string()).collect()
}

#[test]
fn a_merged_f32_checkpoint_has_the_logits_of_peft() {
    let work = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (adapter, base) in goldens().into_iter().filter(|(adapter, _)| !is_tied(adapter)) {
        let name = adapter.file_name().unwrap();
        let (plain, to) = (work.path().join("f32"), work.path().join(name));
        // Golden checkpoints may be bf16, but PEFT computed with them as f32.
        copy(&base, &plain, Dtype::F32, |_, value| value);
        merged(&plain, &adapter, &to).unwrap();
        fs::remove_dir_all(&plain).unwrap();
        let want = reference(&adapter);
        let mut bench = Bench::new(open(&to, Some(Format::F32)), kv(Format::F32), Simd::best(), 2);
        let sequence = bench.sequence();
        let got = bench.pass(&[(sequence, &want.prompt)]).concat();
        let error = nmse(&got, &want.logits);
        assert!(error <= 1e-8, "{}: NMSE {error:e}", adapter.display());
        count += 1;
    }
    assert!(count >= 13, "{count} merged");
}

/// The rows of the references are those of `[outputs, inputs]`, or `[vocab, hidden]`.
#[test]
fn merged_rows_are_those_of_peft() {
    let work = tempfile::tempdir().unwrap();
    let (mut rescaled, mut added) = (0, 0);
    for (adapter, base) in goldens().into_iter().filter(|(adapter, _)| !is_tied(adapter)) {
        let (plain, to) = (work.path().join("f32"), work.path().join(adapter.file_name().unwrap()));
        copy(&base, &plain, Dtype::F32, |_, value| value);
        merged(&plain, &adapter, &to).unwrap();
        let (before, after) = (Checkpoint::open(&plain).unwrap(), Checkpoint::open(&to).unwrap());
        let expected = Checkpoint::open_file(&adapter.join("reference.safetensors")).unwrap();
        for delta in expected.names().filter(|name| name.starts_with("delta.")) {
            let path = delta.strip_prefix("delta.").unwrap();
            let full = format!("{path}.weight");
            let prefixed = ["model.", "transformer."].map(|prefix| format!("{prefix}{full}"));
            let short = full.split_once('.').unwrap().1.to_owned();
            let weight = [full].into_iter().chain(prefixed).chain([short]);
            let weight = weight.into_iter().find(|name| after.info(name).is_some()).unwrap();
            let [_, columns] = expected.info(delta).unwrap().shape[..] else { panic!("{delta}") };
            let ends = |checkpoint: &Checkpoint| {
                let (all, shape) = (values(checkpoint, &weight), &checkpoint.info(&weight).unwrap().shape);
                // Of a Conv1D, whose weights are transposed, the outputs are columns.
                let conv = base.join("config.json");
                let conv = fs::read_to_string(conv).unwrap().contains("GPT2");
                let row = |row: usize| {
                    if conv {
                        all.chunks_exact(shape[1]).map(|of| of[row]).collect::<Vec<_>>()
                    } else {
                        all[row * columns..(row + 1) * columns].to_vec()
                    }
                };
                let last = if conv { shape[1] } else { shape[0] } - 1;
                [row(0), row(last)].concat()
            };
            let (old, new) = (ends(&before), ends(&after));
            let want = match expected.info(&format!("merged.{path}")) {
                Some(info) => {
                    rescaled += 1;
                    values(&expected, &info.name)
                }
                None => {
                    added += 1;
                    old.iter().zip(values(&expected, delta)).map(|(w, d)| w + d).collect()
                }
            };
            assert_ne!(old, new, "{}: {path}", adapter.display());
            let error = nmse(&new, &want);
            assert!(error <= 1e-12, "{}: {path}: NMSE {error:e}", adapter.display());
        }
        fs::remove_dir_all(&plain).unwrap();
    }
    assert!(rescaled >= 15 && added >= 40, "{rescaled} rescaled, {added} added");
}

#[test]
fn a_merged_checkpoint_keeps_names_types_files_and_all_other_bytes() {
    let work = tempfile::tempdir().unwrap();
    let (adapter, base) = (golden_root().join("adapters/llama-plain"), golden_root().join("llama-a"));
    let to = work.path().join("to");
    merged(&base, &adapter, &to).unwrap();
    let (mut was, is) = (files(&base), files(&to));
    was.remove("reference.safetensors");
    assert!(was.keys().eq(is.keys()), "{:?} {:?}", was.keys(), is.keys());
    for same in ["config.json", "generation_config.json", "model.safetensors.index.json"] {
        assert_eq!(was[same], is[same], "{same}");
    }
    let (was, is) = (Checkpoint::open(&base).unwrap(), Checkpoint::open(&to).unwrap());
    assert!(was.names().eq(is.names()));
    let mut changed = 0;
    for name in was.names() {
        let (a, b) = (was.info(name).unwrap(), is.info(name).unwrap());
        assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape), "{name}");
        assert_eq!(was.file_of(name).unwrap().file_name(), is.file_of(name).unwrap().file_name(), "{name}");
        let adapted = name.ends_with("q_proj.weight") || name.ends_with("v_proj.weight");
        assert_eq!(raw(&was, name) != raw(&is, name), adapted, "{name}");
        changed += usize::from(adapted);
    }
    assert_eq!(changed, 6);
}

/// A DoRA adapter of an embedding and a head of more values than are in memory at once, which are compared with sums in f64.
#[test]
fn a_weight_that_is_merged_in_pieces_has_all_its_rows() {
    const VOCAB: usize = 20_000;
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let small = Checkpoint::open(&golden_root().join("llama-a")).unwrap();
    let config = fs::read_to_string(golden_root().join("llama-a/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let hidden = config["hidden_size"].as_u64().unwrap() as usize;
    assert!(VOCAB * hidden > 1 << 20, "more than one piece");
    config["vocab_size"] = VOCAB.into();
    // Values between -1 and 1 that do not repeat soon.
    let made = |count: usize, seed: usize| -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 10_007) as f32 / 5003.5 - 1.0).collect()
    };
    let write = |dir: &str, file: &str, config: (&str, &str), tensors: &[(String, Vec<usize>, Vec<f32>)]| {
        let declare = |(name, shape, _): &(String, Vec<usize>, Vec<f32>)| {
            TensorDeclaration::new(name.clone(), Dtype::F32, shape.clone())
        };
        let declared: Vec<_> = tensors.iter().map(declare).collect();
        let mut writer = DirWriter::create(&path(dir)).unwrap();
        writer.write(config.0, config.1.as_bytes()).unwrap();
        let all = |writer: &mut redline_weights::TensorWriter<'_>| {
            tensors.iter().try_for_each(|(_, _, values)| writer.write_f32(values))
        };
        writer.safetensors(file, &declared, all).unwrap();
        writer.finish().unwrap();
    };
    let tables = ["model.embed_tokens.weight", "lm_head.weight"];
    let tensors = small.names().map(|name| match tables.iter().position(|table| *table == name) {
        Some(seed) => (name.to_owned(), vec![VOCAB, hidden], made(VOCAB * hidden, seed)),
        None => (name.to_owned(), small.info(name).unwrap().shape.clone(), values(&small, name)),
    });
    let tensors: Vec<_> = tensors.collect();
    write("base", "model.safetensors", ("config.json", &config.to_string()), &tensors);
    let of = |part: &str, shape: &[usize], seed: usize| {
        (format!("base_model.model.{part}"), shape.to_vec(), made(shape.iter().product(), seed))
    };
    let parts = [
        of("lm_head.lora_A.weight", &[2, hidden], 2),
        of("lm_head.lora_B.weight", &[VOCAB, 2], 3),
        of("lm_head.lora_magnitude_vector", &[VOCAB], 4),
        of("model.embed_tokens.lora_embedding_A", &[2, VOCAB], 5),
        of("model.embed_tokens.lora_embedding_B", &[hidden, 2], 6),
        of("model.embed_tokens.lora_magnitude_vector", &[hidden], 7),
    ];
    let of_adapter = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 3, "use_dora": true, "target_modules": ["lm_head", "embed_tokens"]}"#;
    write("adapter", "adapter_model.safetensors", ("adapter_config.json", of_adapter), &parts);
    merged(&path("base"), &path("adapter"), &path("to")).unwrap();
    let after = Checkpoint::open(&path("to")).unwrap();
    let wide = |values: &[f32]| values.iter().map(|w| f64::from(*w)).collect::<Vec<_>>();
    let [head_a, head_b, head_m, a, b, m] = [0, 1, 2, 3, 4, 5].map(|part: usize| wide(&parts[part].2));
    let [mut embedding, mut head] = [0, 1].map(|seed| wide(&made(VOCAB * hidden, seed)));
    let mut columns = vec![0.0; hidden];
    for (token, (e, h)) in embedding.chunks_mut(hidden).zip(head.chunks_mut(hidden)).enumerate() {
        for i in 0..hidden {
            e[i] += 1.5 * (a[token] * b[2 * i] + a[VOCAB + token] * b[2 * i + 1]);
            h[i] += 1.5 * (head_b[2 * token] * head_a[i] + head_b[2 * token + 1] * head_a[hidden + i]);
            columns[i] += e[i] * e[i];
        }
        let length = h.iter().map(|h| h * h).sum::<f64>().sqrt();
        for h in h.iter_mut() {
            *h *= head_m[token] / length;
        }
    }
    for e in embedding.chunks_mut(hidden) {
        e.iter_mut().zip(&m).zip(&columns).for_each(|((e, m), square)| *e *= m / square.sqrt());
    }
    for (name, want) in tables.into_iter().zip([embedding, head]) {
        let largest = want.iter().fold(0f64, |largest, w| largest.max(w.abs()));
        for (i, (got, want)) in values(&after, name).into_iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() <= 1e-6 * largest, "{name} {i}: {got} {want}");
        }
    }
}

#[test]
fn values_are_rounded_to_nearest_even_in_the_type_of_the_checkpoint() {
    let work = tempfile::tempdir().unwrap();
    let (adapter, base) = (golden_root().join("adapters/llama-dora"), golden_root().join("llama-a"));
    let round: [(Dtype, Round); 2] =
        [(Dtype::BF16, |w| bf16_to_f32(f32_to_bf16_rne(w))), (Dtype::F16, |w| f16_to_f32(f32_to_f16_rne(w)))];
    for (dtype, round) in round {
        let path = |name: &str| work.path().join(format!("{name}-{dtype}"));
        let (stored, wide) = (path("stored"), path("wide"));
        copy(&base, &stored, dtype, |_, value| value);
        copy(&base, &wide, Dtype::F32, |_, value| round(value));
        merged(&stored, &adapter, &path("stored-merged")).unwrap();
        merged(&wide, &adapter, &path("wide-merged")).unwrap();
        let stored = Checkpoint::open(&path("stored-merged")).unwrap();
        let wide = Checkpoint::open(&path("wide-merged")).unwrap();
        for name in wide.names() {
            assert_eq!(stored.info(name).unwrap().dtype, dtype.into(), "{name}");
            let want: Vec<u32> = values(&wide, name).into_iter().map(|w| round(w).to_bits()).collect();
            let got: Vec<u32> = values(&stored, name).into_iter().map(f32::to_bits).collect();
            assert!(got == want, "{name} as {dtype}");
        }
    }
}

#[test]
fn a_scale_multiplies_the_update_and_zero_changes_no_bit() {
    let work = tempfile::tempdir().unwrap();
    let (adapter, base) = (golden_root().join("adapters/gpt2-conv1d"), golden_root().join("gpt2-a"));
    let plain = work.path().join("f32");
    // A negative zero stays one.
    copy(&base, &plain, Dtype::F32, |_, value| if value.abs() < 1e-3 { -0.0 } else { value });
    let to = |scale: f32| {
        let to = work.path().join(scale.to_string());
        merge(&plain, &adapter, &to, scale, &mut |_| Ok(())).unwrap();
        Checkpoint::open(&to).unwrap()
    };
    let (before, none, half, whole) = (Checkpoint::open(&plain).unwrap(), to(0.0), to(-0.5), to(1.0));
    for name in before.names() {
        let [w, none, half, whole] =
            [&before, &none, &half, &whole].map(|checkpoint| values(checkpoint, name));
        assert!(w.iter().map(|w| w.to_bits()).eq(none.iter().map(|w| w.to_bits())), "{name}");
        for ((w, half), whole) in w.iter().zip(&half).zip(&whole) {
            assert!((half - (w - 0.5 * (whole - w))).abs() <= 1e-6, "{name}: {w} {half} {whole}");
        }
    }
}

#[test]
fn what_cannot_be_merged_is_refused_before_anything_is_written() {
    let work = tempfile::tempdir().unwrap();
    let root = golden_root();
    let adapter = |name: &str| root.join("adapters").join(name);
    let to = work.path().join("to");
    let says = |result: Result<(), ModelError>, fact: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(fact), "{error}");
        assert!(error.hint().is_some(), "{error}");
        assert_eq!(names(work.path()), [""; 0], "{fact}");
    };
    let tied = "module `model.embed_tokens` is the token embedding, which the adapter changes alone, but in this model it is one \
                tensor with the head";
    says(merged(&root.join("qwen2-a"), &adapter("qwen2-tied"), &to), tied);
    let scaled = merge(&root.join("llama-a"), &adapter("llama-dora"), &to, 0.5, &mut |_| Ok(()));
    says(scaled, "it has no scale of 0.5");
    says(merged(&root.join("llama-b"), &adapter("qwen2-rslora"), &to), "this model needs");
    // The copy of the base's embedding tells another base of the same shape.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("other");
    copy(&root.join("qwen2-b"), &other, Dtype::F32, |name, value| {
        if name.contains("embed_tokens") { value + 1.0 } else { value }
    });
    says(merged(&other, &adapter("qwen2-untied"), &to), "but the base model has");
    says(merged(&root.join("llama-a"), &root.join("llama-a"), &to), "there is no `adapter_config.json`");
    let half = elsewhere.path().join("half");
    copy(&root.join("llama-a"), &half, Dtype::F16, |_, value| value);
    let large = merge(&half, &adapter("llama-plain"), &to, 1e9, &mut |_| Ok(()));
    says(large, "F16");
}

#[test]
fn a_cancelled_merge_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let (adapter, base) = (golden_root().join("adapters/gpt2-dora"), golden_root().join("gpt2-b"));
    let mut steps = 0;
    for most in 0.. {
        let mut now = 0;
        let result = merge(&base, &adapter, &work.path().join("to"), 1.0, &mut |progress| {
            assert!(progress.done <= progress.total);
            now += 1;
            if now > most { Err(ModelError::Cancelled) } else { Ok(()) }
        });
        if result.is_ok() {
            break;
        }
        assert!(matches!(result, Err(ModelError::Cancelled)), "{result:?}");
        assert_eq!(names(work.path()), [""; 0], "after {most} steps");
        steps += 1;
    }
    assert!(steps > 10, "{steps}");
}

#[test]
fn a_merge_that_dies_or_fails_at_any_operation_leaves_nothing_or_everything() {
    let (adapter, base) = (golden_root().join("adapters/llama-plain"), golden_root().join("llama-a"));
    let run = |disk: &Disk, to: &Path| merge_on(disk, &base, &adapter, to, 1.0, &mut |_| Ok(()));
    let (whole, operations) = {
        let work = tempfile::tempdir().unwrap();
        let (disk, done) = Disk::failing(usize::MAX, false);
        run(&disk, &work.path().join("to")).unwrap();
        (files(&work.path().join("to")), done.load(Ordering::Relaxed))
    };
    assert!(operations > 20, "{operations}");
    for (n, dies) in (0..operations).flat_map(|n| [(n, true), (n, false)]) {
        let work = tempfile::tempdir().unwrap();
        let to = work.path().join("to");
        run(&Disk::failing(n, dies).0, &to).unwrap_err();
        assert!(to.exists() == (n + 1 == operations), "operation {n}");
        if !to.exists() && !dies {
            assert_eq!(names(work.path()), [""; 0], "operation {n}");
        }
        if !to.exists() {
            run(&Disk::default(), &to).unwrap();
        }
        assert!(files(&to) == whole, "operation {n}");
        assert_eq!(names(work.path()), ["to"], "operation {n}");
    }
}
