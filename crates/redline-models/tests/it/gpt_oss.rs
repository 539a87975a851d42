//! gpt-oss: what its configurations may say, stacked experts, and blocks of four-bit floats as they are stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redline_kernels::op::activation::Gating;
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Simd};
use redline_models::plan::Site;
use redline_models::spec::DecoderSpec;
use redline_models::{ConvertOptions, LoadOptions, Loader, ModelFiles, arch, convert, convert_stored};
use redline_weights::{Checkpoint, ConfigFile, DirWriter, StoredDtype, TensorDeclaration, WeightsError};
use serde_json::{Value, json};

use crate::reference::{Bench, bits, golden_root, nmse, on_team, open, reference};

fn golden(name: &str) -> PathBuf {
    golden_root().join(name)
}

fn spec(name: &str, changes: &Value) -> Result<DecoderSpec, String> {
    let file = golden(name).join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        if value == "absent" {
            config.as_object_mut().unwrap().remove(key);
        } else {
            config[key] = value.clone();
        }
    }
    let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
    arch::specification(&config).map(|(_, spec)| spec).map_err(|error| error.to_string())
}

#[test]
fn configurations_decide_windows_biases_and_gates() {
    let windows = |changes| -> Vec<Option<usize>> {
        let spec = spec("gpt-oss-a", &changes).unwrap();
        spec.layers.iter().map(|layer| layer.attention().unwrap().window).collect()
    };
    assert_eq!(windows(json!({})), [Some(12), None]);
    // Without a list, every other layer from the first on.
    let three = json!({"layer_types": "absent", "num_hidden_layers": 3});
    assert_eq!(windows(three), [Some(12), None, Some(12)]);
    let gate = |changes| {
        let spec = spec("gpt-oss-b", &changes).unwrap();
        spec.layers[0].mlp.experts().unwrap().experts[0].gate
    };
    assert_eq!(gate(json!({})), Some(Gating::Clamped { alpha: 1.702, limit: 1.5 }));
    assert_eq!(gate(json!({"swiglu_limit": "absent"})), Some(Gating::Clamped { alpha: 1.702, limit: 7.0 }));
    assert_eq!(gate(json!({"swiglu_alpha": 1.5})), Some(Gating::Clamped { alpha: 1.5, limit: 1.5 }));
    let plain = spec("gpt-oss-a", &json!({"attention_bias": false})).unwrap();
    let attention = plain.layers[1].attention().unwrap();
    assert!(!attention.qkv.has_bias() && !attention.output.has_bias());
    assert_eq!(attention.sinks.as_ref().map(|sinks| &*sinks.name), Some("layers.1.self_attn.sinks"));
}

#[test]
fn what_changes_the_result_and_is_not_supported_is_refused_by_name() {
    for (changes, names) in [
        (json!({"quantization_config": {"quant_method": "gptq"}}), ["quant_method", "`mxfp4`"]),
        (json!({"quantization_config": {}}), ["quant_method", "`mxfp4`"]),
        (json!({"quantization_config": {"quant_method": "mxfp4", "bits": 3}}), ["bits", "no such key"]),
        (json!({"swiglu_limit": 0.0}), ["swiglu_limit", "positive"]),
        (json!({"swiglu_alpha": -1.0}), ["swiglu_alpha", "positive"]),
        (json!({"hidden_act": "gelu"}), ["hidden_act", "silu"]),
        (json!({"rope_scaling": null}), ["rope_parameters", "missing"]),
        (json!({"num_experts": 4}), ["num_experts", "`5`, as in `num_local_experts`"]),
        (json!({"num_experts_per_tok": 6}), ["num_experts_per_tok", "more than"]),
        (json!({"sliding_window": "absent"}), ["sliding_window", "missing"]),
        (json!({"sliding_window": null}), ["sliding_window", "in use"]),
        (json!({"routed_scaling_factor": 2.0}), ["routed_scaling_factor", "`1`"]),
        (json!({"shared_expert_intermediate_size": 8}), ["shared_expert_", "this architecture"]),
        (json!({"use_bidirectional_attention": true}), ["use_bidirectional_attention", "`false`"]),
    ] {
        let message = spec("gpt-oss-b", &changes).map(|_| ()).expect_err(&changes.to_string());
        let missing = names.into_iter().find(|name| !message.contains(name));
        assert_eq!(missing, None, "{changes}: {message:?}");
    }
}

