//! `adapter inspect` and `adapter merge`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use redline_api::documents::adapter::AdapterInspection;
use redline_weights::{Checkpoint, WeightsError};

use crate::checkpoint;
use crate::golden::{GOLDEN, adapter, adapters, golden};
use crate::harness::{bits, redline};

#[track_caller]
fn inspected(arguments: &[&str]) -> AdapterInspection {
    let run = redline(&[&["adapter", "inspect", "--json"], arguments].concat()).ok();
    assert_eq!(run.out.lines().count(), 1);
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.out))
}

#[test]
fn an_inspection_agrees_with_peft_and_fits_the_base() {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(format!("{GOLDEN}/adapters/manifest.json")).unwrap()).unwrap();
    for (name, base) in adapters() {
        let seen = inspected(&[&adapter(&name), "--model", &golden(&base)]);
        let values = |key: &str| {
            let mut all: Vec<f64> = manifest[&name][key]
                .as_object()
                .unwrap()
                .values()
                .map(|value| value.as_f64().unwrap())
                .collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let found = |value: fn(&redline_api::documents::adapter::AdapterTarget) -> f64| {
            let each = seen.targets.iter().flat_map(|target| vec![value(target); target.modules]);
            let mut all: Vec<f64> = each.collect();
            all.sort_by(f64::total_cmp);
            all
        };
        assert_eq!(found(|target| target.rank as f64), values("rank"), "{name}");
        for (found, needed) in found(|target| f64::from(target.scaling.0)).iter().zip(values("scaling")) {
            assert!((found - needed).abs() <= 1e-6 * needed, "{name}: {found} {needed}");
        }
        assert_eq!(seen.modules, values("rank").len(), "{name}");
        assert_eq!((seen.object.as_str(), seen.base_model.as_deref()), ("adapter", Some(base.as_str())));
        assert_eq!((seen.dora, seen.rslora), (name.contains("dora"), name.contains("rslora")), "{name}");
        assert_eq!(seen.parameters, seen.targets.iter().map(|target| target.parameters).sum::<u64>());
        let fit = seen.fit.expect("a fit");
        assert!(fit.memory_bytes > 0 && fit.model == golden(&base), "{name}: {fit:?}");
    }
}

#[test]
fn the_chat_model_has_the_weights_that_merging_its_adapter_gives() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged");
    let [demo, chat] = ["demo", "demo-chat"].map(|name| format!("{models}/{name}"));
    redline(&["adapter", "merge", &demo, &chat, out.to_str().unwrap()]).ok();
    let tensors = |checkpoint: Checkpoint| {
        let tensor = |name: &str| {
            let mut bytes = Vec::new();
            let mut take = |piece: &[u8]| {
                bytes.extend_from_slice(piece);
                Ok::<_, WeightsError>(())
            };
            checkpoint.read_raw(name, &mut take).unwrap();
            (name.to_owned(), bytes)
        };
        checkpoint.names().map(tensor).collect::<BTreeMap<_, _>>()
    };
    let inside = tensors(Checkpoint::from_bytes("demo-chat", (redline_demo::CHAT.weights)()).unwrap());
    assert!(inside == tensors(Checkpoint::open(&out).unwrap()) && inside.len() > 30);
    assert!(inside != tensors(Checkpoint::open(Path::new(&demo)).unwrap()));
}

#[test]
fn the_contents_of_an_adapter_are_a_table() {
    let run = redline(&["adapter", "inspect", &adapter("llama-patterns")]).ok();
    for row in [
        "base model   llama-b",
        "method       LoRA\n",
        "modules      14",
        "target     modules  rank  alpha  scaling",
    ] {
        assert!(run.out.contains(row), "no `{row}` in\n{}", run.out);
    }
    assert!(!run.out.contains("in memory"), "{}", run.out);
    let model = ["--model", &golden("llama-b"), "--format", "w8"];
    let run = redline(&[&["adapter", "inspect", &adapter("llama-patterns")], &model[..]].concat()).ok();
    assert!(run.out.contains("beside w8 weights") && run.out.contains("fits         "), "{}", run.out);
    let bytes = |format: &str| {
        let model = ["--model", &golden("llama-b"), "--format", format];
        inspected(&[&[adapter("llama-patterns").as_str()], &model[..]].concat()).fit.unwrap().memory_bytes
    };
    assert!(bytes("f32") > bytes("bf16"));
}

