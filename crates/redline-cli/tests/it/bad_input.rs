//! Models that cannot be used give a clear message that names the file, the tensor and the numbers, and exit code 1.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::checkpoint::{Copy, Tensor, named};
use crate::harness::{Run, redline};

const NORM: &str = "model.norm.weight";
const DOWN: &str = "model.layers.0.mlp.down_proj.weight";

fn generate(model: &str) -> Run {
    redline(&["generate", "--model", model, "--prompt-ids", "1", "--max-new-tokens", "1"])
}

#[test]
fn a_model_that_is_not_there_comes_with_its_download() {
    let run = redline(&["generate", "--model", "nobody/nothing-1b", "--prompt", "p"]);
    run.failed(&["nobody/nothing-1b", "hint: ", "download"]);
    generate("/nonexistent/model").failed(&["/nonexistent/model", "hint: "]);
}

#[test]
fn a_directory_without_a_model_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    generate(dir).failed(&["config.json"]);
    fs::write(folder.path().join("config.json"), "{").unwrap();
    generate(dir).failed(&["config.json"]);
    let copy = Copy::new();
    fs::remove_file(copy.file("model.safetensors")).unwrap();
    generate(copy.dir()).failed(&["model.safetensors", copy.dir()]);
}

#[test]
fn a_file_or_a_folder_in_the_wrong_place_is_named() {
    let copy = Copy::new();
    generate(copy.file("model.safetensors").to_str().unwrap()).failed(&["model.safetensors", "hint: "]);
    fs::remove_file(copy.file("config.json")).unwrap();
    fs::create_dir(copy.file("config.json")).unwrap();
    generate(copy.dir()).failed(&["config.json"]);
}

/// Corrupts `config.json`. The message must name the file and contain all of `expect`.
fn config(change: impl FnOnce(&mut Map<String, Value>), expect: &[&str]) {
    let copy = Copy::new();
    copy.config(change);
    let run = generate(copy.dir());
    run.failed(expect);
    run.failed(&["config.json"]);
}

#[test]
fn a_config_that_does_not_fit_is_refused_by_key() {
    let set = |key: &'static str, value: Value| {
        move |c: &mut Map<String, Value>| drop(c.insert(key.to_owned(), value))
    };
    config(set("architectures", json!(["NoSuchForCausalLM"])), &["NoSuchForCausalLM", "LlamaForCausalLM"]);
    config(set("hidden_act", json!("swishy")), &["hidden_act", "swishy"]);
    config(|c| drop(c.remove("num_hidden_layers")), &["num_hidden_layers"]);
    config(set("num_hidden_layers", json!("four")), &["num_hidden_layers"]);
    config(set("num_hidden_layers", json!(0)), &["num_hidden_layers"]);
    config(set("hidden_size", json!(-8)), &["hidden_size"]);
    config(set("num_key_value_heads", json!(5)), &["num_key_value_heads", "5"]);
    config(set("rms_norm_eps", json!("small")), &["rms_norm_eps"]);
    config(set("rms_norm_eps", json!(-1)), &["`rms_norm_eps` is -1, but only a number of at least 0"]);
    config(set("rope_theta", json!(0)), &["`rope_theta` is 0, but only a positive number"]);
    let parameters = json!({"rope_type": "default", "rope_theta": 0});
    config(set("rope_parameters", parameters), &["`rope_parameters.rope_theta` is 0, but only"]);
    config(set("rope_scaling", json!({"rope_type": "no-such", "factor": 2.0})), &["no-such"]);
}

#[test]
fn a_byte_order_mark_in_a_model_is_named() {
    for (name, hint) in [("config.json", "hint: save the file"), ("tokenizer.json", "byte order mark")] {
        let copy = Copy::new();
        let text = fs::read(copy.file(name)).unwrap();
        fs::write(copy.file(name), [b"\xef\xbb\xbf", &text[..]].concat()).unwrap();
        let run = redline(&["generate", "--model", copy.dir(), "--prompt", "p", "--max-new-tokens", "1"]);
        run.failed(&[name, "begins with a byte order mark (the bytes ef bb bf)", hint]);
    }
}

/// Corrupts the tensors. The message must name the place and contain all of `expect`.
fn tensors(change: impl FnOnce(&mut Vec<Tensor>), expect: &[&str]) {
    let copy = Copy::new();
    copy.tensors(change);
    let run = generate(copy.dir());
    run.failed(expect);
    run.failed(&[copy.dir()]);
}

#[test]
fn a_tensor_that_does_not_fit_is_named() {
    tensors(|all| all.retain(|t| t.name != NORM), &[NORM]);
    let extra = |all: &mut Vec<Tensor>| {
        let extra = Tensor { name: "model.surprise.weight".to_owned(), ..named(all, NORM).clone() };
        all.push(extra);
    };
    tensors(extra, &["model.surprise.weight"]);
    let mut shape = Vec::new();
    let turned = |all: &mut Vec<Tensor>| {
        let tensor = named(all, DOWN);
        shape.clone_from(&tensor.shape);
        tensor.shape.reverse();
    };
    tensors(turned, &[DOWN]);
    let [rows, columns] = shape[..] else { panic!("{shape:?}") };
    let turned = |all: &mut Vec<Tensor>| named(all, DOWN).shape.reverse();
    tensors(turned, &[&rows.to_string(), &columns.to_string()]);
    tensors(|all| named(all, NORM).dtype = "I16".to_owned(), &[NORM, "I16"]);
    tensors(|all| named(all, NORM).dtype = "Q7".to_owned(), &[NORM, "Q7"]);
    tensors(|all| named(all, NORM).dtype = "F32".to_owned(), &[NORM]);
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let poisoned = |bits: u16| {
        move |all: &mut Vec<Tensor>| named(all, DOWN).bytes[6..8].copy_from_slice(&bits.to_le_bytes())
    };
    tensors(poisoned(0x7fc0), &[DOWN, "NaN"]);
    tensors(poisoned(0x7f80), &[DOWN, "inf"]);
}

