//! Configurations of the families of 2024 to 2026: which keys they need, which values they refuse, and what absent keys mean.

use redline_models::arch;
use redline_models::spec::{DecoderSpec, LogitSpec};
use redline_weights::ConfigFile;
use serde_json::{Map, Value, json};

use crate::reference::golden_root;

/// The specification of a golden checkpoint's configuration with other values. A change of null removes the key.
fn changed(golden: &str, changes: &Value) -> Result<DecoderSpec, String> {
    let text = std::fs::read(golden_root().join(golden).join("config.json")).unwrap();
    let mut config: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.remove(key)),
            value => drop(config.insert(key.clone(), value.clone())),
        }
    }
    let config = ConfigFile::from_bytes("config.json", &serde_json::to_vec(&config).unwrap()).unwrap();
    arch::find(&config).and_then(|found| (found.spec)(&config)).map_err(|error| error.to_string())
}

fn spec(golden: &str, changes: &Value) -> DecoderSpec {
    changed(golden, changes).unwrap()
}

/// Unknown kinds of layers, and experts that no row goes to, are refused by name.
#[test]
fn granite_4_refuses_other_layers_and_unused_experts() {
    let refused = |key: &str, value: Value| changed("granite4-b", &json!({ key: value })).err().unwrap();
    let message = refused("layer_types", json!(["conv", "attention", "mamba"]));
    assert!(message.contains("layer_types") && message.contains("`mamba`"), "{message}");
    assert!(refused("layer_types", json!(["attention"])).contains("1 entries for 3 layers"));
    assert!(refused("layer_types", Value::Null).contains("layer_types"));
    assert!(refused("layer_types", json!([])).contains("layer_types"));
    // A row would go to none of them.
    let message = refused("num_local_experts", json!(62));
    assert!(message.contains("num_experts_per_tok") && message.contains("is 0"), "{message}");
    assert!(refused("num_local_experts", Value::Null).contains("num_local_experts"));
    let message = refused("position_embedding_type", json!("alibi"));
    assert!(message.contains("position_embedding_type") && message.contains("nope"), "{message}");
}

