//! Configurations that must be refused by name.

use redline_models::arch;
use redline_weights::ConfigFile;

const LLAMA: &str = r#"{"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":96,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,
    "max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu","rope_theta":10000.0}"#;
const GPT2: &str = r#"{"architectures":["GPT2LMHeadModel"],"n_embd":48,"n_head":4,"n_layer":2,"vocab_size":100,
    "n_positions":64,"activation_function":"gelu_new"}"#;

/// The base configuration with some keys replaced or added; the error text of its specification.
fn refusal(base: &str, changes: &str) -> String {
    let mut config: serde_json::Value = serde_json::from_str(base).unwrap();
    let changes: serde_json::Value = serde_json::from_str(changes).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let config = ConfigFile::from_bytes("config.json", config.to_string().as_bytes()).unwrap();
    let spec = arch::find(&config).and_then(|a| (a.spec)(&config));
    match spec {
        Ok(_) => format!("accepted {changes}"),
        Err(e) => format!("{e}"),
    }
}

fn refused(base: &str, changes: &str, names: &[&str]) {
    let message = refusal(base, changes);
    for name in names.iter().chain(&["config.json"]) {
        assert!(message.contains(name), "{changes}: {message:?} does not name {name}");
    }
}

#[test]
fn the_base_configurations_are_accepted() {
    assert!(refusal(LLAMA, "{}").starts_with("accepted"));
    assert!(refusal(GPT2, "{}").starts_with("accepted"));
}

