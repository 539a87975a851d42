//! The demo model as a GGUF file: every command gives what it gives with the model's directory.

use std::fs;
use std::path::{Path, PathBuf};

use redline_client::HttpClient;
use serde_json::{Value, json};

use crate::checkpoint::read;
use crate::harness::redline;
use crate::serve::Process;
use redline_testing::gguf::Writer;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
/// Types of values and of tensors.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const TENSOR_F32: u32 = 0;
const TENSOR_BF16: u32 = 30;

fn json_of(name: &str) -> Value {
    serde_json::from_slice(&fs::read(Path::new(DEMO).join(name)).unwrap()).unwrap()
}

/// Metadata as llama.cpp's converter writes them.
fn metadata() -> Writer {
    let (config, tokenizer) = (json_of("config.json"), json_of("tokenizer.json"));
    let number = |key: &str| (config[key].as_u64().unwrap() as u32).to_le_bytes();
    let mut writer = Writer::new().string("general.architecture", "llama").string("general.name", "demo");
    for (name, key) in [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("rope.dimension_count", "head_dim"),
        ("vocab_size", "vocab_size"),
    ] {
        writer = writer.number(&format!("llama.{name}"), U32, &number(key));
    }
    let mut tokens: Vec<(u64, String)> = tokenizer["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.clone()))
        .collect();
    tokens.sort();
    let tokens: Vec<&str> = tokens.iter().map(|(_, token)| token.as_str()).collect();
    let types: Vec<[u8; 4]> =
        (0..tokens.len()).map(|id| if id < 2 { 3i32 } else { 1 }.to_le_bytes()).collect();
    let merges: Vec<String> = tokenizer["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| match pair {
            Value::String(pair) => pair.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        })
        .collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    writer
        .number("llama.rope.freq_base", F32, &10_000f32.to_le_bytes())
        .number("llama.attention.layer_norm_rms_epsilon", F32, &1e-5f32.to_le_bytes())
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .numbers("tokenizer.ggml.token_type", I32, &types)
        .strings("tokenizer.ggml.merges", &merges)
        .number("tokenizer.ggml.bos_token_id", U32, &0u32.to_le_bytes())
        .number("tokenizer.ggml.eos_token_id", U32, &1u32.to_le_bytes())
        .number("tokenizer.ggml.add_bos_token", BOOL, &[1])
        .string("tokenizer.chat_template", TEMPLATE)
}

/// The name of a tensor, and whether its rows are stored in pairs that are rotated together.
fn named(name: &str) -> (String, bool) {
    let name = name.trim_start_matches("model.");
    let mut parts = name.trim_end_matches(".weight").splitn(3, '.');
    let (first, layer, rest) = (parts.next().unwrap(), parts.next(), parts.next());
    let part = match rest {
        None => {
            return (format!("{}.weight", if first == "norm" { "output_norm" } else { "token_embd" }), false);
        }
        Some("input_layernorm") => "attn_norm",
        Some("post_attention_layernorm") => "ffn_norm",
        Some("self_attn.q_proj") => "attn_q",
        Some("self_attn.k_proj") => "attn_k",
        Some("self_attn.v_proj") => "attn_v",
        Some("self_attn.o_proj") => "attn_output",
        Some("mlp.gate_proj") => "ffn_gate",
        Some("mlp.up_proj") => "ffn_up",
        Some("mlp.down_proj") => "ffn_down",
        Some(other) => panic!("{other}"),
    };
    (format!("blk.{}.{part}.weight", layer.unwrap()), matches!(part, "attn_q" | "attn_k"))
}

/// Writes the demo model, whose weights are bf16.
fn written(to: &Path) {
    let mut writer = metadata();
    for tensor in read(&fs::read(Path::new(DEMO).join("model.safetensors")).unwrap()) {
        let (name, pairs) = named(&tensor.name);
        let shape: Vec<u64> = tensor.shape.clone();
        assert_eq!(tensor.dtype, "BF16");
        writer = if shape.len() == 1 {
            let wide = tensor.bytes.as_chunks::<2>().0.iter().flat_map(|half| [0, 0, half[0], half[1]]);
            writer.tensor(&name, &shape, TENSOR_F32, &wide.collect::<Vec<u8>>())
        } else if pairs {
            // 32 rows for each head; row i beside row i + 16.
            let rows: Vec<&[u8]> = tensor.bytes.chunks(2 * shape[1] as usize).collect();
            let order = |row: usize| row / 32 * 32 + row % 2 * 16 + row % 32 / 2;
            let data = (0..rows.len()).map(|row| rows[order(row)]).collect::<Vec<_>>().concat();
            writer.tensor(&name, &shape, TENSOR_BF16, &data)
        } else {
            writer.tensor(&name, &shape, TENSOR_BF16, &tensor.bytes)
        };
    }
    fs::write(to, writer.finish()).unwrap();
}