#[test]
fn values_that_newer_families_do_not_support_are_refused_by_name() {
    for (golden, changes, names) in [
        ("cohere-a", json!({"use_qk_norm": true}), &["use_qk_norm", "`false`"][..]),
        ("gemma4-a", json!({"enable_moe_block": true}), &["num_experts"]),
        ("gemma4-c", json!({"top_k_experts": 7}), &["`top_k_experts` 7", "`num_experts` 6"]),
        ("gemma4-c", json!({"top_k_experts": null}), &["top_k_experts"]),
        ("gemma4-c", json!({"moe_intermediate_size": 0}), &["moe_intermediate_size"]),
        ("gemma4-a", json!({"num_kv_shared_layers": 4}), &["num_kv_shared_layers", "fewer than 4 layers"]),
        ("gemma4-a", json!({"num_kv_shared_layers": 3}), &["layer 1 shares keys and values", "first 1"]),
        ("gemma4-a", json!({"vocab_size_per_layer_input": 130}), &["vocab_size_per_layer_input", "131"]),
        (
            "gemma4-a",
            json!({"use_bidirectional_attention": "all"}),
            &["use_bidirectional_attention", "vision"],
        ),
        ("gemma4-a", json!({"final_logit_softcapping": 0.0}), &["final_logit_softcapping", "positive"]),
        ("gemma4-a", json!({"per_layer_config": {"1": {"head_dim": 1024}}}), &["1024", "512"]),
        ("gemma4-b", json!({"num_global_key_value_heads": 3}), &["4 heads of 24 values and 3"]),
        ("gemma4-b", json!({"rope_parameters": null}), &["rope_parameters", "full_attention"]),
        (
            "gemma4-b",
            json!({"rope_parameters": {"sliding_attention": {}}}),
            &["rope_parameters", "full_attention"],
        ),
        (
            "gemma4-b",
            json!({"rope_parameters": {"sliding_attention": {}, "full_attention": {"rope_type": "proportional",
                "partial_rotary_factor": 7}}}),
            &["partial_rotary_factor", "a share from 0 to 1"],
        ),
        ("gemma4-b", json!({"hidden_size_per_layer_input": 1_u64 << 60}), &["hidden_size_per_layer_input"]),
        (
            "phi3-a",
            json!({"rope_parameters": {"rope_type": "proportional"}}),
            &["rope_type", "`default`, `linear`"],
        ),
        ("cohere-a", json!({"logit_scale": 1e39}), &["logit_scale"]),
        ("cohere2-a", json!({"sliding_window": null}), &["sliding_window", "missing"]),
        ("cohere2-b", json!({"sliding_window_pattern": 0}), &["sliding_window_pattern", "at least 1"]),
        ("cohere2-b", json!({"rotary_pct": 0.5}), &["rotary_pct", "`1`"]),
        ("ernie4_5-a", json!({"head_dim": null}), &["head_dim", "missing"]),
        (
            "exaone4-a",
            json!({"layer_types": null, "sliding_window_pattern": "LLLG"}),
            &["sliding_window_pattern"],
        ),
        ("exaone4-b", json!({"layer_types": ["full_attention", "sliding_attention"]}), &["sliding_window"]),
        ("glm4-b", json!({"partial_rotary_factor": 0.3}), &["partial_rotary_factor", "even"]),
        ("hunyuan-b", json!({"use_qk_norm": false}), &["use_qk_norm", "`true`"]),
        ("hunyuan-b", json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}), &["alpha"]),
        ("hunyuan-b", json!({"rope_scaling": {"type": "dynamic", "alpha": -1}}), &["alpha", "positive"]),
        ("seed-oss-a", json!({"rope_parameters": {"rope_type": "dynamic", "alpha": 2}}), &["rope_type"]),
    ] {
        let message = changed(golden, &changes).expect_err(&format!("{golden} {changes}"));
        for name in names.iter().chain(&["config.json"]) {
            assert!(message.contains(name), "{golden} {changes}: {message:?} does not name {name}");
        }
    }
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    let yarn = |changes: Value| {
        let mut parameters = json!({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
            "original_max_position_embeddings": 32});
        parameters.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"rope_parameters": parameters})
    };
    let long = |changes: Value| {
        let mut scaling =
            json!({"type": "longrope", "long_factor": [1, 2, 3, 4, 5, 6, 7, 8], "short_factor": [1]});
        scaling.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"rope_scaling": scaling})
    };
    for (golden, changes, names) in [
        ("smollm3-a", json!({"no_rope_layers": [1, 0]}), &["no_rope_layers", "2 entries", "3 layers"][..]),
        ("smollm3-a", json!({"no_rope_layers": ["a", "b", "c"]}), &["no_rope_layers", "a list of numbers"]),
        ("smollm3-b", json!({"no_rope_layer_interval": 0}), &["no_rope_layer_interval", "at least 1"]),
        ("smollm3-b", json!({"num_key_value_heads": null}), &["num_key_value_heads", "missing"]),
        ("smollm3-b", json!({"attn_logit_softcapping": 50.0}), &["attn_logit_softcapping"]),
        ("olmo3-b", json!({"sliding_window": null}), &["sliding_window", "missing"]),
        (
            "olmo3-a",
            json!({"rope_parameters": {"rope_type": "default"}}),
            &["rope_parameters", "full_attention"],
        ),
        ("ministral3-a", json!({"rope_parameters": null}), &["rope_parameters", "an object"]),
        (
            "ministral3-a",
            yarn(json!({"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 0.5})),
            &["original_max_position_embeddings", "0.5"],
        ),
        ("ministral3-a", yarn(json!({"factor": 0.5})), &["factor", "at least 1"]),
        ("ministral3-a", yarn(json!({"factor": null})), &["factor"]),
        ("ministral3-a", yarn(json!({"attention_factor": -1.0})), &["attention_factor", "positive"]),
        ("ministral3-a", yarn(json!({"beta_fast": -1.0})), &["beta_fast", "positive"]),
        ("ministral3-a", yarn(json!({"rope_theta": 1.0})), &["rope_theta` above 1"]),
        (
            "phi3-a",
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 2.0}}),
            &["partial_rotary_factor", "2.0", "16"],
        ),
        (
            "phi3-a",
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.2}}),
            &["partial_rotary_factor", "even"],
        ),
        (
            "phi3-a",
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": -0.5}}),
            &["partial_rotary_factor"],
        ),
        ("phi3-b", long(json!({"long_factor": [1, 2]})), &["long_factor", "8 positive numbers"]),
        ("phi3-b", long(json!({"long_factor": [1, 2, 3, 4, 5, 6, 7, 0]})), &["long_factor", "8 positive"]),
        ("gemma2-a", json!({"query_pre_attn_scalar": 0}), &["query_pre_attn_scalar", "positive"]),
        ("gemma2-a", json!({"query_pre_attn_scalar": null}), &["query_pre_attn_scalar", "missing"]),
        ("gemma2-a", json!({"attn_logit_softcapping": 0.0}), &["attn_logit_softcapping", "positive"]),
        ("gemma2-a", json!({"final_logit_softcapping": -3.0}), &["final_logit_softcapping", "positive"]),
        ("gemma2-a", json!({"hidden_activation": "silu"}), &["hidden_activation", "gelu_pytorch_tanh"]),
        ("gemma2-a", json!({"use_bidirectional_attention": true}), &["use_bidirectional_attention"]),
        ("gemma3-b", json!({"sliding_window_pattern": 0}), &["sliding_window_pattern", "at least 1"]),
        ("gemma3-b", json!({"rope_local_base_freq": -1.0}), &["rope_local_base_freq", "positive"]),
    ] {
        let message = changed(golden, &changes).expect_err(&format!("{golden} {changes}"));
        for name in names.iter().chain(&["config.json"]) {
            assert!(message.contains(name), "{golden} {changes}: {message:?} does not name {name}");
        }
    }
}