/// The digest names the adapter, not its file: other bytes, another rank or another alpha give another one.
#[test]
fn digests_are_distinct_and_follow_the_configuration() {
    let digest = |dir: &str| inspected(&[dir]).digest;
    let all: std::collections::BTreeSet<String> =
        adapters().iter().map(|(name, _)| digest(&adapter(name))).collect();
    assert_eq!(all.len(), adapters().len());
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(Path::new(&adapter("llama-plain")).join(name), copy.join(name)).unwrap();
    }
    let path = copy.to_str().unwrap();
    assert_eq!(digest(path), digest(&adapter("llama-plain")));
    let config = copy.join("adapter_config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("\"lora_alpha\": 8", "\"lora_alpha\": 9")).unwrap();
    assert_ne!(digest(path), digest(&adapter("llama-plain")));
    fs::write(&config, text.replace("\"r\": 4", "\"r\": 5")).unwrap();
    redline(&["adapter", "inspect", path]).failed(&["the configuration gives this module rank 5"]);
}

#[test]
fn an_adapter_that_does_not_fit_is_refused_by_name() {
    let inspect = |name: &str, model: &str| {
        redline(&["adapter", "inspect", &adapter(name), "--model", model, "--json"])
    };
    inspect("llama-plain", &golden("gpt2-a"))
        .failed(&["which this model does not have", "another base model"]);
    inspect("llama-plain", &golden("llama-b")).failed(&["but this model needs"]);
    inspect("qwen2-untied", "demo").failed(&["error: "]);
    inspect("llama-plain", "/no/such/model").failed(&["/no/such/model"]);
    redline(&["adapter", "inspect", GOLDEN]).failed(&["there is no `adapter_config.json`"]);
    redline(&["adapter", "inspect"]).usage(&["DIR"]);
    redline(&["adapter"]).usage(&["no command given"]);
}

fn score(model: &str, extra: &[&str]) -> Vec<Vec<u32>> {
    let given =
        ["score", "--json", "--model", model, "--query-ids", "1,2,3", "--item-ids", "4,5", "--label-id", "7"];
    let given = [&given[..], &["--label-id", "9", "--format", "f32"], extra].concat();
    bits(&redline(&given).ok().scoring())
}

#[test]
fn a_merged_model_scores_as_the_adapter_does() {
    let work = tempfile::tempdir().unwrap();
    for (name, base) in
        [("llama-plain", "llama-a"), ("gpt2-dora", "gpt2-b"), ("llama-dora-embedding", "llama-a")]
    {
        let to = work.path().join(name);
        let to = to.to_str().unwrap();
        let run = redline(&["adapter", "merge", &golden(base), &adapter(name), to]).ok();
        assert_eq!((run.out, run.err), (format!("{to}\n"), String::new()));
        let values = |bits: Vec<Vec<u32>>| bits.concat().into_iter().map(f32::from_bits).collect::<Vec<_>>();
        let beside = values(score(&golden(base), &["--adapter", &format!("a={}", adapter(name))]));
        let without = values(score(&golden(base), &[]));
        let merged = values(score(to, &[]));
        for ((merged, beside), without) in merged.iter().zip(&beside).zip(&without) {
            // The base may be bf16, to which merged weights are rounded.
            assert!((merged - beside).abs() <= 0.05 * beside.abs(), "{name}: {merged} {beside}");
            assert!(
                (merged - beside).abs() < (without - beside).abs(),
                "{name}: {merged} {beside} {without}"
            );
        }
    }
    let w8 = work.path().join("w8");
    let merged = work.path().join("llama-plain");
    redline(&["convert", merged.to_str().unwrap(), w8.to_str().unwrap(), "--format", "w8"]).ok();
}

