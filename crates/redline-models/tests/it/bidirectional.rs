//! Dream and LLaDA: their tensors are known and checked, loading them is refused by name.

use redline_models::arch;
use redline_models::spec::{DecoderSpec, PositionSpec};
use redline_models::{LoadOptions, ModelError, Weights, load};
use redline_weights::{Checkpoint, ConfigFile, DirWriter, Dtype, TensorSpec};
use serde_json::{Value, json};

use crate::reference::on_team;

fn dream() -> Value {
    json!({"architectures": ["DreamModel"], "model_type": "Dream", "hidden_size": 24, "intermediate_size": 32,
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"}, "num_hidden_layers": 2, "num_attention_heads": 3,
        "num_key_value_heads": 1, "vocab_size": 50, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "rope_scaling": null, "hidden_act": "silu", "use_sliding_window": false,
        "sliding_window": null, "use_mrope": false, "mask_token_id": 49, "tie_word_embeddings": false})
}

fn llada() -> Value {
    json!({"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": 24, "mlp_hidden_size": 32,
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"}, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1,
        "vocab_size": 50, "embedding_size": 56, "max_sequence_length": 64, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "activation_type": "silu", "block_type": "llama", "layer_norm_type": "rms", "include_bias": false,
        "include_qkv_bias": false, "alibi": false, "mask_token_id": 49, "weight_tying": false})
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

fn file(config: &Value) -> ConfigFile {
    ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap()
}

fn spec(config: &Value) -> Result<DecoderSpec, ModelError> {
    let config = file(config);
    arch::find(&config).and_then(|a| (a.spec)(&config))
}

/// `name shape` of every tensor, as the checkpoint has it.
fn tensors(spec: &DecoderSpec) -> Vec<String> {
    spec.tensors().iter().map(|t| format!("{} {:?}", spec.prefixed(&t.name), t.shape)).collect()
}

#[test]
fn dream_is_qwen2_with_a_head_of_its_own_that_attends_both_ways() {
    let dream = spec(&dream()).unwrap();
    let qwen = with(self::dream(), "architectures", json!(["Qwen2ForCausalLM"]));
    let qwen = spec(&with(qwen, "auto_map", Value::Null)).unwrap();
    assert_eq!(tensors(&dream), tensors(&qwen));
    assert!(dream.bidirectional && !qwen.bidirectional);
    let names = tensors(&dream);
    for expect in [
        "model.embed_tokens.weight [50, 24]",
        "model.layers.1.self_attn.q_proj.bias [24]",
        "model.layers.1.self_attn.k_proj.bias [8]",
        "model.norm.weight [24]",
        "lm_head.weight [50, 24]",
    ] {
        assert!(names.iter().any(|n| n == expect), "{expect}: {names:?}");
    }
    assert!(!names.iter().any(|n| n.contains("o_proj.bias")), "{names:?}");
}

#[test]
fn llada_has_the_names_of_its_checkpoints() {
    let spec = spec(&llada()).unwrap();
    let layer = |i: usize| {
        [
            ("attn_norm", "[24]"),
            ("q_proj", "[24, 24]"),
            ("k_proj", "[8, 24]"),
            ("v_proj", "[8, 24]"),
            ("attn_out", "[24, 24]"),
            ("ff_norm", "[24]"),
            ("ff_proj", "[32, 24]"),
            ("up_proj", "[32, 24]"),
            ("ff_out", "[24, 32]"),
        ]
        .map(|(name, shape)| format!("model.transformer.blocks.{i}.{name}.weight {shape}"))
    };
    let mut expect = vec!["model.transformer.wte.weight [56, 24]".to_owned()];
    expect.extend(layer(0));
    expect.extend(layer(1));
    expect.push("model.transformer.ln_f.weight [24]".into());
    expect.push("model.transformer.ff_out.weight [56, 24]".into());
    assert_eq!(tensors(&spec), expect);
    assert!(spec.bidirectional && !spec.tied && spec.context == 64 && spec.vocab == 56);
    let PositionSpec::Rotary(frequencies) = &spec.positions else { panic!("no rotation") };
    assert_eq!((frequencies.len(), frequencies[0]), (4, 1.0));
    assert!((frequencies[1] - 5e5f64.powf(-0.25)).abs() < 1e-15);
    let tied = self::spec(&with(llada(), "weight_tying", json!(true))).unwrap();
    assert_eq!(tied.tensors().len(), spec.tensors().len() - 1);
    let biased = tensors(&self::spec(&with(llada(), "include_qkv_bias", json!(true))).unwrap());
    assert_eq!(biased.iter().filter(|n| n.ends_with("_proj.bias [8]")).count(), 4, "{biased:?}");
}

#[test]
fn variants_of_either_are_refused_by_key() {
    for (base, key, value) in [
        (dream(), "sliding_window", json!(16)),
        (dream(), "use_mrope", json!(true)),
        (dream(), "num_key_value_heads", Value::Null),
        (dream(), "rms_norm_eps", Value::Null),
        (llada(), "block_type", json!("sequential")),
        (llada(), "layer_norm_type", json!("low_precision")),
        (llada(), "activation_type", json!("swiglu")),
        (llada(), "include_bias", json!(true)),
        (llada(), "alibi", json!(true)),
        (llada(), "rope", json!(false)),
        (llada(), "scale_logits", json!(true)),
        (llada(), "clip_qkv", json!(8.0)),
        (llada(), "n_heads", json!(5)),
        (llada(), "n_kv_heads", json!(2)),
        (llada(), "rope_theta", Value::Null),
        (llada(), "mlp_hidden_size", Value::Null),
        (llada(), "embedding_size", json!(1_u64 << 60)),
        (llada(), "n_layers", json!(1_u64 << 40)),
    ] {
        let mut config = with(base, key, value);
        if config[key].is_null() {
            config.as_object_mut().unwrap().remove(key);
        }
        let Err(error) = spec(&config) else { panic!("accepted {key}: {config}") };
        let message = error.to_string();
        assert!(message.contains(key) && message.contains("config.json"), "{message}");
    }
}

#[test]
fn loading_is_refused_by_name_and_the_weights_stay_readable() {
    for config in [dream(), llada()] {
        let spec = spec(&config).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("model");
        let tensors = spec.tensors();
        let files: Vec<_> = tensors
            .iter()
            .map(|t| TensorSpec::new(spec.prefixed(&t.name), Dtype::BF16, t.shape.clone()))
            .collect();
        let mut writer = DirWriter::create(&dir).unwrap();
        writer.write("config.json", config.to_string().as_bytes()).unwrap();
        writer
            .safetensors("model.safetensors", &files, |out| {
                tensors.iter().try_for_each(|t| out.write_f32(&vec![0.5; t.shape.iter().product()]))
            })
            .unwrap();
        writer.finish().unwrap();
        let checkpoint = Checkpoint::open(&dir).unwrap();
        for tensor in &tensors {
            checkpoint.require(&spec.prefixed(&tensor.name), &tensor.shape).unwrap();
        }
        let weights = Weights::Checkpoint(&checkpoint);
        let error = on_team(|exec| load(exec, &file(&config), weights, LoadOptions::default())).unwrap_err();
        let name = config["architectures"][0].as_str().unwrap();
        let message = format!("{error}\n{}", error.hint().unwrap());
        for part in [name, "generate by diffusion", "does not have yet", "config.json", "autoregressive"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
