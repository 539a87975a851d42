//! Logits and greedy ids of every architecture, compared with transformers in f32.

use std::path::Path;

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Matrix, Simd};
use redline_models::model::OperationCounts;
use redline_models::spec::{DecoderSpec, LayerSpec, NormKind, Role};
use redline_models::{LoadOptions, Loader, Weights, arch, load};
use redline_weights::{Checkpoint, ConfigFile, DirWriter, Dtype, TensorDeclaration};

use crate::reference::{Bench, argmax, golden_root, goldens, masked_goldens, nmse, on_team, open, reference};
use crate::rewritten::{Tensor, rewrite};

#[test]
fn f32_logits_match_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let got = bench.pass(&[(sequence, &want.prompt)]).concat();
        let error = nmse(&got, &want.logits);
        assert!(error <= 1e-9, "{}: NMSE {error:e}", dir.display());
    }
}

#[test]
fn greedy_ids_match_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        let mut bench = Bench::new(open(&dir, Some(Format::F32)), KvFormat::F32, Simd::best(), 2);
        let sequence = bench.sequence();
        let mut next = argmax(bench.pass(&[(sequence, &want.prompt)]).last().unwrap());
        let mut ids = vec![next];
        while ids.len() < want.greedy.len() {
            next = argmax(&bench.pass(&[(sequence, &[next])])[0]);
            ids.push(next);
        }
        assert_eq!(ids, want.greedy, "{}", dir.display());
    }
}

#[test]
fn bf16_logits_stay_close_to_the_reference() {
    for dir in goldens() {
        let want = reference(&dir);
        for &kv in KvFormat::ALL {
            let model = open(&dir, Some(Format::Bf16));
            if model.page_shape(kv).keys.iter().any(|shape| !kv.holds(shape.head_dim)) {
                continue;
            }
            let mut bench = Bench::new(model, kv, Simd::best(), 2);
            let sequence = bench.sequence();
            let got = bench.pass(&[(sequence, &want.prompt)]).concat();
            let error = nmse(&got, &want.logits);
            let most = match kv {
                KvFormat::W8 => 1e-3,
                KvFormat::W4 => 5e-2,
                _ => 1e-4,
            };
            assert!(error <= most, "{}: NMSE {error:e} with {} keys", dir.display(), kv.name());
        }
    }
}

/// Without a format of its own choice a model keeps that of its matrices: bf16 only if all have it.
#[test]
fn matrices_of_two_types_are_kept_as_f32() {
    let dir = goldens().into_iter().find(|dir| dir.ends_with("llama-b")).unwrap();
    let checkpoint = Checkpoint::open(&dir).unwrap();
    let load_with = |dtype: fn(&str) -> Dtype| {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DirWriter::create(&folder.path().join("model")).unwrap();
        writer.write("config.json", &std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let tensors: Vec<TensorDeclaration> = checkpoint
            .names()
            .map(|name| {
                TensorDeclaration::new(
                    name.to_owned(),
                    dtype(name),
                    checkpoint.info(name).unwrap().shape.clone(),
                )
            })
            .collect();
        let written = writer.safetensors("model.safetensors", &tensors, |out| {
            for name in checkpoint.names() {
                let mut values = vec![0.0; checkpoint.info(name).unwrap().elements()];
                checkpoint.read_f32(name, &mut values)?;
                out.write_f32(&values)?;
            }
            Ok(())
        });
        written.unwrap();
        writer.finish().unwrap();
        open(&folder.path().join("model"), None).facts().format
    };
    assert_eq!(load_with(|_| Dtype::F32), Format::F32);
    assert_eq!(load_with(|_| Dtype::BF16), Format::Bf16);
    let norms = |name: &str| if name.contains("norm") { Dtype::F32 } else { Dtype::BF16 };
    assert_eq!(load_with(norms), Format::Bf16, "only matrices count");
    let one = |name: &str| if name.ends_with("1.mlp.down_proj.weight") { Dtype::F32 } else { Dtype::BF16 };
    assert_eq!(load_with(one), Format::F32);
    let rest = |name: &str| if name.ends_with("1.mlp.down_proj.weight") { Dtype::BF16 } else { Dtype::F32 };
    assert_eq!(load_with(rest), Format::F32);
}

#[test]
fn a_decoding_step_reads_everything_but_tables_that_are_no_head() {
    // Name, rows and columns of the lookup tables. llama-b, qwen3-a and gpt2-a are tied.
    for (name, rows, cols) in
        [("llama-a", 131u64, 72), ("llama-b", 0, 100), ("qwen3-a", 0, 72), ("gpt2-a", 80, 60)]
    {
        let dir = goldens().into_iter().find(|dir| dir.ends_with(name)).unwrap();
        let model = open(&dir, Some(Format::F32));
        let tables = model.weight_bytes() - model.bytes_per_token();
        // Rows and columns may be padded.
        let (least, most) = (rows * cols * 4, rows.next_multiple_of(16) * (cols + 4) * 4);
        assert!((least..=most).contains(&tables), "{name}: {tables} bytes, {least} to {most}");
    }
}

/// Writes llama-b with one more tensor, as some old checkpoints have.
fn with_tensor(name: &str, to: &Path) {
    rewrite(&golden_root().join("llama-b"), to, |_, tensors| tensors.push(Tensor::ones(name, &[10])));
}

#[test]
fn buffers_of_old_checkpoints_are_left_unread_and_other_tensors_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (old, other) = (folder.path().join("old"), folder.path().join("other"));
    with_tensor("model.layers.1.self_attn.rotary_emb.inv_freq", &old);
    assert_eq!(
        open(&old, None).facts().parameters,
        open(&golden_root().join("llama-b"), None).facts().parameters
    );
    with_tensor("model.layers.1.self_attn.rotary_emb.cos_cached", &other);
    let config = ConfigFile::open(&other.join("config.json")).unwrap();
    let checkpoint = Checkpoint::open(&other).unwrap();
    let weights = Weights::Checkpoint(&checkpoint);
    let error = on_team(|exec| load(exec, &config, weights, LoadOptions::default())).unwrap_err().to_string();
    let fact =
        "1 tensors are not part of this architecture: `model.layers.1.self_attn.rotary_emb.cos_cached`\n";
    assert!(error.starts_with(fact), "{error}");
}