#[test]
fn unknown_architectures_and_activations() {
    refused(LLAMA, r#"{"architectures":["FalconForCausalLM"]}"#, &["FalconForCausalLM"]);
    refused(LLAMA, r#"{"architectures":null,"model_type":"falcon"}"#, &["falcon"]);
    refused(LLAMA, r#"{"hidden_act":"gelu"}"#, &["hidden_act", "gelu", "silu"]);
    refused(GPT2, r#"{"activation_function":"relu"}"#, &["activation_function", "relu", "gelu_new"]);
}

#[test]
fn keys_that_change_the_result_are_not_ignored() {
    for (changes, key) in [
        (r#"{"sliding_window":16}"#, "sliding_window"),
        (r#"{"attn_logit_softcapping":30.0}"#, "attn_logit_softcapping"),
        (r#"{"partial_rotary_factor":0.5}"#, "partial_rotary_factor"),
        (r#"{"attention_multiplier":0.1}"#, "attention_multiplier"),
        (r#"{"embedding_multiplier":12.0}"#, "embedding_multiplier"),
        (r#"{"quantization_config":{"bits":4}}"#, "quantization_config"),
        (r#"{"layer_types":["sliding_attention","full_attention"]}"#, "layer_types"),
        (r#"{"rope_scaling":{"type":"dynamic","factor":2.0}}"#, "dynamic"),
        (r#"{"rope_scaling":{"rope_type":"ntk","factor":4.0}}"#, "ntk"),
        (r#"{"rope_parameters":{"rope_type":"dynamic","factor":4.0,"rope_theta":1e4}}"#, "dynamic"),
        (r#"{"num_local_experts":8}"#, "num_local_experts"),
        (r#"{"is_causal":false}"#, "is_causal"),
    ] {
        refused(LLAMA, changes, &[key]);
    }
    refused(GPT2, r#"{"add_cross_attention":true}"#, &["add_cross_attention"]);
}

/// The key, a value that changes the result, and the value with which it changes nothing.
const SENSITIVE: &[(&str, &str, &str)] = &[
    ("use_sliding_window", "true", "false"),
    ("sliding_window", "16", "null"),
    ("layer_types", r#"["full_attention"]"#, "null"),
    ("quantization_config", "{}", "null"),
    ("auto_map", "{}", "null"),
    ("partial_rotary_factor", "0.5", "1.0"),
    ("rotary_pct", "0.25", "1"),
    ("rope_interleaved", "true", "false"),
    ("use_mrope", "true", "false"),
    ("attention_multiplier", "1.0", "null"),
    ("attention_scale", "1.0", "null"),
    ("query_pre_attn_scalar", "256", "null"),
    ("embedding_multiplier", "12.0", "1.0"),
    ("residual_multiplier", "0.22", "1.0"),
    ("logits_scaling", "8.0", "1.0"),
    ("logit_scale", "0.0625", "1.0"),
    ("attn_logit_softcapping", "50.0", "null"),
    ("final_logit_softcapping", "30.0", "null"),
    ("clip_qkv", "8.0", "null"),
    ("qk_layernorm", "true", "false"),
    ("use_qk_norm", "true", "false"),
    ("no_rope_layers", "[1, 0]", "null"),
    ("no_rope_layer_interval", "4", "null"),
    ("num_local_experts", "8", "0"),
    ("num_experts", "8", "0"),
    ("moe_intermediate_size", "32", "null"),
    ("shared_expert_intermediate_size", "8", "0"),
    ("n_routed_experts", "8", "0"),
    ("n_shared_experts", "1", "0"),
    ("routed_scaling_factor", "2.5", "1.0"),
    ("scale_attn_by_inverse_layer_idx", "true", "false"),
    ("reorder_and_upcast_attn", "true", "false"),
    ("add_cross_attention", "true", "false"),
    ("is_encoder_decoder", "true", "false"),
    ("is_causal", "false", "true"),
    ("attention_chunk_size", "8192", "null"),
    ("use_bidirectional_attention", "true", "false"),
];

#[test]
fn every_key_that_changes_the_result_is_refused_unless_it_is_neutral() {
    let check = |base: &str, (key, changed, neutral): (&str, &str, &str)| {
        let set = |value: &str| format!(r#"{{"{key}":{value}}}"#);
        refused(base, &set(changed), &[key, "for this architecture"]);
        for value in [neutral, "null"] {
            let accepted = refusal(base, &set(value));
            assert!(accepted.starts_with("accepted"), "{accepted}");
        }
    };
    for &of_any in SENSITIVE {
        check(LLAMA, of_any);
    }
    for of_llama in [
        ("attention_bias", "true", "false"),
        ("mlp_bias", "true", "false"),
        ("rope_scaling", "{}", "null"),
        ("rope_parameters", "{}", "null"),
    ] {
        check(GPT2, of_llama);
    }
}

#[test]
fn shapes_that_contradict_each_other() {
    refused(LLAMA, r#"{"num_key_value_heads":3}"#, &["num_attention_heads", "4", "3"]);
    refused(LLAMA, r#"{"hidden_size":63}"#, &["hidden_size", "63", "head_dim"]);
    refused(LLAMA, r#"{"head_dim":1024}"#, &["1024", "512"]);
    refused(LLAMA, r#"{"head_dim":7}"#, &["7"]);
    refused(LLAMA, r#"{"num_hidden_layers":0}"#, &["num_hidden_layers"]);
    refused(LLAMA, r#"{"num_hidden_layers":1000000000000}"#, &["num_hidden_layers", "1000000000000"]);
    refused(LLAMA, r#"{"vocab_size":1152921504606846976}"#, &["vocab_size"]);
    refused(GPT2, r#"{"n_inner":1152921504606846976}"#, &["n_inner"]);
    refused(GPT2, r#"{"n_inner":0}"#, &["n_inner", "a value from 1 to"]);
    refused(LLAMA, r#"{"head_dim":0}"#, &["a head of 0 values"]);
    assert!(refusal(LLAMA, r#"{"head_dim":512}"#).starts_with("accepted"));
    refused(LLAMA, r#"{"head_dim":514}"#, &["a head of 514 values", "1 to 512"]);
    refused(GPT2, r#"{"n_head":5}"#, &["n_embd", "48", "5"]);
}

#[test]
fn keys_whose_defaults_belong_to_one_model() {
    let with = |name: &str| LLAMA.replace("LlamaForCausalLM", name);
    refused(&with("MistralForCausalLM"), "{}", &["sliding_window"]);
    refused(&with("Qwen3ForCausalLM"), "{}", &["head_dim"]);
    let no_kv_heads = with("Qwen2ForCausalLM").replace(r#""num_key_value_heads":2,"#, "");
    refused(&no_kv_heads, "{}", &["num_key_value_heads"]);
    // The other keys that a member needs are there.
    let no_kv_heads = |name: &str| no_kv_heads.replace("Qwen2ForCausalLM", name);
    refused(&no_kv_heads("MistralForCausalLM"), r#"{"sliding_window":8}"#, &["num_key_value_heads"]);
    refused(&no_kv_heads("Qwen3ForCausalLM"), r#"{"head_dim":16}"#, &["num_key_value_heads"]);
}

#[test]
fn windows_of_layers() {
    let qwen3 = LLAMA
        .replace("LlamaForCausalLM", "Qwen3ForCausalLM")
        .replace("\"vocab_size\"", "\"head_dim\":16,\"vocab_size\"");
    let types = |types: &str, rest: &str| format!(r#"{{"layer_types":[{types}]{rest}}}"#);
    let (full, sliding) = (r#""full_attention""#, r#""sliding_attention""#);
    let used = r#","use_sliding_window":true,"sliding_window":8"#;
    assert!(refusal(&qwen3, &types(&format!("{full},{full}"), "")).starts_with("accepted"));
    assert!(refusal(&qwen3, &types(&format!("{full},{sliding}"), used)).starts_with("accepted"));
    refused(&qwen3, &types(full, ""), &["layer_types", "1 entries for 2 layers"]);
    refused(&qwen3, &types(&format!("{full},{full},{full}"), used), &["3 entries for 2 layers"]);
    refused(&qwen3, &types(&format!("{full},{sliding}"), ""), &["no `sliding_window` is in use"]);
    refused(
        &qwen3,
        &types(&format!("{full},\"chunked_attention\""), used),
        &["layer_types", "`full_attention`, "],
    );
    let none = r#","use_sliding_window":true,"sliding_window":0"#;
    refused(&qwen3, &types(&format!("{full},{sliding}"), none), &["sliding_window", "at least 1"]);
}

#[test]
fn heads_and_rotary_settings() {
    refused(LLAMA, r#"{"num_key_value_heads":0}"#, &["num_key_value_heads", "0"]);
    let llama3 = |change: &str| {
        format!(
            r#"{{"rope_scaling":{{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
            "original_max_position_embeddings":32{change}}}}}"#
        )
    };
    assert!(refusal(LLAMA, &llama3("")).starts_with("accepted"));
    assert!(refusal(LLAMA, &llama3(r#","factor":1.0"#)).starts_with("accepted"));
    refused(LLAMA, &llama3(r#","factor":0.5"#), &["factor", "at least 1"]);
    refused(LLAMA, &llama3(r#","high_freq_factor":1.0"#), &["high_freq_factor", "above `low_freq_factor`"]);
    refused(LLAMA, &llama3(r#","partial_rotary_factor":0.5"#), &["partial_rotary_factor"]);
    assert!(refusal(LLAMA, &llama3(r#","partial_rotary_factor":1.0"#)).starts_with("accepted"));
    refused(LLAMA, r#"{"rope_theta":0.0}"#, &["rope_theta", "positive"]);
    let both = r#"{"rope_theta":null,"rope_parameters":{"rope_type":"default","rope_theta":0.0}}"#;
    refused(LLAMA, both, &["rope_theta"]);
}

#[test]
fn both_spellings_of_rope_scaling_at_once() {
    let both =
        r#"{"rope_scaling":{"type":"default"},"rope_parameters":{"rope_type":"default","rope_theta":1e4}}"#;
    refused(LLAMA, both, &["rope_scaling", "rope_parameters"]);
}

#[test]
fn missing_keys_and_wrong_types() {
    refused(LLAMA, r#"{"hidden_size":null}"#, &["hidden_size"]);
    refused(LLAMA, r#"{"vocab_size":"many"}"#, &["vocab_size", "many"]);
    refused(LLAMA, r#"{"rope_scaling":{"rope_type":"llama3","factor":8.0}}"#, &["low_freq_factor"]);
    refused(LLAMA, r#"{"rope_theta":-1.0}"#, &["rope_theta"]);
    refused(GPT2, r#"{"n_layer":1.5}"#, &["n_layer"]);
}