#[test]
fn absent_keys_mean_what_they_mean_in_the_reference() {
    let rotated = |spec: &DecoderSpec| -> Vec<Option<usize>> {
        spec.layers.iter().map(|layer| layer.attention().unwrap().rotation).collect()
    };
    let windows = |spec: &DecoderSpec| -> Vec<Option<usize>> {
        spec.layers.iter().map(|layer| layer.attention().unwrap().window).collect()
    };
    let eight = json!({"num_hidden_layers": 8, "no_rope_layer_interval": null});
    let every_fourth = [Some(0), Some(0), Some(0), None, Some(0), Some(0), Some(0), None];
    assert_eq!(rotated(&spec("smollm3-b", &eight)), every_fourth);

    let olmo3 = spec("olmo3-b", &json!({"num_hidden_layers": 5, "layer_types": null}));
    assert_eq!(windows(&olmo3), [Some(14), Some(14), Some(14), None, Some(14)]);
    assert_eq!(rotated(&olmo3), [Some(1), Some(1), Some(1), Some(0), Some(1)]);
    // The scaling is that of full attention only; theta is that of both.
    let first = |rotation: usize, spec: &DecoderSpec| spec.rotations()[rotation].inverse_frequencies[1];
    assert_eq!((olmo3.rotations()[0].factor > 1.0, olmo3.rotations()[1].factor), (true, 1.0));
    assert_eq!(first(1, &olmo3), libm::pow(500_000.0, -2.0 / 12.0));

    let caps = json!({"attn_logit_softcapping": null, "final_logit_softcapping": null});
    let gemma2 = spec("gemma2-a", &caps);
    assert_eq!(
        (gemma2.layers[0].attention().unwrap().softcap, gemma2.logits.softcap),
        (Some(50.0), Some(30.0))
    );
    assert_eq!(windows(&gemma2), [Some(12), None, Some(12)]);
    assert!(gemma2.tied && gemma2.embedding_scale == 60f32.sqrt());

    let gemma3 = json!({"sliding_window_pattern": null, "rope_local_base_freq": null, "rope_theta": null,
        "num_hidden_layers": 7});
    let gemma3 = spec("gemma3-b", &gemma3);
    assert_eq!(windows(&gemma3).iter().position(Option::is_none), Some(5));
    assert_eq!(first(0, &gemma3), libm::pow(1_000_000.0, -2.0 / 20.0));
    assert_eq!(first(1, &gemma3), libm::pow(10_000.0, -2.0 / 20.0));
    assert!(gemma3.layers[0].attention().unwrap().softcap.is_none() && gemma3.logits.softcap.is_none());

    // A family without multipliers has none.
    let LogitSpec { scale, softcap, transform } = spec("olmo2-b", &json!({})).logits;
    assert_eq!((scale, softcap, transform.is_none()), (1.0, None, true));
}

/// LongRoPE: the model's context decides which factors apply, and the attention factor.
#[test]
fn the_context_decides_between_the_factors_of_longrope() {
    let of = |context: usize| {
        let spec = spec("phi3-b", &json!({"max_position_embeddings": context}));
        let rotation = &spec.rotations()[0];
        (rotation.inverse_frequencies.clone(), rotation.factor)
    };
    let plain: Vec<f64> = (0..8).map(|i| libm::pow(1e4, -f64::from(i) / 8.0)).collect();
    assert_eq!(of(32), (plain.clone(), 1.0));
    let factors = [1.0, 1.3, 2.0, 3.5, 6.0, 9.0, 12.0, 16.0];
    let long: Vec<f64> = plain.iter().zip(factors).map(|(plain, factor)| plain / factor).collect();
    assert_eq!(of(128), (long, libm::sqrt(1.0 + libm::log(4.0) / libm::log(32.0))));
}

/// What transformers writes of layers that differ: numbers of layers with leading zeros, and only what is not as in other layers.
#[test]
fn gemma_4_finds_what_its_layers_have_of_their_own() {
    let widths = |changes: Value| -> Vec<(usize, usize)> {
        let spec = spec("gemma4-a", &changes);
        spec.layers
            .iter()
            .filter_map(|layer| layer.attention())
            .map(|it| (it.head_dim, it.kv_heads))
            .collect()
    };
    let own = json!({"per_layer_config": {"01": {"head_dim": 48, "num_key_value_heads": 2}, "03": {}}});
    assert_eq!(widths(own), [(16, 1), (48, 2), (16, 1), (48, 2)]);
    assert_eq!(widths(json!({"per_layer_config": {}})), [(16, 1); 4]);
    let published = json!({"per_layer_config": null, "global_head_dim": 24, "num_global_key_value_heads": 2});
    assert_eq!(
        widths(published),
        [(16, 1), (24, 1), (16, 1), (24, 1)],
        "more heads only with one projection"
    );
    assert_eq!(spec("cohere-b", &json!({"model_max_length": 4096})).context, 4096);
}