#[test]
fn operations_are_those_of_the_weights() {
    // Hidden width 100, five heads of 20 over one of keys and values, inner width 60, 131 tokens, two layers.
    let model = open(&golden_root().join("llama-b"), Some(Format::F32));
    let (qkv, rest) = (100 * (100 + 2 * 20), 100 * 100 + 100 * 2 * 60 + 60 * 100);
    let expect = OperationCounts {
        // The last layer needs keys and values of every token, and the rest only where logits are wanted.
        per_token: 2.0 * f64::from(2 * qkv + rest),
        per_key: 4.0 * f64::from(2 * 5 * 20),
        per_output: 2.0 * f64::from(131 * 100 + rest),
    };
    assert_eq!(model.operations(), expect);
}

/// A recurrence runs for every row, also in the last layer, in which it may take longer than all that depends on the row alone.
#[test]
fn operations_of_recurrences_are_counted() {
    // Hidden width 60, inner width 76; in two of three layers four heads of 30 with 10 rows in two groups; six heads of 10 over two.
    let model = open(&golden_root().join("granite4h-a"), Some(Format::F32));
    let (input, recurrence, output) = (60 * (2 * 120 + 2 * 2 * 10 + 4), 3 * 120 * 10, 120 * 60);
    let (qkv, rest, mlp) = (60 * (60 + 2 * 20), 60 * 60, 60 * 2 * 76 + 76 * 60);
    let expect = OperationCounts {
        per_token: 2.0 * f64::from(2 * (input + recurrence) + output + qkv + rest + 2 * mlp),
        per_key: 4.0 * f64::from(6 * 10),
        per_output: 2.0 * f64::from(131 * 60 + output + mlp),
    };
    assert_eq!(model.operations(), expect);
}

fn spec(dir: &Path) -> DecoderSpec {
    let config = ConfigFile::open(&dir.join("config.json")).unwrap();
    (arch::find(&config).unwrap().spec)(&config).unwrap()
}

/// The least number of bytes for the weights of a checkpoint in f32, and the most: biases may be padded to sixteen values.
fn bytes(spec: &DecoderSpec) -> std::ops::RangeInclusive<u64> {
    let matrix = |rows: usize, cols: usize| Matrix::zeroed(Format::F32, rows, cols).unwrap().bytes();
    let linears: Vec<_> = spec.linears().into_iter().chain(spec.unquantised()).collect();
    let matrices: usize = linears.iter().map(|linear| matrix(linear.outputs(), linear.inputs)).sum();
    let tensors = spec.tensors();
    let vectors = tensors.iter().filter(|tensor| tensor.role != Role::Weight);
    let vectors: usize = vectors.map(|tensor| 4 * tensor.shape.iter().product::<usize>()).sum();
    // LayerNorm without bias has zeros, RMSNorm without weight ones.
    let norms = spec.layers.iter().flat_map(LayerSpec::norms).chain(&spec.final_norm);
    let constant = [NormKind::LayerUnbiased, NormKind::RmsUnweighted];
    let constants: usize =
        norms.filter(|norm| constant.contains(&norm.kind)).map(|norm| 4 * norm.width).sum();
    let vectors = vectors + constants;
    let padding = 60 * linears.iter().filter(|linear| linear.has_bias()).count();
    (matrices + vectors) as u64..=(matrices + vectors + padding) as u64
}

