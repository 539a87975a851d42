//! Adapters: PEFT's rules for configurations, directories and their roots.

use std::fs;
use std::path::{Path, PathBuf};

use redline_weights::{AdapterConfig, AdapterFiles, BaseModule, ModuleKind};
use serde_json::Value;

use crate::{check, file};

/// Configurations and what PEFT's own functions make of them (`tests/golden/adapters.py`).
#[test]
fn targets_ranks_and_scalings_are_those_of_peft() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/adapters/rules.json");
    let text = fs::read_to_string(path).unwrap();
    let rules: Value = serde_json::from_str(&text).unwrap();
    let modules: Vec<&str> =
        rules["modules"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect();
    let cases = rules["cases"].as_array().unwrap();
    // The text of each configuration, since `Value` does not keep the order of keys.
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(r#"{"config": "#)).collect();
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.into_iter().zip(cases) {
        let config = line.split_once(r#", "targeted":"#).unwrap().0;
        let read = AdapterConfig::from_bytes("rules.json", config.as_bytes()).unwrap();
        let found: Vec<(usize, usize, f32)> = (0..modules.len())
            .filter(|&index| read.targets(modules[index], true).unwrap())
            .map(|index| (index, read.rank(modules[index]).unwrap(), read.scaling(modules[index]).unwrap()))
            .collect();
        let column = |key: &str| case[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
        let expect: Vec<(usize, usize, f32)> = column("targeted")
            .zip(column("rank"))
            .zip(column("scaling"))
            .map(|((index, rank), scaling)| (index as usize, rank as usize, scaling as f32))
            .collect();
        assert_eq!(found, expect, "{config}");
    }
}

fn config(more: &str) -> AdapterConfig {
    let text = format!(r#"{{"peft_type": "LORA"{more}}}"#);
    AdapterConfig::from_bytes("adapter_config.json", text.as_bytes()).unwrap()
}

#[test]
fn all_linear_is_every_linear_layer_but_the_head() {
    for spelling in ["all-linear", "ALL-Linear"] {
        let all = config(&format!(r#", "target_modules": "{spelling}", "exclude_modules": ["k"]"#));
        assert!(all.targets("model.q", true).unwrap());
        assert!(!all.targets("model.k", true).unwrap(), "excluded");
        assert!(!all.targets("lm_head", false).unwrap());
    }
    let listed = config(r#", "target_modules": ["all-linear"]"#);
    assert!(!listed.targets("model.q", true).unwrap(), "in a list it is a name");
}

#[test]
fn absent_keys_have_the_defaults_of_peft() {
    let read = config(r#", "target_modules": ["q"]"#);
    assert_eq!((read.rank("q").unwrap(), read.scaling("q").unwrap()), (8, 1.0));
    assert!(!read.dora() && read.base_model().is_none());
}

#[test]
fn keys_without_effect_and_empty_ones_are_accepted() {
    let read = config(
        r#", "target_modules": ["q"], "r": 2, "lora_alpha": 3.5, "base_model_name_or_path": "org/model",
        "auto_mapping": {"base_model_class": "Model"}, "fan_in_fan_out": true, "inference_mode": true,
        "lora_dropout": 0.1, "task_type": "CAUSAL_LM", "revision": "main", "peft_version": "0.21.2",
        "qalora_group_size": 16, "megatron_core": "megatron.core", "loftq_config": {}, "bias": "none",
        "init_lora_weights": "gaussian", "alora_invocation_tokens": null, "lora_bias": false,
        "target_parameters": [], "layer_replication": null, "modules_to_save": null, "enable_lora": null,
        "merge_weights": false, "rank_pattern": null, "alpha_pattern": {}, "some_new_key": "",
        "lora_dtype": null, "lorap_emb_lr": 1e-06, "lorap_lr_ratio": 16.0"#,
    );
    assert_eq!((read.base_model(), read.scaling("q").unwrap()), (Some("org/model"), 1.75));
    for value in ["true", "false", "null", "\"eva\"", "\"orthogonal\"", "\"Gaussian\"", "\"mica\""] {
        config(&format!(r#", "target_modules": ["q"], "init_lora_weights": {value}"#));
    }
}

#[test]
fn values_of_patterns_have_their_types() {
    let read = |more: &str| {
        let text = format!(r#"{{"peft_type": "LORA", "target_modules": ["q"], {more}}}"#);
        AdapterConfig::from_bytes("adapter_config.json", text.as_bytes())
    };
    let says = |more: &str, fact: &str| {
        check(read(more), Path::new("DIR"), &format!("{fact}\n  in `adapter_config.json`"));
    };
    says(r#""alpha_pattern": {"q": "2"}"#, r#"`alpha_pattern.q` is "2", but a number is needed"#);
    says(r#""rank_pattern": {"q": 2.5}"#, "`rank_pattern.q` is 2.5, but a rank of 1 or more is needed");
    says(r#""rank_pattern": {"q": -1}"#, "`rank_pattern.q` is -1, but a rank of 1 or more is needed");
    says(r#""alpha_pattern": [1]"#, "`alpha_pattern` is [1], but an object is needed");
    says(
        r#""rank_pattern": {"q": 1, "q": 2}"#,
        "not a JSON object: the key `q` stands twice at line 1 column 75",
    );
    read(r#""alpha_pattern": {"q": 0.5}"#).unwrap();
}

const CONFIG: &str = r#"{"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["q"]}"#;

/// An adapter of rank 1 for the module `q` of two inputs and two outputs.
fn write(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("adapter_config.json"), CONFIG).unwrap();
    let header = r#"{"base_model.model.q.lora_A.weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},
        "base_model.model.q.lora_B.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]}}"#;
    let a = [0x00, 0x3c, 0x00, 0xc0];
    let b = [3.0f32.to_le_bytes(), 4.0f32.to_le_bytes()].concat();
    fs::write(dir.join("adapter_model.safetensors"), file(header, &[&a[..], &b].concat())).unwrap();
}

fn q() -> Vec<BaseModule> {
    vec![BaseModule { path: "q".into(), kind: ModuleKind::Linear, inputs: 2, outputs: 2 }]
}

#[test]
fn a_directory_gives_f32_matrices() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let files = AdapterFiles::open(folder.path()).unwrap();
    assert_eq!(files.paths().collect::<Vec<_>>(), ["q"]);
    let adapter = files.read(&q(), 1).unwrap();
    let [q] = &adapter.modules[..] else { panic!("{adapter:?}") };
    assert_eq!((q.module, q.rank, q.scaling, &q.magnitude), (0, 1, 2.0, &None));
    assert_eq!((&q.a[..], &q.b[..]), (&[1.0, -2.0][..], &[3.0, 4.0][..]));
}

/// Files that were not written by `save_pretrained` may keep the name of the adapter; PEFT reads them, too.
#[test]
fn names_may_contain_the_default_name_of_an_adapter() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let path = folder.path().join("adapter_model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let header = String::from_utf8(bytes[8..bytes.len() - 12].to_vec()).unwrap();
    let named = header.replace("_A.weight", "_A.default.weight").replace("_B.weight", "_B.default.weight");
    let before = AdapterFiles::open(folder.path()).unwrap().read(&q(), 1).unwrap();
    fs::write(&path, file(&named, &bytes[bytes.len() - 12..])).unwrap();
    assert_eq!(AdapterFiles::open(folder.path()).unwrap().read(&q(), 1).unwrap(), before);
}

#[test]
fn a_directory_without_its_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("adapter");
    let hint = "an adapter is a directory that PEFT's `save_pretrained` wrote";
    let open = || AdapterFiles::open(&dir).map(drop);
    fs::create_dir(&dir).unwrap();
    check(open(), &dir, &format!("there is no `adapter_config.json`\n  in `DIR`\n\n{hint}"));
    fs::write(dir.join("adapter_config.json"), CONFIG).unwrap();
    let fact = "there is no `adapter_model.safetensors` and no `adapter_model.bin`";
    check(open(), &dir, &format!("{fact}\n  in `DIR`\n\n{hint}"));
    let config = dir.join("adapter_config.json");
    let fact = "there is no `adapter_config.json`";
    check(AdapterFiles::open(&config).map(drop), &config, &format!("{fact}\n  in `DIR`\n\n{hint}"));
}

#[test]
fn the_digest_follows_rank_scaling_and_values() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let digest = || AdapterFiles::open(folder.path()).unwrap().read(&q(), 2).unwrap().digest;
    let before = digest();
    assert_eq!(digest(), before);
    fs::write(
        folder.path().join("adapter_config.json"),
        CONFIG.replace("\"r\": 1", "\"revision\": \"x\", \"r\": 1"),
    )
    .unwrap();
    assert_eq!(digest(), before, "a key without effect");
    fs::write(
        folder.path().join("adapter_config.json"),
        CONFIG.replace("\"lora_alpha\": 2", "\"lora_alpha\": 3"),
    )
    .unwrap();
    assert_ne!(digest(), before, "another scaling");
    write(folder.path());
    let path = folder.path().join("adapter_model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_ne!(digest(), before, "another value");
}

/// Errors of paths that lead out of a root, with `ROOT` for the root's parent.
fn outside(root: &Path, dir: &Path) -> String {
    let parent = fs::canonicalize(root.parent().unwrap()).unwrap();
    let error = AdapterFiles::open_in(root, dir).err().expect("outside").to_string();
    error.replace(&parent.display().to_string(), "ROOT")
}

#[test]
fn an_adapter_is_loaded_from_its_root_only() {
    let folder = tempfile::tempdir().unwrap();
    let (root, other) = (folder.path().join("root"), folder.path().join("other"));
    write(&root.join("a"));
    write(&other);
    for inside in [PathBuf::from("a"), PathBuf::from("./a/../a"), root.join("a"), PathBuf::from("../root/a")]
    {
        AdapterFiles::open_in(&root, &inside).unwrap();
    }
    let fact = "`ROOT/other` lies outside the adapter directory `ROOT/root`\n  in ";
    assert_eq!(outside(&root, Path::new("../other")), format!("{fact}`../other`"));
    assert_eq!(outside(&root, Path::new("a/../../other")), format!("{fact}`a/../../other`"));
    assert_eq!(outside(&root, &fs::canonicalize(&other).unwrap()), format!("{fact}`ROOT/other`"));
    // Its name begins like that of the root.
    write(&folder.path().join("root2"));
    let fact = "`ROOT/root2` lies outside the adapter directory `ROOT/root`\n  in ";
    assert_eq!(outside(&root, Path::new("../root2")), format!("{fact}`../root2`"));
    let missing = AdapterFiles::open_in(&root, Path::new("b")).err().unwrap().to_string();
    assert!(missing.starts_with("cannot find the real path: "), "{missing}");
}

#[cfg(unix)]
#[test]
fn links_must_not_lead_out_of_the_root() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (root, other) = (folder.path().join("root"), folder.path().join("other"));
    write(&root.join("a"));
    write(&other);
    symlink(root.join("a"), root.join("inner")).unwrap();
    AdapterFiles::open_in(&root, Path::new("inner")).unwrap();
    symlink(&other, root.join("outer")).unwrap();
    let fact = "`ROOT/other` lies outside the adapter directory `ROOT/root`\n  in `outer`";
    assert_eq!(outside(&root, Path::new("outer")), fact);
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        write(&root.join("b"));
        fs::remove_file(root.join("b").join(name)).unwrap();
        symlink(other.join(name), root.join("b").join(name)).unwrap();
        let fact = format!("`ROOT/other/{name}` lies outside the adapter directory `ROOT/root`\n  in ");
        let error = outside(&root, Path::new("b"));
        assert!(error.starts_with(&fact), "{error}");
        fs::remove_dir_all(root.join("b")).unwrap();
    }
}

#[test]
fn the_contents_of_an_adapter_are_known_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let contents = AdapterFiles::open(folder.path()).unwrap().contents().unwrap();
    let [q] = &contents[..] else { panic!("{contents:?}") };
    assert_eq!(q.base, self::q()[0]);
    assert_eq!((q.rank, q.alpha, q.scaling, q.parameters, q.bytes), (1, 2.0, 2.0, 4, 12));
    let names: Vec<String> = q.dtypes.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["F16", "F32"]);
    let config = folder.path().join("adapter_config.json");
    fs::write(&config, CONFIG.replace(r#""r": 1"#, r#""r": 2"#)).unwrap();
    let refused = AdapterFiles::open(folder.path()).unwrap().contents().unwrap_err().to_string();
    assert!(refused.contains("the configuration gives this module rank 2"), "{refused}");
    fs::write(&config, CONFIG.replace(r#"["q"]"#, r#"["k"]"#)).unwrap();
    let refused = AdapterFiles::open(folder.path()).unwrap().contents().unwrap_err().to_string();
    assert!(refused.contains("which the configuration does not target"), "{refused}");
}

/// The copies of base weights that PEFT stores are not parameters, and show which module is the head.
#[test]
fn copies_of_base_weights_are_bytes_but_no_parameters() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/adapters/qwen2-untied");
    let contents = AdapterFiles::open(&golden).unwrap().contents().unwrap();
    let kinds: Vec<_> = contents.iter().map(|module| (module.base.path.as_str(), module.base.kind)).collect();
    assert_eq!(kinds, [("lm_head", ModuleKind::Head), ("model.embed_tokens", ModuleKind::Embedding)]);
    for module in &contents {
        let BaseModule { inputs, outputs, .. } = module.base;
        assert_eq!(module.parameters, (module.rank * (inputs + outputs)) as u64, "{module:?}");
        assert_eq!(module.bytes, 4 * (module.parameters + (inputs * outputs) as u64), "{module:?}");
    }
}

#[test]
fn a_digest_of_files_depends_on_tensors_and_scaling() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let digest = || AdapterFiles::open(folder.path()).unwrap().digest().unwrap();
    let first = digest();
    assert_eq!(digest(), first);
    let config = folder.path().join("adapter_config.json");
    fs::write(&config, CONFIG.replace(r#""lora_alpha": 2"#, r#""lora_alpha": 3"#)).unwrap();
    assert_ne!(digest(), first, "another scaling");
    fs::write(&config, CONFIG.replace(r#""lora_alpha""#, r#""lora_dropout": 0.5, "lora_alpha""#)).unwrap();
    assert_eq!(digest(), first, "a key without effect");
    let path = folder.path().join("adapter_model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_ne!(digest(), first, "another value");
}