/// The file, in a folder of its own.
fn demo() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.gguf");
    written(&file);
    (folder, file)
}

/// The standard output of a command for a model, without the model's name.
fn output(model: &str, arguments: &[&str]) -> String {
    let out = redline(&[arguments, &["--model", model]].concat()).ok().out;
    out.replace(&format!("\"{model}\""), "\"M\"")
        .replace("\"demo.gguf\"", "\"M\"")
        .replace("\"demo\"", "\"M\"")
}

#[test]
fn every_command_gives_what_it_gives_with_the_directory() {
    let (folder, file) = demo();
    let text = ["--text", "In the beginning God created the heaven and the earth."];
    for arguments in [
        &["tokenize", text[0], text[1]][..],
        &["perplexity", text[0], text[1]],
        &["score", "--query", "In the beginning", "--item", " God", "--item", " dog", "--label", " created"],
        &["generate", "--prompt", "Once upon a time", "--max-new-tokens", "12", "--format", "w8"],
        &["rerank", "--query", "a king", "--document", "the king", "--document", "a fish"],
    ] {
        let want = output(DEMO, arguments);
        assert!(!want.is_empty());
        for model in [file.as_path(), folder.path()] {
            assert_eq!(output(model.to_str().unwrap(), arguments), want, "{arguments:?}");
        }
    }
}

#[test]
fn a_converted_file_has_its_tokenizer_its_template_and_its_bits() {
    let (folder, file) = demo();
    let to = folder.path().join("converted");
    let (from, to) = (file.to_str().unwrap(), to.to_str().unwrap());
    redline(&["convert", from, to, "--format", "w8"]).ok();
    let prompt = ["generate", "--prompt", "Once upon a time", "--max-new-tokens", "12"];
    assert_eq!(output(to, &prompt), output(from, &[&prompt[..], &["--format", "w8"]].concat()));
    let chat = ["generate", "--chat", "--prompt", "Once upon a time", "--max-new-tokens", "4"];
    assert_eq!(output(to, &chat), output(from, &[&chat[..], &["--format", "w8"]].concat()));
    assert_ne!(output(to, &chat), output(to, &[&prompt[..3], &["--max-new-tokens", "4"]].concat()));
    // Without a format, it keeps that of the weights.
    let kept = folder.path().join("kept");
    let kept = kept.to_str().unwrap();
    redline(&["convert", from, kept]).ok();
    assert_eq!(output(kept, &prompt), output(from, &prompt));
    // Text ends at the id that the file names.
    let ends: Value =
        serde_json::from_slice(&fs::read(Path::new(to).join("generation_config.json")).unwrap()).unwrap();
    assert_eq!(ends, json!({ "eos_token_id": [1] }));
}

#[test]
fn a_server_answers_from_a_file() {
    let (_folder, file) = demo();
    let ask = |server: &Process, model: &str| {
        let client: &HttpClient = &server.client;
        let body = json!({ "model": model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0 });
        let chat = json!({ "model": model, "messages": [{ "role": "user", "content": "a king" }] });
        let completion = client.post("/v1/completions", &body.to_string()).unwrap();
        let chat = client.post("/v1/chat/completions", &chat.to_string()).unwrap();
        let text = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["choices"][0]["text"].clone();
        (text(&completion.body), chat.status)
    };
    let (of_file, of_directory) = (Process::of(file.to_str().unwrap(), &[]), Process::of(DEMO, &[]));
    let ((text, chat), (want, _)) = (ask(&of_file, "demo.gguf"), ask(&of_directory, "demo"));
    assert!(text.is_string() && text == want, "{text} {want}");
    assert_eq!(chat, 200, "the file has a template");
}

#[test]
fn what_cannot_be_done_with_a_file_is_said() {
    let (folder, file) = demo();
    let model = file.to_str().unwrap();
    let score = ["score", "--query", "a", "--item", "b", "--label", " c", "--model"];
    redline(&[&score[..], &[model, "--mmap"]].concat()).failed(&["only the weights of a converted model"]);
    // Two models in one folder.
    fs::copy(&file, folder.path().join("other.gguf")).unwrap();
    redline(&[&score[..], &[folder.path().to_str().unwrap()]].concat()).failed(&["2 models", "demo.gguf"]);
    let short = folder.path().join("short.gguf");
    fs::write(&short, &fs::read(&file).unwrap()[..100_000]).unwrap();
    redline(&[&score[..], &[short.to_str().unwrap()]].concat()).failed(&["short.gguf"]);
    let out = folder.path().join("out");
    redline(&["adapter", "merge", model, DEMO, out.to_str().unwrap()]).failed(&["GGUF"]);
}