#[test]
fn every_weight_is_counted_once() {
    let counted: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden_root().join("manifest.json")).unwrap()).unwrap();
    for dir in goldens().into_iter().chain(masked_goldens()) {
        let model = open(&dir, Some(Format::F32));
        let name = dir.file_name().unwrap().to_str().unwrap();
        if let Some(counted) = counted.get(name) {
            assert_eq!(counted["parameters"], model.facts().parameters, "{name}");
        }
        // Norms of heads have a test of their own.
        if !name.starts_with("qwen3") {
            let expect = bytes(&spec(&dir));
            assert!(expect.contains(&model.weight_bytes()), "{name}: {} of {expect:?}", model.weight_bytes());
        }
    }
}

#[test]
fn norms_of_heads_are_resident_weights_too() {
    for name in ["qwen3-a", "qwen3-b"] {
        let dir = golden_root().join(name);
        let (expect, found) = (bytes(&spec(&dir)), open(&dir, Some(Format::F32)).weight_bytes());
        assert!(expect.contains(&found), "{name}: {found} of {expect:?}");
    }
}

/// Some tied checkpoints hold a head too. It must be the embedding, from its first element to its last.
#[test]
fn a_tied_head_that_is_not_the_embedding_is_refused() {
    let dir = golden_root().join("llama-b");
    let checkpoint = Checkpoint::open(&dir).unwrap();
    let names: Vec<&str> = checkpoint.names().collect();
    let declare = |name: &str| {
        let shape = checkpoint.info(name).unwrap().shape.clone();
        TensorDeclaration::new(name, Dtype::F32, shape)
    };
    let tensors: Vec<TensorDeclaration> = names.iter().map(|name| declare(name)).collect();
    let config = ConfigFile::open(&dir.join("config.json")).unwrap();
    let last = checkpoint.info("lm_head.weight").unwrap().elements() - 1;
    for changed in [None, Some(0), Some(last)] {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("model");
        let mut writer = DirWriter::create(&to).unwrap();
        let written = writer.safetensors("model.safetensors", &tensors, |out| {
            for &name in &names {
                let mut values = vec![0.0; checkpoint.info(name).unwrap().elements()];
                checkpoint.read_f32(name, &mut values)?;
                if let (true, Some(at)) = (name == "lm_head.weight", changed) {
                    values[at] += 1.0;
                }
                out.write_f32(&values)?;
            }
            Ok(())
        });
        written.unwrap();
        writer.finish().unwrap();
        let other = Checkpoint::open(&to).unwrap();
        let weights = Weights::Checkpoint(&other);
        let loaded = on_team(|exec| load(exec, &config, weights, LoadOptions::default()));
        let refused = loaded.err().map(|error| error.to_string());
        let fact = "`tie_word_embeddings` is true, but `lm_head.weight` differs from the embedding";
        let expect = changed.map(|_| format!("{fact}\n  in `{}`", to.display()));
        assert_eq!(refused, expect, "element {changed:?}");
    }
}

/// What a loader announces before it reads is what the model has in memory.
#[test]
fn the_footprint_is_that_of_the_loaded_model() {
    for dir in goldens().into_iter().chain(masked_goldens()) {
        let config = ConfigFile::open(&dir.join("config.json")).unwrap();
        let checkpoint = Checkpoint::open(&dir).unwrap();
        for &format in Format::ALL {
            for outliers in [0.0, 0.1] {
                let options = LoadOptions { format: Some(format), outliers, mmap: false };
                let loader = Loader::new(&config, Weights::Checkpoint(&checkpoint), options).unwrap();
                let announced = loader.footprint().weight_bytes();
                let model = on_team(|exec| loader.load(exec)).unwrap();
                assert_eq!(announced, model.weight_bytes(), "{} {format} {outliers}", dir.display());
                assert_eq!(model.facts().format, format);
            }
        }
    }
}