#[test]
fn wrong_use_of_merge_is_refused_and_writes_nothing() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (free, w8) = (path("free"), path("w8"));
    let (base, plain) = (golden("llama-a"), adapter("llama-plain"));
    let merge = |arguments: &[&str]| redline(&[&["adapter", "merge"], arguments].concat());
    for scale in ["nan", "inf", "x"] {
        merge(&[&base, &plain, &free, "--scale", scale]).usage(&[&format!("`{scale}` is no scale")]);
    }
    merge(&["demo", &plain, &free]).usage(&["`demo` is inside the program"]);
    merge(&[&base, &plain]).usage(&["OUT"]);
    merge(&[&golden("qwen2-a"), &adapter("qwen2-tied"), &free]).failed(&[
        "is the token embedding",
        "one tensor with the head",
        "`--adapter`",
    ]);
    merge(&[&base, &adapter("llama-dora"), &free, "--scale", "0.5"]).failed(&["DoRA", "no scale of 0.5"]);
    merge(&[&golden("llama-b"), &plain, &free]).failed(&["but this model needs"]);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing is written");
    redline(&["convert", &base, &w8, "--format", "w8"]).ok();
    merge(&[&w8, &plain, &free]).failed(&["this model is converted", &w8]);
    merge(&[&base, &plain, &w8]).failed(&["not empty", &w8]);
    merge(&[&base, &plain, &free, "--scale", "-0.5"]).ok();
    merge(&[&base, &plain, &free]).failed(&["not empty", &free]);
}

#[test]
fn tokenizer_and_code_are_copied_and_signatures_are_not() {
    let model = checkpoint::Copy::new();
    for name in ["tokenizer.model", "modeling_x.py", "chat_template.jinja", "README.md", "model.sig"] {
        fs::write(model.file(name), name).unwrap();
    }
    let work = tempfile::tempdir().unwrap();
    let (dir, to) = (work.path().join("adapter"), work.path().join("to"));
    write_adapter(&dir, &model);
    redline(&["adapter", "merge", model.dir(), dir.to_str().unwrap(), to.to_str().unwrap()]).ok();
    let mut names: Vec<_> =
        fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name().display().to_string()).collect();
    names.sort();
    let expected = [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "modeling_x.py",
        "tokenizer.json",
        "tokenizer.model",
    ];
    assert_eq!(names, expected);
    assert_eq!(fs::read(to.join("tokenizer.json")).unwrap(), fs::read(model.file("tokenizer.json")).unwrap());
}

/// An adapter of rank 1 for one projection of the demo model.
fn write_adapter(dir: &Path, model: &checkpoint::Copy) {
    fs::create_dir(dir).unwrap();
    let tensors = checkpoint::read(&fs::read(model.file("model.safetensors")).unwrap());
    let weight = "model.layers.0.mlp.up_proj.weight";
    let of = tensors.iter().find(|tensor| tensor.name == weight).unwrap();
    let config =
        r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["model.layers.0.mlp.up_proj"]}"#;
    fs::write(dir.join("adapter_config.json"), config).unwrap();
    let part = |part: &str, shape: [u64; 2]| checkpoint::Tensor {
        name: format!("base_model.model.model.layers.0.mlp.up_proj.lora_{part}.weight"),
        dtype: "F32".to_owned(),
        shape: shape.to_vec(),
        bytes: vec![0.5f32.to_le_bytes(); (shape[0] * shape[1]) as usize].concat(),
    };
    let parts = [part("A", [1, of.shape[1]]), part("B", [of.shape[0], 1])];
    fs::write(dir.join("adapter_model.safetensors"), checkpoint::written(&parts)).unwrap();
}
