//! Checkpoints broken one way at a time. The message names the file, the tensor or key, and numbers; exit code 1; no
//! panic.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Run, redline};

/// A copy of a golden checkpoint, to be broken.
struct Model {
    dir: TempDir,
    header: Value,
    data: Vec<u8>,
}

impl Model {
    fn new() -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama-b");
        let dir = tempfile::tempdir().unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::copy(golden.join(name), dir.path().join(name)).unwrap();
        }
        let bytes = fs::read(dir.path().join("model.safetensors")).unwrap();
        let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        Self { dir, header: serde_json::from_slice(&bytes[8..end]).unwrap(), data: bytes[end..].to_vec() }
    }

    fn weights(&self) -> PathBuf {
        self.dir.path().join("model.safetensors")
    }

    /// Writes header and data back to the file.
    fn save(&self) -> &Self {
        let header = self.header.to_string();
        let length = (header.len() as u64).to_le_bytes();
        fs::write(self.weights(), [&length[..], header.as_bytes(), &self.data].concat()).unwrap();
        self
    }

    /// Sets keys of the configuration; null removes one.
    fn config(&self, changes: Value) -> &Self {
        let path = self.dir.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            if value.is_null() {
                config.as_object_mut().unwrap().remove(key);
            } else {
                config[key] = value.clone();
            }
        }
        fs::write(path, config.to_string()).unwrap();
        self
    }

    /// The offset of a tensor's bytes.
    fn offset(&self, name: &str) -> usize {
        self.header[name]["data_offsets"][0].as_u64().unwrap() as usize
    }

    fn run(&self) -> Run {
        let model = self.dir.path().to_str().unwrap();
        redline(&["generate", "--model", model, "--prompt-ids", "1,2", "--max-new-tokens", "2"])
    }
}

#[test]
fn the_unbroken_copy_runs() {
    Model::new().save().run().ok();
}

#[test]
fn configurations() {
    for (changes, expect) in [
        (json!({"hidden_size": null}), &["hidden_size", "missing"][..]),
        (json!({"hidden_size": "wide"}), &["hidden_size", "wide"]),
        (
            json!({"architectures": ["FalconForCausalLM"]}),
            &["FalconForCausalLM", "hint: ", "LlamaForCausalLM"],
        ),
        (json!({"hidden_act": "gelu"}), &["hidden_act", "gelu", "silu"]),
        (json!({"sliding_window": 8}), &["sliding_window", "8"]),
        (json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}), &["dynamic", "llama3"]),
        (json!({"attn_logit_softcapping": 50.0}), &["attn_logit_softcapping", "50"]),
        (json!({"num_key_value_heads": 2}), &["num_attention_heads", "5", "2"]),
        (json!({"head_dim": 600}), &["600", "512"]),
    ] {
        let model = Model::new();
        model.config(changes).run().failed(&[expect, &["config.json"]].concat());
    }
}

#[test]
fn a_configuration_for_other_weights() {
    let model = Model::new();
    let run = model.config(json!({"intermediate_size": 64})).run();
    run.failed(&["layers.0.mlp.gate_proj.weight", "60 x 100", "64 x 100", "model.safetensors", "hint: "]);
    let model = Model::new();
    model.config(json!({"num_hidden_layers": 3})).run().failed(&["layers.2.", "missing", "hint: "]);
    let model = Model::new();
    model.config(json!({"num_hidden_layers": 1})).run().failed(&["9 tensors", "layers.1.", "hint: "]);
    let model = Model::new();
    model.config(json!({"attention_bias": true})).run().failed(&["q_proj.bias", "missing"]);
    let model = Model::new();
    model
        .config(json!({"tie_word_embeddings": null, "vocab_size": 130}))
        .run()
        .failed(&["130 x 100", "131 x 100"]);
}

#[test]
fn tensors_of_the_wrong_kind() {
    let mut model = Model::new();
    // An integer type of the same width.
    model.header["model.norm.weight"]["dtype"] = json!("I32");
    model.save().run().failed(&["model.norm.weight", "I32", "BF16", "model.safetensors"]);
    let mut model = Model::new();
    let tensor = model.header.as_object_mut().unwrap().remove("model.norm.weight").unwrap();
    model.header["model.extra.weight"] = tensor;
    model.save().run().failed(&["model.norm.weight", "missing", "hint: "]);
}

#[test]
fn weights_that_are_no_numbers() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let mut model = Model::new();
        let at = model.offset("model.layers.1.mlp.down_proj.weight") + 4 * 7;
        model.data[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let run = model.save().run();
        run.failed(&["model.layers.1.mlp.down_proj.weight", shown, "element 7", "model.safetensors"]);
    }
}

#[test]
fn a_tied_head_that_differs() {
    let mut model = Model::new();
    let at = model.offset("lm_head.weight");
    model.data[at] ^= 1;
    model.save().run().failed(&["tie_word_embeddings", "lm_head.weight", "differs"]);
}

#[test]
fn files_that_are_cut_or_foreign() {
    let model = Model::new();
    let whole = fs::read(model.weights()).unwrap();
    for length in [0, 5, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(model.weights(), &whole[..length]).unwrap();
        model.run().failed(&["model.safetensors"]);
    }
    fs::write(model.weights(), [&whole[..], b"more"].concat()).unwrap();
    model.run().failed(&["model.safetensors", "4"]);
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(model.weights(), huge).unwrap();
    model.run().failed(&["model.safetensors", "18446744073709551615"]);
    fs::remove_file(model.weights()).unwrap();
    model.run().failed(&["model.safetensors", "hint: "]);
    fs::write(model.dir.path().join("pytorch_model.bin"), "").unwrap();
    model.run().failed(&["pytorch_model.bin", "safetensors"]);
}

#[test]
fn prompts_that_do_not_fit_the_model() {
    let model = Model::new();
    let path = model.dir.path().to_str().unwrap();
    let generate = |ids: &str, new: &str| {
        redline(&["generate", "--model", path, "--prompt-ids", ids, "--max-new-tokens", new])
    };
    generate("1,131,-4", "2").failed(&["2 token ids", "131", "-4", "hint: "]);
    let many = vec!["1"; 300].join(",");
    generate(&many, "2").failed(&["300 tokens", "context of 256", "hint: "]);
    redline(&["generate", "--model", path, "--prompt", "text"]).failed(&["tokenizer", "hint: "]);
    redline(&["generate", "--model", path, "--prompt-ids", "", "--max-new-tokens", "2"])
        .failed(&["the prompt has 0 tokens", "hint: "]);
    let long = "word ".repeat(600);
    redline(&["generate", "--model", "demo", "--prompt", &long]).failed(&[
        "tokens",
        "context of 512",
        "hint: ",
    ]);
    let label = ["score", "--model", "demo", "--query", "q", "--item", "i", "--label", " Nebuchadnezzarish"];
    redline(&label).failed(&["Nebuchadnezzarish", "tokens:", "hint: "]);
}