/// Bits of the logits of the prompt in pieces.
fn run(path: &Path, prompt: &[u32], simd: Simd, threads: usize, piece: usize) -> Vec<u32> {
    let mut bench = Bench::new(open(path, None), KvFormat::Bf16, simd, threads);
    let sequence = bench.sequence();
    prompt.chunks(piece).flat_map(|tokens| bits(&bench.pass(&[(sequence, tokens)]))).collect()
}

#[test]
fn blocks_are_used_as_they_are_stored() {
    let dir = golden("gpt-oss-b");
    let model = open(&dir, None);
    for site in [Site::ExpertUp, Site::ExpertDown] {
        assert_eq!(model.formats_at(site), vec![Format::Mxfp4; 10]);
    }
    assert_eq!(model.formats_at(Site::Router), [Format::F32; 2]);
    assert_eq!(model.formats_at(Site::Qkv), [Format::F32; 2]);
    assert_eq!(model.facts().formats, "mxfp4+f32");
    // Only the inputs of experts are rounded.
    let want = reference(&dir);
    let mut bench = Bench::new(model, KvFormat::F32, Simd::best(), 2);
    let sequence = bench.sequence();
    let error = nmse(&bench.pass(&[(sequence, &want.prompt)]).concat(), &want.logits);
    assert!(error > 0.0 && error <= 1e-3, "NMSE {error:e}");
    // Another format takes their place if one is asked for.
    for format in [Format::F32, Format::Bf16, Format::W8 { group: 0 }] {
        assert_eq!(open(&dir, Some(format)).formats_at(Site::ExpertUp), vec![format; 10]);
    }
}

#[test]
fn stored_blocks_give_the_same_bits_on_every_tier_with_any_threads_pieces_and_company() {
    for path in [golden("gpt-oss-b"), golden("gguf/gpt-oss-b.gguf")] {
        let prompt = reference(&golden("gpt-oss-b")).prompt;
        let want = run(&path, &prompt, Simd::best(), 2, prompt.len());
        for simd in Simd::variants() {
            for (threads, piece) in [(1, 41), (2, 1), (3, 7)] {
                let same = run(&path, &prompt, simd, threads, piece) == want;
                assert!(same, "{} {} {threads} threads, pieces of {piece}", path.display(), simd.name());
            }
        }
        let mut bench = Bench::new(open(&path, None), KvFormat::Bf16, Simd::best(), 2);
        let (other, own) = (bench.sequence(), bench.sequence());
        let reversed: Vec<u32> = prompt.iter().rev().copied().collect();
        let rows = bench.pass(&[(other, &reversed), (own, &prompt)]);
        assert!(bits(&rows[prompt.len()..]) == want, "{}", path.display());
    }
}

#[test]
fn a_converted_checkpoint_has_the_same_bits() {
    let (dir, folder) = (golden("gpt-oss-b"), tempfile::tempdir().unwrap());
    let prompt = reference(&dir).prompt;
    let stored = folder.path().join("stored");
    on_team(|exec| convert_stored(exec, &dir, &stored, &mut |_| Ok(()))).unwrap();
    let of = |path: &Path| run(path, &prompt, Simd::best(), 2, prompt.len());
    assert!(of(&stored) == of(&dir));
    let files = ModelFiles::open(&stored).unwrap();
    let loader = Loader::new(files.config(), files.weights(), LoadOptions::default()).unwrap();
    assert_eq!(loader.footprint().weight_bytes(), open(&dir, None).weight_bytes());
    assert!(ModelFiles::open(&dir).unwrap().stores_blocks().unwrap());
    for (name, stores) in [("gpt-oss-a", false), ("qwen3moe-a", false), ("gguf/gpt-oss-b.gguf", false)] {
        assert_eq!(ModelFiles::open(&golden(name)).unwrap().stores_blocks().unwrap(), stores, "{name}");
    }
    // To another format, from blocks and from stacked floats.
    for (golden, format) in
        [("gpt-oss-b", Format::Bf16), ("gpt-oss-b", Format::W4 { group: 32 }), ("gpt-oss-a", Format::F32)]
    {
        let (dir, to) = (golden_root().join(golden), folder.path().join(format!("{golden} {format}")));
        let options = ConvertOptions { format, outliers: 0.0 };
        on_team(|exec| convert(exec, &dir, &to, options, &mut |_| Ok(()))).unwrap();
        let logits = |path: &Path, format| {
            let mut bench = Bench::new(open(path, format), KvFormat::Bf16, Simd::best(), 2);
            let sequence = bench.sequence();
            bits(&bench.pass(&[(sequence, &prompt)]))
        };
        assert!(logits(&to, None) == logits(&dir, Some(format)), "{golden} {format}");
    }
}