/// The value that is no number is not found, because the weights are not read.
#[test]
fn a_memory_limit_is_checked_before_weights_are_read() {
    let copy = Copy::new();
    copy.tensors(|all| named(all, DOWN).bytes[6..8].copy_from_slice(&0x7fc0_u16.to_le_bytes()));
    let ids = Path::new(copy.dir()).join("ids");
    std::fs::write(&ids, "1 2 3").unwrap();
    let commands = [
        &["generate", "--prompt-ids", "1"][..],
        &["generate", "--prompt-ids", "1", "--format", "w8"],
        &["perplexity", "--ids", ids.to_str().unwrap()],
        &["precompile"],
        &["bench", "forward", "--profile", "smoke"],
        &["bench", "generate", "--profile", "smoke"],
    ];
    for command in commands {
        let run = redline(&[command, &["--model", copy.dir(), "--memory", "2MiB"][..]].concat());
        run.failed(&["a memory budget of 2 MiB", "`--memory "]);
        assert!(!run.err.contains("NaN"), "{}", run.err);
    }
    generate(copy.dir()).failed(&[DOWN, "NaN"]);
}

/// Corrupts the bytes of the weights.
fn weights(change: impl FnOnce(&mut Vec<u8>), expect: &[&str]) {
    let copy = Copy::new();
    copy.weights(change);
    generate(copy.dir()).failed(expect);
}

#[test]
fn a_damaged_file_is_not_loaded() {
    weights(|bytes| bytes.truncate(bytes.len() - 10), &["model.safetensors"]);
    weights(|bytes| bytes.truncate(100), &["model.safetensors"]);
    weights(Vec::clear, &["model.safetensors"]);
    weights(|bytes| bytes.extend([0; 64]), &["model.safetensors"]);
    weights(|bytes| bytes[..8].fill(0xff), &["model.safetensors"]);
    weights(|bytes| bytes[8] = b'[', &["model.safetensors"]);
    weights(|bytes| bytes[9] = 0xff, &["model.safetensors"]);
}

#[test]
fn a_broken_tokenizer_is_named() {
    let copy = Copy::new();
    fs::write(copy.file("tokenizer.json"), "{\"model\": {\"type\": \"Surprise\"}}").unwrap();
    generate(copy.dir()).failed(&["tokenizer.json"]);
}

#[test]
fn without_a_tokenizer_ids_still_work() {
    let copy = Copy::new();
    fs::remove_file(copy.file("tokenizer.json")).unwrap();
    let run = redline(&["generate", "--model", copy.dir(), "--prompt", "p"]);
    run.failed(&["tokenizer", "hint: "]);
    let run =
        redline(&["generate", "--model", copy.dir(), "--prompt-ids", "5", "--max-new-tokens", "2", "--json"])
            .ok();
    let with = ["generate", "--model", "demo", "--prompt-ids", "5", "--max-new-tokens", "2", "--json"];
    let ids = redline(&with).ok().completion().choices[0].token_ids.clone();
    assert_eq!(run.completion().choices[0].token_ids, ids);
    let printed = redline(&["generate", "--model", copy.dir(), "--prompt-ids", "5", "--max-new-tokens", "2"]);
    assert_eq!(printed.ok().out, format!("{},{}\n", ids[0], ids[1]));
}

#[test]
fn a_context_beyond_the_models_own_is_refused() {
    let run = redline(&["generate", "--model", "demo", "--prompt", "p", "--max-context", "999999"]);
    run.failed(&["999999", "512"]);
}

#[test]
fn the_message_is_one_fact_and_one_place() {
    let copy = Copy::new();
    copy.tensors(|all| all.retain(|t| t.name != NORM));
    let run = generate(copy.dir());
    let lines: Vec<_> = run.err.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[1].starts_with("  in "), "{}", run.err);
    assert!(Path::new(copy.dir()).exists());
}

/// Opening a pipe without a writer blocks for ever.
#[cfg(unix)]
#[test]
fn pipes_in_a_model_directory_are_refused() {
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    ] {
        let copy = Copy::new();
        fs::write(copy.file("chat_template.jinja"), "{{ messages[0].content }}").unwrap();
        let path = copy.file(name);
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        redline(&["generate", "--model", copy.dir(), "--chat", "--prompt", "a", "--max-new-tokens", "1"])
            .failed(&["regular file", name]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_an_end_are_refused() {
    redline(&["serve", "--model", "demo", "--port", "0", "--api-key-file", "/dev/zero"])
        .failed(&["longer than 16 MiB", "/dev/zero"]);
    redline(&["compare", "/dev/zero", "/dev/zero"]).usage(&["longer than 256 MiB", "/dev/zero"]);
    redline(&["embed", "--model", "demo", "--file", "/dev/zero"])
        .failed(&["longer than 1024 MiB", "/dev/zero"]);
    redline(&["tokenize", "--tokenizer", "/dev/zero", "a"]).failed(&["longer than 1024 MiB", "/dev/zero"]);
}