/// The bytes of a tensor.
type Bytes = (StoredDtype, Vec<usize>, Vec<u8>);

/// Writes gpt-oss-b with changed tensors.
fn changed(to: &Path, change: impl Fn(&mut BTreeMap<String, Bytes>)) {
    let checkpoint = Checkpoint::open(&golden("gpt-oss-b")).unwrap();
    let mut tensors = BTreeMap::new();
    for name in checkpoint.names() {
        let (info, mut bytes) = (checkpoint.info(name).unwrap(), Vec::new());
        let read = checkpoint.read_raw(name, |piece| {
            bytes.extend_from_slice(piece);
            Ok::<_, WeightsError>(())
        });
        read.unwrap();
        tensors.insert(name.to_owned(), (info.dtype, info.shape.clone(), bytes));
    }
    change(&mut tensors);
    let declare = |(name, (dtype, shape, _)): (&String, &Bytes)| {
        TensorDeclaration::new(name.as_str(), *dtype, shape.clone())
    };
    let declared: Vec<TensorDeclaration> = tensors.iter().map(declare).collect();
    let mut writer = DirWriter::create(to).unwrap();
    writer.write("config.json", &std::fs::read(golden("gpt-oss-b").join("config.json")).unwrap()).unwrap();
    let written = writer.safetensors("model.safetensors", &declared, |out| {
        tensors.values().try_for_each(|(_, _, bytes)| out.write_raw(bytes))
    });
    written.unwrap();
    writer.finish().unwrap();
}

#[test]
fn hostile_blocks_are_refused_by_name() {
    const SCALES: &str = "model.layers.1.mlp.experts.down_proj_scales";
    const BLOCKS: &str = "model.layers.1.mlp.experts.down_proj_blocks";
    type Change = fn(&mut BTreeMap<String, Bytes>);
    let cases: [(Change, &[&str]); 7] = [
        (
            |tensors| tensors.get_mut(SCALES).unwrap().2[70] = 255,
            &["`model.layers.1.mlp.experts.down_proj_scales` is 255 at element 70", "infinite"],
        ),
        (|tensors| drop(tensors.remove(SCALES)), &[SCALES, "is missing"]),
        (|tensors| drop(tensors.remove(BLOCKS)), &[BLOCKS, "is missing"]),
        (|tensors| tensors.get_mut(SCALES).unwrap().0 = StoredDtype::I8, &[SCALES, "is I8", "U8"]),
        (
            |tensors| tensors.get_mut(BLOCKS).unwrap().1 = vec![5, 64, 2, 8],
            &[BLOCKS, "5 x 64 x 2 x 8", "5 x 64 x 1 x 16"],
        ),
        (
            |tensors| tensors.get_mut(SCALES).unwrap().1 = vec![5, 1, 64],
            &[SCALES, "5 x 1 x 64", "5 x 64 x 1"],
        ),
        (
            |tensors| {
                let bytes = tensors[SCALES].clone();
                tensors.insert("model.layers.1.mlp.experts.gate_proj_scales".into(), bytes);
            },
            &["not part of this architecture", "gate_proj_scales"],
        ),
    ];
    for (case, (change, facts)) in cases.into_iter().enumerate() {
        for format in [None, Some(Format::Bf16)] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("model");
            changed(&to, change);
            let files = ModelFiles::open(&to).unwrap();
            let options = LoadOptions { format, ..LoadOptions::default() };
            let loaded =
                on_team(|exec| Loader::new(files.config(), files.weights(), options)?.load(exec).map(|_| ()));
            let message = loaded.unwrap_err().to_string();
            let missing = facts.iter().find(|fact| !message.contains(*fact));
            assert_eq!(missing, None, "case {case}: {message:?}");
        }
    }
    // A scale that is as large as a weight allows.
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("model");
    changed(&to, |tensors| tensors.get_mut(SCALES).unwrap().2[70] = 249);
    open(&to, None);
}

/// The file names the norm before the experts as llama.cpp does, and its sinks and biases are those of the checkpoint.
#[test]
fn experts_of_gguf_files_keep_their_blocks() {
    let model = open(&golden("gguf/gpt-oss-b.gguf"), None);
    let formats = model.formats_at(Site::ExpertUp);
    assert!(!formats.is_empty() && formats.iter().all(|format| *format == Format::Mxfp4));
    assert_eq!(model.formats_at(Site::Router), [Format::F32; 2]);
    assert_eq!(model.facts().architecture, "GptOssForCausalLM");
    assert_eq!(model.facts().parameters, open(&golden("gpt-oss-b"), None).facts().parameters);
}
